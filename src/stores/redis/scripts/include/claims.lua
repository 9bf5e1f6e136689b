-- Claims by target: hash `c:<target>` {id, agent, created, expires, until, run, key}; `ci` id → target; `ca:<agent>` targets
-- of an agent; `ck:<key>` those that a key took; `cx` all targets by the time at which the row may go. Pool units in use: hash `u:<pool>` effect → row.

local function claim_on_record(target)
  local claim = hash('c:' .. target)
  if not claim then return nil end
  claim.target = target
  claim.running = list(claim.run)
  claim.expires = tonumber(claim.expires)
  claim.extended = tonumber(claim['until'])
  return claim
end

local function is_active(claim)
  return claim.expires > now or claim.extended > now or #claim.running > 0
end

-- Until when an effect that runs on record keeps what it has, where its owner has ended; else nil.
local function kept_until(effect)
  if not any_ended() then return nil end
  local found = redis.call('HMGET', P .. 'e:' .. effect, 'st', 'f', 'quiet')
  return found[1] == 'executing' and owner_ended(boot_of(found[2])) and tonumber(found[3]) or nil
end

local function contains(items, item)
  for _, value in ipairs(items) do
    if value == item then return true end
  end
  return false
end

local function without(items, item)
  local left = {}
  for _, value in ipairs(items) do
    if value ~= item then left[#left + 1] = value end
  end
  return left
end

-- A claim as it is once the effects of ended owners are declared lost.
local function claim_on(target)
  local claim = claim_on_record(target)
  for _, effect in ipairs(claim and claim.running or {}) do
    local ends = kept_until(effect)
    if ends then
      claim.running = without(claim.running, effect)
      claim.extended = math.max(claim.extended, ends)
    end
  end
  return claim
end

local function put_claim(claim)
  local there = redis.call('HMGET', P .. 'c:' .. claim.target, 'id', 'agent', 'key')
  local key, was = claim.key or '', there[3] or ''
  if there[1] and there[1] ~= claim.id then put('HDEL', 'ci', there[1]) end
  if there[2] and there[2] ~= claim.agent then put('SREM', 'ca:' .. there[2], claim.target) end
  put('HSET', 'c:' .. claim.target, 'id', claim.id, 'agent', claim.agent, 'created', claim.created,
    'expires', int(claim.expires), 'until', int(claim.extended), 'run', array(claim.running), 'key', key)
  if was ~= '' and was ~= key then put('SREM', 'ck:' .. was, claim.target) end
  if key ~= '' and was ~= key then put('SADD', 'ck:' .. key, claim.target) end
  if there[1] ~= claim.id then put('HSET', 'ci', claim.id, claim.target) end
  if there[2] ~= claim.agent then put('SADD', 'ca:' .. claim.agent, claim.target) end
  put('ZADD', 'cx', #claim.running > 0 and '+inf' or int(math.max(claim.expires, claim.extended)), claim.target)
end

local function remove_claim(target)
  local there = redis.call('HMGET', P .. 'c:' .. target, 'id', 'agent', 'key')
  if not there[1] then return end
  if there[3] and there[3] ~= '' then put('SREM', 'ck:' .. there[3], target) end
  put('DEL', 'c:' .. target)
  put('HDEL', 'ci', there[1])
  put('SREM', 'ca:' .. there[2], target)
  put('ZREM', 'cx', target)
end

local function claim_reply(claim)
  return { claim.id, claim.target, claim.agent, claim.created, int(claim.expires), int(claim.extended), array(claim.running), claim.key or '' }
end

-- Uses of a pool that are not over: {effect, agent, units}.
local function uses_of(pool)
  local uses = {}
  for effect, row in pairs(hash('u:' .. pool) or {}) do
    local units, ends, agent = string.match(row, '^(%d+) (%d*) (.*)$')
    if ends == '' then ends = kept_until(effect) or '' end
    if ends == '' or tonumber(ends) > now then uses[#uses + 1] = { effect = effect, agent = agent, units = tonumber(units) } end
  end
  return uses
end

-- A row of a reservation: units, when it was made, its end, agent, key ('' in rows of before, which have none).
local function reservation_of(row)
  local key, rest = string.match(row, '^key (%S+) (.*)$')
  local units, created, expires, agent = string.match(rest or row, '^(%d+) (%d+) (%d+) (.*)$')
  return { units = tonumber(units), created = created, expires = expires, agent = agent, key = key or '' }
end

-- Reservations of a pool whose time is not over.
local function reservations_of(pool)
  local held = {}
  for id, row in pairs(hash('r:' .. pool) or {}) do
    local it = reservation_of(row)
    it.id = id
    if tonumber(it.expires) > now then held[#held + 1] = it end
  end
  return held
end

-- Units of a pool that an agent may take: its own reservations count for it, those of others against it.
local function free_units(capacity, agent, reservations, uses)
  local reserved, used, others = {}, {}, {}
  for _, it in ipairs(reservations) do reserved[it.agent] = (reserved[it.agent] or 0) + it.units; others[it.agent] = true end
  for _, it in ipairs(uses) do used[it.agent] = (used[it.agent] or 0) + it.units; others[it.agent] = true end
  local taken = used[agent] or 0
  for holder in pairs(others) do
    if holder ~= agent then taken = taken + math.max(reserved[holder] or 0, used[holder] or 0) end
  end
  return capacity - taken
end

local function put_use(pool, effect, agent, units, ends)
  put('HSET', 'u:' .. pool, effect, units .. ' ' .. ends .. ' ' .. agent)
  put('SADD', 'ux', pool)
end
