-- A page of effects, newest first: whether there are more, where to go on, bytes that are left, ids. Looks at no more
-- than `scan` effects a call.
-- A page ends before the effect with which it would have more than `room` bytes, unless it is the first of it.
-- have: effects that earlier calls have found for this page
-- from: place below which to look, or ''; since, until: ms or ''
-- @include begin step boots effects
-- @keys workspace
-- @args epoch gateway clock index state decision tool agent since until from limit scan room have
-- @replies ok:page absent

local stop = begin(true)
if stop then return stop end

local index, state, decision, tool, agent, since, before, from = ARGV[4], ARGV[5], ARGV[6], ARGV[7], ARGV[8], ARGV[9], ARGV[10], ARGV[11]
local limit, scan = tonumber(ARGV[12]), tonumber(ARGV[13])
local room, have = tonumber(ARGV[14]), tonumber(ARGV[15])
local top = from == '' and '+inf' or '(' .. from
if before ~= '' then
  local bound = int(tonumber(before) * 2048)
  if from == '' or tonumber(bound) < tonumber(from) then top = '(' .. bound end
end
local bottom = since == '' and '-inf' or int(tonumber(since) * 2048)

-- Executing effects stand in the order of their leases: they are put in order here, unless they are very many.
-- lost: those that nobody runs any more, or the others
local function executing(lost)
  local highest = string.sub(top, 1, 1) == '(' and tonumber(string.sub(top, 2)) or math.huge
  local lowest = tonumber(bottom) or -math.huge
  local places = {}
  for _, id in ipairs(redis.call('ZRANGE', P .. 'lease', '0', '-1')) do
    local e = redis.call('HMGET', P .. 'e:' .. id, 'place', 'st', 'lend')
    local place = tonumber(e[1])
    local fits = place and place < highest and place >= lowest and is_lost_on_record(id, e[2], e[3]) == lost
    if fits then places[#places + 1] = { id, place } end
  end
  if lost then
    local known = redis.call('ZREVRANGEBYSCORE', P .. index, top, bottom, 'WITHSCORES', 'LIMIT', '0', int(scan))
    for i = 1, #known, 2 do places[#places + 1] = { known[i], tonumber(known[i + 1]) } end
  end
  table.sort(places, function(a, b) return a[2] > b[2] end)
  local flat = {}
  for i = 1, math.min(#places, scan) do
    flat[#flat + 1] = places[i][1]
    flat[#flat + 1] = places[i][2]
  end
  return flat
end

local found
local lost = index == 's:unknown' and (any_ended() or redis.call('ZCOUNT', P .. 'lease', '-inf', int(now)) > 0)
if index ~= 'lease' and not lost then found = redis.call('ZREVRANGEBYSCORE', P .. index, top, bottom, 'WITHSCORES', 'LIMIT', '0', int(scan))
elseif redis.call('ZCARD', P .. 'lease') <= 2000 then found = executing(lost)
else found = redis.call('ZREVRANGEBYSCORE', P .. 'ix', top, bottom, 'WITHSCORES', 'LIMIT', '0', int(scan))
end
local ids, last = {}, ''
for i = 1, #found, 2 do
  local e = redis.call('HMGET', P .. 'e:' .. found[i], 'st', 'dec', 'tool', 'agent', 'lend')
  if is_lost_on_record(found[i], e[1], e[5]) then e[1], e[2] = 'unknown', 'unknown_effect' end
  local fits = (state == '' or e[1] == state) and (decision == '' or e[2] == decision) and (tool == '' or e[3] == tool) and (agent == '' or e[4] == agent)
  if fits and e[1] then
    local size = 0
    for _, field in ipairs({ 'sealed', 'meta', 'out', 'jws' }) do size = size + redis.call('HSTRLEN', P .. 'e:' .. found[i], field) end
    local full = #ids == limit or (size > room and have + #ids > 0)
    if full then return finish({ 'page', 'more', last, int(room), unpack(ids) }, '', true) end
    ids[#ids + 1] = found[i]
    room = room - size
  end
  last = string.format('%.0f', tonumber(found[i + 1]))
end
if #found < scan * 2 then return finish({ 'page', 'end', '', int(room), unpack(ids) }, '', true) end
return finish({ 'page', 'scan', last, int(room), unpack(ids) }, '', true)
