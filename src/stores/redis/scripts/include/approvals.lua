-- Requests for approval: hash `a:<id>` {doc, effect, digest, quora, votes, status, created, expires, decided, n, agent,
-- ruser, rowner, rmade, rkey, stop}. `ao` all in order, `as:<status>` in order, `ax` pending and granted ones by expiry,
-- `ap:<agent>` pending ones of an agent. `stop` is why a granted call is not sent: {at, decision, reason, …}. A vote is an array {user, key, verdict, at, comment as JSON, requirement, …}.

local function load_approval(id)
  local a = hash('a:' .. id)
  if a then a.id = id end
  return a
end

-- Plans a change of status.
local function plan_approval(a, status, decided, votes)
  put('ZREM', 'as:' .. a.status, a.id)
  put('ZADD', 'as:' .. status, a.n, a.id)
  if status ~= 'pending' and status ~= 'granted' then put('ZREM', 'ax', a.id) end
  if a.status == 'pending' and status ~= 'pending' then put('SREM', 'ap:' .. a.agent, a.id) end
  a.status, a.decided = status, decided
  if votes then a.votes = votes end
  put('HSET', 'a:' .. a.id, 'status', status, 'decided', decided, 'votes', a.votes)
end

-- Whether every requirement has its quorum of different people.
local function is_quorate(a)
  local votes = list(a.votes)
  for index, quorum in ipairs(list(a.quora)) do
    local voters, count = {}, 0
    for _, vote in ipairs(votes) do
      if vote[3] == 'approve' and not voters[vote[1]] then
        for i = 6, #vote do
          if vote[i] == tostring(index - 1) then
            voters[vote[1]] = true
            count = count + 1
            break
          end
        end
      end
    end
    if count < tonumber(quorum) then return false end
  end
  return true
end

local function approval_reply(a)
  local flat = {}
  for name, value in pairs(a) do
    if string.byte(value) ~= 0 then
      flat[#flat + 1] = name
      flat[#flat + 1] = value
    end
  end
  return flat
end

-- The request ends: the effect is denied, its holds are void, its key is free. why: an array of strings, as of refusals
local function plan_end(e, a, decision, why, code, actor_type, actor)
  plan_approval(a, 'expired', int(now))
  if e.st ~= 'pending_approval' then return end
  local changes = plan_release(e, 'void', nil)
  changes.st, changes.dec, changes.at, changes.why = 'denied', decision, int(now), array(why)
  plan_effect(e, changes)
  plan_unbind(e)
  event('approval.expired', e.id, actor_type, actor, '', 'approval_id', 's', a.id, 'code', 's', code)
  money_events()
end

-- A request whose time is over: nobody decided, or what was granted could not be sent.
local function plan_expiry(e, a)
  local why = a.status == 'granted' and { 'approval_expired', 'granted' } or { 'approval_expired' }
  plan_end(e, a, 'denied_policy', why, 'approval_expired', 'gateway', 'sweeper')
end

-- The reply of a step about a request: the request and the effect.
local function approval_and_effect(tag, a, e)
  local reply = approval_reply(a)
  table.insert(reply, 1, int(#reply))
  table.insert(reply, 1, tag)
  for _, value in ipairs(effect_reply(e)) do reply[#reply + 1] = value end
  return reply
end
