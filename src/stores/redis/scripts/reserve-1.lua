-- Sets units of a pool aside for an agent, or gives them back; `op` says which.
-- @include begin step boots claims
-- @keys workspace
-- @args epoch gateway clock op request
-- @replies ok:made ok:too_many ok:full ok:released ok:absent

local stop = begin(false)
if stop then return stop end

local op, q = ARGV[4], cjson.decode(ARGV[5])

if op == 'release' then
  local pool = redis.call('HGET', P .. 'ri', q.id)
  local row = pool and redis.call('HGET', P .. 'r:' .. pool, q.id)
  local it = row and reservation_of(row)
  if not it or tonumber(it.expires) <= now then return finish({ 'absent' }) end
  put('HDEL', 'r:' .. pool, q.id)
  put('HDEL', 'ri', q.id)
  event('reservation.released', '', q.atype, q.actor, '', 'reservation_id', 's', q.id, 'pool', 's', pool, 'units', 'n', int(it.units))
  return finish({ 'released', q.id, pool, it.agent, int(it.units), it.created, it.expires, it.key })
end

local MAX_RESERVATIONS_OF_KEY = 100
local of_key = 0
for _, pool in ipairs(redis.call('SMEMBERS', P .. 'rp')) do
  for _, it in ipairs(reservations_of(pool)) do
    if it.key == q.key then of_key = of_key + 1 end
  end
end
if of_key >= MAX_RESERVATIONS_OF_KEY then return finish({ 'too_many', int(MAX_RESERVATIONS_OF_KEY) }) end

local reservations, uses = reservations_of(q.pool), uses_of(q.pool)
local own, used = 0, 0
for _, it in ipairs(reservations) do
  if it.agent == q.agent then own = own + it.units end
end
for _, it in ipairs(uses) do
  if it.agent == q.agent then used = used + it.units end
end
local free = free_units(tonumber(q.capacity), q.agent, reservations, uses) + used - own
if tonumber(q.units) > free then return finish({ 'full', int(math.max(0, free)) }) end
local expires = int(now + tonumber(q.ttl))
put('HSET', 'r:' .. q.pool, q.id, 'key ' .. q.key .. ' ' .. q.units .. ' ' .. int(now) .. ' ' .. expires .. ' ' .. q.agent)
put('HSET', 'ri', q.id, q.pool)
put('SADD', 'rp', q.pool)
event('reservation.made', '', q.atype, q.actor, '', 'reservation_id', 's', q.id, 'pool', 's', q.pool, 'units', 'n', q.units, 'agent_id', 's', q.agent)
return finish({ 'made', q.id, q.pool, q.agent, q.units, int(now), expires, q.key })
