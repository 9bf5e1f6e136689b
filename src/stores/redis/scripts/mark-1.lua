-- A write of the barrier connection's own, after which WAIT counts: refused under another history or epoch than the
-- steps it stands for.
-- @include begin
-- @keys workspace
-- @args epoch gateway clock
-- @replies marked absent new_history new_epoch waiting unregistered

local stop = begin(false)
if stop then return stop end

redis.call('SET', P .. 'mark', ARGV[2])
return { 'marked' }
