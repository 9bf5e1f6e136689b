-- One person's vote on a request for approval. The last needed approval grants; one rejection rejects.
-- @include begin step boots tallies claims effects release approvals
-- @keys workspace
-- @args epoch gateway clock request vote
-- @replies ok:counted ok:voted_already ok:already_decided ok:own_request ok:not_an_approver ok:absent

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

if a.status == 'pending' and now >= tonumber(a.expires) then
  plan_expiry(e, a)
  return answer('already_decided')
end
if a.status ~= 'pending' then return answer('already_decided') end
local user = '=' .. q.user
if a.ruser == user or a.rowner == user or a.rmade == user or a.rkey == q.key or tonumber(q.made) > tonumber(a.created) then
  return answer('own_request')
end
if q.eligible ~= '1' then return answer('not_an_approver') end

local votes = list(a.votes)
local vote = cjson.decode(ARGV[5])
vote[4] = int(now)
if q.verdict == 'approve' then
  for _, earlier in ipairs(votes) do
    if earlier[1] == vote[1] then return answer('voted_already') end
  end
  votes[#votes + 1] = vote
  a.votes = cjson.encode(votes)
  local granted = is_quorate(a)
  if granted then plan_approval(a, 'granted', int(now), a.votes)
  else put('HSET', 'a:' .. a.id, 'votes', a.votes) end
  event('approval.granted', e.id, q.atype, q.actor, '', 'approval_id', 's', a.id, 'user', 's', q.user,
    'complete', 'b', granted and 'true' or 'false', 'digest', 's', a.digest)
  return answer('counted')
end
if e.st ~= 'pending_approval' then return answer('already_decided') end
local ends = int(now + tonumber(q.cooldown))
local changes = plan_release(e, 'void', nil)
changes.st, changes.dec, changes.at, changes['until'] = 'rejected', 'denied_policy', int(now), ends
plan_effect(e, changes)
votes[#votes + 1] = vote
plan_approval(a, 'rejected', int(now), cjson.encode(votes))
put('HSET', 'rej', e.fp, ends .. ' ' .. e.id)
put('ZADD', 'rejx', ends, e.fp)
event('approval.rejected', e.id, q.atype, q.actor, '', 'approval_id', 's', a.id, 'user', 's', q.user, 'digest', 's', a.digest)
money_events()
return answer('counted')
