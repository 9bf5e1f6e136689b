import { expect, test } from 'vitest';
import type { Json, JsonObject } from '../../src/json/value.ts';
import { call, compileText, HEAD } from './fixtures.ts';
import { evaluatePolicies } from '../../src/policy/evaluate.ts';
import type { Verdict } from '../../src/effects/model/verdict.ts';
import { type Random, seeded } from './random.ts';

const SEED = Number(process.env['SVC_TEST_SEED'] ?? 7);
const SETS = 800;

/** Params of a well-typed call. Each param has one type in all conditions, as a schema would have it. */
const USUAL: Readonly<Record<string, readonly Json[]>> = {
  amount: [0, 1, 499, 500, 501, 900],
  currency: ['EUR', 'USD', 'CHF', 'A-1'],
  to: ['x@example.com', 'ada@example.org', 'ADA@example.org', 'x@evil.com', 'x@evil.com, y@example.com'],
  host: ['a.example.com', 'example.com', 'a.example.com.'],
  urgent: [true, false],
  tags: [['vip'], ['vip', 'new'], [], ['old']],
  lines: [
    [{ sku: 'A-1', qty: 2 }],
    [
      { sku: 'B-1', qty: 20 },
      { sku: 'A-2', qty: 1 },
    ],
    [],
  ],
  meta: [{ a: 1 }, { a: 2, b: 'x' }],
};

const CONDITIONS: readonly string[] = [
  '{ params.amount: { gt: 500 } }',
  '{ params.amount: { gte: 1, lte: 500 } }',
  '{ params.amount: { in: [1, 500] } }',
  '{ params.amount: { ne: 499 } }',
  '{ params.currency: { in: [EUR, USD] } }',
  '{ params.currency: { nin: [CHF] } }',
  '{ params.currency: EUR }',
  '{ params.currency: { regex: "[A-Z]{3}" } }',
  '{ params.currency: { glob: "A-*" } }',
  '{ params.to: { email_in: ["*@example.com", ada@example.org] } }',
  '{ params.host: { domain_in: ["**.example.com"] } }',
  '{ params.currency: { eq: { fact: agent.attributes.tenant } } }',
  '{ params.urgent: true }',
  '{ params.tags: { contains: vip } }',
  '{ params.tags: { contains_all: [vip, new] } }',
  '{ params.tags: { every: { item: { starts_with: [v, n] } } } }',
  '{ params.lines: { some: { item.qty: { gt: 10 } } } }',
  '{ params.lines: { every: { item.sku: { starts_with: A- }, item.qty: { lt: 10 } } } }',
  '{ params.meta.a: 1 }',
  '{ params.meta: { equals: { a: 1 } } }',
];

function randomCondition(random: Random, depth = 0): string {
  if (depth >= 2) return random.pick(CONDITIONS);
  switch (random.below(6)) {
    case 0:
      return `{ not: ${randomCondition(random, depth + 1)} }`;
    case 1:
      return `{ all: [ ${randomCondition(random, depth + 1)}, ${randomCondition(random, depth + 1)} ] }`;
    case 2:
      return `{ any: [ ${randomCondition(random, depth + 1)}, ${randomCondition(random, depth + 1)} ] }`;
    default:
      return random.pick(CONDITIONS);
  }
}

/** How much a verdict holds back. */
function strictness(verdict: Verdict): number {
  if (verdict.kind === 'deny') return verdict.decision === 'denied_paused' ? 100 : 90;
  return verdict.approvals.length + verdict.obligations.length;
}

const OTHERS: readonly Json[] = [null, 'text', 7, true, ['x'], [7], { x: 1 }];

function kind(value: Json): string {
  return value === null ? 'null' : Array.isArray(value) ? 'array' : typeof value;
}

test(`deleting or retyping a param never weakens what ${SETS} random policies say`, { timeout: 240_000 }, () => {
  const random = seeded(SEED);
  const seen = new Map<number, number>();
  let stricter = 0;
  for (let run = 0; run < SETS; run += 1) {
    const part = (): string => `${random.chance(0.5) ? 'when' : 'unless'}: ${randomCondition(random)}`;
    const text = `${HEAD}rules:
  - { id: a, effect: allow, ${part()} }
  - { id: b, effect: allow }
  - { id: q, effect: require_approval, ${part()}, approval: { approvers: { roles: [oncall] } } }
  - { id: c, effect: constrain, ${part()}, obligations: [ { claim: { on: x } } ] }
  - { id: d, effect: deny, ${part()} }
  - { id: p, effect: pause, ${part()} }
`.replace(random.chance(0.5) ? '  - { id: b, effect: allow }\n' : '\0', '');
    const set = compileText(text);
    for (let turn = 0; turn < 4; turn += 1) {
      const params: JsonObject = Object.fromEntries(
        Object.entries(USUAL).map(([name, values]) => [name, random.pick(values)]),
      );
      const before = strictness(evaluatePolicies(set, call({ params })));
      seen.set(before, (seen.get(before) ?? 0) + 1);
      for (const [name, value] of Object.entries(params)) {
        const { [name]: _gone, ...without } = params;
        const changed = [
          without,
          ...OTHERS.filter((other) => kind(other) !== kind(value)).map((other) => ({ ...params, [name]: other })),
        ];
        for (const mutated of changed) {
          const after = strictness(evaluatePolicies(set, call({ params: mutated })));
          if (after > before) stricter += 1;
          if (after < before)
            expect.fail(
              `seed ${SEED}, run ${run}: ${JSON.stringify(params)} gave ${before}, ${JSON.stringify(mutated)} gives ${after} under\n${text}`,
            );
        }
      }
    }
  }
  // All outcomes came up, and mutations did change some: the test has looked at something.
  expect([...seen.keys()].sort((a, b) => a - b)).toEqual([0, 1, 2, 90, 100]);
  expect(stricter).toBeGreaterThan(1_000);
});
