import { type TProperties, Type } from 'typebox';
import type { JsonObject } from '../json/value.ts';
import { DECISIONS } from '../effects/model/decision.ts';
import { STAGES } from '../effects/model/effect.ts';
import { LEDGER_KINDS } from '../effects/model/ledger.ts';
import {
  AnyObject,
  AnyValue,
  component,
  DidItHappen,
  EntityVersion,
  Flag,
  List,
  MapOf,
  Milliseconds,
  Next,
  Nullable,
  OneOf,
  paged,
  record,
  Time,
} from './schema.ts';

/*
 * What answers about effects hold. The handlers return what fits, or they do not compile; the decisions on a call, whose
 * texts are made on the way of every call, are held to their schemas by the tests.
 */

const { String: Text, Literal, Optional } = Type;
const Count = Type.Integer({ minimum: 0 });
export const Decision = component('Decision', Type.Enum([...DECISIONS], { description: 'The 14 decisions.' }));
export const STATES = [
  'pending_approval',
  'executing',
  'committed',
  'failed',
  'unknown',
  'rejected',
  'denied',
] as const;
export const EffectState = component('EffectState', Type.Enum([...STATES]));
const Url = Text({ format: 'uri' });

export const Reason = record('Reason', 'Why the decision was made.', {
  code: Text({ description: 'Stable; it has a page under `/docs/errors/`.' }),
  message: Text({ description: 'For people and models.' }),
  policy: Optional(Text({ description: 'The policy set that decided.' })),
  rule: Optional(Text({ description: 'The rule that decided, `set/rule`.' })),
});

const Figures = {
  budget: Text({ description: '`set/budget`.' }),
  unit: Text({ description: 'What the figures count: `EUR-cent`, `tokens`.' }),
};
const Standing = {
  level: Type.Enum(['ok', 'low', 'exhausted'], { description: '`low` from the percentage on that policy says.' }),
  resets_at: Nullable(Time, '`null` for rolling windows.'),
};
export const BUDGET = {
  ...Figures,
  limit: Optional(Count),
  spent: Optional(Count),
  held: Optional(Count),
  remaining: Optional(Count),
  ...Standing,
};
const Budget = record(
  'Budget',
  'A budget. Of one that it shares, an agent sees only the level, and no figures.',
  BUDGET,
);

const Mismatch = record('Mismatch', 'A field whose live value is not the assumed one.', {
  field: Text(),
  assumed: AnyValue('The assumed value; `null` where there is none.'),
  current: AnyValue('The live value; `null` where there is none.'),
  truncated: Optional(Flag('A value is too long to be shown: it is a text with its beginning, or null.')),
});
export const Mismatches = List(Mismatch);

/** The payload has members that later versions may add to: what is signed is the JWS. */
export const Receipt = component(
  'Receipt',
  Type.Unsafe<JsonObject>(
    Type.Object(
      {
        v: Literal(1),
        id: Text(),
        iss: Text(),
        iat: Time,
        ws: Text(),
        action: AnyObject('Tool, its pin, and commitments to target, params and key.'),
        actor: AnyObject('Agent, key and user.'),
        approval: List(AnyObject('An approving vote.')),
        budget: List(Type.Object({ id: Text(), posted: Count, unit: Text() })),
        claims: List(Text()),
        durability: Text(),
        effect: AnyObject('Id, attempt, decision, and who settled it.'),
        ledger: Type.Object({ epoch: Count, seq: Count }),
        log: Type.Null(),
        policy: AnyObject('Version, and the rules that matched.'),
        reservations: List(Type.Object({ pool: Text(), units: Count })),
        svc: Type.Object({ node: Text(), version: Text() }),
        upstream: AnyObject('Name, times, status, and commitments to request and answer.'),
        jws: Text({ description: 'Compact JWS (RFC 7515): what is signed.' }),
      },
      { additionalProperties: true, description: 'The signed receipt: its payload, and the signature.' },
    ),
  ),
);

export const PENDING_APPROVAL = {
  id: Text(),
  status: Type.Enum(['pending', 'granted', 'rejected', 'expired', 'used']),
  expires_at: Time,
  quorum: Count,
  approvals: Count,
  url: Type.String({ format: 'uri', description: 'The page on which people decide. By itself it shows nothing.' }),
};
const PendingApproval = component('PendingApproval', Type.Object(PENDING_APPROVAL));

const Observed = record('Observed', 'While policy only observes: what it would have decided.', {
  would: Type.Enum([...DECISIONS, 'invalid_request']),
  rule: Nullable(Text()),
});

const RESULT = {
  result: Optional(AnyValue('What the upstream answered: JSON, a text, or what `result_encoding` says.')),
  upstream_status: Optional(Type.Integer({ minimum: 100, maximum: 599 })),
  result_encoding: Optional(
    Type.Enum(['base64', 'digest'], {
      description: 'Absent: the result is JSON or a text. `digest`: the answer was passed on, and only this is kept.',
    }),
  ),
  result_omitted: Optional(Flag('Too large for a list, or not readable any more.')),
  response_truncated: Optional(Flag('The answer was cut, or broke off.')),
};
const Accepted = Optional(Flag('The upstream has accepted it, and finishes it later.'));
const Settlement = Optional(Literal('pending', { description: 'True and durable here, but not yet in the store.' }));

const Changed = record(
  'Changed',
  'An approver changed these params before it ran; `params` of the effect has what ran.',
  { approval_id: Text(), params: List(Text()) },
);

const Allowed = record(
  'Allowed',
  'Nobody was asked: this user had allowed calls alike. `use`: how many-th of them it is.',
  { id: Text(), approval_id: Text(), given_by: Text(), use: Count },
);

const NAMED = {
  effect_id: Text(),
  tool: Text(),
  target: Text(),
  agent_id: Text(),
  idempotency_key: Text(),
  attempt: Count,
};
const SAID = {
  reason: Reason,
  safe_to_retry: Type.Boolean({ description: 'Whether the same call with the same key may be sent again.' }),
  next: Next,
  budgets: Optional(List(Budget)),
  observed: Optional(Observed),
  changed: Optional(Changed),
  retry_after_ms: Optional(Milliseconds),
  links: MapOf(Url, 'Where to go on: `docs`, `effect`, `receipt`, `resolve`.'),
};

/** One decision on a call, as its answer says it. */
function decided(
  name: string,
  decision: (typeof DECISIONS)[number],
  happened: 'yes' | 'no' | 'maybe',
  own: TProperties,
  what: string,
) {
  const said = { decision: Literal(decision), did_it_happen: Literal(happened) };
  return component(name, Type.Object({ ...said, ...NAMED, ...SAID, ...own }, { description: what }));
}

const MISMATCHES = { mismatches: Optional(Mismatches) };
const ENDED = { receipt: Receipt, ...RESULT };
const Committed = decided(
  'Committed',
  'committed',
  'yes',
  { ...ENDED, accepted: Accepted, settlement: Settlement },
  'It happened, and this call did it.',
);
const DuplicateBlocked = decided(
  'DuplicateBlocked',
  'duplicate_blocked',
  'yes',
  { ...ENDED, result_expired: Optional(Flag('It is kept no longer.')) },
  'It happened earlier under this key; nothing ran again.',
);
const AwaitingApproval = decided(
  'AwaitingApproval',
  'pending_approval',
  'no',
  { approval: PendingApproval },
  'Not yet: a person decides.',
);
const InProgress = decided('InProgress', 'in_progress', 'maybe', {}, 'It is running now under this key.');
const DeniedBudget = decided('DeniedBudget', 'denied_budget', 'no', MISMATCHES, 'A budget does not hold it.');
const DeniedClaim = decided(
  'DeniedClaim',
  'denied_claim',
  'no',
  MISMATCHES,
  'Another agent has the target, or its state is not the assumed one.',
);
const DeniedReservation = decided('DeniedReservation', 'denied_reservation', 'no', MISMATCHES, 'A pool is full.');
const DeniedPaused = decided('DeniedPaused', 'denied_paused', 'no', MISMATCHES, 'People have stopped such calls.');
const IdempotencyConflict = decided(
  'IdempotencyConflict',
  'idempotency_conflict',
  'no',
  {},
  'The key names another action.',
);
const Failed = decided('Failed', 'failed', 'no', { ...RESULT, settlement: Settlement }, 'It did not happen.');
const UnknownEffect = decided(
  'UnknownEffect',
  'unknown_effect',
  'maybe',
  { settlement: Settlement },
  'Nobody knows whether it happened.',
);

/** Permission is judged before the body. If the body cannot be read, its names are not known. */
const Refused = record('Refused', 'Key, agent or policy do not allow it.', {
  decision: Type.Enum(['denied_permission', 'denied_policy', 'denied_identity']),
  did_it_happen: Literal('no'),
  ...Type.Partial(Type.Object(NAMED)).properties,
  ...SAID,
  ...MISMATCHES,
});

const UnlikeBefore = OneOf([DuplicateBlocked, InProgress, DeniedClaim, IdempotencyConflict, UnknownEffect], 'decision');

export const DECIDED = {
  200: Committed,
  202: AwaitingApproval,
  402: DeniedBudget,
  403: Refused,
  409: UnlikeBefore,
  423: OneOf([DeniedReservation, DeniedPaused], 'decision'),
  502: Failed,
  504: UnknownEffect,
};

const Evidence = Type.Object(
  {
    code: Text({ description: '`http_status`, `timeout`, `reset`, `lease_over`, …' }),
    message: Text(),
    status: Nullable(Type.Integer(), 'What the upstream answered; `null` where no answer was read.'),
    started_at: Nullable(Time),
    ended_at: Nullable(Time),
  },
  { description: 'What was observed of the upstream.' },
);
const SettledBy = OneOf([
  Type.Object({ by: Type.Enum(['owner', 'late_answer']) }),
  Type.Object({ by: Literal('probe'), evidence: AnyObject('What the probe found.') }),
  Type.Object({
    by: Literal('resolve'),
    key_id: Text(),
    user: Nullable(Text()),
    forced: Type.Boolean(),
    comment: Nullable(Text()),
    evidence: AnyValue('What the outcome rests on.'),
  }),
]);

export const PARAMS = {
  params: Optional(AnyObject('Those that policy redacts are masked.')),
  asked_params: Optional(AnyObject('What the agent asked, where an approver changed it.')),
  headers: Optional(MapOf(AnyValue('A header.'), 'Headers that are part of the action.')),
  params_truncated: Optional(Flag('Some are cut.')),
  params_omitted: Optional(Text({ description: 'Why there are none.' })),
};

const RECORD = {
  changed: Optional(Changed),
  beyond: Optional(
    List(Type.Object({ limit: Text(), by: Count }), 'Limits that approvers let it go beyond, and by how much.'),
  ),
  allowance: Optional(Allowed),
  id: Text(),
  effect_id: Text(),
  workspace: Text(),
  decision: Decision,
  action_type: Text(),
  tool: Text(),
  target: Text(),
  upstream: Text(),
  agent_id: Text(),
  key_id: Text(),
  via: Type.Enum(['effects_api', 'proxy', 'mcp']),
  idempotency_key: Text(),
  fingerprint: Text(),
  attempt: Count,
  reason: Reason,
  did_it_happen: DidItHappen,
  safe_to_retry: Type.Boolean(),
  next: Next,
  created_at: Time,
  first_dispatch_at: Nullable(Time),
  settled_at: Nullable(Time),
  receipt_id: Nullable(Text()),
  policy: Type.Object({
    version: Text(),
    matched: List(Text(), 'The rules that matched, `set/rule`.'),
    entities: Optional(List(EntityVersion)),
  }),
  observed: Optional(Observed),
  holds: List(Type.Object({ ...Figures, window: Text(), amount: Count })),
  hold_state: Type.Enum(['none', 'held', 'posted', 'voided']),
  metadata: Optional(AnyObject('As the call gave it.')),
  ...PARAMS,
  links: MapOf(Url, '`effect`, `run`, `receipt`, `resolve`.'),
};
const SETTLED = { settled_by: SettledBy, evidence: Evidence, ...RESULT };

function inState<State extends string, Own extends TProperties>(name: string, state: State, own: Own) {
  return component(name, Type.Object({ state: Literal(state), ...RECORD, ...own }));
}

export const Effect = component(
  'Effect',
  OneOf(
    [
      inState('PendingEffect', 'pending_approval', { approval_id: Text(), approval: Optional(PendingApproval) }),
      inState('ExecutingEffect', 'executing', { lease_end: Time }),
      inState('CommittedEffect', 'committed', { receipt: Receipt, accepted: Accepted, ...SETTLED }),
      inState('FailedEffect', 'failed', SETTLED),
      inState('UnknownOutcome', 'unknown', { evidence: Evidence, quiesce_until: Time }),
      inState('RejectedEffect', 'rejected', { approval_id: Text(), refused_until: Time }),
      inState('DeniedEffect', 'denied', MISMATCHES),
    ],
    'state',
  ),
);
export const Effects = component('EffectPage', paged({ effects: List(Effect) }));

export const Actor = Type.Object({ type: Type.Enum(['agent', 'user', 'key', 'gateway']), id: Text() });

export const LedgerEvent = record('LedgerEvent', 'An event of the append-only ledger.', {
  seq: Count,
  id: Text(),
  at: Time,
  recorded_at: Optional(Time),
  kind: Type.Enum([...LEDGER_KINDS]),
  effect_id: Nullable(Text()),
  actor: Actor,
  data: AnyObject('What the kind of event says.'),
});
export const EffectWithLedger = record('EffectWithLedger', null, { effect: Effect, ledger: List(LedgerEvent) });

/** `GET …/receipt`: with `disclosure=1` beside what opens its commitments, with `Accept: application/jose` the bare JWS. */
const Disclosed = Type.Object({
  receipt: Receipt,
  disclosure: Type.Object({
    salts: MapOf(Text(), 'By field of the receipt.'),
    values: MapOf(AnyValue('What the receipt commits to.'), 'By field of the receipt.'),
    leaves: Type.Optional(
      MapOf(List(Text()), 'Where one param is opened and others stay closed: the digests of all of them.'),
    ),
  }),
});
export const ReceiptAnswer = Type.Unsafe<JsonObject | string>({
  description: 'The receipt.',
  content: {
    'application/json': { schema: { anyOf: [Receipt, Disclosed] } },
    'application/jose': { schema: Text() },
  },
});

const Stage = Type.Object({
  stage: Type.Enum([...STAGES]),
  status: Type.Enum(['passed', 'refused', 'failed', 'unknown', 'waiting', 'skipped', 'running']),
  started_at: Time,
  duration_ms: Nullable(Type.Number({ minimum: 0 })),
  detail: Nullable(Text()),
});
export const Run = record('Run', null, { effect_id: Text(), state: EffectState, attempt: Count, stages: List(Stage) });

export const Approvers = Type.Object({ roles: List(Text()), users: List(Text()) });
/** Who has to agree, as answers show it. */
export const Requirement = {
  rule: Text(),
  approvers: Approvers,
  quorum: Type.Integer({ minimum: 0 }),
  summary: Text(),
  hours: Optional(Text({ description: 'The schedule of the policy in which its times are counted.' })),
  beyond: Optional(Text({ description: 'The limit that the call would go beyond: `budget:<id>` or `rate:<id>`.' })),
};

const AsksBeyond = Flag('Beyond the limit people are asked.');
const Obligation = OneOf([
  Type.Object({
    kind: Literal('budget'),
    rule: Text(),
    ...Figures,
    amount: Nullable(Count),
    limit: Optional(Count),
    or_ask: Optional(AsksBeyond),
  }),
  Type.Object({
    kind: Literal('rate_limit'),
    rule: Text(),
    id: Text(),
    window_ms: Milliseconds,
    limit: Count,
    or_ask: Optional(AsksBeyond),
  }),
  Type.Object({ kind: Literal('claim'), rule: Text(), target: Text(), hold: Type.Enum(['call', 'existing']) }),
  Type.Object({ kind: Literal('reserve'), rule: Text(), pool: Text(), units: Count }),
  Type.Object({ kind: Literal('approval'), ...Requirement, expires_ms: Milliseconds }),
]);
const RuleEffect = Type.Enum(['allow', 'constrain', 'require_approval', 'deny', 'pause']);

export const Preview = record('Preview', null, {
  would: Decision,
  http_status: Type.Integer(),
  reason: Reason,
  tool: Text(),
  target: Text(),
  agent_id: Text(),
  obligations: List(Obligation),
  policies: List(Type.Object({ rule: Text(), effect: RuleEffect, unknown: List(Text()) })),
  policy_version: Text(),
  entities: Optional(List(EntityVersion)),
  budgets: List(Budget),
  observed: Optional(Observed),
});

export const Rule = record('Rule', null, {
  id: Text(),
  set: Text(),
  effect: RuleEffect,
  mode: Type.Enum(['enforce', 'shadow']),
  description: Nullable(Text()),
  priority: Type.Integer(),
  file: Optional(Text()),
  line: Optional(Count),
});
