-- The frame of a step. A script decides first, gathering the commands it will run in `plan`, and runs them all at the
-- end: a refusal, a preview or a fault in the middle leaves nothing behind. The commands go back with the reply as the
-- redo record, from which a fail-over's lost tail is run again.

local plan, events, tallies = {}, {}, {}

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

local function array(items)
  if #items == 0 then return '' end
  return cjson.encode(items)
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
