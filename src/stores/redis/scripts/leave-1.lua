-- A gateway leaves in order: no fail-over waits for it. This is a step, so that a store that was set back to before it
-- can be recognised. Its journal still knows what it sent, so an accepted loss waits for it (`away`).
-- @include begin
-- @keys workspace
-- @args epoch gateway clock
-- @replies left absent new_history new_epoch waiting unregistered

local stop = begin(false)
if stop then return stop end

local KEPT = 30 * 86400000
for gateway, at in pairs(hash('away') or {}) do
  if now - tonumber(at) > KEPT then redis.call('HDEL', P .. 'away', gateway) end
end
if string.sub(ARGV[2], 1, 8) ~= 'command:' then redis.call('HSET', P .. 'away', ARGV[2], int(now))
else redis.call('HDEL', P .. 'gb', ARGV[2]) end
redis.call('HDEL', P .. 'gw', ARGV[2])
redis.call('HDEL', P .. 'on', ARGV[2])
redis.call('HSET', KEYS[1], 'sn', int(meta.sn + 1))
redis.call('HINCRBY', KEYS[1], 'members', '1')
return { 'left' }
