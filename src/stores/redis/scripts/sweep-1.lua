-- Declares what is over in a workspace: leases, requests for approval, retention; at most `limit` of each.
-- @include begin step boots tallies claims effects release approvals
-- @keys workspace
-- @args epoch gateway clock limit effects-before denials-before keys-before
-- @replies ok:swept clock_ahead

local stop = begin(false) or disbelieved()
if stop then return stop end

local limit = tonumber(ARGV[4])
local function due(index, score, count)
  if score == '' or count <= 0 then return {} end
  return redis.call('ZRANGEBYSCORE', P .. index, '-inf', score, 'LIMIT', '0', int(count))
end
local function settle_row()
  plan_tallies()
  plan_ledger()
  events, effect_writes = {}, {}
  flush()
  tallies = {}
end

local lost, expired, aged = 0, 0, 0
-- Where an owner has ended, what it left stands among effects that run: so more are looked at than are handled.
local candidates = any_ended() and redis.call('ZRANGE', P .. 'lease', '0', int(limit + 1000)) or due('lease', int(now), limit)
for _, id in ipairs(candidates) do
  if lost == limit then break end
  local there = redis.call('HMGET', P .. 'e:' .. id, 'st', 'lend')
  local e = is_lost_on_record(id, there[1], there[2]) and load_effect(id)
  if not there[1] then put('ZREM', 'lease', id) end
  if e and plan_lose(e) then lost = lost + 1 end
  settle_row()
end
for _, boot in ipairs(due('gone', int(now), limit)) do put('ZREM', 'gone', boot) end
for _, id in ipairs(due('ax', int(now), limit)) do
  local a = load_approval(id)
  local e = a and load_effect(a.effect)
  if e and e.st ~= 'tombstone' then plan_expiry(e, a) elseif a then plan_approval(a, 'expired', int(now)) end
  expired = expired + 1
  settle_row()
end

local function forget_approval(e)
  if (e.ap or '') == '' then return end
  local a = load_approval(e.ap)
  if not a then return end
  put('DEL', 'a:' .. a.id)
  put('ZREM', 'ao', a.id)
  put('ZREM', 'as:' .. a.status, a.id)
  put('ZREM', 'ax', a.id)
  put('SREM', 'ap:' .. a.agent, a.id)
end
local function unlist(e)
  put('ZREM', 'ix', e.id)
  put('ZREM', 'ia:' .. e.agent, e.id)
  put('ZREM', 's:' .. e.st, e.id)
  forget_approval(e)
end

-- Settled effects become tombstones, tombstones and denials go. Unsettled effects never age.
for _, id in ipairs(due('old', ARGV[5], limit)) do
  local e = load_effect(id)
  put('ZREM', 'old', id)
  if e then
    unlist(e)
    local kept = { key = e.key, fp = e.fp, tst = e.st, att = e.att, at = e.at, rcp = e.rcp }
    put('HSET', 'e:' .. id, 'st', 'tombstone', 'f', cjson.encode(kept))
    put('HDEL', 'e:' .. id, 'run', 'meta', 'sealed', 'out', 'more', 'lend', 'quiet')
    put('ZADD', 'tomb', e.at, id)
    aged = aged + 1
  end
  settle_row()
end
for _, id in ipairs(due('oldd', ARGV[6], limit - aged)) do
  local e = load_effect(id)
  put('ZREM', 'oldd', id)
  put('DEL', 'e:' .. id)
  put('DEL', 'el:' .. id)
  if e then unlist(e) end
  aged = aged + 1
  settle_row()
end
for _, id in ipairs(due('tomb', ARGV[7], limit - aged)) do
  local e = load_effect(id)
  put('ZREM', 'tomb', id)
  put('DEL', 'e:' .. id)
  put('DEL', 'el:' .. id)
  if e then plan_unbind(e) end
  aged = aged + 1
  settle_row()
end

for _, fingerprint in ipairs(due('rejx', int(now), limit)) do
  put('ZREM', 'rejx', fingerprint)
  put('HDEL', 'rej', fingerprint)
end
-- A claim that is over can be looked up for an hour.
for _, target in ipairs(due('cx', int(now - 3600000), limit)) do
  remove_claim(target)
  put('ZREM', 'cx', target)
end
for _, pool in ipairs(redis.call('SMEMBERS', P .. 'ux')) do
  for effect, row in pairs(hash('u:' .. pool) or {}) do
    local ends = string.match(row, '^%d+ (%d+) ')
    if ends and tonumber(ends) <= now then put('HDEL', 'u:' .. pool, effect) end
  end
end
for _, pool in ipairs(redis.call('SMEMBERS', P .. 'rp')) do
  for id, row in pairs(hash('r:' .. pool) or {}) do
    if tonumber(reservation_of(row).expires) <= now then
      put('HDEL', 'r:' .. pool, id)
      put('HDEL', 'ri', id)
    end
  end
end
for id, row in pairs(hash('pz') or {}) do
  local ends = cjson.decode(row)[2]
  if ends ~= '' and tonumber(ends) <= now then put('HDEL', 'pz', id) end
end
for _, index in ipairs({ 'bx', 'rx' }) do
  for _, row in ipairs(due(index, int(now), limit)) do
    local found = redis.call('HMGET', P .. row, 'name', 'held')
    if (tonumber(found[2]) or 0) > 0 then
      put('HSET', row, 'score', '+inf')
      put('ZADD', index, '+inf', row)
      put('ZADD', 'bx:' .. found[1], '+inf', row)
    else
      put('DEL', row)
      put('DEL', 'q' .. row)
      put('ZREM', index, row)
      if index == 'bx' and found[1] then put('ZREM', 'bx:' .. found[1], row) end
    end
  end
end
return finish({ 'swept', int(lost), int(expired), int(aged) })
