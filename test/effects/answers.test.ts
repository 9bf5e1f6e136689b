import { describe, expect, it } from 'vitest';
import type { KeptBody, KeptResult } from '../../src/effects/model/answer.ts';
import type { ApprovalRecord, Vote } from '../../src/effects/model/approval.ts';
import { DECISIONS } from '../../src/effects/model/decision.ts';
import { BUSY, type EffectRecord, type Life } from '../../src/effects/model/effect.ts';
import type { AdmitRequest } from '../../src/effects/store.ts';
import type { RunOutcome } from '../../src/effects/model/outcome.ts';
import type { Preview } from '../../src/effects/run/preview-effect.ts';
import { renderOutcome } from '../../src/effects/run/render.ts';
import { outcomeFor, outcomeOfAdmission, outcomeOfRecord } from '../../src/effects/run/to-outcome.ts';
import { effectToWire, happenedTo } from '../../src/effects/wire/effect.ts';
import { obligationToWire, previewToWire, requirementToWire } from '../../src/effects/wire/preview.ts';
import { withoutContent } from '../../src/effects/model/without-content.ts';
import { admitRequest, approvalBy, budgetOf, rateOf } from '../contract/requests.ts';
import { makeTool } from '../upstreams/tool.ts';
import { APPROVAL as WAITING, EFFECT } from './records.ts';
import { OUTCOME } from './records.ts';

const CONTEXT = {
  publicUrl: 'https://gateway.example',
  receiptView: (jws: string) => ({ jws }),
  forAgent: true,
  hasProbe: (tool: string) => tool === 'payments.refund',
};

const CALL = {
  ...OUTCOME,
  tool: 'payments.refund',
  target: 'payment:pay_1',
  reason: { code: 'committed', message: 'It happened.' },
} as const;
const RECEIPT = { id: 'rcp_1', jws: 'a.b.c' };

const kept = (body: KeptBody, truncated = false): KeptResult => ({
  kind: 'http',
  status: 201,
  headers: {},
  body,
  truncated,
});
const JSON_KEPT = kept({ kind: 'json', value: { refund_id: 7 } });

const VOTE: Vote = { user: 'maria', keyId: 'key_1', verdict: 'approve', at: 1, comment: null, requirements: [0] };
const APPROVAL: ApprovalRecord = {
  ...WAITING,
  tool: 'payments.refund',
  target: 'payment:pay_1',
  requester: { agentId: 'bot', agentOwner: null, user: 'ops', keyId: 'key_2', keyMadeBy: null },
  requirements: [approvalBy({ quorum: 2 }), approvalBy({ rule: 'payments/abroad', quorum: 1 })],
  // One who votes for both requirements, one who votes twice on a question that changed, and one who says no.
  votes: [
    VOTE,
    { ...VOTE, user: 'omar' },
    { ...VOTE, user: 'omar', at: 2 },
    { ...VOTE, user: 'li', verdict: 'reject' },
  ],
  createdAt: 1,
  expiresAt: Date.parse('2026-06-15T10:00:00Z'),
};

const DONE = {
  ...CALL,
  decision: 'committed',
  receipt: RECEIPT,
  result: JSON_KEPT,
  answer: null,
  accepted: false,
  responseTruncated: false,
  settlement: 'done',
} as const satisfies RunOutcome;
const EARLIER = {
  ...CALL,
  decision: 'duplicate_blocked',
  receipt: RECEIPT,
  result: JSON_KEPT,
  resultExpired: false,
} as const satisfies RunOutcome;
const LOST = {
  ...CALL,
  decision: 'unknown_effect',
  safeToRetry: false,
  settlement: 'done',
} as const satisfies RunOutcome;
const FAILED = {
  ...CALL,
  decision: 'failed',
  answer: null,
  result: JSON_KEPT,
  settlement: 'done',
} as const satisfies RunOutcome;

/** An outcome of each decision. */
const OUTCOMES: readonly RunOutcome[] = [
  DONE,
  EARLIER,
  { ...CALL, decision: 'pending_approval', approval: APPROVAL },
  { ...CALL, decision: 'in_progress' },
  ...(
    [
      'denied_permission',
      'denied_policy',
      'denied_identity',
      'denied_budget',
      'denied_claim',
      'denied_reservation',
      'denied_paused',
    ] as const
  ).map((decision): RunOutcome => ({ ...CALL, decision, mismatches: [] })),
  { ...CALL, decision: 'idempotency_conflict' },
  FAILED,
  LOST,
];

const bodyOf = (outcome: RunOutcome, context = CONTEXT) => renderOutcome(outcome, context).body;
const linksOf = (outcome: RunOutcome) => Object.keys(Object(bodyOf(outcome)['links'])).toSorted();

describe('the answer to a run', () => {
  it('says with every decision what was decided on, and repeats decision and effect in headers', () => {
    expect(new Set(OUTCOMES.map(({ decision }) => decision))).toEqual(new Set(DECISIONS));
    for (const outcome of OUTCOMES) {
      const { headers, body } = renderOutcome(outcome, CONTEXT);
      expect(body).toMatchObject({
        decision: outcome.decision,
        effect_id: 'eff_1',
        tool: 'payments.refund',
        target: 'payment:pay_1',
        agent_id: 'bot',
        idempotency_key: 'k',
        attempt: 1,
      });
      expect(headers).toMatchObject({ 'svc-decision': outcome.decision, 'svc-effect-id': 'eff_1' });
    }
  });

  it('tells libraries whether to ask again wherever the status is no success, and there alone', () => {
    const told = OUTCOMES.filter((outcome) => 'x-should-retry' in renderOutcome(outcome, CONTEXT).headers);
    const successes = ['committed', 'pending_approval'];
    const failures = DECISIONS.filter((one) => !successes.includes(one));
    expect(told.map(({ decision }) => decision).toSorted()).toEqual(failures.toSorted());
    const may = OUTCOMES.filter((outcome) => renderOutcome(outcome, CONTEXT).headers['x-should-retry'] === 'true');
    expect(may.map(({ decision }) => decision)).toEqual(['in_progress']);
  });

  it('has a receipt where it happened, the earlier one for a duplicate, and nowhere else', () => {
    const issued = OUTCOMES.filter((outcome) => 'receipt' in bodyOf(outcome));
    expect(issued.map(({ decision }) => decision)).toEqual(['committed', 'duplicate_blocked']);
    for (const outcome of issued) expect(bodyOf(outcome)['receipt']).toEqual({ jws: 'a.b.c' });
    expect(OUTCOMES.filter((outcome) => linksOf(outcome).includes('receipt'))).toEqual(issued);
  });

  it('leads to the record, to the page about its code, and where nobody knows the outcome to what settles it', () => {
    expect(bodyOf({ ...LOST, reason: { code: 'outcome_unknown', message: 'Lost.' } })['links']).toEqual({
      docs: 'https://gateway.example/docs/errors/outcome_unknown',
      effect: 'https://gateway.example/v1/workspaces/demo/effects/eff_1',
      resolve: 'https://gateway.example/v1/workspaces/demo/effects/eff_1/resolve',
      probe: 'https://gateway.example/v1/workspaces/demo/effects/eff_1/probe',
    });
    expect(linksOf({ ...LOST, tool: 'notes.add' })).toEqual(['docs', 'effect', 'resolve']);
    for (const outcome of OUTCOMES.filter(({ decision }) => decision !== 'unknown_effect'))
      expect(linksOf(outcome).filter((name) => name === 'resolve' || name === 'probe')).toEqual([]);
  });

  it('leads to no record where none was written: at a door without a key for it, and without a workspace', () => {
    for (const nowhere of [{ idempotencyKey: '' }, { workspace: '' }])
      expect(linksOf({ ...CALL, ...nowhere, decision: 'denied_policy', mismatches: [] })).toEqual(['docs']);
  });

  it('names the policy and the rule that decided, where one did', () => {
    const reason = { code: 'rule_denied', message: 'No.', policy: 'payments', rule: 'payments/cap' } as const;
    const denied = { ...CALL, decision: 'denied_policy', mismatches: [] } as const;
    expect(bodyOf({ ...denied, reason })['reason']).toEqual(reason);
    expect(bodyOf({ ...denied, reason: { code: 'no_rule_allows', message: 'No.' } })['reason']).toEqual({
      code: 'no_rule_allows',
      message: 'No.',
    });
  });

  it('says of an answer that was cut, or that only promised, that it was; else nothing of it', () => {
    expect(bodyOf({ ...DONE, accepted: true })).toMatchObject({ accepted: true });
    expect(bodyOf({ ...DONE, responseTruncated: true })).toMatchObject({ response_truncated: true });
    const cut = kept({ kind: 'text', value: 'begi' }, true);
    for (const outcome of [DONE, EARLIER, FAILED])
      expect(bodyOf({ ...outcome, result: cut })).toMatchObject({ result: 'begi', response_truncated: true });
    for (const name of ['accepted', 'response_truncated', 'settlement']) expect(bodyOf(DONE)).not.toHaveProperty(name);
  });

  it.each<[string, KeptResult | null, object]>([
    ['JSON', JSON_KEPT, { result: { refund_id: 7 }, upstream_status: 201 }],
    ['text', kept({ kind: 'text', value: 'ok' }), { result: 'ok', upstream_status: 201 }],
    [
      'bytes',
      kept({ kind: 'base64', value: '/w==' }),
      { result: '/w==', upstream_status: 201, result_encoding: 'base64' },
    ],
    [
      'what was passed on',
      kept({ kind: 'passed_on', value: { bytes: 3, sha256: 'aa', tail: null } }),
      { result: { bytes: 3, sha256: 'aa', tail: null }, upstream_status: 201, result_encoding: 'digest' },
    ],
    [
      'what is too large for a list',
      kept({ kind: 'sealed', value: 'x' }),
      { upstream_status: 201, result_omitted: true },
    ],
    [
      'a message, which has no status',
      { kind: 'message', body: { kind: 'json', value: 1 }, truncated: false },
      { result: 1 },
    ],
    ['nothing', null, {}],
  ])('shows the answer of the upstream with how it is written: %s', (_, result, shown) => {
    const names = ['result', 'upstream_status', 'result_encoding', 'result_omitted'];
    for (const outcome of [DONE, EARLIER, FAILED]) {
      const body = bodyOf({ ...outcome, result });
      expect(Object.fromEntries(names.flatMap((name) => (name in body ? [[name, body[name]]] : [])))).toEqual(shown);
    }
  });

  it('to a repetition whose result is gone says so, and still has the receipt', () => {
    expect(bodyOf({ ...EARLIER, result: null, resultExpired: true })).toMatchObject({
      receipt: { jws: 'a.b.c' },
      result_expired: true,
    });
    expect(bodyOf(EARLIER)).not.toHaveProperty('result_expired');
  });

  it('says where the store does not know it yet, whatever came of the call', () => {
    for (const outcome of [DONE, FAILED, LOST])
      expect(bodyOf({ ...outcome, settlement: 'pending' })).toMatchObject({ settlement: 'pending' });
  });

  it('to a call that waits says how many have to approve for all rules, and how many people have, each once', () => {
    expect(bodyOf({ ...CALL, decision: 'pending_approval', approval: APPROVAL })['approval']).toEqual({
      id: 'apr_1',
      status: 'pending',
      expires_at: '2026-06-15T10:00:00.000Z',
      quorum: 3,
      approvals: 2,
      url: 'https://gateway.example/approve/demo/apr_1',
    });
  });

  it('has what differs, and how a policy that only observes would have decided, where there is something', () => {
    const mismatches = [{ field: 'a', assumed: 1, current: null }];
    expect(bodyOf({ ...CALL, decision: 'denied_claim', mismatches })).toMatchObject({ mismatches });
    expect(bodyOf({ ...DONE, observed: { would: 'denied_policy', rule: 'payments/cap' } })).toMatchObject({
      observed: { would: 'denied_policy', rule: 'payments/cap' },
    });
    expect(bodyOf({ ...DONE, changed: { approvalId: 'apr_1', params: ['amount'] } })).toMatchObject({
      changed: { approval_id: 'apr_1', params: ['amount'] },
    });
    for (const name of ['mismatches', 'observed', 'changed', 'budgets', 'retry_after_ms'])
      expect(bodyOf({ ...CALL, decision: 'denied_claim', mismatches: [] })).not.toHaveProperty(name);
    expect(bodyOf({ ...CALL, decision: 'denied_budget', mismatches: [] })).toMatchObject({ budgets: [] });
  });

  it('that nobody knows is 504 to the call that lost it and 409 to a repetition; both may be sent again where that is safe', () => {
    for (const [repeat, status] of [
      [false, 504],
      [true, 409],
    ] as const) {
      const settle = renderOutcome({ ...LOST, repeat }, CONTEXT);
      expect(settle).toMatchObject({ status, headers: { 'x-should-retry': 'false' } });
      expect(settle.body).toMatchObject({ did_it_happen: 'maybe', safe_to_retry: false, next: 'resolve' });
      const again = renderOutcome({ ...LOST, repeat, safeToRetry: true }, CONTEXT);
      expect(again).toMatchObject({ status, headers: { 'x-should-retry': 'true' } });
      expect(again.body).toMatchObject({ did_it_happen: 'maybe', safe_to_retry: true, next: 'retry' });
    }
  });
});

const EVIDENCE = {
  code: 'http_status',
  message: 'the upstream said 201',
  answered: { kind: 'http', status: 201 },
  startedAt: 1_000,
  endedAt: null,
} as const;
const LEASE = {
  fence: { epoch: 1, n: 1, nonce: 'n' },
  owner: '',
  admittedAt: 1_000,
  dispatchBy: 2_000,
  leaseEnd: 3_000,
  quiesceUntil: 4_000,
};
const RECORD: EffectRecord = {
  ...EFFECT,
  createdAt: 1_000,
  action: { ...EFFECT.action, toolDigest: 'digest' },
  life: { state: 'unknown', at: 5_000, lease: LEASE, evidence: EVIDENCE },
  firstDispatchAt: 1_000,
};
const COMMITTED: Extract<Life, { state: 'committed' }> = {
  state: 'committed',
  at: 5_000,
  settledBy: { by: 'owner' },
  evidence: EVIDENCE,
  receipt: RECEIPT,
  result: JSON_KEPT,
  accepted: false,
  responseTruncated: false,
};

const shown = (change: Partial<EffectRecord>, more: Partial<Parameters<typeof effectToWire>[1]> = {}) =>
  effectToWire(
    { ...RECORD, ...change },
    {
      publicUrl: 'https://gateway.example',
      receiptView: (jws) => ({ jws }),
      tool: makeTool({ idempotent: { kind: 'header', header: 'idempotency-key', forMs: 10_000 } }),
      withResult: true,
      approval: null,
      now: 5_000,
      ...more,
    },
  );

describe('an effect as it is shown', () => {
  it('of unknown outcome is safe to send again only while the upstream removes duplicates', () => {
    expect(shown({})).toMatchObject({ did_it_happen: 'maybe', safe_to_retry: true, next: 'retry' });
    expect(shown({}, { now: 10_999 }).safe_to_retry).toBe(true);
    expect(shown({}, { now: 11_000 }).safe_to_retry).toBe(false);
    const unsafe = { safe_to_retry: false, next: 'resolve' };
    expect(shown({}, { tool: null })).toMatchObject(unsafe);
    expect(shown({}, { tool: makeTool() })).toMatchObject(unsafe);
    expect(shown({ firstDispatchAt: null })).toMatchObject(unsafe);
    // Declared otherwise since: what the upstream does with the key of then, nobody has said.
    expect(shown({ action: { ...RECORD.action, toolDigest: 'another' } })).toMatchObject(unsafe);
    expect(shown({ closed: true })).toMatchObject(unsafe);
  });

  it.each<[string, Partial<EffectRecord['trace']>]>([
    ['is one that people approved', { matched: [{ rule: 'p/ask', effect: 'require_approval', unknown: [] }] }],
    ['is one that an approver changed', { changed: { approvalId: 'apr_1', params: ['amount'] } }],
    ['was allowed ahead', { allowance: { id: 'alw_1', approvalId: 'apr_1', by: 'maria', use: 2 } }],
    ['went beyond a limit', { beyond: [{ limit: 'budget:b', by: 1 }] }],
  ])('of unknown outcome is never safe to send again where it %s: that was good for one dispatch', (_, trace) => {
    expect(shown({ trace: { ...RECORD.trace, ...trace } })).toMatchObject({ safe_to_retry: false, next: 'resolve' });
  });

  it('under a policy that only observes is as safe as any other', () => {
    const matched = [{ rule: 'p/ask', effect: 'require_approval', unknown: [] }] as const;
    const observed = { would: 'pending_approval', rule: 'p/ask' } as const;
    expect(shown({ trace: { ...RECORD.trace, matched, observed } }).safe_to_retry).toBe(true);
  });

  it('may have happened where evidence contradicts its record, and is then not to be sent again', () => {
    const failed = {
      state: 'failed',
      at: 5_000,
      settledBy: { by: 'owner' },
      evidence: EVIDENCE,
      result: null,
    } as const;
    expect(shown({ life: failed })).toMatchObject({ did_it_happen: 'no', safe_to_retry: true, next: 'retry' });
    expect(shown({ life: failed, closed: true })).toMatchObject({
      did_it_happen: 'maybe',
      safe_to_retry: false,
      next: 'block',
    });
    expect(happenedTo({ ...RECORD, life: COMMITTED, closed: true })).toBe('yes');
  });

  it('has receipt and answer once it is committed, the answer only for a key that may call the tool', () => {
    expect(shown({ life: COMMITTED })).toMatchObject({
      receipt: { jws: 'a.b.c' },
      receipt_id: 'rcp_1',
      result: { refund_id: 7 },
      upstream_status: 201,
      settled_at: '1970-01-01T00:00:05.000Z',
    });
    const closed = shown({ life: COMMITTED }, { withResult: false });
    expect(closed).toHaveProperty('receipt');
    for (const name of ['result', 'upstream_status', 'accepted', 'response_truncated'])
      expect(closed).not.toHaveProperty(name);
    expect(shown({ life: { ...COMMITTED, accepted: true, responseTruncated: true } })).toMatchObject({
      accepted: true,
      response_truncated: true,
    });
    const failed = {
      state: 'failed',
      at: 5_000,
      settledBy: { by: 'owner' },
      evidence: EVIDENCE,
      result: JSON_KEPT,
    } as const;
    expect(shown({ life: failed })).toMatchObject({ result: { refund_id: 7 } });
    expect(shown({ life: failed }, { withResult: false })).not.toHaveProperty('result');
  });

  it('is settled at no time while it waits, runs or is unknown', () => {
    const lives: readonly Life[] = [
      { state: 'pending_approval', approvalId: 'apr_1' },
      { state: 'executing', lease: LEASE },
      RECORD.life,
    ];
    for (const life of lives) expect(shown({ life })).toMatchObject({ settled_at: null, receipt_id: null });
  });

  it('says until when it runs, until when it may still be under way, and until when a rejection holds', () => {
    expect(shown({ life: { state: 'executing', lease: LEASE } })).toMatchObject({
      lease_end: '1970-01-01T00:00:03.000Z',
    });
    expect(shown({})).toMatchObject({ quiesce_until: '1970-01-01T00:00:04.000Z' });
    expect(shown({ life: { state: 'rejected', at: 5_000, approvalId: 'apr_1', until: 9_000 } })).toMatchObject({
      decision: 'denied_policy',
      reason: { code: 'approval_rejected' },
      refused_until: '1970-01-01T00:00:09.000Z',
    });
  });

  it('leads to its receipt where it has one, and to what settles it where nobody knows the outcome', () => {
    const links = (life: Life, tool = makeTool()) => Object.keys(shown({ life }, { tool }).links);
    expect(links(COMMITTED)).toEqual(['effect', 'run', 'receipt']);
    expect(links(RECORD.life)).toEqual(['effect', 'run', 'resolve']);
    const lookup = makeTool({ name: 'payments.see', kind: 'read' });
    const probe = { read: lookup, params: {}, happened: {}, notHappened: {}, afterMs: 0, everyMs: 1_000, forMs: 1_000 };
    expect(links(RECORD.life, makeTool({ probe }))).toEqual(['effect', 'run', 'resolve', 'probe']);
    expect(links({ state: 'executing', lease: LEASE })).toEqual(['effect', 'run']);
  });

  it('says who settled it: its gateway, a probe with what it saw, or a person with their words', () => {
    const by = (settledBy: typeof COMMITTED.settledBy) => shown({ life: { ...COMMITTED, settledBy } });
    expect(by({ by: 'late_answer' })).toMatchObject({ settled_by: { by: 'late_answer' } });
    const words = { user: 'ops', forced: true, comment: 'seen', evidence: { books: 1 } };
    expect(by({ by: 'resolve', keyId: 'key_1', ...words })).toMatchObject({
      settled_by: { by: 'resolve', key_id: 'key_1', ...words },
    });
  });

  it.each<[Partial<typeof EVIDENCE> | { code: string }, string]>([
    [{ code: 'not_dispatched' }, 'not_dispatched'],
    [{ code: 'connect_failed' }, 'connect_failed'],
    [{ code: BUSY }, 'upstream_busy'],
    [{ code: 'http_status' }, 'upstream_refused'],
  ])('that failed by %j has the code %s; one that somebody settled, that it was', (evidence, code) => {
    const life: Life = {
      state: 'failed',
      at: 5_000,
      settledBy: { by: 'owner' },
      evidence: { ...EVIDENCE, ...evidence },
      result: null,
    };
    expect(shown({ life }).reason.code).toBe(code);
    const settledBy = { by: 'resolve', keyId: 'k', user: null, forced: false, comment: null, evidence: null } as const;
    expect(shown({ life: { ...life, settledBy } }).reason.code).toBe('resolved_not_happened');
  });
});

describe('a second call under the same key', () => {
  const told = (life: Life, change: Partial<EffectRecord> = {}, safe = false) =>
    outcomeOfRecord({ ...RECORD, ...change, life }, safe, null);
  const failed = (settledBy: typeof COMMITTED.settledBy, code: string): Life => ({
    state: 'failed',
    at: 5_000,
    settledBy,
    evidence: { ...EVIDENCE, code },
    result: JSON_KEPT,
  });

  it('is told that it happened, with the receipt and what the upstream said, and that it waited for nothing', () => {
    expect(told(COMMITTED)).toMatchObject({
      decision: 'duplicate_blocked',
      reason: { code: 'already_committed' },
      receipt: RECEIPT,
      result: JSON_KEPT,
      repeat: true,
      retryAfterMs: null,
    });
  });

  it('is told in how long to ask where the first one runs, and that the outcome is unknown where nobody knows it', () => {
    const running = outcomeOfRecord({ ...RECORD, life: { state: 'executing', lease: LEASE } }, false, 700);
    expect(running).toMatchObject({ decision: 'in_progress', reason: { code: 'executing' }, retryAfterMs: 700 });
    expect(told(RECORD.life)).toMatchObject({
      decision: 'unknown_effect',
      safeToRetry: false,
      reason: { message: expect.stringContaining('Do not send it under another key') },
    });
    expect(told(RECORD.life, {}, true)).toMatchObject({
      safeToRetry: true,
      reason: { message: expect.stringContaining('send the same call with the same key again') },
    });
  });

  it('is told of a failure how it failed; of one that people or a probe established, that', () => {
    expect(told(failed({ by: 'owner' }, BUSY))).toMatchObject({
      decision: 'failed',
      reason: { code: 'upstream_busy' },
    });
    expect(told(failed({ by: 'owner' }, 'http_status'))).toMatchObject({
      reason: { code: 'upstream_refused' },
      result: JSON_KEPT,
    });
    const resolved = { by: 'resolve', keyId: 'k', user: null, forced: false, comment: null, evidence: null } as const;
    for (const settledBy of [resolved, { by: 'probe', evidence: { seen: 0 } } as const])
      expect(told(failed(settledBy, 'http_status')).reason.code).toBe('resolved_not_happened');
  });

  it('is told of a refusal what the first was: the decision, what differs, and what to do', () => {
    const mismatches = [{ field: 'a', assumed: 1, current: 2 }];
    const drifted: Life = {
      state: 'denied',
      at: 5_000,
      decision: 'denied_claim',
      reason: { code: 'state_drift', message: 'It drifted.', next: 'replan' },
      mismatches,
    };
    expect(told(drifted)).toMatchObject({ decision: 'denied_claim', mismatches, next: 'replan' });
    expect(told({ state: 'rejected', at: 1, approvalId: 'apr_1', until: 2 })).toMatchObject({
      decision: 'denied_policy',
      reason: { code: 'approval_rejected' },
    });
  });

  it('is told, where its record has aged out, that it happened, with the receipt, and that the result is gone', () => {
    const { id, workspace, idempotencyKey, fingerprint } = RECORD;
    const call = { id, workspace, idempotencyKey, fingerprint, attempt: 2, agentId: 'bot', tool: 'a.b', target: 't:1' };
    const outcome = { state: 'committed', receipt: RECEIPT } as const;
    const told = outcomeOfAdmission(admitRequest(), { kind: 'expired', tombstone: { ...call, at: 1, outcome } });
    expect(told).toMatchObject({ effectId: id, reason: { code: 'already_committed' }, receipt: RECEIPT, repeat: true });
    expect(renderOutcome(told, CONTEXT).body).toMatchObject({
      decision: 'duplicate_blocked',
      result_expired: true,
      attempt: 2,
    });
    expect(
      renderOutcome(outcomeOfRecord({ ...RECORD, life: COMMITTED }, false, null), CONTEXT).body,
    ).not.toHaveProperty('result_expired');
  });

  it('is given its receipt also where policy refuses the call by now, and then not the answer that was kept', () => {
    const effect = { ...RECORD, life: { ...COMMITTED, result: JSON_KEPT } };
    const existing = { kind: 'existing', effect, safeToRetry: false, retryAfterMs: null } as const;
    const request = admitRequest();
    const deny: AdmitRequest['verdict'] = {
      kind: 'deny',
      decision: 'denied_policy',
      reason: { code: 'rule_denied', message: 'No' },
      trace: request.verdict.trace,
    };
    const told = (verdict = request.verdict) => outcomeOfAdmission({ ...request, verdict }, existing);
    expect(told()).toMatchObject({ decision: 'duplicate_blocked', receipt: RECEIPT, result: JSON_KEPT });
    expect(told(deny)).toMatchObject({ decision: 'duplicate_blocked', receipt: RECEIPT, result: null });
  });

  it('is told that an approver changed the call, and which params', () => {
    const trace = { ...RECORD.trace, changed: { approvalId: 'apr_1', params: ['amount', 'note'] } };
    expect(told(COMMITTED, { trace })).toMatchObject({
      changed: { approvalId: 'apr_1', params: ['amount', 'note'] },
      reason: { message: expect.stringContaining('An approver changed amount, note before it ran') },
    });
  });

  it('is told by the one that waited for it what the call itself would have been told', () => {
    const life = { ...COMMITTED, accepted: true, responseTruncated: true };
    expect(outcomeFor({ ...RECORD, life }, null)).toMatchObject({
      decision: 'committed',
      reason: { code: 'committed' },
      repeat: false,
      accepted: true,
      responseTruncated: true,
      result: JSON_KEPT,
    });
  });
});

describe('a preview', () => {
  const budget = budgetOf(100, 7, { sharing: 'shared', beyond: 'ask' });
  const preview: Preview = {
    kind: 'preview',
    would: 'unknown_effect',
    httpStatus: 409,
    reason: { code: 'outcome_unknown', message: 'Nobody knows.', policy: 'p', rule: 'p/r' },
    tool: 'payments.refund',
    target: 'payment:pay_1',
    agentId: 'bot',
    obligations: [
      budget,
      rateOf(3, 60_000),
      { kind: 'claim', rule: 'p/r', target: 'payment:pay_1', hold: 'existing' },
      { kind: 'reserve', rule: 'p/r', pool: 'gpu', units: 2, capacity: 4 },
    ],
    approvals: [approvalBy({ quorum: 2, beyond: 'budget:b' })],
    matched: [{ rule: 'p/r', effect: 'allow', unknown: ['time.hour'] }],
    policyVersion: 'v1',
    budgets: [],
    observed: null,
    repeat: true,
  };

  it('has everything that the call would take and wait for, and the limits beyond which people would be asked', () => {
    expect(previewToWire(preview, false)).toEqual({
      would: 'unknown_effect',
      http_status: 409,
      reason: { code: 'outcome_unknown', message: 'Nobody knows.', policy: 'p', rule: 'p/r' },
      tool: 'payments.refund',
      target: 'payment:pay_1',
      agent_id: 'bot',
      obligations: [
        {
          kind: 'budget',
          rule: 'payments/refunds',
          budget: 'payments/daily',
          unit: 'EUR-cent',
          amount: 7,
          limit: 100,
          or_ask: true,
        },
        { kind: 'rate_limit', rule: 'payments/rate', id: 'payments/rate', window_ms: 60_000, limit: 3 },
        { kind: 'claim', rule: 'p/r', target: 'payment:pay_1', hold: 'existing' },
        { kind: 'reserve', rule: 'p/r', pool: 'gpu', units: 2 },
        {
          kind: 'approval',
          rule: 'payments/large',
          approvers: { roles: ['finance-lead'], users: [] },
          quorum: 2,
          expires_ms: 3_600_000,
          beyond: 'budget:b',
          summary: 'Refund 5,000 EUR to customer 42',
        },
      ],
      policies: [{ rule: 'p/r', effect: 'allow', unknown: ['time.hour'] }],
      policy_version: 'v1',
      budgets: [],
    });
  });

  it('says of a rate that it asks beyond its limit, and of people asked within office hours which hours those are', () => {
    expect(obligationToWire(rateOf(3, 60_000, { beyond: 'ask' }), true)).toMatchObject({ limit: 3, or_ask: true });
    const hours = { schedule: 'office', expiresAt: 9_000, escalatesAt: null };
    expect(requirementToWire(approvalBy({ hours }))).toMatchObject({ kind: 'approval', hours: 'office' });
  });

  it('tells an agent no limit of a budget that it shares, of its own it does', () => {
    expect(obligationToWire(budget, true)).not.toHaveProperty('limit');
    expect(obligationToWire(budgetOf(100, 7, { sharing: 'own' }), true)).toMatchObject({ limit: 100 });
  });

  it('says what policy would say where it only observes', () => {
    const observed = { would: 'denied_policy', rule: 'p/cap' } as const;
    expect(previewToWire({ ...preview, observed }, false)).toMatchObject({ observed });
  });
});

describe('a key that does not read what calls carry', () => {
  const denied = (code: 'rule_denied' | 'policy_paused' | 'no_rule_allows', rule?: string): Life => ({
    state: 'denied',
    at: 5_000,
    decision: 'denied_policy',
    reason: { code, message: 'Refund of 900 to Eve.', ...(rule !== undefined && { rule }) },
    mismatches: [{ field: 'iban', assumed: 'DE1', current: 'DE2' }],
  });

  it('sees no values of the live state, nor what the upstream answered, also where it refused', () => {
    expect(withoutContent({ ...RECORD, life: denied('rule_denied', 'p/cap') }).life).toMatchObject({ mismatches: [] });
    const failed: Life = { state: 'failed', at: 1, settledBy: { by: 'owner' }, evidence: EVIDENCE, result: JSON_KEPT };
    for (const life of [COMMITTED, failed])
      expect(withoutContent({ ...RECORD, life }).life).toMatchObject({ result: null });
  });

  it.each([
    ['rule_denied', 'p/cap', 'The rule p/cap refuses this call.'],
    ['policy_paused', 'p/stop', 'The rule p/stop pauses this call.'],
    ['no_rule_allows', undefined, 'Refund of 900 to Eve.'],
  ] as const)('reads of %s which rule it was, not the sentence that the rule made of params', (code, rule, message) => {
    expect(withoutContent({ ...RECORD, life: denied(code, rule) }).life).toMatchObject({ reason: { message } });
  });
});
