-- Removes at most `limit` figures that no longer count, and replies how many. No reader sees it, so it is no step.
-- @args epoch gateway clock limit
-- @replies ok

local limit, left = tonumber(ARGV[4]), tonumber(ARGV[4])
for _, name in ipairs(redis.call('SMEMBERS', P .. 'groups')) do
  if left <= 0 then break end
  local found = redis.call('ZRANGEBYSCORE', P .. 'g:' .. name, '-inf', int(now), 'LIMIT', '0', int(left))
  left = left - #found
  for _, over in ipairs(found) do
    redis.call('DEL', P .. over, P .. 'q' .. string.sub(over, 2))
    redis.call('ZREM', P .. 'g:' .. name, over)
  end
  if redis.call('EXISTS', P .. 'g:' .. name) == 0 then redis.call('SREM', P .. 'groups', name) end
end
return { 'ok', int(now), meta.epoch, '', int(limit - left) }
