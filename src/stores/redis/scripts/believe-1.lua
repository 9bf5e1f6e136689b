-- An operator says that the server's clock is right, however far it is ahead of what is known. Replies with the time before,
-- and the one of the server. asked: '1' where it is asked whether
-- there is anything to accept, and written down, 'asked' where who asks writes it down; '' where that was done
-- @include begin step
-- @keys workspace
-- @args epoch gateway clock asked
-- @replies ok:believed ok:right

local stop = begin(false)
if stop then return stop end

local asked = ARGV[4] ~= ''
local before = asked and now or tonumber(meta.clock)
-- What a gateway counts itself may be behind by that much.
if meta.time - before < 1000 then return finish({ 'right', int(before), int(meta.time) }) end
now, meta.new_skew = meta.time, 0
put('HSET', 'w', 'skew', '0')
if ARGV[4] == '1' then
  event('store.time_accepted', '', 'gateway', 'svc store accept-time', '', 'before', 't', int(before), 'accepted', 't', int(now))
end
return finish({ 'believed', int(before), int(now) })
