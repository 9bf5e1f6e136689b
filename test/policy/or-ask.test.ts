import { expect, test } from 'vitest';
import { evaluatePolicies, summariesOf } from '../../src/policy/evaluate.ts';
import type { CompiledPolicies } from '../../src/policy/policies.ts';
import { call, compileText, faultsOf, HEAD } from './fixtures.ts';

const BUDGETS = 'budgets: { day: { unit: cent, by: [agent.id], per: day, limit: 100 } }\n';
const text = (...lines: readonly string[]): string =>
  `${HEAD}${BUDGETS}rules:\n${lines.map((line) => `  - ${line}\n`).join('')}`;
const ASKS = 'or_ask: { approvers: { roles: [oncall] }, expires: 1h, summary: "Pay ${params.amount}" }';
const budget = (id: string, more = `, ${ASKS}`, amount = 'params.amount') =>
  `{ id: ${id}, effect: allow, obligations: [ { budget: { use: day, amount: ${amount}${more} } } ] }`;

function judged(set: CompiledPolicies, ...exceeded: readonly string[]) {
  const verdict = evaluatePolicies(set, call({ params: { amount: 7, card: '4111' } }), new Set(exceeded));
  if (verdict.kind !== 'permit') throw new Error(verdict.reason.message);
  return verdict;
}

test('a limit that asks marks its obligation, and asks nobody while nobody has found it exceeded', () => {
  const set = compileText(text(budget('a')));
  expect(evaluatePolicies(set, call({ params: { amount: 7 } }))).toMatchObject({
    obligations: [{ kind: 'budget', beyond: 'ask' }],
    approvals: [],
  });
  expect(judged(set, 'budget:s/other', 'rate:s/day')).toMatchObject({
    obligations: [{ beyond: 'ask' }],
    approvals: [],
  });
  expect(judged(compileText(text(budget('a', ''))), 'budget:s/day').obligations[0]).not.toHaveProperty('beyond');
});

test('exceeded, it asks whom it names, in words that say so', () => {
  const rate = `{ rate_limit: { by: [agent.id], limit: 2, per: minute, or_ask: { approvers: { users: [tom] }, quorum: 1, hold: all, require_reason: true } } }`;
  const set = compileText(
    text(
      `{ id: a, effect: allow, obligations: [ { budget: { use: day, amount: params.amount, ${ASKS} } }, ${rate} ] }`,
    ),
  );
  expect(judged(set, 'budget:s/day')).toMatchObject({
    obligations: [{ beyond: 'asked' }, { beyond: 'ask' }],
    approvals: [
      {
        rule: 's/a',
        beyond: 'budget:s/day',
        approvers: { roles: ['oncall'] },
        expiresMs: 3_600_000,
        summary: 'Beyond the limit of budget s/day: Pay 7',
      },
    ],
  });
  const both = judged(set, 'budget:s/day', 'rate:s/a').approvals;
  expect(both).toMatchObject([
    { beyond: 'budget:s/day' },
    { beyond: 'rate:s/a', approvers: { users: ['tom'] }, hold: 'all', requireReason: true },
  ]);
  expect(both[1]?.summary).toMatch(/^Beyond the limit of rate s\/a: .*payments\.refund/);
});

test('whom a rule asks anyway is asked as well: a limit takes nobody’s place', () => {
  const large = '{ id: large, effect: require_approval, approval: { approvers: { users: [ada] } } }';
  expect(judged(compileText(text(budget('a'), large)), 'budget:s/day').approvals).toMatchObject([
    { rule: 's/large', approvers: { users: ['ada'] } },
    { rule: 's/a', beyond: 'budget:s/day', approvers: { roles: ['oncall'] } },
  ]);
});

test('of two rules that use a budget each asks its own people; where one asks nobody, it refuses', () => {
  const other = budget('b', ', or_ask: { approvers: { users: [ada] } }', '9');
  expect(judged(compileText(text(budget('a'), other)), 'budget:s/day')).toMatchObject({
    obligations: [{ beyond: 'asked', amount: 9 }],
    approvals: [{ rule: 's/a' }, { rule: 's/b' }],
  });
  for (const rules of [
    [budget('a'), budget('b', '', '9')],
    [budget('a', ''), budget('b', `, ${ASKS}`, '9')],
  ]) {
    const { obligations, approvals } = judged(compileText(text(...rules)), 'budget:s/day');
    expect([obligations, approvals]).toMatchObject([[{ amount: 9 }], []]);
    expect(obligations[0]).not.toHaveProperty('beyond');
  }
});

test('an approval is bound to whom the limit asks, and under which conditions', () => {
  const digest = (...lines: readonly string[]) =>
    judged(compileText(text(...lines)), 'budget:s/day').approvals[0]?.ruleDigest;
  const digests = [
    budget('a'),
    budget('a', ', or_ask: { approvers: { roles: [oncall] }, expires: 2h, summary: "Pay ${params.amount}" }'),
    budget('a', ', or_ask: { approvers: { users: [ada] }, expires: 1h, summary: "Pay ${params.amount}" }'),
    budget('a').replace('effect: allow', 'effect: allow, when: { params.amount: { gt: 0 } }'),
    budget('a', undefined, '7'),
  ].map((line) => digest(line));
  expect(new Set([...digests, undefined]).size).toBe(6);
  expect(digest(budget('a'), '{ id: z, effect: allow }')).toBe(digests[0]);
});

test('a rule that asks anyway has words of its own for that, and others for its limit', () => {
  const own = 'approval: { approvers: { users: [ada] }, summary: "Look at it" }';
  const set = compileText(text(budget('a').replace('effect: allow', `effect: require_approval, ${own}`)));
  expect(
    summariesOf(set, call({ params: { amount: 8 } }), [{ rule: 's/a', beyond: 'budget:s/day' }, { rule: 's/a' }]),
  ).toEqual(['Beyond the limit of budget s/day: Pay 8', 'Look at it']);
});

test('of two limits of one rule each is bound to itself, also where they are written alike', () => {
  const rate = '{ rate_limit: { by: [agent.id], limit: 2, per: minute, or_ask: { approvers: { users: [tom] } } } }';
  const set = compileText(text(`{ id: a, effect: allow, obligations: [ ${rate}, ${rate} ] }`));
  const [one, two] = judged(set, 'rate:s/a', 'rate:s/a#2').approvals;
  expect([one?.beyond, two?.beyond]).toEqual(['rate:s/a', 'rate:s/a#2']);
  expect(one?.ruleDigest).not.toBe(two?.ruleDigest);
});

test('what it says of a call that was changed is said of the limit, and redacted as ever', () => {
  const hidden = '{ id: h, effect: constrain, obligations: [ { redact: { params: [amount] } } ] }';
  const asking = [{ rule: 's/a', beyond: 'budget:s/day' }, { rule: 's/a', beyond: 'budget:s/gone' }, { rule: 's/a' }];
  const set = compileText(text(budget('a')));
  expect(summariesOf(set, call({ params: { amount: 8 } }), asking)).toEqual([
    'Beyond the limit of budget s/day: Pay 8',
    null,
    null,
  ]);
  const [shown] = summariesOf(compileText(text(budget('a'), hidden)), call({ params: { amount: 8 } }), asking);
  expect(shown).not.toContain('8');
});

test.each([
  ['approvers: { roles: [nobody] }', 'unknown_role'],
  ['quorum: 2', 'missing_field'],
  ['approvers: { users: [ada] }, quorum: 2', 'wrong_value'],
  ['approvers: { users: [ada] }, editable: { amount: { max: asked } }', 'unknown_field'],
  ['approvers: { users: [ada] }, allow_alike: { times: 2, for: 1h }', 'unknown_field'],
  ['approvers: { users: [ada] }, hours: office', 'unknown_name'],
])('or_ask with %s does not load: %s', (source, code) => {
  const rate = `{ id: r, effect: constrain, obligations: [ { rate_limit: { limit: 1, per: hour, or_ask: { ${source} } } } ] }`;
  for (const line of [budget('a', `, or_ask: { ${source} }`), rate])
    expect(faultsOf(text(line, budget('z'))).map((fault) => fault.split(' ')[1])).toContain(code);
});
