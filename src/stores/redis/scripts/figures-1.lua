-- Returns figures of a group that count something: name, text and figure of each, about `limit` from a place of the scan
-- on, and the place to go on from; '0' begins and ends. Or removes figures that no longer count anything, at most `limit`,
-- of any group. Removing them has no visible effect, so it is not a step.
-- @include begin rows
-- @keys workspace
-- @args epoch gateway clock op limit group place
-- @replies ok absent

local prune, limit, group = ARGV[4] == 'prune', tonumber(ARGV[5]), ARGV[6]
local stop = begin(not prune)
if stop then return stop end

load({ '0', '0', '0' }, 1)
local reply, left = { 'ok', int(now), meta.epoch, '' }, limit
if not prune then
  local found = redis.call('ZSCAN', P .. 'g:' .. group, ARGV[7], 'COUNT', ARGV[5])
  reply[5] = found[1]
  for i = 1, #found[2], 2 do
    local name, ends = found[2][i], found[2][i + 1]
    if ends == 'inf' or tonumber(ends) > now then
      local t = figure(name, redis.call('GET', P .. name), nil, group)
      reply[#reply + 1], reply[#reply + 2] = name, t.text
      reply[#reply + 1] = int(t.spent) .. ' ' .. int(t.held) .. ' ' .. int(group_of(group).rows)
    end
  end
  return reply
end
for _, name in ipairs(redis.call('SMEMBERS', P .. 'groups')) do
  if left <= 0 then break end
  local found = redis.call('ZRANGEBYSCORE', P .. 'g:' .. name, '-inf', int(now), 'LIMIT', '0', int(left))
  left = left - #found
  for _, over in ipairs(found) do
    redis.call('DEL', P .. over, P .. 'q' .. sub(over, 2))
    redis.call('ZREM', P .. 'g:' .. name, over)
  end
  if redis.call('EXISTS', P .. 'g:' .. name) == 0 then redis.call('SREM', P .. 'groups', name) end
end
reply[5] = int(limit - left)
return reply
