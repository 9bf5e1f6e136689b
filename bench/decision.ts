import { Engine } from 'json-rules-engine';
import type { Tool } from '../src/effects/model/tool.ts';
import { type CompiledPolicies, evaluatePolicies, type PolicyInput } from '../src/policy/evaluate.ts';
import { compilePolicies } from '../src/policy/load.ts';
import type { BenchResult } from './result.ts';

/** All rules stand on few tools: an index by tool alone would not help. */
const TOOLS: readonly Tool[] = ['refund', 'create', 'void', 'capture'].map((name) => ({
  name: `payments.${name}`,
  title: name,
  upstream: 'payments',
  kind: 'write',
  actionType: 'mcp.tool_call',
  tags: [],
  risk: null,
  env: null,
  call: {
    kind: 'http',
    request: { method: 'POST', path: '/', query: [], headers: {}, body: '*' },
    outcomes: { committed: [], failed: [], unknown: [], body: [] },
    state: null,
  },
  paramsSchema: null,
  target: null,
  timeoutMs: 1_000,
  maxProcessingMs: 1_000,
  idempotent: { kind: 'none' },
  digest: name,
}));

/** Many short rounds: one that the machine interrupts does not reach the median. */
const ROUNDS = 301;
const CALLS = 1_000;

/** Microseconds of one decision at several numbers of rules, beside json-rules-engine as it is usually used. */
export async function run(): Promise<BenchResult[]> {
  const few = ruleSet(10);
  const many = ruleSet(10_000);
  const inputs = Array.from({ length: 64 }, (_, index) => inputOf(index));
  for (let round = 0; round < 20; round += 1) {
    timeOf(few, inputs);
    timeOf(many, inputs);
  }
  // In turns, so that whatever else the machine does falls on both.
  const fewTimes: number[] = [];
  const manyTimes: number[] = [];
  for (let round = 0; round < ROUNDS; round += 1) {
    fewTimes.push(timeOf(few, inputs));
    manyTimes.push(timeOf(many, inputs));
  }
  const fewMicros = median(fewTimes);
  const manyMicros = median(manyTimes);
  const engineMicros = await engineTime(10);
  return [
    {
      name: 'decision with 10 rules',
      value: fewMicros,
      unit: 'µs',
      peer: `json-rules-engine run() with 10 rules: ${engineMicros.toFixed(1)} µs`,
      ratio: fewMicros / engineMicros,
      target: null,
    },
    {
      name: 'decision with 10,000 rules',
      value: manyMicros,
      unit: 'µs',
      peer: 'decision with 10 rules',
      ratio: manyMicros / fewMicros,
      target: '<= 1 µs and ratio <= 2',
    },
  ];
}

/** Rules by agent, by customer and by environment, on the same four tools, beside a few that every call meets. */
function ruleSet(count: number): CompiledPolicies {
  const rules = [
    '{ id: allow, effect: allow, match: { tools: ["payments.*"] }, when: { params.amount: { gte: 1, lte: 50000 } } }',
    '{ id: rate, effect: constrain, match: { tools: ["payments.*"] }, obligations: [ { rate_limit: { by: [agent.id], limit: 60, per: minute } } ] }',
    '{ id: currency, effect: deny, match: { tools: ["payments.*"] }, when: { params.currency: { nin: [EUR, USD] } } }',
  ];
  for (let index = rules.length; index < count; index += 1)
    rules.push(
      index % 2 === 0
        ? `{ id: r${index}, effect: deny, match: { tools: ["payments.*"], agents: { id: [agent-${index}] } }, when: { params.amount: { gt: ${index} } } }`
        : `{ id: r${index}, effect: deny, match: { tools: [payments.refund, payments.create] }, when: { params.customer: customer-${index}, params.amount: { gt: ${index} } } }`,
    );
  const text = `apiVersion: svc-gateway/v1\nkind: PolicySet\nname: bench\nrules:\n${rules.map((rule) => `  - ${rule}\n`).join('')}`;
  const surroundings = {
    tools: TOOLS,
    upstreams: ['payments'],
    pools: new Map<string, number>(),
    roles: [],
    rolesOf: new Map<string, string[]>(),
  };
  return compilePolicies([{ file: 'bench.yaml', text, lists: new Map() }], surroundings).set;
}

function inputOf(index: number): PolicyInput {
  const tool = TOOLS[index % TOOLS.length];
  if (tool === undefined) throw new Error('no tools');
  return {
    agent: {
      id: `agent-${index}`,
      workspace: 'demo',
      disabled: false,
      team: 'support',
      owner: null,
      roles: [],
      attributes: {},
    },
    key: { id: 'key', kind: 'agent', profile: null, user: null },
    tool,
    env: 'prod',
    workspace: 'demo',
    target: `payment:p_${index}`,
    params: { amount: 3 + (index % 7), currency: 'EUR', customer: `customer-${index}`, payment_id: `p_${index}` },
    headers: {},
    requestIp: null,
    now: 1_750_000_000_000,
    mode: 'enforce',
  };
}

/** Microseconds of one call, over many. */
function timeOf(set: CompiledPolicies, inputs: readonly PolicyInput[]): number {
  let permitted = 0;
  const begin = performance.now();
  for (let call = 0; call < CALLS; call += 1) {
    const input = inputs[call % inputs.length];
    if (input !== undefined && evaluatePolicies(set, input).kind === 'permit') permitted += 1;
  }
  const spent = performance.now() - begin;
  if (permitted === 0) throw new Error('the benchmark permits nothing, so it measures something else');
  return (spent * 1_000) / CALLS;
}

/** The engine as its manual shows it: one engine, `run` for each call. */
async function engineTime(count: number): Promise<number> {
  const engine = new Engine();
  for (let index = 0; index < count; index += 1)
    engine.addRule({
      conditions: {
        all: [
          { fact: 'agent', operator: 'equal', value: `agent-${index}` },
          { fact: 'params', path: '$.amount', operator: 'greaterThan', value: index },
        ],
      },
      event: { type: 'deny' },
    });
  const calls = 300;
  const times: number[] = [];
  for (let round = 0; round < 5; round += 1) {
    const begin = performance.now();
    for (let call = 0; call < calls; call += 1)
      await engine.run({ agent: `agent-${call % 64}`, params: { amount: 5 } });
    times.push(((performance.now() - begin) * 1_000) / calls);
  }
  return median(times);
}

function median(values: readonly number[]): number {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[Math.floor(sorted.length / 2)] ?? Number.NaN;
}
