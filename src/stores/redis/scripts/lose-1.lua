-- Declares those of some effects lost that nobody runs any more: their lease is over, or their owner has ended.
-- effects: at most 100 ids
-- @include begin step boots tallies claims effects release
-- @keys workspace
-- @args epoch gateway clock effects
-- @replies ok:lost

local stop = begin(false)
if stop then return stop end

local lost = 0
for _, id in ipairs(list(ARGV[4])) do
  local e = load_effect(id)
  if e and plan_lose(e) then lost = lost + 1 end
  -- Two effects may have a claim in common.
  plan_ledger()
  events, effect_writes = {}, {}
  flush()
end
return finish({ 'lost', int(lost) })
