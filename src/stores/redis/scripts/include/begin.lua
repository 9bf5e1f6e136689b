-- What every script begins with: whose it is, what time it is, and whether it may run here and now.
--
-- KEYS[1]  meta hash of the workspace, `svc:{<workspace>}:w`; every other key is derived from it, in the same slot
-- ARGV[1]  epoch the gateway knows   ARGV[2]  id of the gateway
-- ARGV[3]  time to use instead of TIME; or what the gateway knows of the time, and how far TIME may be ahead of that, ms:
--          `~known/bound` as it saw it, and counted since; `?known/bound` as it saw it last; `?/bound` it has seen none

local MAX_INT = 9007199254740991
local P = string.sub(KEYS[1], 1, -2)
local meta, now = nil, nil

-- An integer in full: neither Lua's tostring nor cjson writes 2^53-1. Where an int of C is long enough, it is much cheaper.
local INT = string.format('%d', 2 ^ 40) == '1099511627776' and '%d' or '%.0f'
local function int(number) return string.format(INT, number) end

local function hash(key)
  local flat = redis.call('HGETALL', P .. key)
  if #flat == 0 then return nil end
  local fields = {}
  for i = 1, #flat, 2 do fields[flat[i]] = flat[i + 1] end
  return fields
end

local function list(json)
  if not json or json == '' then return {} end
  return cjson.decode(json)
end

-- A clock that runs ahead of what the gateway saw, by more than this, was set forward, ms.
local JUMP = 5000

-- Time of the step: TIME plus the skew on record, never before the highest time on record. A clock that was set back is
-- carried on from there, one that was set forward from where the gateway saw it; the skew then shrinks by a twentieth
-- of the time that goes by, so that leases end when they should and time comes right all the same. One that is further
-- ahead of what is known than the bound is not believed (`meta.ahead`): the step has the time that is known.
local function read_clock()
  local clock = tonumber(meta.clock) or 0
  local skew = tonumber(meta.skew) or 0
  local before = skew
  local time = tonumber(ARGV[3])
  local how, seen, bound = nil, nil, nil
  if not time then
    local parts = redis.call('TIME')
    time = tonumber(parts[1]) * 1000 + math.floor(tonumber(parts[2]) / 1000)
    how, seen, bound = string.match(ARGV[3], '^([~?])(%d*)/(%d+)$')
    seen, bound = tonumber(seen), tonumber(bound)
  end
  meta.time = time
  local known = math.max(clock, seen or 0)
  if bound and known > 0 then
    if time - known > bound then
      meta.ahead, now = time, known
      return
    end
    -- It was behind when that was put on record, and has been set right since.
    if skew > 0 and time + skew - known > bound then skew = 0 end
  end
  if skew ~= 0 and time + skew > clock then
    local part = math.min(math.abs(skew), math.floor((time + skew - clock) / 20))
    skew = skew > 0 and skew - part or skew + part
  end
  now = time + skew
  if how == '~' and now > seen + JUMP then
    skew = skew - (now - seen)
    now = seen
  end
  if now < clock then
    if clock - now > 500 then skew = skew + clock - now end
    now = clock
  end
  if skew ~= before then meta.new_skew = skew end
end

-- Why the step may not run here and now, as a reply; nil when it may. A step that only reads skips the gateway's part.
local function begin(reads)
  local found = redis.call('HMGET', KEYS[1], 'epoch', 'rid', 'open', 'clock', 'skew', 'sn', 'seq', 'loud')
  meta = {
    epoch = found[1], rid = found[2], open = found[3], clock = found[4], skew = found[5],
    sn = tonumber(found[6]) or 0, seq = tonumber(found[7]) or 0,
    loud = found[8],
  }
  if not meta.epoch then return { 'absent' } end
  read_clock()
  if reads then return nil end
  local replication = redis.call('INFO', 'replication')
  if not string.find(replication, 'role:master', 1, true) then return { 'replica' } end
  if not string.find(replication, 'master_replid:' .. (meta.rid or '') .. '\r', 1, true) then return { 'new_history', meta.epoch, meta.rid } end
  if meta.epoch ~= ARGV[1] then return { 'new_epoch', meta.epoch } end
  if meta.open ~= '1' then return { 'waiting', meta.epoch } end
  if redis.call('HGET', P .. 'gw', ARGV[2]) ~= meta.epoch then return { 'unregistered' } end
  return nil
end
