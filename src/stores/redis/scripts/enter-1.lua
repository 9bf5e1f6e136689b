-- A workspace belongs to the installation from now on. A step of its own, so that a store that was set back to before it is told
-- from one that was not.
-- @include begin
-- @keys installation
-- @args epoch gateway clock workspace
-- @replies ok

local stop = begin(false)
if stop then return stop end

if redis.call('SADD', P .. 'entered', ARGV[4]) == 1 then redis.call('HSET', KEYS[1], 'sn', int(meta.sn + 1)) end
return { 'ok', int(now), meta.epoch, '' }
