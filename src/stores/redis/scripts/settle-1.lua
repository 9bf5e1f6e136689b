-- Records what an attempt came to. Only the owner of the attempt, by its fence; late evidence as the state table says.
-- `failed`, `denied` and `evidence` are documents for the states that the attempt may come to.
-- @include begin step boots tallies claims effects release settling
-- @keys workspace
-- @args epoch gateway clock request out failed denied evidence stages events receipt
-- @replies ok:ended ok:settled ok:refused ok:absent

local stop = begin(false)
if stop then return stop end

local q = cjson.decode(ARGV[4])
q.out, q.failed, q.denied, q.evidence, q.jws = document(5), document(6), document(7), document(8), document(11)
local e = load_effect(q.effect)
if not e or e.st == 'tombstone' then return finish({ 'absent' }) end

local held = q.held == '1' and e.st == 'executing' and same_fence(e, q.epoch, q.n, q.nonce)
local function answer(reply)
  plan_tallies()
  for _, value in ipairs(effect_reply(e, held)) do reply[#reply + 1] = value end
  return finish(reply)
end

-- What its owner left behind when it ended is unknown by now: this is a late answer.
if owner_ended(e.bt) then plan_lose(e) end
local in_time = held and e.st == 'executing'
local refusal, changes = settle_life(e, q)
local function same_receipt() return redis.call('HGET', P .. 'e:' .. e.id, 'jws') == ARGV[11] end
if refusal == 'unchanged' and e.st == 'committed' and q.outcome == 'committed' and same_receipt() then
  -- The same settlement again: true already.
  return answer({ 'settled' })
end
if refusal == 'contradiction' then
  plan_effect(e, { closed = '1' })
  event('effect.contradiction', e.id, 'gateway', 'owner', '', 'state', 's', e.st, 'said', 's', q.outcome, 'attempt', 'n', q.n,
    'current_attempt', 'n', e.att or '0', 'evidence', 's', q.message)
  return answer({ 'refused', '1' })
end
if refusal then return answer({ 'refused', '0' }) end

local ending = changes.st == 'unknown' and 'keep' or (changes.st == 'committed' and 'post' or 'void')
local keep_until = changes.st == 'unknown' and number_of(e, 'quiet') or nil
for _, draft in ipairs(list(ARGV[10])) do
  if changes.st ~= q.outcome and string.find(draft[1], '^execution%.') and draft[1] ~= 'execution.started' then
    draft[#draft + 1], draft[#draft + 2], draft[#draft + 3] = 'recorded_as', 's', changes.st
  end
  event(draft[1], e.id, 'gateway', 'owner', unpack(draft, 2))
end
for name, value in pairs(plan_release(e, ending, keep_until)) do changes[name] = value end
if ARGV[9] ~= '' then
  -- An attempt that was settled before, as unknown, has stages of then.
  local before = e.st ~= 'executing' and redis.call('HGET', P .. 'e:' .. e.id, 'more') or ''
  changes.more = before == '' and document(9) or before .. '\n' .. ARGV[9]
end
plan_effect(e, changes)
if e.st == 'denied' then plan_unbind(e) end
money_events()
if in_time and (e.st == 'committed' or e.st == 'failed') then
  -- The gateway has the rest.
  plan_tallies()
  return finish({ 'ended', e.st, e.at, e.hs or 'none', e.closed or '', e.uns or '0' })
end
return answer({ 'settled' })
