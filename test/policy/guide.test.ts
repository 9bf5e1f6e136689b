import { readFile } from 'node:fs/promises';
import { Ajv2020 } from 'ajv/dist/2020.js';
import { expect, test } from 'vitest';
import { readYamlSource } from '../../src/diagnostics/yaml-source.ts';
import type { JsonObject } from '../../src/json/value.ts';
import { policyJsonSchema } from '../../src/policy/schema.ts';
import { compileAll, HEAD, judgeParams, outcome, rules } from './fixtures.ts';

/** The YAML of the guide, block by block. */
async function blocks(): Promise<readonly string[]> {
  const guide = await readFile('docs/policies/README.md', 'utf8');
  return [...guide.matchAll(/```yaml\n([\s\S]*?)```/g)].map((found) => found[1] ?? '');
}

const indented = (text: string): string => text.replace(/^/gm, '    ');

test('what the guide shows loads, and decides as it says', async () => {
  const [set = '', conditions = '', obligations = '', asking = '', schedules = ''] = await blocks();
  const { set: compiled, warnings } = compileAll([set]);
  expect(warnings).toEqual([]);
  expect(outcome(judgeParams(compiled, { amount: 50_000, currency: 'EUR' }))).toBe('permit');
  expect(outcome(judgeParams(compiled, { amount: 50_001, currency: 'EUR' }))).toBe('denied_policy');

  const [short = '', long = ''] = conditions.trim().split('\n');
  for (const line of [short, long]) {
    const { set: one } = compileAll([`${HEAD}rules:\n  - id: a\n    effect: allow\n    ${line}\n`]);
    const judged = (amount: number, currency: string) => outcome(judgeParams(one, { amount, currency }));
    expect([judged(501, 'EUR'), judged(500, 'EUR'), judged(501, 'USD')]).toEqual([
      'permit',
      'denied_policy',
      'denied_policy',
    ]);
  }

  const budgets = 'budgets: { agent-day: { unit: cent, by: [agent.id], per: day, limit: 5 } }\n';
  const { set: constrained } = compileAll([
    `${HEAD}${budgets}lists: { holidays: ["2026-12-25"] }\n${schedules}rules:\n  - id: a\n    effect: require_approval\n${indented(obligations)}`,
  ]);
  expect(judgeParams(constrained, { amount: 3, payment_id: 'p_1' })).toMatchObject({
    obligations: [{ kind: 'budget' }, { kind: 'rate_limit' }, { kind: 'claim' }, { kind: 'reserve' }],
    // Asked on a Monday at 14:00 in Berlin.
    approvals: [{ quorum: 2, expiresMs: 14_400_000, hours: { expiresAt: Date.UTC(2026, 5, 15, 16) } }],
  });

  const { set: asks, warnings: none } = compileAll([
    `${HEAD}${budgets}rules:\n  - id: a\n    effect: allow\n${indented(asking)}`,
  ]);
  expect(none).toEqual([]);
  expect(judgeParams(asks, { amount: 3 })).toMatchObject({ obligations: [{ beyond: 'ask' }, { beyond: 'ask' }] });
});

test('an editor that checks by the JSON Schema takes what the guide shows, and it loads', async () => {
  const [set = '', , , , schedules = '', brain = ''] = await blocks();
  const validate = new Ajv2020({ strict: false }).compile(policyJsonSchema());
  const holidays = 'lists: { holidays: ["2026-12-25"] }\n';
  const asks = '{ approvers: { roles: [finance-lead] }, hours: office }';
  for (const text of [
    set,
    `${HEAD}${holidays}${schedules}rules: [{ id: a, effect: require_approval, approval: ${asks} }]`,
    `${HEAD}${brain}`,
  ]) {
    expect(validate(readYamlSource('guide', text).value), JSON.stringify(validate.errors)).toBe(true);
    expect(compileAll([text]).set.rules, text).not.toEqual([]);
  }
});

test('what leaving a param out, or sending another type, does to a rule that denies: as the guide says', () => {
  const judged = (rule: string, params: JsonObject) =>
    outcome(judgeParams(rules('{ id: a, effect: allow }', `{ id: d, effect: deny, ${rule} }`), params));
  const none: JsonObject = {};
  const mistyped: JsonObject = { note: [7] };
  for (const compared of [
    'when: { params.note: bad }',
    'when: { params.note: { regex: ".*bad.*" } }',
    'when: { params.note: { equals: bad } }',
  ]) {
    expect(judged(compared, { note: 'bad' }), compared).toBe('denied_policy');
    expect(judged(compared, none), compared).toBe('denied_policy');
    expect(judged(compared, mistyped), compared).toBe('denied_policy');
  }
  for (const asked of [
    'when: { params.note: { exists: true } }',
    'when: { params.note: { type: string } }',
    'when: { params.note: { eq: bad, if_absent: false } }',
    'on_unknown: skip, when: { params.note: bad }',
  ]) {
    expect(judged(asked, { note: 'bad' }), asked).toBe('denied_policy');
    expect(judged(asked, none), asked).toBe('permit');
  }
  const whole = 'when: { params.meta: { equals: { a: 1 } } }';
  const part = 'when: { params.meta.a: 1 }';
  expect([judged(whole, { meta: 'x' }), judged(part, { meta: 'x' })]).toEqual(['denied_policy', 'denied_policy']);
  expect([judged(whole, { meta: { a: '1' } }), judged(part, { meta: { a: '1' } })]).toEqual([
    'permit',
    'denied_policy',
  ]);
  const demanded = 'unless: { params.amount: { type: integer } }';
  expect([judged(demanded, {}), judged(demanded, { amount: '5' }), judged(demanded, { amount: 5 })]).toEqual([
    'denied_policy',
    'denied_policy',
    'permit',
  ]);
});
