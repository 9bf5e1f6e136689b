-- A batch of changes of the rows, lists, figures and ledger of a workspace. Each change decides on what the earlier ones
-- left. Nothing is written before `flush`, except long texts and resets of groups.
--   r:<kind>:<id>  `version text`; a long text is in t:<kind>:<id>, and the row is `version<tab>`
--   z:<list>  sorted set of ids        l  stream: id is the place of the first event, fields `time epoch`, then `about text`; \1: as before it
--   f:<name>  figure: `spent held ends slot amount span text`, with the open slot of a rolling one; q:<name>  its closed slots
--   g:<group>  sorted set: figures by when they no longer count   groups  set of them   a:<about>  places in the ledger
--   v  hash: kind → last step that changed one of its rows
-- A has the words of the batch: how many names of rows there are of which only the version is read, and these names; how
-- many others, and these; how many changes, and these. They refer to names by number, as a text. The longer a Lua string
-- is, the more it costs, so values are not read or joined if this can be avoided.

local LONG, PART = 8192, 4000
local call, sub, byte, find, match = redis.call, string.sub, string.byte, string.find, string.match
local A, names, numbers, values, heads, b

-- A table that makes what it does not have yet.
local function memo(make)
  return setmetatable({}, { __index = function(known, key)
    known[key] = make(key)
    return known[key]
  end })
end

-- Numbers of words; 0 for a word that is not a number.
local num = memo(function(word) return tonumber(word) or 0 end)

-- Runs a command with many arguments in parts; `key` within the workspace, or nil.
local function each_part(name, key, items)
  for i = 1, #items, PART do
    local last = math.min(i + PART - 1, #items)
    if key then call(name, P .. key, unpack(items, i, last)) else call(name, unpack(items, i, last)) end
  end
end

-- Begins a batch. @returns where its changes begin, and how many there are
local function load(words)
  A, names, numbers, values, heads = words, {}, nil, {}, tonumber(words[1])
  b = { dirty = {}, figures = {}, stream = {}, places = memo(function() return '' end), kinds = {}, told = {} }
  b.lists = memo(function() return {} end)
  -- How many figures of a group count something.
  b.counted = memo(function(group) return call('ZCOUNT', P .. 'g:' .. group, '(' .. int(now), '+inf') end)
  for i = 1, heads do
    local n = int(i)
    names[n] = A[1 + i]
    local head = call('GETRANGE', P .. names[n], '0', '40')
    values[n] = head ~= '' and head
  end
  local at = heads + 2
  local count, keys = tonumber(A[at]), {}
  for i = 1, count do keys[i] = P .. A[at + i] end
  for i = 1, count, PART do
    for k, value in ipairs(call('MGET', unpack(keys, i, math.min(i + PART - 1, count)))) do
      local n = int(heads + i + k - 1)
      names[n], values[n] = A[at + i + k - 1], value
    end
  end
  return at + count + 2, tonumber(A[at + count + 1])
end

-- A row with its text, if that is long and kept elsewhere.
local function whole(name, value)
  return value and find(value, '^%S+\t') and call('GET', P .. 't' .. sub(name, 2)) or value
end

-- A row as it is: `version text`, or false.
local function row(name)
  if not numbers then
    numbers = {}
    for n, known in pairs(names) do numbers[known] = n end
  end
  local n = numbers[name]
  if n and (b.dirty[n] or num[n] > heads) then return whole(name, values[n]) end
  return whole(name, call('GET', P .. name))
end

-- Appends a row. If it exists and `follow` says so, also appends the row that its text names.
local function tell(answer, name, follow)
  local value = row(name)
  answer[#answer + 1], answer[#answer + 2] = name, value
  local named = value and follow ~= '' and 'r:' .. follow .. ':' .. sub(value, find(value, ' ', 1, true) + 1)
  local found = named and row(named)
  if found then answer[#answer + 1], answer[#answer + 2] = named, found end
end

local function is_version(value, version)
  if version == '' or not value then return version == '' and not value end
  return sub(value, 1, #version) == version and byte(value, #version + 1) <= 32
end

-- Where the parts of a change at `at` are, which rows differ from it, and whether it expects one that is not there.
local function parts_of(at)
  local c, i = { wrong = {} }, at + 7
  for _ = 1, num[A[at + 6]] do
    if not is_version(values[A[i]], A[i + 1]) then c.wrong[#c.wrong + 1] = i end
    i = i + 3
  end
  c.puts, i = i, i + 1
  for _ = 1, num[A[c.puts]] do
    if not is_version(values[A[i]], A[i + 1]) then
      c.wrong[#c.wrong + 1] = i
      if A[i + 1] ~= '' and not values[A[i]] then c.lacks = true end
    end
    i = i + 6 + num[A[i + 5]] + 2 * num[A[i + 4]]
  end
  c.sums, c.events = i + 1, i + 1 + 8 * num[A[i]]
  c.resets = c.events + 1 + 2 * num[A[c.events]]
  return c
end

local function figure(name, stored, span, group)
  local t = b.figures[name]
  if t then return t end
  t = { name = name, group = group, span = span, spent = 0, held = 0, ends = 0, slot = 0, amount = 0, text = '', popped = 0, score = false, counts = false }
  b.figures[name] = t
  if stored then
    local spent, held, ends, slot, amount, named, text = match(stored, '^(%d+) (%d+) (%d+) (%d+) (%d+) (%S+) (.*)$')
    t.spent, t.held, t.ends, t.slot, t.amount = tonumber(spent), tonumber(held), tonumber(ends), tonumber(slot), tonumber(amount)
    t.text, t.span, t.exists = text, named, true
  end
  local size = tonumber(sub(t.span, 2))
  if byte(t.span) == 117 then
    t.ends = size
  else
    t.rolling, t.width = size, math.max(1, math.ceil(size / 1000))
    local floor, gone = math.floor((now - size) / t.width), 0
    while t.spent > gone + t.amount do
      local slot, amount = match(call('LINDEX', P .. 'q' .. sub(name, 2), t.popped) or '', '^(%d+):(%d+)$')
      if not slot or tonumber(slot) >= floor then break end
      gone, t.popped = gone + tonumber(amount), t.popped + 1
    end
    if t.slot < floor then gone, t.amount = gone + t.amount, 0 end
    t.spent = math.max(0, t.spent - gone)
  end
  if t.exists then t.score, t.counts = t.held > 0 and '+inf' or int(t.ends), t.held > 0 or t.ends > now end
  return t
end

local function write_figures(set, unset)
  for name, t in pairs(b.figures) do
    if t.dirty then
      local q, g = 'q' .. sub(name, 2), 'g:' .. t.group
      if t.popped > 0 then call('LPOP', P .. q, t.popped) end
      if t.closed then call('RPUSH', P .. q, t.closed) end
      t.dirty, t.popped, t.closed = false, 0, nil
      local score = t.held > 0 and '+inf' or int(t.ends)
      if not t.exists then
        unset[#unset + 1], unset[#unset + 2] = P .. name, P .. q
        call('ZREM', P .. g, name)
      else
        set[#set + 1] = P .. name
        set[#set + 1] = table.concat({ int(t.spent), int(t.held), int(t.ends), int(t.slot), int(t.amount), t.span, t.text }, ' ')
        if score ~= t.score and call('ZADD', P .. g, score, name) == 1 then call('SADD', P .. 'groups', t.group) end
        t.score = score
      end
    end
  end
  each_part('MSET', nil, set)
  each_part('DEL', nil, unset)
end

-- Figures of a group that is reset, as the earlier changes left them.
local function members(group)
  write_figures({}, {})
  local found = {}
  for i, name in ipairs(call('ZRANGE', P .. 'g:' .. group, '0', '-1')) do
    found[i] = figure(name, call('GET', P .. name), nil, group)
  end
  return found
end

local function begin_anew(group)
  for _, t in ipairs(members(group)) do
    call('DEL', P .. 'q' .. sub(t.name, 2))
    t.spent, t.slot, t.amount, t.popped, t.closed, t.dirty = 0, 0, 0, 0, nil, true
    if t.rolling then t.ends = 0 end
    if t.held == 0 then
      if t.counts then b.counted[group] = b.counted[group] - 1 end
      t.exists, t.score, t.counts, t.text = false, false, false, ''
    end
  end
end

-- Appends the figures of a change as they are.
local function tell_figures(answer, c)
  for i = c.sums, c.events - 8, 8 do
    local t = figure(names[A[i]], values[A[i]], A[i + 2], A[i + 1])
    answer[#answer + 1] = int(t.spent) .. ' ' .. int(t.held) .. ' ' .. int(b.counted[A[i + 1]])
  end
end

local function change_figure(t, hold, spend, text)
  t.exists, t.dirty = true, true
  t.held = math.min(MAX_INT, math.max(0, t.held + hold))
  t.spent = math.min(MAX_INT, t.spent + spend)
  if text ~= '' then t.text = sub(text, 2) end
  if t.rolling and spend > 0 then
    local slot = math.floor(now / t.width)
    if t.slot ~= slot then
      if t.amount > 0 then t.closed = int(t.slot) .. ':' .. int(t.amount) end
      t.slot, t.amount = slot, 0
    end
    t.amount = math.min(MAX_INT, t.amount + spend)
    t.ends = math.max(t.ends, (slot + 1) * t.width + t.rolling)
  end
  local counts = t.held > 0 or t.ends > now
  if counts ~= t.counts then b.counted[t.group] = b.counted[t.group] + (counts and 1 or -1) end
  t.counts = counts
end

-- Writes the puts, resets and sums of a change, and its events from place `seq` on. @returns the next free place
local function apply(c, id, seq)
  local i = c.puts + 1
  for _ = 1, num[A[c.puts]] do
    local n, value = A[i], A[i + 3]
    local name, before, entering, leaving = names[n], values[n], num[A[i + 4]], num[A[i + 5]]
    local colon = find(name, ':', 3, true)
    local kind, member = sub(name, 3, colon - 1), sub(name, colon + 1)
    if A[i + 4] == '-' then value = false end
    if value and #value > LONG then
      call('SET', P .. 't' .. sub(name, 2), value)
      value = id .. '\t'
    elseif before and find(before, '^%S+\t') then
      call('DEL', P .. 't' .. sub(name, 2))
    end
    values[n], b.dirty[n], b.kinds[kind] = value, true, true
    -- Those that watch a kind get a message if they asked for it; otherwise they look at its version.
    if meta.loud and find(meta.loud, ' ' .. kind .. ' ', 1, true) then b.told[#b.told + 1] = { kind, member } end
    i = i + 6 + leaving
    for k = i - leaving, i - 1 do b.lists[A[k]][member] = false end
    for k = i, i + 2 * entering - 2, 2 do b.lists[A[k]][member] = A[k + 1] end
    i = i + 2 * entering
  end
  for k = c.resets + 1, c.resets + num[A[c.resets]] do begin_anew(A[k]) end
  for k = c.sums, c.events - 8, 8 do
    local t = figure(names[A[k]], values[A[k]], A[k + 2], A[k + 1])
    change_figure(t, num[A[k + 3]], num[A[k + 4]], A[k + 7])
  end
  for k = c.events + 1, c.resets - 2, 2 do
    local about, is_same = A[k], A[k] == b.about and #b.stream % PART > 0
    b.stream[#b.stream + 1], b.stream[#b.stream + 2], b.about = is_same and '\1' or about, A[k + 1], about
    if about ~= '' then b.places[about] = b.places[about] .. int(seq) .. ' ' end
    seq = seq + 1
  end
  return seq
end

local function flush_events(first)
  for i = 1, #b.stream, PART do
    call('XADD', P .. 'l', int(first + (i - 1) / 2) .. '-0', int(now), meta.epoch, unpack(b.stream, i, math.min(i + PART - 1, #b.stream)))
  end
  b.stream = {}
end

-- Writes the result of the batch as a step.
local function flush(step)
  local set, unset, versions = {}, {}, {}
  for n in pairs(b.dirty) do
    if values[n] then set[#set + 1], set[#set + 2] = P .. names[n], values[n] else unset[#unset + 1] = P .. names[n] end
  end
  write_figures(set, unset)
  for list, entries in pairs(b.lists) do
    local enter, leave = {}, {}
    for member, at in pairs(entries) do
      if at then enter[#enter + 1], enter[#enter + 2] = at, member else leave[#leave + 1] = member end
    end
    each_part('ZADD', 'z:' .. list, enter)
    each_part('ZREM', 'z:' .. list, leave)
  end
  for about, seqs in pairs(b.places) do call('APPEND', P .. 'a:' .. about, seqs) end
  local install = #b.told > 0 and call('HGET', KEYS[1], 'rows')
  for _, changed in ipairs(b.told) do
    local before = call('HGET', P .. 'v', changed[1]) or '0'
    call('PUBLISH', P .. 'changes', table.concat({ install, 'row', before, step, changed[1], changed[2] }, ' '))
  end
  for kind in pairs(b.kinds) do versions[#versions + 1], versions[#versions + 2] = kind, step end
  each_part('HSET', 'v', versions)
end
