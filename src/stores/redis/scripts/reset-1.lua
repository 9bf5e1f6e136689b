-- Begins a budget anew: rows without holds go, others keep only what is held.
-- @include begin step
-- @keys workspace
-- @args epoch gateway clock budget
-- @replies ok:reset

local stop = begin(false)
if stop then return stop end

for _, row in ipairs(redis.call('ZRANGE', P .. 'bx:' .. ARGV[4], '0', '-1')) do
  put('DEL', 'q' .. row)
  if (tonumber(redis.call('HGET', P .. row, 'held')) or 0) == 0 then
    put('DEL', row)
    put('ZREM', 'bx', row)
    put('ZREM', 'bx:' .. ARGV[4], row)
  else
    put('HSET', row, 'spent', '0', 'ca', '0')
  end
end
return finish({ 'reset' })
