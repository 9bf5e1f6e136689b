-- Ends a granted request for approval whose call cannot be made any more, and says why.
-- @include begin step boots tallies claims effects release approvals
-- @keys workspace
-- @args epoch gateway clock request
-- @replies ok:given_up ok:already_decided ok:absent

local stop = begin(false)
if stop then return stop end

local q = cjson.decode(ARGV[4])
local a = load_approval(q.approval)
local e = a and load_effect(a.effect)
if not e or e.st == 'tombstone' then return finish({ 'absent' }) end

local function answer(tag)
  plan_tallies()
  return finish(approval_and_effect(tag, a, e), 'a:' .. a.id)
end

if a.status ~= 'granted' or e.st ~= 'pending_approval' then return answer('already_decided') end
local why = { '=', q.code, q.reason, q.rule }
a.stop = cjson.encode({ int(now), q.decision, unpack(why) })
put('HSET', 'a:' .. a.id, 'stop', a.stop)
plan_end(e, a, q.decision, why, q.code, q.atype, q.actor)
return answer('given_up')
