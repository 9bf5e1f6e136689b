-- Forgets params, salts and the kept answer of an effect that is over; `out` is its outcome without the answer.
-- @include begin step boots tallies claims effects release
-- @keys workspace
-- @args epoch gateway clock request out
-- @replies ok:erased ok:unchanged ok:needed ok:moved ok:absent

local stop = begin(false)
if stop then return stop end

local q = cjson.decode(ARGV[4])
local e = load_effect(q.effect)
if not e or e.st == 'tombstone' then return finish({ 'absent' }) end
if e.st == 'executing' or e.st == 'pending_approval' or e.st == 'unknown' then return finish({ 'needed' }) end
-- What it came to has changed since it was read.
if e.st ~= q.st or e.at ~= q.at then return finish({ 'moved' }) end

local sealed = redis.call('HGET', P .. 'e:' .. e.id, 'sealed')
if (not sealed or sealed == '!') and q.kept ~= '1' then return finish({ 'unchanged' }) end
local changes = { sealed = '!' }
if q.kept == '1' then changes.out = document(5) end
plan_effect(e, changes)
event('effect.erased', e.id, q.atype, q.actor, '')
return finish({ 'erased' }, 'e:' .. e.id)
