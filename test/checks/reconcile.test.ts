import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import type { Json, JsonObject } from '../../src/json/value.ts';
import { reconcile } from '../../src/effects/checks/reconcile.ts';

function decide(conditions: JsonObject, currentState: JsonObject, params: JsonObject = {}) {
  const result = reconcile({ action: { intent: 'refund', tool: 'payments.refund', params }, currentState, conditions });
  if (result === null) throw new Error('it took too many steps');
  return result;
}

describe('reconcile', () => {
  it.each<[string, JsonObject, JsonObject, JsonObject, string, string]>([
    ['all conditions hold', { status: 'refunded' }, { status: 'refunded' }, {}, 'do_not_retry', 'status'],
    [
      'all hold, though a param differs',
      { status: 'refunded' },
      { status: 'refunded', amount: 1 },
      { amount: 2 },
      'do_not_retry',
      'status',
    ],
    ['all are refuted', { status: 'refunded' }, { status: 'paid' }, {}, 'retry_allowed', 'status'],
    [
      'all are refuted and the params agree',
      { status: 'refunded' },
      { status: 'paid', amount: 2 },
      { amount: 2, reason: 'x' },
      'retry_allowed',
      'status',
    ],
    ['a field is absent', { status: 'refunded', id: 1 }, { status: 'paid' }, {}, 'replan', 'id'],
    ['the only field is absent', { status: 'refunded' }, {}, {}, 'replan', 'status'],
    ['an expected field is absent', { refund_id: { $exists: true } }, {}, {}, 'replan', 'refund_id'],
    ['some hold and some do not', { a: 1, b: 2 }, { a: 1, b: 3 }, {}, 'replan', 'b'],
    [
      'a param is contradicted',
      { status: 'refunded' },
      { status: 'paid', amount: 1 },
      { amount: 2 },
      'replan',
      'amount',
    ],
    [
      'a nested param is contradicted',
      { status: 'refunded' },
      { status: 'paid', to: { iban: 'A', name: 'n' } },
      { to: { iban: 'B' } },
      'replan',
      'to.iban',
    ],
    [
      'a param that the conditions judge is not looked at again',
      { amount: 5 },
      { amount: 1 },
      { amount: 5 },
      'retry_allowed',
      'amount',
    ],
    [
      'nor one that they judge by its path',
      { 'to.iban': 'B' },
      { to: { iban: 'A' } },
      { to: { iban: 'B' } },
      'retry_allowed',
      'to.iban',
    ],
    ['no conditions', {}, { status: 'paid' }, {}, 'replan', 'no conditions'],
    ['absence is the sign of success', { order: { $exists: false } }, {}, {}, 'do_not_retry', 'order'],
    [
      'null where a value would be',
      { refund_id: { $regex: '^re_' } },
      { refund_id: null },
      {},
      'retry_allowed',
      'refund_id',
    ],
    ['what cannot be judged', { text: { $regex: 'x' } }, { text: 'y'.repeat(5000) }, {}, 'replan', 'text'],
    [
      'a nested param is contradicted whose name is also that of a condition',
      { status: 'refunded' },
      { status: 'paid', to: { status: 'blocked' } },
      { to: { status: 'open' } },
      'replan',
      'to.status',
    ],
    [
      'one cannot be judged, the others are refuted',
      { status: 'refunded', text: { $regex: 'x' } },
      { status: 'paid', text: 'y'.repeat(5000) },
      {},
      'replan',
      'text',
    ],
  ])('%s', (_what, conditions, state, params, decision, named) => {
    const result = decide(conditions, state, params);
    expect(result).toMatchObject({ decision, status: 'reconciled' });
    expect(result.reason).toContain(named);
  });

  it('names at most ten fields', () => {
    const many = Object.fromEntries(Array.from({ length: 50 }, (_, index) => [`f${index}`, 1]));
    expect(decide(many, {}).reason.length).toBeLessThan(300);
  });

  it('allows a retry only when every condition is refuted by a field that is there, and nothing else speaks against it', () => {
    const value = fc.constantFrom<Json>(1, 2, 'a', null);
    const record = fc.dictionary(fc.constantFrom('a', 'b', 'c'), value);
    fc.assert(
      fc.property(record, record, record, (conditions, state, params) => {
        const fields = Object.keys(conditions);
        const present = (field: string) => Object.hasOwn(state, field);
        const holds = (field: string) => present(field) && state[field] === conditions[field];
        const drifted = Object.keys(params).some(
          (name) => present(name) && !fields.includes(name) && params[name] !== state[name],
        );
        const expected =
          fields.length > 0 && fields.every(holds)
            ? 'do_not_retry'
            : fields.length > 0 && fields.every((field) => present(field) && !holds(field)) && !drifted
              ? 'retry_allowed'
              : 'replan';
        expect(decide(conditions, state, params).decision).toBe(expected);
      }),
    );
  });
});
