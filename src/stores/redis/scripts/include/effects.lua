-- Effects: hash `e:<id>`. Apart are what other scripts and indexes look at and documents, which are opaque; the rest is
-- one field `f`, an object of strings without the empty ones: a hash costs by its fields. `k:<key>` is the effect that an
-- idempotency key is bound to. Indexes by place: `ix` all, `ia:<agent>`, `s:<state>` (states that few effects are in).
-- `lease`: executing effects by the end of their lease; `old`, `oldd`: settled and denied ones by time.

local RARE = { pending_approval = true, unknown = true, rejected = true, failed = true }

-- Documents: who asked, what is run (action, trace, stages), metadata, sealed params, outcome, receipt, later stages.
local DOCUMENTS = { 'doc', 'run', 'meta', 'sealed', 'out', 'jws', 'more' }
local APART = { id = true, st = true, dec = true, tool = true, agent = true, place = true, lend = true, quiet = true, lg = true }
for _, name in ipairs(DOCUMENTS) do APART[name] = true end

-- Effects that were read: their documents are there, and are read where they are needed.
local on_record = {}

-- An effect without its documents.
local function load_effect(id)
  local found = redis.call('HMGET', P .. 'e:' .. id, 'f', 'st', 'dec', 'tool', 'agent', 'place', 'lend', 'quiet', 'lg')
  if not found[1] then return nil end
  local e = cjson.decode(found[1])
  e.id, e.st, e.dec, e.tool, e.agent, e.place = id, found[2], found[3], found[4], found[5], found[6]
  e.lend, e.quiet, e.lg = found[7] or nil, found[8] or nil, found[9] or nil
  e.key, e.fp, e.td, e.owner, e.nonce = e.key or '', e.fp or '', e.td or '', e.owner or '', e.nonce or ''
  on_record[id] = true
  return e
end

local function packed(e)
  local rest = {}
  for name, value in pairs(e) do
    if not APART[name] and value ~= '' then rest[name] = value end
  end
  return cjson.encode(rest)
end

-- Plans an effect's fields: those apart that `changes` has, and the rest as it is now.
local function put_effect(e, changes)
  local command = { 'HSET', P .. 'e:' .. e.id, 'f', packed(e) }
  for name, value in pairs(changes) do
    if APART[name] and name ~= 'id' then
      command[#command + 1] = name
      command[#command + 1] = value
      if string.byte(value) == 0 then command.documents = true end
    end
  end
  plan[#plan + 1] = command
  return command
end

local function number_of(e, field) return tonumber(e[field]) or 0 end

-- Whether an effect executes on record though nobody runs it any more.
local function is_lost(e)
  return e.st == 'executing' and (now >= number_of(e, 'lend') or owner_ended(e.bt))
end

-- The same of an effect that is not loaded.
local function is_lost_on_record(id, state, lend)
  if state ~= 'executing' then return false end
  return now >= (tonumber(lend) or 0) or (any_ended() and owner_ended(boot_of(redis.call('HGET', P .. 'e:' .. id, 'f'))))
end

-- Plans an effect that is not on record yet. e has all its fields.
local function plan_new_effect(e, binds)
  if redis.call('EXISTS', P .. 'e:' .. e.id) == 1 then error('there is an effect ' .. e.id .. ' already') end
  e.created = int(now)
  e.place = next_place()
  effect_writes[e.id] = { command = put_effect(e, e), places = '' }
  put('ZADD', 'ix', e.place, e.id)
  put('ZADD', 'ia:' .. e.agent, e.place, e.id)
  if RARE[e.st] then put('ZADD', 's:' .. e.st, e.place, e.id) end
  if e.st == 'executing' then put('ZADD', 'lease', e.lend, e.id) end
  if e.st == 'denied' then put('ZADD', 'oldd', e.at, e.id) end
  if binds then put('SET', 'k:' .. e.key, e.id) end
end

-- Plans changes of an effect on record, and makes them in e.
local function plan_effect(e, changes)
  local earlier = effect_writes[e.id]
  if earlier then e.lg = earlier.places end
  local was, is = e.st, changes.st or e.st
  for name, value in pairs(changes) do e[name] = value end
  effect_writes[e.id] = { command = put_effect(e, changes), places = e.lg or '' }
  if was ~= is then
    if RARE[was] then put('ZREM', 's:' .. was, e.id) end
    if RARE[is] then put('ZADD', 's:' .. is, e.place, e.id) end
    if was == 'executing' then put('ZREM', 'lease', e.id) end
    if was == 'failed' then put('ZREM', 'old', e.id) end
  end
  if is == 'executing' then put('ZADD', 'lease', e.lend, e.id) end
  if is == 'committed' or is == 'failed' or is == 'rejected' then put('ZADD', 'old', e.at, e.id) end
  if is == 'denied' then put('ZADD', 'oldd', e.at, e.id) end
end

-- Frees the key that an effect is bound to.
local function plan_unbind(e)
  if redis.call('GET', P .. 'k:' .. e.key) == e.id then put('DEL', 'k:' .. e.key) end
end

local function same_fence(e, epoch, n, nonce)
  return e.le == epoch and e.att == n and e.nonce == nonce
end

-- The effect as a reply: names and values. A document that came with the request is its mark.
-- held: the gateway has the documents of the attempt, and is sent only those of this step
local function effect_reply(e, held)
  local flat = { 'f', packed(e), 'st', e.st, 'dec', e.dec, 'lend', e.lend or '', 'quiet', e.quiet or '' }
  local all = on_record[e.id] and not held
  local there = all and redis.call('HMGET', P .. 'e:' .. e.id, 'doc', 'run', 'meta', 'sealed', 'out', 'jws', 'more') or {}
  for index, name in ipairs(DOCUMENTS) do
    -- An effect without metadata says so: what is left out is what the gateway has.
    local value = e[name] or there[index] or all and name == 'meta' and ''
    if value then
      flat[#flat + 1] = name
      flat[#flat + 1] = value
    end
  end
  return flat
end
