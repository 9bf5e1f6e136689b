-- Settlement of an attempt as effects/steps/lifecycle.ts and effects/steps/settlement.ts decide it.

local function change_to_committed(changes, q, late)
  changes.st, changes.dec, changes.at = 'committed', 'committed', int(now)
  changes.rcp, changes.jws, changes.out, changes.late, changes.decl, changes.by = q.rcp, q.jws, q.out, late, '', ''
end

-- What the state table says of {outcome, epoch, n, nonce, unsent}: a refusal, or the changes of the effect.
local function settle_life(e, q)
  local state, outcome = e.st, q.outcome
  local current = e.att or '0'
  local fenced = (state == 'executing' or state == 'unknown') and not same_fence(e, q.epoch, q.n, q.nonce)
  if fenced then
    if outcome ~= 'committed' or tonumber(q.n) >= tonumber(current) then return 'fenced_off' end
    return e.mhh == '1' and 'fenced_off' or 'contradiction'
  end
  local changes = {}
  if state == 'executing' or state == 'unknown' then
    if state == 'unknown' and outcome == 'unknown' then return 'unchanged' end
    local late = state == 'unknown' and '1' or ''
    -- An attempt that sent nothing is counted once: while an earlier one may have happened, this may be said again.
    if q.unsent == '1' and (state == 'executing' or e.mhh ~= '1') then changes.uns = int(number_of(e, 'uns') + 1) end
    if outcome == 'committed' then
      change_to_committed(changes, q, late)
    elseif outcome == 'unknown' or e.mhh == '1' then
      -- Certainty never falls: while an earlier attempt may have happened, this one cannot say that nothing did.
      changes.st, changes.dec, changes.at, changes.lost, changes.out = 'unknown', 'unknown_effect', int(now), '', q.evidence
    elseif outcome == 'failed' or tonumber(current) > 1 then
      changes.st, changes.dec, changes.at = 'failed', 'failed', int(now)
      changes.out, changes.late, changes.decl, changes.by = q.failed, late, '', ''
    else
      changes.st, changes.dec, changes.at, changes.why, changes.out = 'denied', q.decision, int(now), '', q.denied
    end
    return nil, changes
  end
  if state == 'failed' then
    if outcome ~= 'committed' then return q.n == current and 'unchanged' or 'fenced_off' end
    -- Late evidence that it happened counts only while nobody has acted on the failure.
    if q.n ~= current then return 'contradiction' end
    change_to_committed(changes, q, '1')
    return nil, changes
  end
  if state == 'committed' then return q.n == current and 'unchanged' or 'fenced_off' end
  if state == 'pending_approval' then
    return outcome == 'committed' and tonumber(current) > 0 and 'contradiction' or 'fenced_off'
  end
  return outcome == 'committed' and 'contradiction' or 'fenced_off'
end
