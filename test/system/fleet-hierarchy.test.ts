import { afterAll, beforeAll, expect, it } from 'vitest';
import { type RedisServer, startRedis, until } from '../redis/servers.ts';
import { AN_HOUR_APART, clockOf, offsetSeenIn } from './clocks.ts';
import { type Fleet, startFleet } from './fleet.ts';
import type { TestFiles } from './gateway.ts';

const AGENTS = 64;
const TEAMS = 8;
/** Below what the agents ask for together, at each level but their own. */
const LIMITS = { agent: 40, team: 200, department: 700, workspace: 1200 };
const CALLS = 6;
const AMOUNT = 7;

/**
 * The window is the shortest that the test fits into: by their own clocks the gateways would be in three different hours.
 * At the turn of the hour there would be two in truth.
 */
function period(now: Date): string {
  return now.getUTCMinutes() < 57 ? 'hour' : 'year';
}

function files(upstreamUrl: string): TestFiles {
  const per = period(new Date());
  const agents = Array.from(
    { length: AGENTS },
    (_, n) => `{ id: a${n}, team: t${n % TEAMS}, attributes: { department: d${n % 2} } }`,
  );
  return {
    config: `
server: { host: 127.0.0.1, port: 0 }
store: { kind: embedded, path: "\${SVC_TEST_DATA}" }
users: [ { id: tom }, { id: olga } ]
workspaces: [ { id: demo, agents: [ { id: bot }, ${agents.join(', ')} ] } ]
policies: { paths: ["\${SVC_TEST_POLICIES}"] }
upstreams: [ { id: ledger, url: "${upstreamUrl}", timeout: 10s } ]
tools:
  - name: ledger.book
    title: Book
    upstream: ledger
    kind: write
    request: { method: POST, path: "/v1/bookings/{op}", body: [amount] }
    params_schema: { type: object, required: [op, amount], properties: { op: { type: string }, amount: { type: integer } }, additionalProperties: false }
    timeout: 500ms
    max_processing: 500ms
telemetry: { log_level: error }
`,
    policies: {
      'levels.yaml': `
apiVersion: svc-gateway/v1
kind: PolicySet
name: levels
budgets:
  by-agent: { unit: coin, by: [agent.id], per: ${per}, limit: ${LIMITS.agent} }
  by-team: { unit: coin, by: [agent.team], per: ${per}, limit: ${LIMITS.team} }
  by-department: { unit: coin, by: [agent.attributes.department], per: ${per}, limit: ${LIMITS.department} }
  all: { unit: coin, by: [], per: ${per}, limit: ${LIMITS.workspace} }
rules:
  - id: book
    effect: allow
    match: { tools: [ledger.book] }
    obligations:
      - budget: { use: by-agent, amount: params.amount }
      - budget: { use: by-team, amount: params.amount }
      - budget: { use: by-department, amount: params.amount }
      - budget: { use: all, amount: params.amount }
`,
    },
  };
}

let redis: RedisServer;
let fleet: Fleet;
beforeAll(async () => {
  redis = await startRedis();
  fleet = await startFleet({ gateways: 3, store: `url: "${redis.url}", max_freeze: 1s`, files, env: clockOf });
});
afterAll(async () => {
  await fleet.close();
  await redis.stop();
});

it('64 agents, 4 levels, 3 gateways at the limit, with kills and clocks an hour apart: nothing overspent, nothing leaked', {
  timeout: 240_000,
}, async () => {
  const ops = Array.from({ length: AGENTS * CALLS }, (_, n) => ({ op: `op-${n}`, agent: `a${n % AGENTS}`, at: n % 3 }));
  const final = new Map<string, string>();
  const ids = new Map<string, string>();
  const work = async ({ op, agent, at }: (typeof ops)[number]): Promise<void> => {
    const call = { agent_id: agent, tool: 'ledger.book', params: { op, amount: AMOUNT }, idempotency_key: op };
    await until(async () => {
      const { body } = await fleet.run(at, call, fleet.keys.account);
      if (body.effect_id !== undefined) {
        ids.set(op, body.effect_id);
        expect(Math.abs(offsetSeenIn(body.effect_id) - (AN_HOUR_APART[at] ?? 0))).toBeLessThan(120_000);
      }
      if (!['committed', 'duplicate_blocked', 'denied_budget', 'unknown_effect'].includes(body.decision)) return false;
      final.set(op, body.decision);
      return true;
    });
  };
  const queue = [...ops];
  const running = Promise.all(
    Array.from({ length: 24 }, async () => {
      for (let one = queue.shift(); one !== undefined; one = queue.shift()) await work(one);
    }),
  );
  for (const gateway of [0, 1, 2]) {
    await until(() => final.size >= (gateway + 1) * 40, 120_000);
    fleet.gateways[gateway]!.kill('SIGKILL');
    await fleet.restart(gateway);
  }
  await running;
  // What is not known is settled by the truth; then nothing may be held.
  const happened = new Set((await fleet.upstream.ledger()).effects.map(({ path }) => path.split('/').at(-1)));
  let givenBack = 0;
  for (const [op, decision] of final) {
    if (decision !== 'unknown_effect') continue;
    const outcome = happened.has(op) ? 'happened' : 'not_happened';
    if (outcome === 'not_happened') givenBack += AMOUNT;
    await until(
      async () =>
        (await fleet.ask(0, 'POST', `/v1/workspaces/demo/effects/${ids.get(op)}/resolve`, { outcome })).status === 200,
    );
  }
  const { effects } = await fleet.upstream.ledger();
  expect(effects.length).toBe(happened.size);
  const { body } = await fleet.ask(1, 'GET', '/v1/workspaces/demo/budgets');
  const rows: readonly { budget: string; spent: number; held: number; limit: number }[] = body.budgets;
  const spentAt = (name: string): number =>
    rows.reduce((sum, row) => (row.budget.endsWith(name) ? sum + row.spent : sum), 0);
  for (const row of rows) {
    expect(row.spent).toBeLessThanOrEqual(row.limit);
    expect(row.held).toBe(0);
  }
  for (const level of ['by-agent', 'by-team', 'by-department', '/all'])
    expect(spentAt(level)).toBe(effects.length * AMOUNT);
  // They were at the limit, and were refused there; what is free now was held while nobody knew.
  expect(LIMITS.workspace - spentAt('/all') - givenBack).toBeLessThan(AMOUNT);
  expect([...final.values()].filter((decision) => decision === 'denied_budget').length).toBeGreaterThan(50);
});
