-- Keys, in the installation's hash: puts one (`first`: only where there is none), ends one, or notes that some were
-- used; `op` says which. An event of another workspace waits in the outbox until it is in that workspace's ledger.
-- @include begin step
-- @keys installation
-- @args epoch gateway clock op request doc event
-- @replies ok:put ok:ended ok:unchanged ok:absent ok:touched

local stop = begin(false)
if stop then return stop end

local op, q = ARGV[4], cjson.decode(ARGV[5])

local function announce(workspace, draft)
  if workspace == '' then event(unpack(cjson.decode(draft)))
  else put('RPUSH', 'ob', cjson.encode({ workspace, draft })) end
end
local version = int((tonumber(redis.call('HGET', KEYS[1], 'keys')) or 0) + 1)
local function changed(handle)
  put('HSET', 'w', 'keys', version)
  put('PUBLISH', 'changes', redis.call('HGET', KEYS[1], 'install') .. ' key ' .. version .. ' ' .. handle)
end

if op == 'first' and redis.call('ZCARD', P .. 'kn') > 0 then return finish({ 'unchanged' }) end
if op == 'put' or op == 'first' then
  local old = redis.call('HMGET', P .. 'key:' .. q.id, 'n', 'handle')
  if old[2] and old[2] ~= q.handle then put('HDEL', 'kh', old[2]) end
  local n = old[1] or next_place()
  put_fields('key:' .. q.id, {
    n = n, handle = q.handle, user = q.user, workspace = q.workspace, doc = document(6),
    revoked = q.revoked, expires = q.expires, replaced = q.replaced, used = q.used,
  })
  put('HSET', 'kh', q.handle, q.id)
  put('ZADD', 'kn', n, q.id)
  changed(q.handle)
  if not old[1] then announce(q.workspace, ARGV[7]) end
  return finish({ 'put', version, q.handle })
end
if op == 'end' then
  local key = hash('key:' .. q.id)
  if not key then return finish({ 'absent' }) end
  if key.revoked ~= '' or (q.how ~= 'revoked' and key.replaced ~= '') then return finish({ 'unchanged' }) end
  if q.how == 'revoked' then
    put('HSET', 'key:' .. q.id, 'revoked', int(now))
  else
    local ends = now + tonumber(q.overlap)
    if key.expires ~= '' then ends = math.min(ends, tonumber(key.expires)) end
    put('HSET', 'key:' .. q.id, 'expires', int(ends), 'replaced', '=' .. q.by)
  end
  changed(key.handle)
  announce(key.workspace, ARGV[7])
  return finish({ 'ended', version, key.handle })
end
for _, id in ipairs(list(q.ids)) do
  local used = redis.call('HGET', P .. 'key:' .. id, 'used')
  if used and (used == '' or tonumber(q.at) - tonumber(used) >= 60000) then put('HSET', 'key:' .. id, 'used', q.at) end
end
return finish({ 'touched' })
