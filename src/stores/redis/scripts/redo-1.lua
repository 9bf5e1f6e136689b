-- Makes lost steps again, in order, at most 100 per call, once every registered gateway has handed in. Then opens the
-- epoch. A change to a row that is not there is left out: the change that made the row was never acknowledged.
-- lost: a gateway that is declared lost, or ''; event: for that, appended when the epoch is open
-- @args epoch gateway clock lost event
-- @replies open ok more waiting new_epoch absent

if meta.epoch ~= ARGV[1] then return { 'new_epoch', meta.epoch } end
if ARGV[4] ~= '' and redis.call('HDEL', P .. 'gw', ARGV[4]) == 1 then
  redis.call('HSET', P .. 'lg', ARGV[4], meta.epoch)
  redis.call('HINCRBY', KEYS[1], 'members', '1')
  redis.call('RPUSH', P .. 'pe', ARGV[5])
end

-- Appends operators' decisions from meanwhile to the ledger: the texts, after the place of the first.
local function opened()
  local texts = redis.call('LRANGE', P .. 'pe', '0', '-1')
  if #texts == 0 then return { 'open' } end
  for i, text in ipairs(texts) do
    redis.call('XADD', P .. 'l', int(meta.seq + i) .. '-0', int(now), meta.epoch, '', text)
  end
  redis.call('DEL', P .. 'pe')
  redis.call('HSET', KEYS[1], 'sn', int(meta.sn + 1), 'seq', int(meta.seq + #texts), 'clock', int(now))
  return { 'ok', int(now), meta.epoch, int(meta.sn + 1), int(meta.seq + 1), unpack(texts) }
end

if meta.open == '1' then return opened() end
local there, missing = redis.call('HGETALL', P .. 'gw'), {}
for i = 1, #there, 2 do
  local is_missing = there[i + 1] ~= meta.epoch
  -- An operator's command that did not leave in order has no journal to wait for.
  if is_missing and sub(there[i], 1, 8) == 'command:' then redis.call('HDEL', P .. 'gw', there[i])
  elseif is_missing then missing[#missing + 1] = there[i] end
end
if #missing > 0 then return { 'waiting', unpack(missing) } end

-- Makes a step again: its batch as it was sent, with the places that its changes got; '' if a change was not made.
local function again(step, line, batch)
  local record = cjson.decode(line)
  now = tonumber(record.at)
  local at, count = load(cmsgpack.unpack(batch))
  for k = 1, count do
    local c = parts_of(at)
    if record.seqs[k] ~= '' and not c.lacks then
      local first = math.max(tonumber(record.seqs[k]), meta.seq + 1)
      meta.seq, meta.epoch = apply(c, A[at + 1], first) - 1, A[at + 2]
      flush_events(first)
      if A[at + 1] == 'opened' then redis.call('DEL', P .. 'pe') end
    end
    at = at + 1 + tonumber(A[at])
  end
  flush(step)
end

local steps = redis.call('ZRANGEBYSCORE', P .. 'redox', '(' .. int(meta.sn), '+inf', 'LIMIT', '0', '100')
local time, epoch = now, meta.epoch
for _, step in ipairs(steps) do
  again(step, match(redis.call('HGET', P .. 'redo', step), '^(.-)\n(.*)$'))
  -- Whether it was left out or not, the next steps have higher numbers.
  meta.sn = tonumber(step)
end
-- Time continues from where the new epoch began.
now, meta.epoch = time, epoch
redis.call('HSET', KEYS[1], 'sn', int(meta.sn), 'seq', int(meta.seq))
if #steps == 100 then return { 'more' } end
redis.call('DEL', P .. 'redo', P .. 'redox')
redis.call('HSET', KEYS[1], 'open', '1')
return opened()
