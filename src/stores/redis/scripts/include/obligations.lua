-- Obligations of a permit, in the order of policy.md: claim, reservation, rate, budget. Each is an array of strings:
--   budget   rule, budget, unit, bucket, sharing, window, limit, amount or ''
--   rate     rule, id, bucket, window in ms, limit
--   claim    rule, target, 'call' or 'existing'
--   reserve  rule, pool, units, capacity
-- A refusal is {decision, why, retry after or '', rule, row}: `why` is an array of strings that the gateway words.

local MAX_BUDGET_ROWS = 10000

local function held_by_other(q, claim, rule)
  if not claim or claim.agent == q.agent or not is_active(claim) then return nil end
  local left = math.max(claim.expires, claim.extended) - now
  return { decision = 'denied_claim', why = { 'claim_held', rule or '' }, retry = int(math.max(1000, left)), rule = rule }
end

local function extended(claim, effect)
  if not contains(claim.running, effect) then claim.running[#claim.running + 1] = effect end
  return claim
end

local function judge_claim(q, effect, it)
  local rule, target = it[2], it[3]
  local claim = claim_on(target)
  local refusal = held_by_other(q, claim, rule)
  if refusal then return nil, refusal end
  if it[4] == 'existing' then
    if claim and claim.expires > now then return extended(claim, effect) end
    return nil, { decision = 'denied_claim', why = { 'claim_required', rule }, retry = '', rule = rule }
  end
  if claim and is_active(claim) then return extended(claim, effect) end
  return {
    id = 'clm_' .. string.sub(effect, 5), target = target, agent = q.agent, created = int(now),
    expires = now, extended = 0, running = { effect },
  }
end

local function judge_reserve(q, effect, it, taken)
  local rule, pool, units, capacity = it[2], it[3], tonumber(it[4]), tonumber(it[5])
  local uses = {}
  for _, use in ipairs(uses_of(pool)) do
    if use.effect ~= effect then uses[#uses + 1] = use end
  end
  local free = free_units(capacity, q.agent, reservations_of(pool), uses) - taken
  if units <= free then return nil end
  return {
    decision = 'denied_reservation', retry = '1000', rule = rule,
    why = { 'pool_exhausted', rule, it[4], pool, int(math.max(0, free)), it[5] },
  }
end

-- The hold that a budget gives, or a refusal. already: holds that this attempt gives back.
local function judge_budget(it, index, already)
  local rule, budget, unit, bucket, sharing, window, limit, amount = it[2], it[3], it[4], it[5], it[6], it[7], it[8], it[9]
  local t = tally('b', budget, unit, bucket, window)
  local held = t.held
  for _, hold in ipairs(already) do
    if hold[1] == budget and hold[3] == bucket and hold[4] == window then held = held - tonumber(hold[5]) end
  end
  local spent = spent_of(t)
  local row = { tostring(index), int(spent), int(held) }
  local ends = string.match(window, '^c:%-?%d+:(%-?%d+)$')
  local retry = ends and int(tonumber(ends) - now) or ''
  local function refuse(why) return nil, { decision = 'denied_budget', why = why, retry = retry, rule = rule, row = row } end
  if amount == '' then return refuse({ 'amount_invalid', rule, budget, unit }) end
  if spent + t.held == 0 and rows_of(budget) >= MAX_BUDGET_ROWS then return refuse({ 'too_many_rows', rule, budget }) end
  local free = tonumber(limit) - spent - held
  if tonumber(amount) > free then
    return refuse({ 'budget_exceeded', rule, budget, unit, amount, limit, int(math.max(0, free)), sharing })
  end
  return { hold = { budget, unit, bucket, window, amount }, tally = t, limit = limit, row = row, spent = spent, held = held }
end

-- effect: id of the effect that asks; scope: {own = whether only the agent's own budgets are held, already, rate_counted}
-- Returns what to write, or nil and a refusal. Where the permit only observes, a refusal is noted and left out.
local function satisfy(q, obligations, effect, scope)
  local observing = q.mode == 'observe'
  local met = { claims = {}, targets = {}, uses = {}, pools = {}, rates = {}, holds = {}, gives = {}, rows = {}, would = q.ow, wrule = q.orule }
  local function note(refusal)
    if met.would == '' then met.would, met.wrule = refusal.decision, refusal.rule or '' end
  end
  local function add_claim(claim)
    if not met.claims[claim.target] then met.targets[#met.targets + 1] = claim.target end
    met.claims[claim.target] = claim
  end

  local own = claim_on(q.target)
  local refusal = held_by_other(q, own)
  if refusal then return nil, refusal end
  if own and is_active(own) then add_claim(extended(own, effect)) end
  if q.claim ~= '' then
    local target = redis.call('HGET', P .. 'ci', q.claim)
    local claim = target and claim_on(target)
    if not claim or claim.agent ~= q.agent or claim.target ~= q.target or claim.expires <= now then
      return nil, { decision = 'denied_claim', why = { 'claim_named' }, retry = '' }
    end
  end
  for _, it in ipairs(obligations) do
    if it[1] == 'claim' then
      local claim, refused = judge_claim(q, effect, it)
      if claim then add_claim(claim)
      elseif observing then note(refused)
      else return nil, refused end
    end
  end

  for _, it in ipairs(obligations) do
    if it[1] == 'reserve' then
      local refused = judge_reserve(q, effect, it, met.uses[it[3]] or 0)
      if not refused then
        if not met.uses[it[3]] then met.pools[#met.pools + 1] = it[3] end
        met.uses[it[3]] = (met.uses[it[3]] or 0) + tonumber(it[4])
      elseif observing then note(refused)
      else return nil, refused end
    end
  end
  if q.reservation ~= '' then
    local pool = redis.call('HGET', P .. 'ri', q.reservation)
    local valid = false
    for _, held in ipairs(pool and reservations_of(pool) or {}) do
      valid = valid or (held.id == q.reservation and held.agent == q.agent and met.uses[pool] ~= nil)
    end
    if not valid then return nil, { decision = 'denied_reservation', why = { 'reservation_invalid' }, retry = '' } end
  end

  for _, it in ipairs(obligations) do
    if it[1] == 'rate' and not scope.rate_counted then
      local t = tally('a', it[3], 'calls', it[4], 'r:' .. it[5])
      met.rates[#met.rates + 1] = t
      if spent_of(t) >= tonumber(it[6]) then
        local refused = {
          decision = 'denied_budget', why = { 'rate_limited', it[2], it[6], it[5] }, rule = it[2],
          retry = int(math.min(tonumber(it[5]), 60000)),
        }
        if not observing then return nil, refused end
        note(refused)
      end
    end
  end

  for index, it in ipairs(obligations) do
    if it[1] == 'budget' then
      local got, refused = judge_budget(it, index, scope.already)
      if not got then
        if not observing then return nil, refused end
        note(refused)
      else
        local holds = not scope.own or it[6] == 'own'
        if holds then
          met.holds[#met.holds + 1] = got.hold
          met.gives[#met.gives + 1] = got
          got.row[3] = int(got.held + tonumber(it[9]))
        end
        met.rows[#met.rows + 1] = got.row
      end
    end
  end
  return met
end

-- Plans what satisfied obligations take. already: holds that the attempt gives back.
local function plan_met_money(met, already)
  for _, hold in ipairs(already) do change(tally('b', hold[1], hold[2], hold[3], hold[4]), -tonumber(hold[5]), 0) end
  for _, got in ipairs(met.gives) do change(got.tally, tonumber(got.hold[5]), 0, got.limit) end
  for _, t in ipairs(met.rates) do change(t, 0, 1) end
end
