-- The start of every script: which workspace, what time it is, and whether the step may run here and now. `begin` runs
-- before the script (scripts.ts says for which the gateway is not checked, and which run it themselves).
-- KEYS[1]  meta hash of the workspace, `svc:{<workspace>}:w`; all other keys are derived from it, in the same slot
-- ARGV[1]  epoch that the gateway knows   ARGV[2]  id of the gateway
-- ARGV[3]  time to use instead of TIME; or what the gateway knows about the time, and how far TIME may be ahead, ms:
--          `~known/bound`: seen, and counted since; `?known/bound`: as last seen; `?/bound`: never seen. `/told` after
--          it: what TIME was when a step was refused as late

local MAX_INT = 9007199254740991
local P = string.sub(KEYS[1], 1, -2)
local meta, now = nil, nil

-- All digits of an integer, as Lua's tostring and cjson do not write 2^53-1. `%d` is cheaper, if C's integers are long.
local INT = string.format('%d', 2 ^ 40) == '1099511627776' and '%d' or '%.0f'
local function int(number) return string.format(INT, number) end

-- A clock that is ahead of what the gateway saw by more than this, ms, was set forward, or the step was on its way for as
-- long. Gateways wait no longer than a second: who hears of a refusal asks again, and says what it was told.
local JUMP = 5000

-- The time of the step: TIME plus the recorded skew, never before the highest recorded time. If the clock was set back,
-- time continues from there. If it was set forward, time continues from what the gateway saw. The skew then shrinks by
-- a twentieth of the time that passes, so that leases end when they should and time still becomes right. A clock that
-- is ahead of the known time by more than the bound is not trusted (`meta.ahead`): the step gets the known time.
local function read_clock()
  local clock, skew = tonumber(meta.clock) or 0, tonumber(meta.skew) or 0
  local before, time = skew, tonumber(ARGV[3])
  local how, seen, bound, told = nil, nil, nil, nil
  if not time then
    local parts = redis.call('TIME')
    time = tonumber(parts[1]) * 1000 + math.floor(tonumber(parts[2]) / 1000)
    how, seen, bound, told = string.match(ARGV[3], '^([~?])(%d*)/(%d+)/?(%d*)$')
    seen, bound = tonumber(seen), tonumber(bound)
  end
  meta.time = time
  local known = math.max(clock, seen or 0)
  if bound and known > 0 then
    if time - known > bound then
      meta.ahead, now = time, known
      return
    end
    -- The clock was behind when the skew was recorded, and has been corrected since.
    if skew > 0 and time + skew - known > bound then skew = 0 end
  end
  if skew ~= 0 and time + skew > clock then
    local part = math.min(math.abs(skew), math.floor((time + skew - clock) / 20))
    skew = skew > 0 and skew - part or skew + part
  end
  now = time + skew
  if how == '~' and now > seen + JUMP then
    meta.late = time - (tonumber(told) or 0) > JUMP
    skew = skew - (now - seen)
    now = seen
  end
  if clock - now > 500 then skew = skew + clock - now end
  now = math.max(now, clock)
  if skew ~= before then meta.new_skew = skew end
end

-- Why the step may not run here and now, as a reply, or nil. One that only reads skips the checks of the gateway.
local function begin(reads)
  -- Where a slot is on its way to another node, a script would fail in its midst, for keys that are there. Then the
  -- server refuses what asks for a key that nobody has.
  local is_moving = type(redis.pcall('EXISTS', P .. '-')) == 'table'
  if is_moving then return redis.error_reply('MOVING the slot of the workspace is on its way to another node') end
  local found = redis.call('HMGET', KEYS[1], 'epoch', 'rid', 'open', 'clock', 'skew', 'sn', 'seq', 'loud')
  meta = { epoch = found[1], rid = found[2], open = found[3], clock = found[4], skew = found[5], loud = found[8] }
  meta.sn, meta.seq = tonumber(found[6]) or 0, tonumber(found[7]) or 0
  if not meta.epoch then return { 'absent' } end
  read_clock()
  if reads then return nil end
  if meta.late then return { 'late', int(meta.time) } end
  local replication = redis.call('INFO', 'replication')
  if not string.find(replication, 'role:master', 1, true) then return { 'replica' } end
  if not string.find(replication, 'master_replid:' .. (meta.rid or '') .. '\r', 1, true) then return { 'new_history', meta.epoch, meta.rid } end
  if meta.epoch ~= ARGV[1] then return { 'new_epoch', meta.epoch } end
  if meta.open ~= '1' then return { 'waiting', meta.epoch } end
  if redis.call('HGET', P .. 'gw', ARGV[2]) ~= meta.epoch then return { 'unregistered' } end
end
