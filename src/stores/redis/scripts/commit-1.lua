-- Makes the changes of one turn, or reads. Each change decides before it writes. A change has: the number of its words,
-- id, epoch, from, until, at, and then guards, puts, sums, events and groups to reset, each after their number. Guard:
-- name, version, follow. Put: name, version, follow, `id text`, the number of lists that it enters (`-` if the row is
-- removed), the number of lists that it leaves, the lists that it leaves, and those that it enters with the place in
-- each. Sum: figure, group, span, hold, spend, limit, most, text. A change that was made answers `d`, the place of its
-- first event, and its figures. One that was not made answers its figures, then name and value of each row that differs
-- from what the change said. What is read is a change that cannot be made: it is never in time, and guards the rows
-- with a version that no row has. Without an epoch the gateway is not checked, and nothing is made.
-- @args epoch gateway clock batch
-- @replies ok ahead absent

local is_look = ARGV[1] == ''
local stop = begin(is_look)
if stop then return stop end

local at, count = load(cmsgpack.unpack(ARGV[4]))
local first, wrote, reply = meta.seq + 1, false, { 'ok', '', meta.epoch, '' }
local seq = first

-- Whether the sums stay within their limits. For groups that are reset: with their figures after the reset.
local function sums_hold(c)
  local anew = {}
  for k = c.resets + 1, c.resets + num[A[c.resets]] do
    anew[A[k]] = 0
    for _, t in ipairs(members(A[k])) do if t.held > 0 then anew[A[k]] = anew[A[k]] + 1 end end
  end
  local counting = {}
  for i = c.sums, c.events - 8, 8 do
    local group, hold, spend, limit, most = A[i + 1], num[A[i + 3]], num[A[i + 4]], A[i + 5], A[i + 6]
    local t = figure(names[A[i]], values[A[i]], A[i + 2], group)
    local spent, counted = t.spent, t.counts
    if anew[group] then spent, counted = 0, t.held > 0 end
    if limit ~= '' and spent + t.held + hold + spend > num[limit] then return false end
    if not counted and (hold > 0 or t.rolling and spend > 0 or not t.rolling and t.ends > now) then
      counting[group] = (counting[group] or anew[group] or b.counted[group]) + 1
      if most ~= '' and counting[group] > num[most] then return false end
    end
  end
  return true
end

for _ = 1, count do
  local c, size = parts_of(at), num[A[at]]
  local on_time = not is_look and A[at + 2] == meta.epoch and num[A[at + 3]] <= now and now < num[A[at + 4]]
  local is_done = on_time and #c.wrong == 0 and sums_hold(c)
  -- What is told about the change afterwards has a later time than that of the decision.
  if is_done then now = math.max(now, num[A[at + 5]]) end
  local answer = { is_done and 'd' .. int(seq) or nil }
  if is_done then
    -- A change without writes has four counts after its guards.
    if at + size - c.puts > 3 then wrote = true end
    seq = apply(c, A[at + 1], seq)
  end
  tell_figures(answer, c)
  answer = table.concat(answer, ' ')
  if not is_done then
    answer = { answer }
    for _, k in ipairs(c.wrong) do tell(answer, names[A[k]], A[k + 2]) end
  end
  reply[#reply + 1] = answer
  at = at + 1 + size
end
reply[2] = int(now)
if wrote then
  reply[4] = int(meta.sn + 1)
  flush_events(first)
  flush(reply[4])
  redis.call('HSET', KEYS[1], 'sn', reply[4], 'clock', reply[2], 'seq', int(seq - 1))
  if meta.new_skew then redis.call('HSET', KEYS[1], 'skew', int(meta.new_skew)) end
end
-- The server's clock is not trusted: the caller is told this first.
if meta.ahead then return { 'ahead', int(meta.ahead), unpack(reply) } end
return reply
