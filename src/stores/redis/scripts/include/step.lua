-- The frame of a step. A script decides first, gathering the commands it will run in `plan`, and runs them all at the
-- end: a refusal, a preview or a fault in the middle leaves nothing behind. The commands go back with the reply as the
-- redo record, from which a fail-over's lost tail is run again.
--
-- KEYS[1]  meta hash of the workspace, `svc:{<workspace>}:w`; every other key is derived from it, in the same slot
-- ARGV[1]  epoch the gateway knows   ARGV[2]  id of the gateway
-- ARGV[3]  time to use instead of TIME; or what the gateway knows of the time, and how far TIME may be ahead of that, ms:
--          `~known/bound` as it saw it, and counted since; `?known/bound` as it saw it last; `?/bound` it has seen none

local MAX_INT = 9007199254740991
local P = string.sub(KEYS[1], 1, -2)
local meta, now = nil, nil
local plan, events, tallies = {}, {}, {}

-- An integer in full: neither Lua's tostring nor cjson writes 2^53-1.
local function int(number) return string.format('%.0f', number) end

-- A document that came as an argument: written from there, and left out of the redo record.
local function document(index) return '\0' .. index end

-- Plans a command: name, key without the workspace's prefix, arguments.
local function put(name, key, ...) plan[#plan + 1] = { name, P .. key, ... } end

-- Plans an HSET of fields that may be documents.
local function put_fields(key, fields)
  local command = { 'HSET', P .. key }
  for name, value in pairs(fields) do
    command[#command + 1] = name
    command[#command + 1] = value
    if string.byte(value) == 0 then command.documents = true end
  end
  plan[#plan + 1] = command
  return command
end

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

local function array(items)
  if #items == 0 then return '' end
  return cjson.encode(items)
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
  local found = redis.call('HMGET', KEYS[1], 'epoch', 'rid', 'open', 'clock', 'skew', 'sn', 'seq', 'policy', 'pauses', 'place')
  meta = {
    epoch = found[1], rid = found[2], open = found[3], clock = found[4], skew = found[5],
    sn = tonumber(found[6]) or 0, seq = tonumber(found[7]) or 0,
    policy = found[8] or '', pauses = found[9] or '0', place = tonumber(found[10]) or 0,
  }
  if not meta.epoch then return { 'absent' } end
  read_clock()
  if reads then return nil end
  local replication = redis.call('INFO', 'replication')
  if not string.find(replication, 'role:master', 1, true) then return { 'replica' } end
  local rid = string.match(replication, 'master_replid:(%x+)')
  if meta.rid ~= rid then return { 'new_history', meta.epoch, meta.rid } end
  if meta.epoch ~= ARGV[1] then return { 'new_epoch', meta.epoch } end
  if meta.open ~= '1' then return { 'waiting', meta.epoch } end
  if redis.call('HGET', P .. 'gw', ARGV[2]) ~= meta.epoch then return { 'unregistered' } end
  return nil
end

-- What time decides, and cannot be taken back, waits while the server's clock is not believed: a reply, or nil.
local function disbelieved()
  if not meta.ahead then return nil end
  return { 'clock_ahead', int(now), int(meta.ahead) }
end

-- Adds an event: kind, effect or '', actor's type and id, data as JSON, then what the data has besides, three strings
-- each: name, type (s text, n number, b true or false, t time, h holds, j JSON), value.
local function event(kind, effect, actor_type, actor, data, ...)
  events[#events + 1] = { kind, effect, actor_type, actor, data, ... }
end

-- A place in the order of creation: grows, and carries the time (2048 places per ms).
local function next_place()
  meta.place = math.max(meta.place + 1, now * 2048)
  return int(meta.place)
end

-- Commands of this step that write an effect's hash, by effect: its places in the ledger go there as well.
local effect_writes = {}

local function plan_ledger()
  local seq = meta.seq
  local first = 1
  while first <= #events do
    local effect = events[first][2]
    local group = {}
    local i = first
    while i <= #events and events[i][2] == effect do
      group[#group + 1] = events[i]
      i = i + 1
    end
    put('XADD', 'l', int(seq + 1) .. '-0', 'at', int(now), 'ep', meta.epoch, 'ev', cjson.encode(group))
    local write = effect_writes[effect]
    if write then
      write.places = write.places .. int(seq + 1) .. ' '
    elseif effect ~= '' then
      put('RPUSH', 'el:' .. effect, int(seq + 1))
    end
    seq = seq + #group
    first = i
  end
  for _, write in pairs(effect_writes) do
    local command = write.command
    command[#command + 1], command[#command + 2] = 'lg', write.places
  end
  meta.seq = seq
end

local function run(commands)
  for _, command in ipairs(commands) do
    if command.documents then
      local call = {}
      for i = 1, #command do
        local value = command[i]
        call[i] = string.byte(value) == 0 and ARGV[tonumber(string.sub(value, 2))] or value
      end
      redis.call(unpack(call))
      command.documents = nil
    else
      redis.call(unpack(command))
    end
  end
end

-- Runs what was planned so far, where what comes next in the step must see it.
local done = {}
local function flush()
  run(plan)
  for _, command in ipairs(plan) do done[#done + 1] = command end
  plan = {}
end

-- Runs what was planned and answers: 'ok', time, epoch, step number or '', redo record or '', then the reply.
-- needs: key that must exist for the redo record to make sense, or ''
local function finish(reply, needs, pretend)
  local step, redo = '', ''
  if not pretend then
    plan_ledger()
    if #plan + #done > 0 then
      step = int(meta.sn + 1)
      put('HSET', 'w', 'sn', step, 'clock', int(now), 'seq', int(meta.seq), 'place', int(meta.place))
      if meta.new_skew then put('HSET', 'w', 'skew', int(meta.new_skew)) end
      flush()
      redo = cjson.encode({ needs or '', done })
    end
  end
  local answer = { 'ok', int(now), meta.epoch, step, redo }
  for _, value in ipairs(reply) do answer[#answer + 1] = value end
  return answer
end
