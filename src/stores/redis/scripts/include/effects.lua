-- Effects: hash `e:<id>`, its documents opaque, what a step needs as fields. `k:<key>` is the effect that an
-- idempotency key is bound to. Indexes by place: `ix` all, `ia:<agent>`, `s:<state>` (states that few effects are in).
-- `lease`: executing effects by the end of their lease; `old`, `oldd`: settled and denied ones by time.

local RARE = { pending_approval = true, unknown = true, rejected = true, failed = true }

local function load_effect(id)
  local e = hash('e:' .. id)
  if e then e.id = id end
  return e
end

local function number_of(e, field) return tonumber(e[field]) or 0 end

-- Plans an effect that is not on record yet. e has all its fields.
local function plan_new_effect(e, binds)
  if redis.call('EXISTS', P .. 'e:' .. e.id) == 1 then error('there is an effect ' .. e.id .. ' already') end
  e.created = int(now)
  e.place = next_place()
  local id = e.id
  e.id = nil
  effect_writes[id] = { command = put_fields('e:' .. id, e), places = '' }
  e.id = id
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
  effect_writes[e.id] = { command = put_fields('e:' .. e.id, changes), places = e.lg or '' }
  local was, is = e.st, changes.st or e.st
  if was ~= is then
    if RARE[was] then put('ZREM', 's:' .. was, e.id) end
    if RARE[is] then put('ZADD', 's:' .. is, e.place, e.id) end
    if was == 'executing' then put('ZREM', 'lease', e.id) end
    if was == 'failed' then put('ZREM', 'old', e.id) end
  end
  if is == 'executing' then put('ZADD', 'lease', changes.lend or e.lend, e.id) end
  if is == 'committed' or is == 'failed' or is == 'rejected' then put('ZADD', 'old', changes.at or e.at, e.id) end
  if is == 'denied' then put('ZADD', 'oldd', changes.at or e.at, e.id) end
  for name, value in pairs(changes) do e[name] = value end
end

-- Frees the key that an effect is bound to.
local function plan_unbind(e)
  if redis.call('GET', P .. 'k:' .. e.key) == e.id then put('DEL', 'k:' .. e.key) end
end

local function same_fence(e, epoch, n, nonce)
  return e.le == epoch and e.att == n and e.nonce == nonce
end

-- What only scripts read.
local PRIVATE = { key = true, fp = true, agent = true, tool = true, td = true, place = true, aseq = true, by = true, lg = true }

-- The effect as a reply: its fields, flat. Documents that came with the request are left out.
local function effect_reply(e)
  local flat = {}
  for name, value in pairs(e) do
    if not PRIVATE[name] and string.byte(value) ~= 0 then
      flat[#flat + 1] = name
      flat[#flat + 1] = value
    end
  end
  return flat
end
