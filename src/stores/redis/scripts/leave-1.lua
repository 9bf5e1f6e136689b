-- A gateway leaves in order: no epoch to come waits for it. A step of its own, so that a store that was set back to
-- before it is told from one that was not.
-- @include step
-- @keys workspace
-- @args epoch gateway clock
-- @replies left absent new_history new_epoch waiting unregistered

local stop = begin(false)
if stop then return stop end

redis.call('HDEL', P .. 'gw', ARGV[2])
redis.call('HSET', KEYS[1], 'sn', int(meta.sn + 1))
redis.call('HINCRBY', KEYS[1], 'members', '1')
return { 'left' }
