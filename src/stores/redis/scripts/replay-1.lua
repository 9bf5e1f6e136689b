-- Runs lost steps again, at most 100 a call, in order, once every registered gateway has handed in; then opens the
-- epoch. A step whose effect is not there (its admission was never acknowledged) is left out.
-- lost: a gateway that is declared lost, or ''
-- @include step
-- @keys workspace
-- @args epoch gateway clock lost
-- @replies open more waiting new_epoch absent

local stop = begin(true)
if stop then return stop end
if meta.epoch ~= ARGV[1] then return { 'new_epoch', meta.epoch } end
if ARGV[4] ~= '' then redis.call('HDEL', P .. 'gw', ARGV[4]) end
if meta.open == '1' then return { 'open' } end
local missing = {}
for gateway, epoch in pairs(hash('gw') or {}) do
  if epoch ~= meta.epoch then missing[#missing + 1] = gateway end
end
if #missing > 0 then return { 'waiting', unpack(missing) } end

local steps = redis.call('ZRANGE', P .. 'redox', '0', '99')
for _, step in ipairs(steps) do
  local record = cjson.decode(redis.call('HGET', P .. 'redo', step))
  if tonumber(step) > meta.sn then
    if record.needs == '' or redis.call('EXISTS', P .. record.needs) == 1 then
      for _, command in ipairs(record.commands) do
        for i = 3, #command do
          if string.byte(command[i]) == 0 then command[i] = record.documents[string.sub(command[i], 2)] end
        end
        redis.call(unpack(command))
      end
    end
  end
  redis.call('HDEL', P .. 'redo', step)
  redis.call('ZREM', P .. 'redox', step)
end
if #steps == 100 then return { 'more' } end
redis.call('DEL', P .. 'redo', P .. 'redox')
redis.call('HSET', KEYS[1], 'open', '1')
return { 'open' }
