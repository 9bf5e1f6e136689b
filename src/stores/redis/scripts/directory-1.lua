-- Workspaces and agents, in the installation's hash. Answers whether something is new; an event of another workspace
-- waits in the outbox until it is in that workspace's ledger. `settle` removes one from the outbox.
-- @include step
-- @keys installation
-- @args epoch gateway clock op name doc outgoing
-- @replies ok:new ok:known

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
elseif op == 'sent' then
  put('LREM', 'ob', '1', ARGV[7])
  return finish({ 'known' })
end
if ARGV[7] ~= '' then put('RPUSH', 'ob', ARGV[7]) end
return finish({ 'new' })
