-- Budget rows and rates. A row is a hash with its totals; a rolling one has, besides, its current time slot (`cs`, `ca`)
-- and a list of closed slots, oldest first, from which what has aged out is taken. A slot counts until its end is a
-- whole window ago. Changes are gathered per row and planned once, so that figures read in a step are those before it.

local function tally(kind, name, unit, bucket, window)
  local row = kind .. ':' .. window .. '|' .. #name .. ':' .. name .. bucket
  local known = tallies[row]
  if known then return known end
  local found = redis.call('HMGET', P .. row, 'spent', 'held', 'ends', 'cs', 'ca', 'score', 'limit')
  local t = {
    row = row, kind = kind, name = name, unit = unit, bucket = bucket, window = window, exists = found[6] ~= false,
    spent = tonumber(found[1]) or 0, held = tonumber(found[2]) or 0, ends = tonumber(found[3]),
    limited = found[7], slot = tonumber(found[4]), amount = tonumber(found[5]) or 0, score = found[6],
    hold = 0, spend = 0, gone = 0, popped = 0,
  }
  local rolling = string.match(window, '^r:(%d+)$')
  if rolling then
    t.rolling = tonumber(rolling)
    t.width = math.max(1, math.ceil(t.rolling / 1000))
    local floor = math.floor((now - t.rolling) / t.width)
    while t.spent > t.gone do
      local closed = redis.call('LINDEX', P .. 'q' .. row, t.popped)
      if not closed then break end
      local slot, amount = string.match(closed, '^(%d+):(%d+)$')
      if tonumber(slot) >= floor then break end
      t.gone = t.gone + tonumber(amount)
      t.popped = t.popped + 1
    end
    if t.slot and t.slot < floor and t.amount > 0 then
      t.gone = t.gone + t.amount
      t.aged_current = true
    end
    t.gone = math.min(t.gone, t.spent)
  end
  if not t.ends then t.ends = tonumber(string.match(window, '^c:%-?%d+:(%-?%d+)$')) or now end
  tallies[row] = t
  return t
end

-- Spent within the window, at the time of the step.
local function spent_of(t) return t.spent - t.gone end

-- Rows of a budget that count something.
local function rows_of(name)
  return redis.call('ZCOUNT', P .. 'bx:' .. name, '(' .. int(now), '+inf')
end

local function change(t, hold, spend, limit)
  t.changed = true
  t.hold = t.hold + hold
  t.spend = t.spend + spend
  if limit then t.limit = limit end
end

-- Plans the rows that were changed. Totals are written as differences: a redo record may stand beside others.
local function plan_tallies()
  for _, t in pairs(tallies) do
    if t.changed then
      local held = math.min(MAX_INT, math.max(0, t.held + t.hold))
      local left = spent_of(t)
      local spent = math.min(MAX_INT, left + t.spend)
      if t.popped > 0 then put('LPOP', 'q' .. t.row, int(t.popped)) end
      local fields = {}
      if t.rolling and t.spend > 0 then
        local slot = math.floor(now / t.width)
        if t.slot == slot and not t.aged_current then
          t.amount = t.amount + t.spend
        else
          if t.slot and t.amount > 0 and not t.aged_current then
            put('RPUSH', 'q' .. t.row, int(t.slot) .. ':' .. int(t.amount))
          end
          t.slot, t.amount = slot, t.spend
        end
        t.ends = math.max(t.ends, (slot + 1) * t.width + t.rolling)
        fields = { 'cs', int(t.slot), 'ca', int(t.amount), 'ends', int(t.ends) }
      elseif t.aged_current then
        fields = { 'ca', '0' }
      end
      if held ~= t.held then put('HINCRBY', t.row, 'held', int(held - t.held)) end
      if spent ~= t.spent then put('HINCRBY', t.row, 'spent', int(spent - t.spent)) end
      if t.limit and t.limit ~= t.limited then fields[#fields + 1] = 'limit'; fields[#fields + 1] = t.limit end
      if not t.exists then
        for _, value in ipairs({ 'name', t.name, 'bucket', t.bucket, 'window', t.window, 'unit', t.unit, 'n', next_place(), 'ends', int(t.ends) }) do
          fields[#fields + 1] = value
        end
      end
      -- A row counts while its window runs or something is held; the sweep looks again at rows whose window is over.
      local score = (held > 0 and t.ends <= now) and '+inf' or int(t.ends)
      if score ~= t.score then
        fields[#fields + 1] = 'score'
        fields[#fields + 1] = score
        if t.kind == 'b' then
          put('ZADD', 'bx', score, t.row)
          put('ZADD', 'bx:' .. t.name, score, t.row)
        else
          put('ZADD', 'rx', score, t.row)
        end
      end
      if #fields > 0 then put('HSET', t.row, unpack(fields)) end
    end
  end
end
