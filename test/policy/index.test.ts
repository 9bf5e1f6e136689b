import { expect, test } from 'vitest';
import type { Json, JsonObject } from '../../src/json/value.ts';
import { holds } from '../../src/policy/compiled-condition.ts';
import { evaluatePolicies } from '../../src/policy/evaluate.ts';
import { BOT, call, compileText, HEAD, TOOLS } from './fixtures.ts';
import { seeded } from './random.ts';

const SEED = Number(process.env['SVC_TEST_SEED'] ?? 11);

const VALUES: readonly Json[] = ['a', 'b', 'c', 'd', '1', 1, 2, 3, 0, true, false];
const HOSTILE: readonly Json[] = [...VALUES, ...VALUES, null, ['a'], { a: 1 }, Number.NaN, -0, 'zz'];

/** Equalities on a few facts, alone and with others, so that sets have several keys, shared values and leftovers. */
const LEAVES: readonly ((value: Json, other: Json) => string)[] = [
  (value) => `params.x: ${JSON.stringify(value)}`,
  (value) => `params.y: { eq: ${JSON.stringify(value)} }`,
  (value, other) => `params.x: { in: ${JSON.stringify(typeof value === typeof other ? [value, other] : [value])} }`,
  (value) => `not: { params.y: { ne: ${JSON.stringify(value)} } }`,
  (value) => `params.x: { eq: ${JSON.stringify(value)}, if_absent: true }`,
  (value) => `params.z: { ne: ${JSON.stringify(value)} }`,
  (value, other) => `params.x: ${JSON.stringify(value)}, params.y: ${JSON.stringify(other)}`,
  (value, other) => `params.y: ${JSON.stringify(value)}, params.x: ${JSON.stringify(other)}`,
  (value) => `all: [ { params.x: ${JSON.stringify(value)} }, { params.z: { exists: true } } ]`,
  (value, other) => `any: [ { params.x: ${JSON.stringify(value)} }, { params.y: ${JSON.stringify(other)} } ]`,
];
const MATCHES: readonly string[] = [
  '',
  'match: { tools: ["payments.*"] },',
  'match: { agents: { team: [support, sales] } },',
  'match: { env: [prod] },',
  'match: { kinds: [read], except: [ { tools: [mail.*] } ] },',
];

test('the index finds exactly the rules that judging all of them finds', { timeout: 240_000 }, () => {
  const random = seeded(SEED);
  let found = 0;
  let indexed = 0;
  for (let run = 0; run < 150; run += 1) {
    const lines = Array.from({ length: 60 }, (_, n) => {
      const effect = random.pick(['allow', 'deny', 'pause', 'deny, on_unknown: skip']);
      const part = random.chance(0.85) ? 'when' : 'unless';
      return `  - { id: r${n}, effect: ${effect}, ${random.pick(MATCHES)} ${part}: { ${random.pick(LEAVES)(random.pick(VALUES), random.pick(VALUES))} } }`;
    });
    const set = compileText(`${HEAD}rules:\n${lines.join('\n')}\n`);
    for (const index of set.byTool.values()) indexed += index.keys.length;
    for (let turn = 0; turn < 40; turn += 1) {
      const params: JsonObject = Object.fromEntries(
        ['x', 'y', 'z'].flatMap((name) => {
          return random.chance(0.1) ? [] : [[name, random.pick(HOSTILE)]];
        }),
      );
      const agent = { ...BOT, team: random.pick(['support', 'other', null]) };
      const input = call({ params, agent, tool: random.pick(TOOLS), env: random.pick(['prod', 'dev']) });
      const expected = set.rules
        .filter(
          (rule) =>
            holds(rule.perTool, input, undefined, rule.unknownIs) &&
            holds(rule.perCall, input, undefined, rule.unknownIs),
        )
        .map(({ id }) => id);
      const { matched } = evaluatePolicies(set, input).trace;
      expect(
        matched.map(({ rule }) => rule),
        `seed ${SEED}, run ${run}: ${JSON.stringify(params)}\n${lines.join('\n')}`,
      ).toEqual(expected);
      found += matched.length;
    }
  }
  expect(found).toBeGreaterThan(10_000);
  expect(indexed).toBeGreaterThan(300);
});

test('what a call with an unusable index key matches is bounded in the trace', () => {
  const lines = Array.from({ length: 500 }, (_, n) => `  - { id: r${n}, effect: deny, when: { params.x: v${n} } }`);
  const set = compileText(`${HEAD}rules:\n${lines.join('\n')}\n`);
  const verdict = evaluatePolicies(set, call({ params: {} }));
  expect(verdict).toMatchObject({ kind: 'deny', reason: { rule: 's/r0' } });
  expect(verdict.trace.matched).toHaveLength(64);
});
