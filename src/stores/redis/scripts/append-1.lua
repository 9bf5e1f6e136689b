-- Appends events that belong to no step. `event`s are arrays as in step.lua.
-- @include begin step
-- @keys workspace
-- @args epoch gateway clock events
-- @replies ok:appended

local stop = begin(false)
if stop then return stop end

for _, draft in ipairs(list(ARGV[4])) do event(unpack(draft)) end
return finish({ 'appended' })
