import { describe, expect, it } from 'vitest';
import { summariesOf } from '../../src/policy/evaluate.ts';
import { call, compileText, HEAD, judge, REFUND } from './fixtures.ts';

const APPROVERS = 'approvers: { roles: [finance-lead] }';
const SET = compileText(`${HEAD}
budgets: { day: { unit: c, by: [agent.id], per: day, limit: 500 } }
rules:
  - { id: large, effect: require_approval, when: { params.amount: { gt: 100 } }, approval: { ${APPROVERS}, summary: "Refund \${params.amount} of \${params.card}" } }
  - { id: plain, effect: require_approval, when: { params.amount: { gt: 900 } }, approval: { ${APPROVERS} } }
  - { id: small, effect: allow, obligations: [ { redact: { params: [card] } } ] }
`);

describe('what a rule that asks would say of a call', () => {
  it('is said whether or not the rule matches it: the words of who asked, of what an approver has changed', () => {
    const input = call({ tool: REFUND, params: { amount: 7, card: '4111' } });
    const [large, plain] = summariesOf(SET, input, [{ rule: 's/large' }, { rule: 's/plain' }]);
    expect(large).toContain('Refund 7 of');
    expect(large).not.toContain('4111');
    expect(plain).toMatch(/payments\.refund/);
    expect(plain).not.toContain('4111');
  });

  it('is nothing for a rule that asks nobody, and for one that is not there any more', () => {
    const input = call({ params: { amount: 200 } });
    expect(summariesOf(SET, input, [{ rule: 's/small' }, { rule: 's/gone' }, { rule: 's/large' }])).toEqual([
      null,
      null,
      expect.stringContaining('Refund 200'),
    ]);
  });
});

describe('a budget that several rules put an amount on', () => {
  const two = (one: string, other: string) =>
    compileText(`${HEAD}
budgets: { day: { unit: c, by: [agent.id], per: day, limit: 500 } }
rules:
  - { id: a, effect: allow, obligations: [ { budget: { use: day, amount: ${one} } } ] }
  - { id: b, effect: constrain, obligations: [ { budget: { use: day, amount: ${other} } } ] }
`);
  const held = (one: string, other: string, params: Record<string, number>) => {
    const verdict = judge(two(one, other), { params });
    return verdict.kind === 'permit' ? verdict.obligations : [];
  };

  it.each([
    ['params.x', '5', { x: 7 }, 7],
    ['params.x', '5', { x: 3 }, 5],
    ['5', 'params.x', { x: 7 }, 7],
    ['5', 'params.x', { x: 3 }, 5],
  ])('holds the larger one, once: %s and %s', (one, other, params, amount) => {
    expect(held(one, other, params)).toMatchObject([{ kind: 'budget', amount }]);
  });

  it('holds nothing where either cannot be read, and says which param that is', () => {
    for (const [one, other] of [
      ['params.x', '5'],
      ['5', 'params.x'],
    ] as const)
      for (const params of [{}, { x: -1 }, { x: 1.5 }])
        expect(held(one, other, params)).toMatchObject([{ kind: 'budget', amount: null, amountFrom: 'params.x' }]);
  });
});
