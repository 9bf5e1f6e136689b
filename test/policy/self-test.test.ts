import { readFile } from 'node:fs/promises';
import { Ajv2020 } from 'ajv/dist/2020.js';
import { expect, test, vi } from 'vitest';
import type { JsonObject } from '../../src/json/value.ts';
import { readYamlSource } from '../../src/diagnostics/yaml-source.ts';
import { compilePolicies } from '../../src/policy/load.ts';
import { proveDenial } from '../../src/policy/self-test.ts';
import { policyJsonSchema } from '../../src/policy/schema.ts';
import { compileAll, HEAD, judge, judgeParams, outcome, rules, TOOLS, tool, GET } from './fixtures.ts';

/** Params of which policy says the opposite of what is right. */
const wrong = vi.hoisted((): { params: JsonObject | null } => ({ params: null }));
vi.mock('../../src/policy/evaluate.ts', async (importOriginal) => {
  const original = await importOriginal<typeof import('../../src/policy/evaluate.ts')>();
  const evaluatePolicies: typeof original.evaluatePolicies = (set, input, exceeded) =>
    original.evaluatePolicies(
      set,
      JSON.stringify(input.params) === JSON.stringify(wrong.params)
        ? { ...input, params: { amount: wrong.params?.['amount'] === 10 ? 11 : 10 } }
        : input,
      exceeded,
    );
  return { ...original, evaluatePolicies };
});

test('a set proves its denials at start-up', () => {
  expect(() => proveDenial(rules('{ id: a, effect: allow }'))).not.toThrow();
});

test('a set that permits what no rule can name is not served', () => {
  const set = rules('{ id: a, effect: allow }');
  const open = set.byTool.get(GET.name);
  const broken = {
    ...set,
    byTool: new Map(
      [['self test.forbidden', open]].flatMap(([name, index]) =>
        typeof name === 'string' && typeof index === 'object' ? [[name, index] as const] : [],
      ),
    ),
  };
  expect(() => proveDenial(broken)).toThrow('a tool that is not declared should be a deny and is a permit');
});

test.each<[JsonObject, string]>([
  [{ amount: 10 }, 'an amount within the bound should be a permit and is a deny'],
  [{ amount: 11 }, 'the params {"amount":11} should be a deny and is a permit'],
  [{ amount: '5' }, 'the params {"amount":"5"} should be a deny and is a permit'],
  [{ amount: null }, 'the params {"amount":null} should be a deny and is a permit'],
  [{ amount: [5] }, 'the params {"amount":[5]} should be a deny and is a permit'],
  [{}, 'the params {} should be a deny and is a permit'],
])('a process that judges %j wrongly does not serve', (params, said) => {
  const set = rules('{ id: a, effect: allow }');
  wrong.params = params;
  try {
    expect(() => proveDenial(set)).toThrow(`Policy self-test failed: ${said}`);
  } finally {
    wrong.params = null;
  }
});

test('the example policies say what their comments say', async () => {
  const texts = await Promise.all(['payments', 'platform'].map((name) => readFile(`policies/${name}.yaml`, 'utf8')));
  const tools = [
    ...TOOLS.filter(({ name }) => name !== 'payments.refund'),
    tool('payments.refund', {}, ['payment_id', 'amount', 'currency', 'reason']),
    tool('deploy.start'),
  ];
  const pools = new Map([['deploy-slot', 1]]);
  const rolesOf = new Map([['maria', ['finance-lead', 'oncall']]]);
  const { set, warnings } = compilePolicies(
    texts.map((text, index) => ({ file: `${index}`, text, lists: new Map() })),
    { tools, upstreams: ['payments'], pools, roles: ['finance-lead', 'oncall'], rolesOf },
  );
  expect(warnings).toEqual([]);
  const refund = (amount: number, currency = 'EUR') =>
    outcome(judgeParams(set, { payment_id: 'p_1', amount, currency }));
  expect([refund(1), refund(50_000), refund(50_001), refund(0), refund(10, 'CHF')]).toEqual([
    'permit',
    'permit',
    'approval',
    'denied_policy',
    'denied_policy',
  ]);
  expect(judgeParams(set, { payment_id: 'p_1', amount: 10, currency: 'EUR' })).toMatchObject({
    obligations: [
      { kind: 'budget', limit: 500_000, amount: 10 },
      { kind: 'claim', target: 'payment:p_1' },
      { kind: 'rate_limit', limit: 60 },
    ],
  });
  const deploy = tool('deploy.start');
  const agent = {
    id: 'deploy-bot',
    workspace: 'demo',
    disabled: false,
    team: 'platform',
    owner: 'ada',
    roles: ['deployer'],
    attributes: {},
  };
  expect(judge(set, { tool: deploy, agent, params: { service: 'x', version: '1' } })).toMatchObject({
    approvals: [{ summary: 'Deploy "x" "1"' }],
    obligations: [{ kind: 'reserve', pool: 'deploy-slot', units: 1, capacity: 1 }],
  });
  expect(judge(set, { tool: deploy, agent, now: Date.UTC(2026, 11, 24) }).trace.shadow).toEqual(['platform/year-end']);
  expect(judge(set, { tool: deploy, agent, now: Date.UTC(2027, 0, 4) }).trace.shadow).toEqual([]);
});

test('the JSON Schema names every field that a file may have', () => {
  const schema = JSON.stringify(policyJsonSchema());
  for (const field of ['rate_limit', 'approvers', 'has_params', 'on_unknown', 'warn_at', 'rolling', '$defs'])
    expect(schema).toContain(`"${field}"`);
  expect(schema).toContain('"additionalProperties":false');
  expect(compileAll([]).warnings.map(({ code }) => code)).toEqual(['no_policies']);
});

test('the JSON Schema accepts what loads and refuses what does not, judged by another validator', async () => {
  const validate = new Ajv2020({ strict: false }).compile(policyJsonSchema());
  for (const name of ['payments', 'platform']) {
    const source = readYamlSource(name, await readFile(`policies/${name}.yaml`, 'utf8'));
    expect(validate(source.value), JSON.stringify(validate.errors)).toBe(true);
  }
  const text = (rule: string): unknown => readYamlSource('', `${HEAD}rules:\n  - ${rule}\n`).value;
  expect(
    validate(
      text(
        '{ id: a, effect: deny, when: { any: [ { params.a: { every: { item.b: 1 } } }, { not: { condition: c } } ] } }',
      ),
    ),
  ).toBe(true);
  for (const rule of [
    '{ id: a, effect: alow }',
    '{ id: a, effect: allow, wen: {} }',
    '{ id: a, effect: deny, when: { parms.a: 1 } }',
    '{ id: a, effect: deny, when: { params.a: { greater: 1 } } }',
    '{ id: a, effect: deny, when: { all: [] } }',
  ])
    expect(validate(text(rule)), rule).toBe(false);
});
