import { expect, test } from 'vitest';
import { compileAll, HEAD } from './fixtures.ts';

const NAMES = `values: { auto: { by: env, of: { prod: 500 }, else: 900 } }
lists: { currencies: [EUR, USD] }
budgets: { day: { unit: c, by: [agent.id], per: day, limit: 5 }, other: { unit: c, per: day, limit: 5 } }
`;
const charge = (amount: string, budget = 'day') => `obligations: [ { budget: { use: ${budget}, amount: ${amount} } } ]`;

function warnings(...rules: readonly string[]): readonly string[] {
  const text = `${HEAD}${NAMES}rules:\n${rules.map((rule) => `  - ${rule}\n`).join('')}`;
  return compileAll([text])
    .warnings.filter(({ code }) => code === 'different_amounts' || code === 'not_all_compared')
    .map(({ message, at }) => `${at?.line} ${message}`);
}

const pair = (first: string, second: string) =>
  warnings(
    `{ id: a, effect: allow, ${first}${charge('params.x')} }`,
    `{ id: b, effect: constrain, ${second}${charge('5')} }`,
  );

test('two rules for one call with different amounts on one budget: said at the later one', () => {
  expect(pair('', '')).toEqual([
    "9 One call may match 's/b' and 's/a', which put different amounts on the budget 's/day' (5 and params.x): the larger one is held",
  ]);
});

test('one rule with two amounts', () => {
  const twice = '[ { budget: { use: day, amount: 5 } }, { budget: { use: day, amount: params.x } } ]';
  expect(warnings(`{ id: a, effect: allow, obligations: ${twice} }`)).toEqual([
    "8 's/a' puts two amounts on the budget 's/day' (params.x and 5): the larger one is held, not both",
  ]);
});

const APART: readonly (readonly [string, string, string])[] = [
  ['ranges', 'when: { params.n: { lte: 5 } }, ', 'when: { params.n: { gt: 5 } }, '],
  ['ranges of three rules away', 'when: { params.n: { gte: 1, lt: 5 } }, ', 'when: { params.n: { gte: 5, lte: 9 } }, '],
  ['ranges, one negated', 'when: { params.n: { gt: 5 } }, ', 'unless: { params.n: { gt: 5 } }, '],
  ['a number beside a range', 'when: { params.n: 5 }, ', 'when: { params.n: { gt: 5 } }, '],
  ['numbers all outside of a range', 'when: { params.n: { in: [1, 9] } }, ', 'when: { params.n: { gt: 1, lt: 9 } }, '],
  ['a named value', 'when: { params.n: { lte: $auto } }, ', 'when: { params.n: { gt: $auto } }, '],
  ['beyond all of a named value', 'when: { params.n: { lte: $auto } }, ', 'when: { params.n: { gt: 900 } }, '],
  ['equalities', 'when: { params.c: EUR }, ', 'when: { params.c: USD }, '],
  ['an equality and a list', 'when: { params.c: CHF }, ', 'when: { params.c: { in: $currencies } }, '],
  ['an equality and what it is not', 'when: { params.c: EUR }, ', 'when: { params.c: { ne: EUR } }, '],
  ['lists, one negated', 'when: { params.c: { in: [EUR] } }, ', 'when: { params.c: { nin: $currencies } }, '],
  ['agents', 'match: { agents: { team: [support] } }, ', 'match: { agents: { team: [sales, ops] } }, '],
  ['environments', 'match: { env: [prod] }, ', 'match: { except: [ { env: [prod] } ] }, '],
  ['tools', 'match: { tools: [payments.refund] }, ', 'match: { tools: [payments.get] }, '],
  ['tools, by what they are', 'match: { upstreams: [mail] }, ', 'match: { kinds: [read] }, '],
  ['times', 'until: 2026-01-01, ', 'from: 2026-01-01, '],
  ['absence', 'when: { params.n: { exists: false } }, ', 'when: { params.n: { gt: 1 } }, '],
  [
    'absence by the operator',
    'when: { params.n: { lte: 5, if_absent: true } }, ',
    'when: { params.n: { gt: 5, if_absent: false } }, ',
  ],
  [
    'each of several',
    'when: { any: [ { params.n: { lt: 1 } }, { params.n: { gt: 9 } } ] }, ',
    'when: { params.n: { gte: 1, lte: 9 } }, ',
  ],
];

test.each(APART)('rules are apart by %s', (_what, first, second) => {
  expect(pair(first, second)).toEqual([]);
  expect(pair(second, first)).toEqual([]);
});

const TOGETHER: readonly (readonly [string, string, string])[] = [
  ['ranges that touch', 'when: { params.n: { lte: 5 } }, ', 'when: { params.n: { gte: 5 } }, '],
  ['facts that differ', 'when: { params.n: { lte: 5 } }, ', 'when: { params.m: { gt: 5 } }, '],
  ['a named value within', 'when: { params.n: { lte: $auto } }, ', 'when: { params.n: { gt: 600 } }, '],
  ['a named value that is in both', 'when: { params.n: { lte: $auto } }, ', 'when: { params.n: { gte: $auto } }, '],
  ['lists that share one', 'when: { params.c: { in: [CHF, EUR] } }, ', 'when: { params.c: { in: $currencies } }, '],
  ['numbers, one in the range', 'when: { params.n: { in: [1, 5] } }, ', 'when: { params.n: { gt: 1, lt: 9 } }, '],
  [
    'absence in both',
    'when: { params.n: { lte: 5, if_absent: true } }, ',
    'when: { params.n: { gt: 5, if_absent: true } }, ',
  ],
  ['one of several', 'when: { any: [ { params.n: 5 }, { params.m: 1 } ] }, ', 'when: { params.n: { gt: 5 } }, '],
  ['tools that both have', 'match: { tools: ["payments.*"] }, ', 'match: { tools: [payments.get] }, '],
  ['what cannot be compared', 'when: { params.c: { glob: "a*" } }, ', 'when: { params.c: { glob: "b*" } }, '],
  [
    'elements of a list',
    'when: { params.l: { some: { item: { eq: 1 } } } }, ',
    'when: { params.l: { some: { item: { eq: 2 } } } }, ',
  ],
];

test.each(TOGETHER)('rules are not apart by %s', (_what, first, second) => {
  expect(pair(first, second)).toHaveLength(1);
  expect(pair(second, first)).toHaveLength(1);
});

test('the same amount, another budget and shadow rules are none of it', () => {
  const first = `{ id: a, effect: allow, ${charge('params.x')} }`;
  expect(warnings(first, `{ id: b, effect: constrain, ${charge('params.x')} }`)).toEqual([]);
  expect(warnings(first, `{ id: b, effect: constrain, ${charge('5', 'other')} }`)).toEqual([]);
  expect(warnings(first, `{ id: b, effect: constrain, mode: shadow, ${charge('5')} }`)).toEqual([]);
});

test('many rules are compared up to a bound, and that is said', () => {
  const many = Array.from({ length: 1_000 }, (_, index) => {
    const own = `when: { params.n: ${index} }, `;
    return `{ id: r${index}, effect: allow, ${own}${charge(String(index + 1))} }`;
  });
  const begun = performance.now();
  expect(warnings(...many)).toEqual([expect.stringContaining('too many rules with different amounts')]);
  expect(performance.now() - begun).toBeLessThan(30_000);
  expect(warnings(...many.slice(0, 300))).toEqual([]);
});
