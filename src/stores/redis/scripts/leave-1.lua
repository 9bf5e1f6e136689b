-- A gateway leaves in order: no fail-over that kept this waits for it. It is a step, so that a store set back to before
-- it can be recognised. Its journal still knows what it sent, so an accepted loss waits for it (`away`).
-- @args epoch gateway clock
-- @replies left

local away = redis.call('HGETALL', P .. 'away')
for i = 1, #away, 2 do
  if now - tonumber(away[i + 1]) > 30 * 86400000 then redis.call('HDEL', P .. 'away', away[i]) end
end
if string.sub(ARGV[2], 1, 8) ~= 'command:' then redis.call('HSET', P .. 'away', ARGV[2], int(now))
else redis.call('HDEL', P .. 'gb', ARGV[2]) end
redis.call('HDEL', P .. 'gw', ARGV[2])
redis.call('HDEL', P .. 'on', ARGV[2])
redis.call('HSET', KEYS[1], 'sn', int(meta.sn + 1))
redis.call('HINCRBY', KEYS[1], 'members', '1')
return { 'left' }
