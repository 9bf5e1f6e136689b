-- Begins an epoch where the replication history is another than the one on record (fail-over, restart): acknowledged
-- steps may be lost. Writes wait until every registered gateway has handed in what its journal has beyond `base`.
-- estimate: the store's time as the gateway last saw it plus what has gone by since, or '': time goes on from there
-- @include step
-- @keys workspace
-- @args epoch gateway clock estimate force
-- @replies begun current absent

local stop = begin(true)
if stop then return stop end

local rid = string.match(redis.call('INFO', 'replication'), 'master_replid:(%x+)')
if meta.rid == rid and ARGV[5] ~= '1' then return { 'current', meta.epoch, meta.open, redis.call('HGET', KEYS[1], 'base') or '0' } end
local skew = tonumber(meta.skew) or 0
if meta.new_skew then skew = meta.new_skew end
local estimate = tonumber(ARGV[4])
-- The clock of another machine may be hours away: what was promised in the old one's time must not end early or late.
if estimate and math.abs(estimate - now) > 2000 then
  local target = math.max(estimate, tonumber(meta.clock) or 0)
  skew = skew + target - now
  now = target
end
local epoch = int(tonumber(meta.epoch) + 1)
redis.call('DEL', P .. 'redo', P .. 'redox')
redis.call('HSET', KEYS[1], 'epoch', epoch, 'rid', rid, 'open', '0', 'base', int(meta.sn), 'skew', int(skew), 'clock', int(now))
return { 'begun', epoch, '0', int(meta.sn) }
