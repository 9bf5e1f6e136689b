import { expect, test } from 'vitest';
import { faultsOf, HEAD } from './fixtures.ts';

/** A set with a budget that counts by these facts, a rule that charges it, and one that redacts a param. */
const faults = (by: string, redacting: string, param = 'card') =>
  faultsOf(`${HEAD}budgets: { day: { unit: call, by: [${by}], per: day, limit: 5 } }
rules:
  - { id: pay, effect: allow, match: { tools: [payments.refund] }, obligations: [ { budget: { use: day, amount: 1 } } ] }
  - { id: mask, effect: constrain, match: { tools: [${redacting}] }, obligations: [ { redact: { params: [${param}] } } ] }
`);

test('a budget that counts by a redacted param does not load, and says what to do', () => {
  const found = faults('agent.id, params.card', '"payments.*"');
  expect(found).toHaveLength(1);
  expect(found[0]).toContain(
    "redacted_bucket 's/pay' charges the budget 's/day', which counts by params.card, and 's/mask' redacts that",
  );
  expect(faults('params.card.last4', 'payments.refund')).toHaveLength(1);
});

test('other facts, and params of other tools, do', () => {
  expect(faults('agent.id, params.cardholder', '"payments.*"')).toEqual([]);
  expect(faults('params.card', 'payments.create')).toEqual([]);
  // Of the same name, and not of the call.
  expect(faults('agent.team', '"payments.*"', 'team')).toEqual([]);
});
