-- A write of the barrier's own connection, because WAIT counts from the connection's last write. Refused if history or
-- epoch are not those of the steps that it stands for.
-- @include begin
-- @keys workspace
-- @args epoch gateway clock
-- @replies marked absent new_history new_epoch waiting unregistered

local stop = begin(false)
if stop then return stop end

redis.call('SET', P .. 'mark', ARGV[2])
return { 'marked' }
