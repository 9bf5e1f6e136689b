-- Boots of gateways. `gb`: gateway → its boot, as it last joined. `gone`: boots that ended, their gateway has joined
-- anew, by the end of the last lease that there was then: their executing effects are unknown though it is not over.

local some_ended = nil
local function any_ended()
  if some_ended == nil then some_ended = redis.call('EXISTS', P .. 'gone') == 1 end
  return some_ended
end

-- The boot that runs an effect, from what stands in one field of it.
local function boot_of(packed) return packed and cjson.decode(packed).bt end

local function owner_ended(boot)
  return any_ended() and (boot or '') ~= '' and redis.call('ZSCORE', P .. 'gone', boot) ~= false
end
