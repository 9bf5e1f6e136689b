-- An operator says that the server's clock is right, however far it is ahead of what is known. Replies with the time before,
-- and the one of the server. Like the time on record it stands in no redo record, so this is no step.
-- asked: '1' where it is asked whether there is anything to accept; '' where that is known
-- @include begin
-- @keys workspace
-- @args epoch gateway clock asked
-- @replies ok:believed ok:right

local stop = begin(false)
if stop then return stop end

local before = ARGV[4] ~= '' and now or tonumber(meta.clock)
local is_right = meta.time - before < 1000 -- What a gateway counts itself may be behind by that much.
if not is_right then redis.call('HSET', KEYS[1], 'clock', int(meta.time), 'skew', '0') end
return { 'ok', int(now), meta.epoch, '', is_right and 'right' or 'believed', int(before), int(meta.time) }
