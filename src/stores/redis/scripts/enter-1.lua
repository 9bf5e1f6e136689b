-- Adds a workspace to the installation. This is a step, so that a store that was set back to before it can be
-- recognised.
-- @include begin
-- @keys installation
-- @args epoch gateway clock workspace
-- @replies ok

local stop = begin(false)
if stop then return stop end

if redis.call('SADD', P .. 'entered', ARGV[4]) == 1 then redis.call('HSET', KEYS[1], 'sn', int(meta.sn + 1)) end
return { 'ok', int(now), meta.epoch, '' }
