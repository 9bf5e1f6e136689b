-- Workspaces, agents and when users were first seen, in the installation's hash. Answers whether something is new; an event of another workspace
-- waits in the outbox until it is in that workspace's ledger. `sent` removes one from the outbox; `secret` binds the
-- store to a master secret, by its mark in `name`: where it has none, or one of those in `doc`.
-- @include begin step
-- @keys installation
-- @args epoch gateway clock op name doc outgoing
-- @replies ok:new ok:known ok:other

local stop = begin(false)
if stop then return stop end

local op, name = ARGV[4], ARGV[5]
if op == 'workspace' then
  if redis.call('ZSCORE', P .. 'wn', name) then return finish({ 'known' }) end
  put('ZADD', 'wn', next_place(), name)
elseif op == 'enter' then
  if redis.call('SISMEMBER', P .. 'entered', name) == 1 then return finish({ 'known' }) end
  put('SADD', 'entered', name)
elseif op == 'agent' then
  if redis.call('HGET', P .. 'ag', name) == ARGV[6] then return finish({ 'known' }) end
  put_fields('ag', { [name] = document(6) })
elseif op == 'secret' then
  local there = redis.call('HGET', KEYS[1], 'secret')
  if there == name then return finish({ 'known' }) end
  if there and not string.find(ARGV[6], '|' .. there .. '|', 1, true) then return finish({ 'other' }) end
  put('HSET', 'w', 'secret', name)
elseif op == 'users' then
  -- Those that are noted first of all were there before anybody looked. The empty name says that somebody has looked.
  local first = redis.call('HLEN', P .. 'us') == 0
  local fields = first and { [''] = '0' } or {}
  for _, id in ipairs(list(name)) do
    if redis.call('HEXISTS', P .. 'us', id) == 0 then fields[id] = first and '0' or int(now) end
  end
  if not next(fields) then return finish({ 'known' }) end
  put_fields('us', fields)
elseif op == 'sent' then
  put('LREM', 'ob', '1', ARGV[7])
  return finish({ 'known' })
end
if ARGV[7] ~= '' then put('RPUSH', 'ob', ARGV[7]) end
return finish({ 'new' })
