-- A slice of a list: whether more follow, then place, id and row of each entry. from, to: bounds of the place, or ''.
-- after, id: the slice begins after this place, in the requested order; '' begins at the start.
-- @include begin rows
-- @keys workspace
-- @args epoch gateway clock list kind order from to after id limit characters
-- @replies ok absent

local stop = begin(true)
if stop then return stop end

load({ '0', '0', '0' }, 1)
local list, down = P .. 'z:' .. ARGV[4], ARGV[6] == 'down'

-- How many entries come before a place; with `too`, including that place.
local function before(place, too) return call('ZCOUNT', list, '-inf', too and place or '(' .. place) end

-- How many come before an id at a place, whether it is there or not; with `too`, including it.
local function before_id(place, id, too)
  local low, high = before(place, false), before(place, true)
  while low < high do
    local middle = math.floor((low + high) / 2)
    local there = call('ZRANGE', list, middle, middle)[1]
    if there < id or too and there == id then low = middle + 1 else high = middle end
  end
  return low
end

local first = ARGV[7] == '' and 0 or before(ARGV[7], false)
local last = before(ARGV[8] == '' and '+inf' or ARGV[8], true) - 1
if ARGV[9] ~= '' and down then last = math.min(last, before_id(ARGV[9], ARGV[10], false) - 1)
elseif ARGV[9] ~= '' then first = math.max(first, before_id(ARGV[9], ARGV[10], true)) end
local reply, seen, room = { 'ok', int(now), meta.epoch, '', '' }, 0, tonumber(ARGV[12])
while first <= last and seen < tonumber(ARGV[11]) do
  local rank = down and last or first
  local entry = call('ZRANGE', list, rank, rank, 'WITHSCORES')
  local name = 'r:' .. ARGV[5] .. ':' .. entry[1]
  local value = row(name)
  if value then
    room = room - #value + find(value, ' ', 1, true)
    if room < 0 and seen > 0 then break end
    seen = seen + 1
    reply[#reply + 1], reply[#reply + 2], reply[#reply + 3] = entry[2], entry[1], value
  end
  if down then last = last - 1 else first = first + 1 end
end
reply[5] = first <= last and '1' or ''
return reply
