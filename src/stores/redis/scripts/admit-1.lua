-- The one atomic admission: idempotency, fingerprint, approval, pause, claim, reservation, rate, budget, lease, ledger.
-- Decides what effects/steps/admission.ts decides.
-- @include begin step boots tallies claims effects release approvals obligations
-- @keys workspace
-- @args epoch gateway clock request doc run metadata sealed obligations approval
-- @replies ok:first ok:dispatch ok:pending ok:existing ok:expired ok:refused ok:stale clock_ahead

local stop = begin(false)
if stop then return stop end

-- What the request leaves out is empty.
local q = setmetatable(cjson.decode(ARGV[4]), { __index = function() return '' end })
local unsure = disbelieved()
if unsure and q.preview ~= '1' then return unsure end
local obligations = list(ARGV[9])
local MAX_ATTEMPTS, MAX_PENDING, POLL_MS = 10, 20, 1000
local DOC, RUN, METADATA, SEALED, APPROVAL = document(5), document(6), document(7), document(8), document(10)
local carried = false

-- Attempts that sent nothing do not count: `uns` of them.
local function is_exhausted(e) return number_of(e, 'att') - number_of(e, 'uns') >= MAX_ATTEMPTS end

local function answer(reply, fields)
  plan_tallies()
  for _, value in ipairs(fields or {}) do reply[#reply + 1] = value end
  return finish(reply, '', q.preview == '1')
end

-- A refusal or duplicate beyond what is written a second: nothing is written, the gateway counts.
local function quiet(word)
  if not string.find(q.quiet, '|' .. word .. '|', 1, true) then return false end
  plan, events, tallies, money, effect_writes = {}, {}, {}, {}, {}
  return true
end

local function fresh(state, decision)
  return {
    id = q.effect, key = q.key, fp = q.fp, agent = q.agent, tool = q.tool, td = q.td, doc = DOC, run = RUN, sealed = SEALED,
    meta = q.hasmeta == '1' and METADATA or nil, ow = q.ow, orule = q.orule, st = state, dec = decision, att = '0', hs = 'none',
  }
end

-- Code and rule of a reason, of which `at` strings stand before it.
local function code_and_rule(why, at)
  local code, rule = why[at + 1], why[at + 2] or ''
  if code == '=' then code, rule = why[at + 2], why[at + 4] or '' end
  if code == 'claim_named' then code = 'claim_required' end
  return code, rule
end

-- The granted request whose call the gateway sends by itself, or nil. What stops the call is said when it is new.
local dispatched = nil
local function stop_dispatch(id, decision, why, code, rule)
  local before_code, before_rule = code_and_rule(list(dispatched.stop), 2)
  if before_code == code and before_rule == rule then return end
  put('HSET', 'a:' .. dispatched.id, 'stop', cjson.encode({ int(now), decision, unpack(why) }))
  local more = { 'decision', 's', decision, 'code', 's', code, 'approval_id', 's', dispatched.id }
  if rule ~= '' then more[10], more[11], more[12] = 'rule', 's', rule end
  event('effect.denied', id, 'agent', q.agent, q.ev_denied, unpack(more))
end

-- A refusal is an event, and an effect of its own; it binds no key and leaves an earlier effect as it is. A key that acts
-- for no agent is refused itself.
local function denial(decision, why, earlier, retry, row)
  local code, rule = code_and_rule(why, 0)
  local id = earlier and earlier.id or q.effect
  if dispatched then
    stop_dispatch(id, decision, why, code, rule)
    return answer({ 'refused', id, decision, array(why), earlier.att or '0', retry or '', row and cjson.encode(row) or '', '' })
  end
  local loud = not quiet(code)
  if loud then
    local more = { 'decision', 's', decision, 'code', 's', code }
    if rule ~= '' then more[7], more[8], more[9] = 'rule', 's', rule end
    if not earlier then
      local e = fresh('denied', decision)
      e.at, e.why = int(now), array(why)
      plan_new_effect(e, false)
    end
    local acts = q.agent ~= ''
    event('effect.denied', id, acts and 'agent' or 'key', acts and q.agent or q.rkey, q.ev_denied, unpack(more))
  end
  return answer({ 'refused', id, decision, array(why), earlier and earlier.att or '0', retry or '', row and cjson.encode(row) or '', loud and '' or code })
end

local function existing(e, safe, retry)
  return answer({ 'existing', safe and '1' or '0', retry and int(retry) or '', '' }, effect_reply(e))
end

-- Policy or pauses moved on, or a calendar window did: what was evaluated is not what is in force.
local function stale()
  local moved = meta.policy ~= q.policy or meta.pauses ~= q.pauses
  if not moved and q.vk == 'permit' then
    for _, it in ipairs(obligations) do
      local from, to = nil, nil
      if it[1] == 'budget' then from, to = string.match(it[7], '^c:(%-?%d+):(%-?%d+)$') end
      if from and (now < tonumber(from) or now >= tonumber(to)) then moved = true end
    end
  end
  if not moved then return nil end
  plan, events, tallies, money, effect_writes = {}, {}, {}, {}, {}
  return answer({ 'stale', meta.policy, meta.pauses })
end

-- An effect that is run again begins its stages anew.
local function plan_documents(e, changes)
  local there = redis.call('HMGET', P .. 'e:' .. e.id, 'sealed', 'more')
  if not there[1] or there[1] == '!' then changes.sealed = SEALED end
  if there[2] and there[2] ~= '' then changes.more = '' end
end

local function dispatch(earlier, met, granted, already)
  if earlier and (earlier.closed == '1' or is_exhausted(earlier)) then
    return denial('denied_policy', { 'attempts_exhausted' }, earlier)
  end
  local attempt = int((earlier and number_of(earlier, 'att') or 0) + 1)
  local by = now + tonumber(q.dispatch)
  local ends = by + tonumber(q.timeout) + 2000
  local uses = {}
  for _, pool in ipairs(met.pools) do uses[#uses + 1] = { pool, int(met.uses[pool]) } end
  local place = int(meta.seq + #events + 1)
  local lease = {
    aseq = place, st = 'executing', dec = 'in_progress', att = attempt, td = q.td, run = RUN,
    ow = met.would, orule = met.wrule, holds = array(met.holds), hs = #met.holds == 0 and 'none' or 'held',
    claims = array(met.targets), uses = array(uses), le = meta.epoch, nonce = q.nonce, owner = q.owner, bt = q.boot,
    adm = int(now), dby = int(by), lend = int(ends), quiet = int(ends + tonumber(q.processing) + tonumber(q.freeze)),
  }
  -- Policy asks nobody any more: what was asked before is open no longer.
  local moot = earlier and earlier.st == 'pending_approval' and not granted and load_approval(earlier.ap)
  local e
  if not earlier then
    e = fresh('executing', 'in_progress')
    for name, value in pairs(lease) do e[name] = value end
    e.fda = lease.adm
    plan_new_effect(e, true)
  else
    e = earlier
    local repeats = e.st == 'unknown'
    if not repeats then
      lease.fda = lease.adm
      if number_of(e, 'att') > 0 then lease.gen = int((tonumber(e.gen) or 1) + 1) end
    end
    lease.mhh = repeats and '1' or '0'
    if q.hasmeta == '1' then lease.meta = METADATA end
    plan_documents(e, lease)
    if not carried then
      for _, use in ipairs(list(e.uses)) do put('HDEL', 'u:' .. use[1], e.id) end
    end
    plan_effect(e, lease)
  end
  if granted then
    plan_approval(granted, 'used', granted.decided)
    if (granted.stop or '') ~= '' then
      granted.stop = ''
      put('HSET', 'a:' .. granted.id, 'stop', '')
    end
  end
  if moot then plan_approval(moot, 'expired', int(now)) end
  plan_met_money(met, already)
  for _, target in ipairs(met.targets) do put_claim(met.claims[target]) end
  for _, use in ipairs(uses) do put_use(use[1], e.id, q.agent, use[2], '') end
  local more = { 'attempt', 'n', attempt }
  local function add(name, type, value) more[#more + 1], more[#more + 2], more[#more + 3] = name, type, value end
  if granted then add('approval_id', 's', granted.id) end
  if met.would ~= '' then add('observed', 'o', cjson.encode({ met.would, met.wrule })) end
  event('effect.admitted', e.id, 'agent', q.agent, q.ev_admit, unpack(more))
  if #met.holds > 0 then event('budget.held', e.id, 'agent', q.agent, '', 'holds', 'h', e.holds) end
  if not earlier then
    -- The gateway has the rest.
    return answer({ 'first', array(met.rows), place, e.dby, e.lend, e.quiet, e.holds, e.claims, e.uses, e.ow, e.orule })
  end
  local reply = effect_reply(e)
  local count = int(#reply)
  for _, value in ipairs(granted and approval_reply(granted) or {}) do reply[#reply + 1] = value end
  return answer({ 'dispatch', array(met.rows), place, count }, reply)
end

-- met: nil where the question alone is renewed
local function ask_for_approval(earlier, met, already)
  local renews = earlier and earlier.st == 'pending_approval'
  if not renews and redis.call('SCARD', P .. 'ap:' .. q.agent) >= MAX_PENDING then
    return denial('denied_policy', { 'too_many_pending' }, earlier)
  end
  if earlier and (earlier.closed == '1' or (earlier.st ~= 'failed' and not renews)) then
    return denial('denied_policy', { 'key_closed' }, earlier)
  end
  local holds = met and array(met.holds) or (earlier and earlier.holds or '')
  local changes = {
    st = 'pending_approval', dec = 'pending_approval', ap = q.approval, td = q.td, run = RUN,
    ow = q.ow, orule = q.orule, holds = holds, hs = holds == '' and 'none' or 'held',
  }
  local e
  if renews then
    local old = load_approval(earlier.ap)
    if old then plan_approval(old, 'expired', int(now)) end
  end
  if earlier then
    e = earlier
    plan_documents(e, changes)
    plan_effect(e, changes)
  else
    e = fresh('pending_approval', 'pending_approval')
    for name, value in pairs(changes) do e[name] = value end
    plan_new_effect(e, true)
  end
  local a = {
    id = q.approval, doc = APPROVAL, effect = e.id, digest = q.digest, quora = q.quora, votes = '', status = 'pending',
    created = int(now), expires = int(now + tonumber(q.expires)), decided = '', n = next_place(), agent = q.agent,
    ruser = q.ruser, rowner = q.rowner, rmade = q.rmade, rkey = q.rkey,
  }
  local id = a.id
  a.id = nil
  put_fields('a:' .. id, a)
  a.id = id
  put('ZADD', 'ao', a.n, a.id)
  put('ZADD', 'as:pending', a.n, a.id)
  put('ZADD', 'ax', a.expires, a.id)
  put('SADD', 'ap:' .. q.agent, a.id)
  if met then plan_met_money(met, already) end
  event(renews and 'approval.renewed' or 'approval.requested', e.id, 'agent', q.agent, q.ev_ask, 'approval_id', 's', a.id, 'expires_at', 't', a.expires)
  if met and #met.holds > 0 then event('budget.held', e.id, 'agent', q.agent, '', 'holds', 'h', e.holds) end
  local reply = effect_reply(e)
  local count = int(#reply)
  for _, value in ipairs(approval_reply(a)) do reply[#reply + 1] = value end
  return answer({ 'pending', '1', count }, reply)
end

local function evaluate_permit(earlier, granted)
  if earlier and earlier.st == 'pending_approval' and q.paused ~= '' then
    return denial('denied_paused', { '=', 'paused', q.paused_reason, '' }, earlier)
  end
  local must_ask = q.asks == '1' and not granted and q.mode == 'enforce'
  local already = earlier and earlier.hs == 'held' and list(earlier.holds) or {}
  local met, refusal = satisfy(q, obligations, earlier and earlier.id or q.effect, {
    own = must_ask and q.hold_all ~= '1', already = already, rate_counted = earlier ~= nil and earlier.st == 'pending_approval',
  })
  if not met then return denial(refusal.decision, refusal.why, earlier, refusal.retry, refusal.row) end
  if must_ask then return ask_for_approval(earlier, met, already) end
  if met.would == '' and q.mode == 'observe' and q.asks == '1' then
    met.would, met.wrule = 'pending_approval', q.ask_rule
  end
  return dispatch(earlier, met, granted, already)
end

-- Pauses, policy, approvals and obligations for an action that nothing is under way for. earlier: a failed effect.
local function evaluate_fresh(earlier)
  local moved = stale()
  if moved then return moved end
  if q.paused ~= '' and (q.paused_until == '' or now < tonumber(q.paused_until)) then
    local left = q.paused_until ~= '' and int(tonumber(q.paused_until) - now) or ''
    return denial('denied_paused', { '=', 'paused', q.paused_reason, '' }, earlier, left)
  end
  if q.vk == 'deny' then return denial(q.vdec, { '=', q.vcode, q.vreason, q.vrule }, earlier) end
  if q.asks == '1' and q.mode == 'enforce' then
    local rejection = redis.call('HGET', P .. 'rej', q.fp)
    if rejection and tonumber(string.match(rejection, '^%d+')) > now then
      return denial('denied_policy', { 'approval_rejected' }, earlier)
    end
  end
  return evaluate_permit(earlier, nil)
end

-- Only what the upstream itself deduplicates runs again while its outcome is unknown.
local function repeat_unknown(e)
  -- An approval covers one dispatch, and nobody is asked for another while the outcome of that one is unknown.
  local asks = q.asks == '1' and q.mode == 'enforce'
  local repeatable = q.idempotent ~= '' and not asks and e.closed ~= '1' and not is_exhausted(e) and e.td == q.td
    and (e.fda or '') ~= '' and now < number_of(e, 'fda') + tonumber(q.idempotent)
  local function stay()
    return existing(e, repeatable, not repeatable and math.max(POLL_MS, number_of(e, 'quiet') - now) or nil)
  end
  if not repeatable or q.vk == 'deny' or q.paused ~= '' then return stay() end
  local moved = stale()
  if moved then return moved end
  -- The holds of the unknown attempt stay: this is the same action, and it happens at most once.
  local others = {}
  for _, it in ipairs(obligations) do
    if it[1] ~= 'budget' then others[#others + 1] = it end
  end
  local met = satisfy(q, others, e.id, { own = false, already = {}, rate_counted = false })
  if not met then return stay() end
  met.holds = list(e.holds)
  return dispatch(e, met, nil, {})
end

local function pending(e, a)
  local reply = effect_reply(e)
  local count = int(#reply)
  for _, value in ipairs(approval_reply(a)) do reply[#reply + 1] = value end
  return answer({ 'pending', '0', count }, reply)
end

local function waiting(e)
  local a = load_approval(e.ap)
  if not a then error('effect ' .. e.id .. ' waits for an approval that is not on record') end
  if now >= tonumber(a.expires) then
    plan_expiry(e, a)
    carried = true
    return evaluate_fresh(nil)
  end
  if q.vk == 'deny' then
    if a.status == 'granted' then return denial(q.vdec, { '=', q.vcode, q.vreason, q.vrule }, e) end
    return pending(e, a)
  end
  local same = a.digest == q.digest
  if same and not is_quorate(a) then return pending(e, a) end
  local moved = stale()
  if moved then return moved end
  if not same and q.asks == '1' then return ask_for_approval(e, nil, {}) end
  return evaluate_permit(e, same and a or nil)
end

-- The owner asks again because the answer to this very admission was lost on the way: its lease begins anew.
local function admitted_before(e)
  local by = now + tonumber(q.dispatch)
  local ends = by + tonumber(q.timeout) + 2000
  plan_effect(e, { adm = int(now), dby = int(by), lend = int(ends), quiet = int(ends + tonumber(q.processing) + tonumber(q.freeze)) })
  local reply = effect_reply(e)
  local count = int(#reply)
  local used = (e.ap or '') ~= '' and load_approval(e.ap) or nil
  for _, value in ipairs(used and used.status == 'used' and approval_reply(used) or {}) do reply[#reply + 1] = value end
  return answer({ 'dispatch', '', e.aseq, count }, reply)
end

-- The gateway sends a call that was granted. Only what waits on this very request is sent; of anything else, and of what
-- goes on waiting for the reason that is on record, nothing is written: it is asked again and again.
local function dispatch_granted(e)
  local a = load_approval(q.dispatches)
  local function over(id, attempt)
    return answer({ 'refused', id, 'denied_policy', '["approval_expired","granted"]', attempt, '', '', '' })
  end
  if not e or e.st == 'tombstone' or not a or a.effect ~= e.id then return over(q.effect, '0') end
  if e.st == 'executing' and e.nonce == q.nonce and e.owner == q.owner and now < number_of(e, 'lend') then
    return admitted_before(e)
  end
  if e.st ~= 'pending_approval' then return existing(e, false, nil) end
  if a.status ~= 'granted' or e.ap ~= a.id then return pending(e, e.ap ~= a.id and load_approval(e.ap) or a) end
  if now >= tonumber(a.expires) then
    plan_expiry(e, a)
    return over(e.id, e.att or '0')
  end
  dispatched = a
  return waiting(e)
end

-- The table "the same key again", for the same fingerprint.
local function same_key_again(e)
  if e.st == 'committed' then
    local loud = not quiet('duplicate')
    if loud then event('effect.duplicate_blocked', e.id, 'agent', q.agent, '', 'receipt_id', 's', e.rcp) end
    return answer({ 'existing', '0', '', loud and '' or 'duplicate' }, effect_reply(e))
  end
  if e.st == 'executing' then
    local left = number_of(e, 'lend') - now
    if left > 0 and e.nonce == q.nonce and e.owner == q.owner then return admitted_before(e) end
    if not is_lost(e) then return existing(e, false, math.min(POLL_MS, left)) end
    carried = plan_lose(e)
    return repeat_unknown(e)
  end
  if e.st == 'unknown' then return repeat_unknown(e) end
  if e.st == 'failed' then
    if e.closed == '1' then return denial('denied_policy', { 'key_closed' }, e) end
    if is_exhausted(e) then return denial('denied_policy', { 'attempts_exhausted' }, e) end
    return evaluate_fresh(e)
  end
  if e.st == 'pending_approval' then return waiting(e) end
  if e.st == 'rejected' then return denial('denied_policy', { 'approval_rejected' }, e) end
  return evaluate_fresh(nil)
end

-- Who may not act learns nothing of what the key is bound to.
if q.vk == 'deny' and (q.vdec == 'denied_permission' or q.vdec == 'denied_identity') then
  return denial(q.vdec, { '=', q.vcode, q.vreason, q.vrule })
end
local bound = redis.call('GET', P .. 'k:' .. q.key)
local e = bound and load_effect(bound)
if q.dispatches ~= '' then return dispatch_granted(e) end
if not e then return evaluate_fresh(nil) end
if e.fp ~= q.fp then
  local loud = not quiet('conflict')
  if loud then
    local refused = fresh('denied', 'idempotency_conflict')
    refused.at, refused.why = int(now), '["key_reused"]'
    plan_new_effect(refused, false)
    event('effect.conflict', q.effect, 'agent', q.agent, q.ev_conflict)
  end
  return answer({ 'refused', q.effect, 'idempotency_conflict', '["key_reused"]', '0', '', '', loud and '' or 'conflict', e.agent ~= q.agent and '1' or '' })
end
if e.st == 'tombstone' then
  if e.tst == 'committed' then
    local loud = not quiet('duplicate')
    if loud then event('effect.duplicate_blocked', e.id, 'agent', q.agent, '', 'receipt_id', 's', e.rcp) end
    return answer({ 'expired', loud and '' or 'duplicate' }, effect_reply(e))
  end
  if e.tst == 'rejected' then return denial('denied_policy', { 'approval_rejected' }) end
  return evaluate_fresh(nil)
end
return same_key_again(e)
