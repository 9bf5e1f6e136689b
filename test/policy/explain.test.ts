import { describe, expect, it } from 'vitest';
import { explainRule, type ExplainedRule, type Masked, ruleFilter } from '../../src/policy/explain.ts';
import type { PolicyInput } from '../../src/policy/input.ts';
import { call, GET, REFUND, rules } from './fixtures.ts';

const OPEN: Masked = { params: new Set(), call: false };

function explained(when: string, input: Partial<PolicyInput> = {}, masked = OPEN, more = ''): ExplainedRule {
  const [rule] = rules(`{ id: r, effect: deny, match: { tools: [payments.refund] }, when: ${when}${more} }`).rules;
  if (rule === undefined) throw new Error('no rule');
  return explainRule(rule, call(input), masked);
}

/** The conditions on params, and whether they hold. */
function ofParams({ conditions }: ExplainedRule) {
  return conditions.filter(({ fact }) => fact.startsWith('params'));
}

describe('a rule that is explained', () => {
  it('is near if one part of it does not hold, and not if two do not, or none', () => {
    const when = '{ params.a: { gte: 5 }, params.b: { eq: x } }';
    const near = (params: PolicyInput['params']) => {
      const { matches, nearMiss } = explained(when, { params });
      return { matches, nearMiss };
    };
    expect(near({ a: 5, b: 'x' })).toEqual({ matches: true, nearMiss: false });
    expect(near({ a: 4, b: 'x' })).toEqual({ matches: false, nearMiss: true });
    expect(near({ a: 4, b: 'y' })).toEqual({ matches: false, nearMiss: false });
  });

  it('of another tool does not match, and lacks that besides what else does not hold', () => {
    const of = (a: number) => {
      const { matches, nearMiss } = explained('{ params.a: { gte: 5 } }', { tool: GET, params: { a } });
      return [matches, nearMiss];
    };
    expect([of(5), of(4)]).toEqual([
      [false, true],
      [false, false],
    ]);
  });

  it('neither matches nor is near outside of its time; the first moment counts, the last does not', () => {
    const more = ', from: "2026-06-01T00:00:00Z", until: "2026-06-02T00:00:00Z"';
    const at = (time: string, a = 5) => {
      const input = { now: Date.parse(time), params: { a } };
      const { matches, nearMiss, inForce } = explained('{ params.a: { gte: 5 } }', input, OPEN, more);
      return [matches, nearMiss, inForce];
    };
    expect(at('2026-05-31T23:59:59.999Z')).toEqual([false, false, false]);
    expect(at('2026-06-01T00:00:00Z')).toEqual([true, false, true]);
    expect(at('2026-06-01T23:59:59.999Z', 4)).toEqual([false, true, true]);
    expect(at('2026-06-02T00:00:00Z')).toEqual([false, false, false]);
    expect(at('2026-06-02T00:00:00Z', 4)).toEqual([false, false, false]);
  });

  it('says of each condition what is compared with what, and how it is judged', () => {
    const when =
      '{ any: [ { params.a: { in: [5, 6] } }, { not: { params.a: { in: [1, 2] } } }, { params.c: { in: [x] } } ] }';
    expect(ofParams(explained(when, { params: { a: 1 } }))).toEqual([
      { fact: 'params.a', operator: 'in', expected: [5, 6], value: 1, holds: 'no' },
      { fact: 'params.a', operator: 'not in', expected: [1, 2], value: 1, holds: 'no' },
      { fact: 'params.c', operator: 'in', expected: ['x'], value: null, holds: 'unknown' },
    ]);
    const [first] = ofParams(explained(when, { params: { a: 6 } }));
    expect(first).toMatchObject({ holds: 'yes', value: 6 });
  });

  it('names another fact that it compares with, and a block of conditions on elements', () => {
    const [same] = ofParams(
      explained('{ params.a: { eq: { fact: params.b, untrusted: true } } }', { params: { a: 1, b: 1 } }),
    );
    expect(same).toMatchObject({ expected: { fact: 'params.b' }, holds: 'yes' });
    const [each] = ofParams(explained('{ params.a: { some: { item: { gte: 5 } } } }', { params: { a: [7] } }));
    expect(each).toMatchObject({ expected: '(a block of conditions on each element)', holds: 'yes' });
  });

  it('shows neither a param that policy redacts nor what rules compare it with, and judges it all the same', () => {
    const when = '{ params.card: { eq: "4111" }, params.a: { eq: 1 }, target: { eq: t } }';
    const masked = { params: new Set(['card']), call: false };
    const { matches, conditions } = explained(when, { params: { card: '4111', a: 1 }, target: 't' }, masked);
    expect(matches).toBe(true);
    const by = Object.fromEntries(conditions.map((one) => [one.fact, one]));
    expect(by['params.card']).toMatchObject({ expected: '(redacted)', value: '(redacted)', holds: 'yes' });
    expect(by['params.a']).toMatchObject({ expected: 1, value: 1 });
    // It may be made of any param.
    expect(by['target']).toMatchObject({ expected: '(redacted)', value: '(redacted)' });
    expect(explained('{ target: { eq: t } }', { target: 't' }).conditions).toContainEqual(
      expect.objectContaining({ fact: 'target', value: 't', expected: 't' }),
    );
    const [reference] = ofParams(explained('{ params.card: { eq: { fact: params.a, untrusted: true } } }', {}, masked));
    expect(reference).toMatchObject({ expected: { fact: 'params.a' }, value: '(redacted)' });
  });

  it('shows nothing that the call says to who may not send it, and what rules say to everybody', () => {
    const when = '{ params.a: { eq: 1 }, target: { eq: t }, request.ip: { eq: "10.0.0.1" }, env: { eq: prod } }';
    const { conditions } = explained(when, { params: { a: 1 } }, { params: new Set(), call: true });
    const by = Object.fromEntries(conditions.map((one) => [one.fact, one.value]));
    expect(by).toMatchObject({
      'params.a': '(redacted)',
      target: '(redacted)',
      'request.ip': '(redacted)',
      env: 'prod',
    });
    expect(conditions).toContainEqual(expect.objectContaining({ fact: 'params.a', expected: 1 }));
  });

  it.each([
    ['x'.repeat(200), 'x'.repeat(200)],
    ['x'.repeat(201), `${'x'.repeat(200)}…`],
    [Array.from({ length: 10 }, () => 1), Array.from({ length: 10 }, () => 1)],
    [Array.from({ length: 12 }, () => 1), [...Array.from({ length: 10 }, () => 1), '… (2 more)']],
    [
      [[1], { a: 1 }, 'b'],
      ['…', '…', 'b'],
    ],
    [{ a: 1, b: { c: 2 } }, '(an object with a, b)'],
    [Object.fromEntries(Array.from({ length: 20 }, (_, n) => [`k${n}`, n])), expect.not.stringContaining('k10')],
    [{ ['k'.repeat(300)]: 1 }, `(an object with ${'k'.repeat(184)}`],
    [false, false],
  ])('cuts values that are long: %#', (value, shown) => {
    const [one] = ofParams(explained('{ params.a: { eq: 1 } }', { params: { a: value } }));
    expect(one?.value).toEqual(shown);
  });

  it('has as many steps of patterns as a call has, and all of them each time', () => {
    const judged = (lines: number) => {
      const list = Array.from({ length: lines }, () => 'a'.repeat(1_000));
      const { matches, conditions } = explained('{ params.list: { some: { item: { regex: "[a-z]*secret[0-9]" } } } }', {
        params: { list },
      });
      return [matches, conditions.find(({ fact }) => fact === 'params.list')?.holds];
    };
    expect(judged(900)).toEqual([true, 'unknown']);
    expect(judged(10)).toEqual([false, 'no']);
  });

  it('shows forty conditions at most', () => {
    const many = Array.from({ length: 60 }, (_, n) => `{ params.p${n}: { eq: 1 } }`).join(', ');
    expect(explained(`{ any: [ ${many} ] }`).conditions).toHaveLength(40);
  });
});

it('rules are explained for tools that they can apply to', () => {
  const set = rules(
    '{ id: risky, effect: deny, match: { tools: [payments.refund] } }',
    '{ id: reads, effect: deny, match: { kinds: [read] } }',
    '{ id: all, effect: deny, when: { params.a: { eq: 1 } } }',
  );
  const of = (tool: typeof REFUND) => set.rules.filter(ruleFilter(tool)).map(({ id }) => id);
  expect(of(REFUND).toSorted()).toEqual(['s/all', 's/risky']);
  expect(of(GET).toSorted()).toEqual(['s/all', 's/reads']);
});
