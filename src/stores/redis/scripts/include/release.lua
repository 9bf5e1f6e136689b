-- Lets go of what an effect has: claims, pool units and holds.
-- ending: 'post', 'void' or 'keep'; keep_until: an unknown effect keeps claims and units until then, or nil
-- Returns the changes of the effect's fields; the events of money come after those of the step, by money_events().

local money = {}

local function plan_release(e, ending, keep_until)
  for _, target in ipairs(list(e.claims)) do
    local claim = claim_on_record(target)
    if claim and contains(claim.running, e.id) then
      claim.running = without(claim.running, e.id)
      claim.extended = math.max(claim.extended, keep_until or 0)
      if is_active(claim) then put_claim(claim) else remove_claim(target) end
    end
  end
  for _, use in ipairs(list(e.uses)) do
    if keep_until then put_use(use[1], e.id, e.agent, use[2], int(keep_until))
    else put('HDEL', 'u:' .. use[1], e.id) end
  end
  local changes = { claims = '' }
  if not keep_until then changes.uses = '' end
  local held = e.hs == 'held'
  if ending == 'void' and held then
    for _, hold in ipairs(list(e.holds)) do
      change(tally('b', hold[1], hold[2], hold[3], hold[4]), -tonumber(hold[5]), 0)
    end
    changes.hs = 'voided'
    money[#money + 1] = { 'budget.voided', e }
  elseif ending == 'post' and (held or e.hs == 'voided') then
    -- Voided holds are posted all the same when it turns out late that the action happened.
    for _, hold in ipairs(list(e.holds)) do
      change(tally('b', hold[1], hold[2], hold[3], hold[4]), held and -tonumber(hold[5]) or 0, tonumber(hold[5]))
    end
    changes.hs = 'posted'
    money[#money + 1] = { held and 'budget.posted' or 'budget.overdraft', e }
  end
  return changes
end

local function money_events()
  for _, it in ipairs(money) do
    event(it[1], it[2].id, 'gateway', 'budget', '', 'holds', 'h', it[2].holds or '')
  end
  money = {}
end

-- Declares an attempt lost whose lease is over or whose owner has ended: unknown, its holds stay. Returns whether there
-- was something to declare.
local function plan_lose(e)
  if not is_lost(e) then return false end
  local ended = owner_ended(e.bt)
  local changes = plan_release(e, 'keep', number_of(e, 'quiet'))
  changes.st, changes.dec, changes.at, changes.lost, changes.out = 'unknown', 'unknown_effect', int(now), ended and 'ended' or '1', ''
  plan_effect(e, changes)
  event('execution.lost', e.id, 'gateway', 'sweeper', '', 'attempt', 'n', e.att, 'code', 's', 'lease_over',
    'owner_ended', 'b', ended and 'true' or 'false', 'quiet_at', 't', e.quiet)
  return true
end
