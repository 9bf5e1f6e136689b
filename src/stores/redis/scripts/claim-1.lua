-- Takes, renews or releases a claim; `op` says which. The holder itself gets its claim back, prolonged.
-- @include begin step boots claims
-- @keys workspace
-- @args epoch gateway clock op request
-- @replies ok:made ok:held ok:too_many ok:claim ok:absent

local stop = begin(false)
if stop then return stop end

local op, q = ARGV[4], cjson.decode(ARGV[5])
local MAX_CLAIMS, MAX_CLAIMS_OF_KEY = 20, 100

local function answer(tag, claim)
  local reply = { tag }
  for _, value in ipairs(claim and claim_reply(claim) or {}) do reply[#reply + 1] = value end
  return finish(reply)
end

local function claim_event(kind, claim)
  event(kind, '', q.atype, q.actor, '', 'claim_id', 's', claim.id, 'target', 's', claim.target, 'agent_id', 's', claim.agent,
    'expires_at', 't', int(claim.expires))
end

local function active_among(set)
  local count = 0
  for _, target in ipairs(redis.call('SMEMBERS', P .. set)) do
    local claim = claim_on(target)
    if claim and is_active(claim) then count = count + 1 end
  end
  return count
end

if op == 'take' then
  local there = claim_on(q.target)
  local active = there ~= nil and is_active(there)
  if active and there.agent ~= q.agent then return answer('held', there) end
  local timed = active and there.expires > now
  if not timed and active_among('ca:' .. q.agent) >= MAX_CLAIMS then return finish({ 'too_many', 'agent', int(MAX_CLAIMS) }) end
  local same = timed and there.key == q.key
  if not same and active_among('ck:' .. q.key) >= MAX_CLAIMS_OF_KEY then return finish({ 'too_many', 'key', int(MAX_CLAIMS_OF_KEY) }) end
  local claim = {
    id = timed and there.id or q.id, target = q.target, agent = q.agent, created = timed and there.created or int(now),
    expires = math.max(timed and there.expires or 0, now + tonumber(q.ttl)), extended = active and there.extended or 0,
    running = active and there.running or {}, key = q.key,
  }
  put_claim(claim)
  claim_event('claim.taken', claim)
  return answer('made', claim)
end

local target = redis.call('HGET', P .. 'ci', q.id)
local claim = target and claim_on(target)
if not claim or claim.expires <= now then return answer('absent') end
if op == 'renew' then
  claim.expires = now + tonumber(q.ttl)
  put_claim(claim)
  claim_event('claim.renewed', claim)
  return answer('claim', claim)
end
claim.expires = now
if is_active(claim) then put_claim(claim) else remove_claim(target) end
claim_event('claim.released', claim)
return answer('claim', claim)
