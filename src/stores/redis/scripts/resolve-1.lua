-- Settles an unknown outcome by the word of a person, or by a probe's evidence.
-- @include begin step boots tallies claims effects release
-- @keys workspace
-- @args epoch gateway clock request out
-- @replies ok:resolved ok:unchanged ok:too_early ok:already_resolved ok:not_unknown ok:moved ok:absent

local stop = begin(false)
if stop then return stop end

local q = cjson.decode(ARGV[4])
local e = load_effect(q.effect)
if not e or e.st == 'tombstone' then return finish({ 'absent' }) end

local function answer(tag, retry)
  plan_tallies()
  local reply = { tag, retry or '' }
  for _, value in ipairs(effect_reply(e)) do reply[#reply + 1] = value end
  return finish(reply, 'e:' .. e.id)
end

local lost = false
if e.st == 'executing' then
  lost = plan_lose(e)
  if not lost then return answer('not_unknown') end
end
if e.st ~= 'unknown' then
  if e.st ~= 'committed' and e.st ~= 'failed' then return answer('not_unknown') end
  if e.late == '1' or (e.by ~= 'resolve' and e.by ~= 'probe') then return answer('not_unknown') end
  local said = e.st == 'committed' and 'happened' or 'not_happened'
  return answer(said == q.outcome and 'unchanged' or 'already_resolved')
end
if not same_fence(e, q.epoch, q.n, q.nonce) then return answer('moved') end
if q.outcome == 'not_happened' and now < number_of(e, 'quiet') and q.force ~= '1' then
  return answer('too_early', int(number_of(e, 'quiet') - now))
end

local happened = q.outcome == 'happened'
-- The claims and units of an attempt that was declared lost in this very step are not on record as such yet.
local changes = plan_release(e, happened and 'post' or 'void', nil)
changes.at, changes.out, changes.decl, changes.late, changes.by = int(now), document(5), '1', '', q.by
if happened then
  changes.st, changes.dec, changes.rcp, changes.jws = 'committed', 'committed', q.rcp, q.jws
else
  changes.st, changes.dec, changes.mhh = 'failed', 'failed', '0'
end
plan_effect(e, changes)
event(q.by == 'probe' and 'effect.reconciled' or 'effect.resolved', e.id, q.atype, q.actor, q.data, 'attempt', 'n', e.att)
if happened then event('receipt.issued', e.id, q.atype, q.actor, '', 'receipt_id', 's', q.rcp) end
money_events()
return answer('resolved')
