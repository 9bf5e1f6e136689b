-- A gateway hands in the steps that its journal has beyond the base of the epoch. `last`: it has no more.
-- neighbours: gateways that it knows to have been here, if the store was set back to before that. They are awaited too,
-- except those that were declared lost in this epoch
-- @args epoch gateway clock last neighbours
-- @rest step record
-- @replies taken new_epoch absent

if meta.epoch ~= ARGV[1] then return { 'new_epoch', meta.epoch } end
for _, gateway in ipairs(cjson.decode(ARGV[5])) do
  if redis.call('HGET', P .. 'lg', gateway) ~= meta.epoch then redis.call('HSETNX', P .. 'gw', gateway, '0') end
end
for i = 6, #ARGV, 2 do
  if redis.call('HSETNX', P .. 'redo', ARGV[i], ARGV[i + 1]) == 1 then redis.call('ZADD', P .. 'redox', ARGV[i], ARGV[i]) end
end
if ARGV[4] == '1' then redis.call('HSET', P .. 'gw', ARGV[2], meta.epoch) end
return { 'taken' }
