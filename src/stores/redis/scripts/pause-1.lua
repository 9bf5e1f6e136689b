-- Sets or lifts a pause; `op` says which. A pause set by an administrative key is lifted only by one.
-- @include begin step
-- @keys workspace
-- @args epoch gateway clock op request doc data
-- @replies ok:set ok:lifted ok:administrative_only ok:absent

local stop = begin(false)
if stop then return stop end

local op, q = ARGV[4], cjson.decode(ARGV[5])

local version = int(tonumber(meta.pauses) + 1)
local function changed()
  put('HSET', 'w', 'pauses', version)
  put('PUBLISH', 'changes', redis.call('HGET', KEYS[1], 'install') .. ' pauses ' .. version)
end

if op == 'set' then
  put('HSET', 'pz', q.id, cjson.encode({ int(now), q['until'], q.kind, ARGV[6] }))
  changed()
  event('pause.set', '', q.atype, q.actor, ARGV[7], 'until', q['until'] == '' and 'j' or 't', q['until'] == '' and 'null' or q['until'])
  return finish({ 'set', version, int(now) })
end
local row = redis.call('HGET', P .. 'pz', q.id)
if not row then return finish({ 'absent' }) end
if cjson.decode(row)[3] == 'administrative' and q.kind ~= 'administrative' then return finish({ 'administrative_only', '', row }) end
put('HDEL', 'pz', q.id)
changed()
event('pause.lifted', '', q.atype, q.actor, '', 'pause_id', 's', q.id)
return finish({ 'lifted', version, row })
