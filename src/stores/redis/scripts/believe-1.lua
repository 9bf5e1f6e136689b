-- An operator says that the server's clock is right, however far it is ahead of the known time. Replies with the time
-- before and that of the server. Like the recorded time, it is in no redo record, so this is not a step.
-- asked: '1' to ask whether there is anything to accept; '' if that is known
-- @include begin
-- @keys workspace
-- @args epoch gateway clock asked
-- @replies ok:believed ok:right

local stop = begin(false)
if stop then return stop end

local before = ARGV[4] ~= '' and now or tonumber(meta.clock)
local is_right = meta.time - before < 1000 -- What a gateway counts itself may be behind by this much.
if not is_right then redis.call('HSET', KEYS[1], 'clock', int(meta.time), 'skew', '0') end
return { 'ok', int(now), meta.epoch, '', is_right and 'right' or 'believed', int(before), int(meta.time) }
