-- Keeps the recorded time up to date while nothing is written: a gateway that starts checks the server's clock against
-- it. These figures are in no redo record, so this is not a step.
-- @include begin
-- @keys workspace
-- @args epoch gateway clock
-- @replies ok:kept

local stop = begin(false)
if stop then return stop end

redis.call('HSET', KEYS[1], 'clock', int(now))
if meta.new_skew then redis.call('HSET', KEYS[1], 'skew', int(meta.new_skew)) end
return { 'ok', int(now), meta.epoch, '', 'kept' }
