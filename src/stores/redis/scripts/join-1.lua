-- A gateway joins a workspace. Creates the meta hash if there is none, and registers the gateway, so that a later epoch
-- waits for its journal. A gateway that was declared lost may only return without what its journal had (`returns`). Its
-- earlier boot has ended, because the journal's lock keeps a second one out. `gone` keeps the latest boots that ended,
-- ordered by when that was seen; `boots` grows with each. Replies with them, after whether the server's clock is not
-- trusted. The field `rows` has the installation and marks the format: a store of another format is foreign.
-- @args epoch gateway clock install first-epoch returns boot
-- @replies joined foreign new_history waiting absent lost

local stop = begin(true)
local rid = string.match(redis.call('INFO', 'replication'), 'master_replid:(%x+)')
if stop then
  if stop.err or ARGV[5] == '' then return stop end
  redis.call('HSET', KEYS[1], 'rows', ARGV[4], 'epoch', ARGV[5], 'rid', rid, 'open', '1',
    'sn', '0', 'seq', '0', 'boots', '0',
    -- With a value longer than 64 characters, Redis finds fields by a hash table instead of one after the other.
    'about', 'A workspace of svc-gateway. Do not change it by hand: docs/operating/redis.md')
  begin(true)
  redis.call('HSET', KEYS[1], 'clock', int(now))
end
if redis.call('HGET', KEYS[1], 'rows') ~= ARGV[4] then return { 'foreign' } end
-- What a run sent may arrive long after its end, and would declare its successor ended.
if redis.call('ZSCORE', P .. 'gone', ARGV[7]) then return redis.error_reply('ENDED this run has ended') end
if meta.rid ~= rid then return { 'new_history', meta.epoch, int(meta.sn), meta.clock } end
if meta.open ~= '1' then return { 'waiting', meta.epoch } end
if redis.call('HEXISTS', P .. 'lg', ARGV[2]) == 1 then
  if ARGV[6] == '' then return { 'lost' } end
  redis.call('HDEL', P .. 'lg', ARGV[2])
end
local is_new = redis.call('HSET', P .. 'gw', ARGV[2], meta.epoch) == 1
if is_new then
  -- This is a step, so that a store that was set back to before it can be recognised.
  meta.sn = meta.sn + 1
  redis.call('HSET', KEYS[1], 'sn', int(meta.sn))
  redis.call('HINCRBY', KEYS[1], 'members', '1')
  redis.call('HDEL', P .. 'away', ARGV[2])
end
local before = redis.call('HGET', P .. 'gb', ARGV[2])
local has_ended = before and before ~= ARGV[7]
if has_ended then
  redis.call('ZADD', P .. 'gone', int(now), before)
  redis.call('ZREMRANGEBYRANK', P .. 'gone', '0', '-1001')
  redis.call('HINCRBY', KEYS[1], 'boots', '1')
end
redis.call('HSET', P .. 'gb', ARGV[2], ARGV[7])
-- Other gateways may be handling effects of the boot that has ended.
if is_new or has_ended then redis.call('PUBLISH', P .. 'changes', ARGV[4] .. ' gateway') end
local gone, boots = redis.call('ZRANGE', P .. 'gone', '0', '-1'), redis.call('HGET', KEYS[1], 'boots') or '0'
return { 'joined', meta.epoch, int(meta.sn), int(now), meta.ahead and int(meta.ahead) or '', boots, unpack(gone) }
