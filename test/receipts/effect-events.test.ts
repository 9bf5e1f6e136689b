import { describe, expect, it } from 'vitest';
import { isJsonObject, type JsonObject } from '../../src/json/value.ts';
import { createEventCheck } from '../../src/receipts/effect-events.ts';

const RECEIPT: JsonObject = {
  effect: { attempt: 2, settled_by: { by: 'owner', forced: true } },
  actor: { agent_id: 'bot' },
  action: { tool: 'payments.refund' },
  policy: { version: 'v1', matched: [{ rule: 's/a', effect: 'allow' }], beyond: ['budget s/day'] },
  upstream: { started: '2026-05-06T07:08:09.123Z', status: 201 },
  allowance: { id: 'alw_1', by: 'ada', use: 3 },
  approval: [{ id: 'apr_1', by: 'ada' }],
  budget: [
    { id: 's/day', unit: 'cents', posted: 50 },
    { id: 's/day', unit: 'calls', posted: 1 },
  ],
};

/** The events of the effect, as its ledger has them. */
const EVENTS: readonly JsonObject[] = [
  { kind: 'approval.requested', data: { approval_id: 'apr_1' } },
  { kind: 'approval.granted', actor: { type: 'user', id: 'ada' }, data: { approval_id: 'apr_1', user: 'ada' } },
  {
    kind: 'effect.admitted',
    actor: { type: 'agent', id: 'bot' },
    data: {
      approval_id: 'apr_1',
      attempt: 2,
      tool: 'payments.refund',
      policy_version: 'v1',
      rules: ['s/a'],
      beyond: ['budget s/day'],
    },
  },
  { kind: 'allowance.used', data: { allowance_id: 'alw_1', given_by: 'ada', used: 3 } },
  { kind: 'execution.started', at: '2026-05-06T07:08:09.123Z', data: {} },
  { kind: 'execution.succeeded', data: { attempt: 2, status: 201 } },
  { kind: 'effect.resolved', data: { forced: true } },
];

/** What of these events differs from the receipt that follows them. */
function differing(events: readonly JsonObject[], receipt = RECEIPT): readonly string[] {
  const check = createEventCheck();
  for (const event of events) check.event(event, 'eff_1', false);
  return check.receipt(receipt, 'eff_1');
}

/** The events, one of them with another value at a path. */
function edited(kind: string, path: string): readonly JsonObject[] {
  const [name = '', inner] = path.split('.');
  return EVENTS.map((event) => {
    if (event['kind'] !== kind) return event;
    const of = isJsonObject(event[name]) ? event[name] : {};
    return { ...event, [name]: inner === undefined ? 'other' : { ...of, [inner]: 'other' } };
  });
}

describe('what events and the receipt of their effect both say', () => {
  it('agrees', () => {
    expect(differing(EVENTS)).toEqual([]);
    expect(differing([])).toEqual([]);
  });

  it.each([
    ['effect.admitted', 'actor.id', 'agent of effect.admitted'],
    ['effect.admitted', 'data.attempt', 'attempt of effect.admitted'],
    ['effect.admitted', 'data.tool', 'tool of effect.admitted'],
    ['effect.admitted', 'data.policy_version', 'policy_version of effect.admitted'],
    ['effect.admitted', 'data.rules', 'rules of effect.admitted'],
    ['effect.admitted', 'data.beyond', 'beyond of effect.admitted'],
    ['effect.admitted', 'data.approval_id', 'approvers of approval.granted'],
    ['execution.started', 'at', 'at of execution.started'],
    ['execution.succeeded', 'data.attempt', 'attempt of execution.succeeded'],
    ['execution.succeeded', 'data.status', 'status of execution.succeeded'],
    ['effect.resolved', 'data.forced', 'forced of effect.resolved'],
    ['allowance.used', 'data.allowance_id', 'allowance_id of allowance.used'],
    ['allowance.used', 'data.given_by', 'given_by of allowance.used'],
    ['allowance.used', 'data.used', 'used of allowance.used'],
    ['approval.granted', 'data.user', 'approvers of approval.granted'],
    ['approval.granted', 'actor.id', 'approvers of approval.granted'],
    ['approval.granted', 'data.approval_id', 'approvers of approval.granted'],
  ])('of %s an edit of %s is told', (kind, path, told) => {
    expect(differing(edited(kind, path))).toEqual([told]);
  });

  it('who approved an earlier question, or a call that was changed since, does not count', () => {
    const [asked = {}, granted = {}, ...rest] = EVENTS;
    const earlier = { kind: 'approval.granted', actor: { id: 'eve' }, data: { approval_id: 'apr_0', user: 'eve' } };
    const renewed = { kind: 'approval.renewed', data: { approval_id: 'apr_1' } };
    expect(differing([earlier, renewed, granted, ...rest])).toEqual([]);
    expect(differing([renewed, ...rest])).toEqual(['approvers of approval.granted']);
    const before = { kind: 'approval.granted', actor: { id: 'tom' }, data: { approval_id: 'apr_1', user: 'tom' } };
    expect(differing([asked, before, granted, ...rest])).toEqual(['approvers of approval.granted']);
    const changing = { ...granted, data: { approval_id: 'apr_1', user: 'ada', changed: ['amount'] } };
    expect(differing([asked, before, changing, ...rest])).toEqual([]);
  });

  it.each([
    ['owner', true],
    ['late_answer', true],
    ['resolve', false],
    ['probe', false],
  ])('settled by %s, the receipt tells of the attempt itself: %s', (by, isOfAttempt) => {
    const receipt = { ...RECEIPT, effect: { attempt: 2, settled_by: { by, forced: true } } };
    expect(differing(EVENTS, receipt)).toEqual([]);
    expect(differing(edited('effect.admitted', 'data.tool'), receipt)).toEqual(['tool of effect.admitted']);
    const told = isOfAttempt ? ['at of execution.started'] : [];
    expect(differing(edited('execution.started', 'at'), receipt)).toEqual(told);
  });

  it('an attempt that failed before is none of the receipt', () => {
    expect(differing([...edited('effect.admitted', 'data.attempt'), { kind: 'execution.failed', data: {} }])).toEqual(
      [],
    );
  });

  it('what is no event of an effect tells nothing, whatever form it has', () => {
    const odd = [{ kind: 'budget.posted' }, { kind: 'effect.admitted', data: null }, { kind: 5, data: {} }];
    expect(differing([...EVENTS, ...odd])).toEqual([]);
  });
});

type Charge = readonly [kind: string, holds: readonly JsonObject[]];

describe('what was charged', () => {
  const cents = { budget: 's/day', unit: 'cents', amount: 50 };
  const calls = { budget: 's/day', unit: 'calls', amount: 1 };
  /** Effects whose receipt and later events charge different amounts. */
  function charged(events: readonly Charge[]): readonly string[] {
    const check = createEventCheck();
    check.receipt(RECEIPT, 'eff_1');
    for (const [kind, holds] of events) check.event({ kind, data: { holds } }, 'eff_1', true);
    return check.charged();
  }

  it.each<[string, readonly Charge[], readonly string[]]>([
    ['the same', [['budget.posted', [cents, calls]]], []],
    ['nothing', [], ['eff_1']],
    ['of one unit less', [['budget.posted', [{ ...cents, amount: 49 }, calls]]], ['eff_1']],
    ['of two units the same together', [['budget.posted', [{ ...cents, amount: 51 }]]], ['eff_1']],
    ['less than was held', [['budget.posted', [{ ...cents, amount: 90, posted: 50 }, calls]]], []],
    [
      'more than was held, with an overdraft',
      [
        ['budget.posted', [{ ...cents, amount: 30 }, calls]],
        ['budget.overdraft', [{ ...cents, amount: 20 }]],
      ],
      [],
    ],
  ])('%s', (_, events, expected) => {
    expect(charged(events)).toEqual(expected);
  });

  it('is not held against a receipt that came before the events of the bundle', () => {
    const check = createEventCheck();
    check.event({ kind: 'budget.posted', data: { holds: [cents] } }, 'eff_1', false);
    expect(check.charged()).toEqual([]);
  });
});
