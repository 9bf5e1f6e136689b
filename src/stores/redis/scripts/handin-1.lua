-- A gateway hands in the steps that its journal has beyond the base of the epoch. `last`: it has no more.
-- neighbours: gateways that it knows to have been here, if the store was set back to before that. They are awaited too,
-- except those that were declared lost in this epoch; `?` before one that has left: only if that is not known here
-- @args epoch gateway clock last neighbours
-- @rest step record
-- @replies taken new_epoch absent

if meta.epoch ~= ARGV[1] then return { 'new_epoch', meta.epoch } end
for _, named in ipairs(cjson.decode(ARGV[5])) do
  local left, gateway = string.match(named, '^(%??)(.*)$')
  local is_done = left == '?' and redis.call('HEXISTS', P .. 'away', gateway) == 1
  is_done = is_done or redis.call('HGET', P .. 'lg', gateway) == meta.epoch
  if not is_done then redis.call('HSETNX', P .. 'gw', gateway, '0') end
end
for i = 6, #ARGV, 2 do
  if redis.call('HSETNX', P .. 'redo', ARGV[i], ARGV[i + 1]) == 1 then redis.call('ZADD', P .. 'redox', ARGV[i], ARGV[i]) end
end
if ARGV[4] == '1' then redis.call('HSET', P .. 'gw', ARGV[2], meta.epoch) end
return { 'taken' }
