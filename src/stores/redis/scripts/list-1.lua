-- A slice of a list: whether more follow, then place, id and row of each entry. from, to: bounds of the place, or ''.
-- after, id: the slice begins after this place, in the requested order; '' begins at the start.
-- @args epoch gateway clock list kind order from to after id limit characters
-- @replies ok absent

local list, down, limit, room = P .. 'z:' .. ARGV[4], ARGV[6] == 'down', tonumber(ARGV[11]), tonumber(ARGV[12])

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
local more = last - first >= limit
if down then first = math.max(first, last - limit + 1) else last = math.min(last, first + limit - 1) end

-- One command for all rows of the slice: those with long texts are short here.
local found, keys = first <= last and call('ZRANGE', list, first, last, 'WITHSCORES') or {}, {}
for i = 1, #found, 2 do keys[#keys + 1] = P .. 'r:' .. ARGV[5] .. ':' .. found[i] end
local values, reply = #keys > 0 and call('MGET', unpack(keys)) or {}, { 'ok', int(now), meta.epoch, '', '' }
for k = 1, #keys do
  local n = down and #keys - k + 1 or k
  local value = whole(sub(keys[n], #P + 1), values[n])
  if value then
    room = room - #value + find(value, ' ', 1, true)
    if room < 0 and #reply > 5 then more = true break end
    reply[#reply + 1], reply[#reply + 2], reply[#reply + 3] = found[2 * n], found[2 * n - 1], value
  end
end
reply[5] = more and '1' or ''
return reply
