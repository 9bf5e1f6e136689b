-- Begins an epoch if the replication history is not the recorded one (fail-over, restart), or if an operator accepts
-- that the store was set back. Writes wait until every registered gateway has handed in what its journal has beyond
-- `base`, from the epoch `from` on: older steps were given up. Last reply: when this gateway was declared lost, or 0.
-- estimate: the last store time that the gateway saw and what has passed since, or '': time continues from there
-- accepted: number of the accepted loss of the epoch; `new` to give it one (the epoch's number), or ''
-- above: the new epoch is greater than this; event: for the accepted loss, appended when the epoch opens
-- @args epoch gateway clock estimate accepted above event
-- @replies begun current absent

local rid = string.match(redis.call('INFO', 'replication'), 'master_replid:(%x+)')
local accepted, lost = ARGV[5], redis.call('HGET', P .. 'lg', ARGV[2]) or '0'
if accepted == '' or accepted == redis.call('HGET', KEYS[1], 'accepted') then
  if meta.rid == rid then
    local handed_in = redis.call('HGET', P .. 'gw', ARGV[2]) == meta.epoch
    local from = redis.call('HMGET', KEYS[1], 'base', 'from')
    return { 'current', meta.epoch, meta.open, from[1] or '0', from[2] or '0', handed_in and '1' or '0', lost }
  end
  accepted = ''
end
local skew, estimate = meta.new_skew or tonumber(meta.skew) or 0, tonumber(ARGV[4])
-- The clock of another machine may be hours away. Promises made in the old machine's time must not end early or late.
if estimate and math.abs(estimate - now) > 2000 then
  local target = math.max(estimate, tonumber(meta.clock) or 0)
  skew, now = skew + target - now, target
end
local epoch = int(math.max(tonumber(meta.epoch), tonumber(ARGV[6]) or 0) + 1)
local from = accepted ~= '' and '0' or meta.open == '1' and meta.epoch or redis.call('HGET', KEYS[1], 'from')
redis.call('DEL', P .. 'redo', P .. 'redox')
redis.call('HSET', KEYS[1], 'epoch', epoch, 'rid', rid, 'open', '0', 'base', int(meta.sn), 'from', from, 'skew', int(skew), 'clock', int(now))
if accepted ~= '' then
  redis.call('HSET', KEYS[1], 'accepted', accepted == 'new' and epoch or accepted)
  -- Other gateways follow, and may be the first in a workspace: its ledger names this one all the same.
  if accepted == 'new' then redis.call('HSET', KEYS[1], 'acceptor', ARGV[2]) end
  redis.call('RPUSH', P .. 'pe', ARGV[7])
  -- Who has left, by what is here, may have come again after what the store was set back to.
  local away = redis.call('HGETALL', P .. 'away')
  for i = 1, #away, 2 do
    local is_kept = now - tonumber(away[i + 1]) <= 30 * 86400000
    if is_kept and redis.call('HEXISTS', P .. 'lg', away[i]) == 0 then redis.call('HSETNX', P .. 'gw', away[i], '0') end
  end
end
return { 'begun', epoch, '0', int(meta.sn), from, '0', lost }
