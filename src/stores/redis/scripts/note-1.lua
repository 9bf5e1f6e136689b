-- Records what is in no redo record, so this is not a step: the time, while nothing is written (a gateway that starts
-- checks the server's clock against it); which kinds need messages; and what the gateway announces to the others.
-- @include begin
-- @keys workspace
-- @args epoch gateway clock loud announced
-- @replies ok:noted

local stop = begin(false)
if stop then return stop end

redis.call('HSET', KEYS[1], 'clock', int(now))
if meta.new_skew then redis.call('HSET', KEYS[1], 'skew', int(meta.new_skew)) end
if ARGV[4] ~= '' then redis.call('HSET', KEYS[1], 'loud', ARGV[4]) end
if ARGV[5] ~= '' then
  redis.call('HSET', P .. 'on', ARGV[2], ARGV[5])
  redis.call('PUBLISH', P .. 'changes', redis.call('HGET', KEYS[1], 'rows') .. ' gateway')
end
return { 'ok', int(now), meta.epoch, '', 'noted' }
