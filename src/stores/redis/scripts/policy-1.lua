-- Makes a policy version the one in force. In the installation's hash with the definitions of its budgets, as
-- {budget, unit, window, …}; in a workspace's without.
-- @include begin step
-- @keys workspace
-- @args epoch gateway clock version definitions
-- @replies ok:active

local stop = begin(false)
if stop then return stop end

local definitions = list(ARGV[5])
for i = 1, #definitions, 3 do
  put('HSET', 'bd', definitions[i], cjson.encode({ definitions[i + 1], definitions[i + 2] }))
end
if meta.policy ~= ARGV[4] then
  put('HSET', 'w', 'policy', ARGV[4])
end
return finish({ 'active' })
