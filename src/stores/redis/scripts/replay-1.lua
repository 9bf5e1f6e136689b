-- Runs lost steps again, at most 100 a call, in order, once every registered gateway has handed in; then opens the
-- epoch. A step whose effect is not there (its admission was never acknowledged) is left out.
-- lost: a gateway that is declared lost, or ''; event: that it was, appended when the epoch is open
-- @include begin step
-- @keys workspace
-- @args epoch gateway clock lost event
-- @replies open ok:open more waiting new_epoch absent

local stop = begin(true)
if stop then return stop end
if meta.epoch ~= ARGV[1] then return { 'new_epoch', meta.epoch } end
if ARGV[4] ~= '' and redis.call('HDEL', P .. 'gw', ARGV[4]) == 1 then
  redis.call('HSET', P .. 'lg', ARGV[4], meta.epoch)
  redis.call('HINCRBY', KEYS[1], 'members', '1')
  redis.call('RPUSH', P .. 'pe', ARGV[5])
end

-- What operators decided meanwhile goes to the ledger.
local function opened()
  for _, row in ipairs(redis.call('LRANGE', P .. 'pe', '0', '-1')) do event(unpack(cjson.decode(row))) end
  if #events == 0 then return { 'open' } end
  put('DEL', 'pe')
  return finish({ 'open' })
end

if meta.open == '1' then return opened() end
local missing = {}
for gateway, epoch in pairs(hash('gw') or {}) do
  if epoch ~= meta.epoch then
    -- A command of an operator that did not leave in order has no journal that could be awaited.
    if string.sub(gateway, 1, 8) == 'command:' then redis.call('HDEL', P .. 'gw', gateway)
    else missing[#missing + 1] = gateway end
  end
end
if #missing > 0 then return { 'waiting', unpack(missing) } end

-- The command with its documents in place; nil where it must not be run again.
local function restored(command, documents)
  local call, has_identity = { command[1], command[2] }, false
  local of_meta = command[2] == KEYS[1] and command[1] == 'HSET'
  for i = 3, #command do
    local value = command[i]
    if string.byte(value) == 0 then value = documents[string.sub(value, 2)] end
    -- Time goes on from where the new epoch began.
    local field = of_meta and command[i - (1 - i % 2)]
    if field ~= 'clock' and field ~= 'skew' then call[#call + 1] = value end
    if value == 'doc' then has_identity = true end
  end
  if #call == 2 and #command > 2 then return nil end
  -- Changes of an effect whose admission was never acknowledged.
  local of_effect = command[1] == 'HSET' and string.sub(command[2], 1, #P + 2) == P .. 'e:'
  if of_effect and not has_identity and redis.call('EXISTS', P .. string.sub(command[2], #P + 1)) == 0 then return nil end
  return call
end

local steps = redis.call('ZRANGE', P .. 'redox', '0', '99')
for _, step in ipairs(steps) do
  local record = cjson.decode(redis.call('HGET', P .. 'redo', step))
  if tonumber(step) > meta.sn and (record.needs == '' or redis.call('EXISTS', P .. record.needs) == 1) then
    for _, command in ipairs(record.commands) do
      local call = restored(command, record.documents)
      if call then redis.call(unpack(call)) end
    end
  end
  -- Left out or not: the steps that come have higher numbers.
  if tonumber(step) > meta.sn then
    meta.sn = tonumber(step)
    redis.call('HSET', KEYS[1], 'sn', step)
  end
  redis.call('HDEL', P .. 'redo', step)
  redis.call('ZREM', P .. 'redox', step)
end
if #steps == 100 then return { 'more' } end
redis.call('DEL', P .. 'redo', P .. 'redox')
redis.call('HSET', KEYS[1], 'open', '1')
local reached = redis.call('HMGET', KEYS[1], 'seq', 'place')
meta.seq, meta.place = tonumber(reached[1]), tonumber(reached[2])
return opened()
