-- Returns figures of the workspace that count something, at most `limit`: group, name, text and figure of each. Or
-- removes figures that no longer count anything, at most `limit`. Removing them has no visible effect, so it is not a
-- step.
-- @include begin rows
-- @keys workspace
-- @args epoch gateway clock op limit
-- @replies ok absent

local prune = ARGV[4] == 'prune'
local stop = begin(not prune)
if stop then return stop end

load({ '0', '0', '0' }, 1)
local reply, left = { 'ok', int(now), meta.epoch, '' }, tonumber(ARGV[5])
for _, group in ipairs(redis.call('SMEMBERS', P .. 'groups')) do
  if left <= 0 then break end
  local from, to = '(' .. int(now), '+inf'
  if prune then from, to = '-inf', int(now) end
  local found = redis.call('ZRANGEBYSCORE', P .. 'g:' .. group, from, to, 'LIMIT', '0', int(left))
  left = left - #found
  for _, name in ipairs(found) do
    if prune then
      redis.call('DEL', P .. name, P .. 'q' .. sub(name, 2))
      redis.call('ZREM', P .. 'g:' .. group, name)
    else
      local t = figure(name, redis.call('GET', P .. name), nil, group)
      local as_told = int(t.spent) .. ' ' .. int(t.held) .. ' ' .. int(group_of(group).rows)
      for _, word in ipairs({ group, name, t.text, as_told }) do reply[#reply + 1] = word end
    end
  end
  if prune and redis.call('EXISTS', P .. 'g:' .. group) == 0 then redis.call('SREM', P .. 'groups', group) end
end
if prune then reply[5] = int(tonumber(ARGV[5]) - left) end
return reply
