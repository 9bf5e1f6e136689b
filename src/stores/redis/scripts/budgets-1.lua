-- Budget rows of a workspace that count something now, or the rows of one budget, as
-- {name, unit, bucket, window, limit, spent, held, n} each.
-- @include begin step tallies
-- @keys workspace
-- @args epoch gateway clock budget
-- @replies ok:rows absent

local stop = begin(true)
if stop then return stop end

local reply = { 'rows' }
local index = ARGV[4] == '' and 'bx' or 'bx:' .. ARGV[4]
for _, row in ipairs(redis.call('ZRANGEBYSCORE', P .. index, '(' .. int(now), '+inf')) do
  local f = redis.call('HMGET', P .. row, 'name', 'unit', 'bucket', 'window', 'limit', 'n')
  local t = tally('b', f[1], f[2], f[3], f[4])
  for _, value in ipairs({ f[1], f[2], f[3], f[4], f[5] or '0', int(spent_of(t)), int(t.held), f[6] }) do reply[#reply + 1] = value end
end
return finish(reply, '', true)
