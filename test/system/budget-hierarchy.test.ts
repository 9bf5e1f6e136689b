import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { type Answer, makeApiKey, send, untilSent } from './gateway.ts';
import { freshKey, startWorld, type World, worldFiles } from './world.ts';

/** How long the rolling budget looks back, ms. */
const ROLLING_MS = 4_000;

let world: World;
let elsewhere = '';
beforeAll(async () => {
  world = await startWorld({
    files(url) {
      const { config } = worldFiles(url);
      return {
        config: config
          .replace('- { id: other-bot, team: support, owner: olga }', AGENTS)
          .replace('tools:\n', `tools:\n${TOOL}`),
        policies: { 'budgets.yaml': POLICY },
      };
    },
  });
  elsewhere = await makeApiKey(world.gateway, 'olga', { kind: 'agent', workspace: 'demo', agent_id: 'loner' });
});
afterAll(() => world.close());

const AGENTS = `- { id: other-bot, team: support, owner: olga }
      - { id: loner, team: sales, owner: olga }`;
const TOOL = `  - name: spend
    title: Spend
    upstream: payments
    kind: write
    request: { method: POST, path: /v1/spend, body: "*" }
    timeout: 5s
    max_processing: 500ms
`;

const POLICY = `
apiVersion: svc-gateway/v1
kind: PolicySet
name: money
owner: team-test
timezone: Europe/Berlin
budgets:
  agent: { unit: cent, by: [agent.id], per: day, limit: 1000 }
  team: { unit: cent, by: [agent.team], per: month, limit: 1500 }
  workspace: { unit: cent, by: [], per: year, limit: 1800 }
  burst: { unit: cent, by: [agent.id], rolling: ${ROLLING_MS}ms, limit: 100 }
  whole: { unit: cent, by: [agent.id], per: year, limit: 9007199254740991 }
rules:
  - id: spend
    effect: allow
    match: { tools: [spend] }
    unless: { any: [ { params.from: { eq: burst, if_absent: false } }, { params.from: { eq: whole, if_absent: false } } ] }
    obligations:
      - budget: { use: agent, amount: params.amount }
      - budget: { use: team, amount: params.amount }
      - budget: { use: workspace, amount: params.amount }
  - { id: burst, effect: allow, match: { tools: [spend] }, when: { params.from: burst }, obligations: [ { budget: { use: burst, amount: params.amount } } ] }
  - { id: whole, effect: allow, match: { tools: [spend] }, when: { params.from: whole }, obligations: [ { budget: { use: whole, amount: params.amount } } ] }
`;

function spend(params: Record<string, unknown>, key = world.keys.bot): Promise<Answer> {
  return world.run({ tool: 'spend', params, idempotency_key: freshKey() }, key);
}

interface Row {
  readonly budget: string;
  readonly bucket: string;
  readonly spent: number;
  readonly held: number;
  readonly remaining: number;
  readonly limit: number;
  readonly resets_at: string | null;
}

async function rows(): Promise<readonly Row[]> {
  return (await world.get('/budgets')).body.budgets;
}

/** `spent+held` of each row of the three levels. */
async function levels(): Promise<Readonly<Record<string, string>>> {
  const named = (await rows()).filter(({ budget }) => /agent|team|workspace/.test(budget));
  return Object.fromEntries(
    named.map(({ budget, bucket, spent, held }) => [`${budget} ${bucket}`, `${spent}+${held}`]),
  );
}

describe('agent, team and workspace: all of them, or none', () => {
  it('holds and posts on every level', async () => {
    expect((await spend({ amount: 600 })).body.decision).toBe('committed');
    expect(await levels()).toEqual({
      'money/agent ["bot"]': '600+0',
      'money/team ["support"]': '600+0',
      'money/workspace []': '600+0',
    });
  });

  it('a refusal by any level leaves nothing on the others, and names the level', async () => {
    const before = await levels();
    const agent = await spend({ amount: 401 });
    expect(agent.body).toMatchObject({
      decision: 'denied_budget',
      reason: { code: 'budget_exceeded', rule: 'money/spend' },
    });
    expect(agent.body.budgets).toEqual([expect.objectContaining({ budget: 'money/agent', remaining: 400 })]);
    expect(await levels()).toEqual(before);

    // The other agent has all of its own budget left, the team has not.
    expect((await spend({ amount: 800 }, world.keys.otherBot)).body.decision).toBe('committed');
    const team = await spend({ amount: 101 });
    expect(team.body).toMatchObject({ decision: 'denied_budget', reason: { code: 'budget_exceeded' } });
    expect(team.body.budgets).toEqual([expect.objectContaining({ budget: 'money/team' })]);

    // Another team; the workspace has 400 left.
    const workspace = await spend({ amount: 401 }, elsewhere);
    expect(workspace.body.budgets).toEqual([expect.objectContaining({ budget: 'money/workspace' })]);
    expect(await levels()).toEqual({
      'money/agent ["bot"]': '600+0',
      'money/agent ["other-bot"]': '800+0',
      'money/team ["support"]': '1400+0',
      'money/workspace []': '1400+0',
    });
  });

  it('agents see figures of their own budgets, and of shared ones a level only; accounts see all', async () => {
    const denied = await spend({ amount: 101 });
    const [shared] = denied.body.budgets;
    expect(shared).toEqual({ budget: 'money/team', unit: 'cent', level: 'low', resets_at: expect.any(String) });
    expect(denied.body.reason.message).not.toMatch(/\b(100|1400|1500)\b/);
    const preview = await world.post('/effects/preview', { tool: 'spend', params: { amount: 1 } }, world.keys.bot);
    const seen = JSON.stringify(preview.body);
    expect(preview.body.would).toBe('committed');
    expect(seen).not.toMatch(/\b(1400|1500|1800)\b/);
    expect(seen).toMatch(/\b1000\b/);

    const own = (await world.get('/budgets', world.keys.bot)).body.budgets;
    expect(own.map((row: Record<string, unknown>) => [row['budget'], row['remaining'] ?? row['level']])).toEqual(
      expect.arrayContaining([
        ['money/agent', 400],
        ['money/team', 'low'],
        ['money/workspace', 'ok'],
      ]),
    );
    expect(own.length).toBe(3);
    const account = await world.run(
      { tool: 'spend', params: { amount: 101 }, agent_id: 'bot', idempotency_key: freshKey() },
      world.keys.account,
    );
    expect(account.body.budgets).toEqual([
      expect.objectContaining({ budget: 'money/team', limit: 1500, spent: 1400, held: 0, remaining: 100 }),
    ]);
  });

  it('an unknown outcome keeps its hold on every level until it is resolved', async () => {
    const before = await levels();
    const lost = await spend({ amount: 50, note: 'mode:drop_after' });
    expect(lost.body.decision).toBe('unknown_effect');
    expect(await levels()).toMatchObject({
      'money/agent ["bot"]': '600+50',
      'money/team ["support"]': '1400+50',
      'money/workspace []': '1400+50',
    });
    expect((await spend({ amount: 51 })).body.decision).toBe('denied_budget');
    const effect = `/effects/${lost.body.effect_id}/resolve`;
    await vi.waitFor(async () => expect((await world.post(effect, { outcome: 'not_happened' })).status).toBe(200), {
      timeout: 30_000,
      interval: 100,
    });
    expect(await levels()).toEqual(before);
  });

  it('what failed gives back, what happened late is posted', async () => {
    const before = await levels();
    expect((await spend({ amount: 50, note: 'mode:refuse' })).body.decision).toBe('failed');
    expect(await levels()).toEqual(before);
    const lost = await spend({ amount: 100, note: 'mode:error_after' });
    expect(lost.body.decision).toBe('unknown_effect');
    expect((await world.post(`/effects/${lost.body.effect_id}/resolve`, { outcome: 'happened' })).status).toBe(200);
    expect(await levels()).toMatchObject({
      'money/agent ["bot"]': '700+0',
      'money/team ["support"]': '1500+0',
      'money/workspace []': '1500+0',
    });
    const exhausted = await spend({ amount: 1 }, world.keys.otherBot);
    expect(exhausted.body.budgets).toEqual([expect.objectContaining({ budget: 'money/team', level: 'exhausted' })]);
  });
});

it('calendar windows end with the day, the month and the year of the zone', async () => {
  const at = new Map((await rows()).map((row) => [row.budget, row.resets_at]));
  const local = (time: string | null | undefined): string =>
    new Intl.DateTimeFormat('sv-SE', { timeZone: 'Europe/Berlin', dateStyle: 'short', timeStyle: 'medium' }).format(
      new Date(time ?? ''),
    );
  expect(local(at.get('money/agent'))).toMatch(/^\d{4}-\d\d-\d\d 00:00:00$/);
  expect(local(at.get('money/team'))).toMatch(/^\d{4}-\d\d-01 00:00:00$/);
  expect(local(at.get('money/workspace'))).toMatch(/^\d{4}-01-01 00:00:00$/);
});

it('a rolling window lets go of what is older, and of nothing earlier', async () => {
  const first = await spend({ amount: 70, from: 'burst' });
  expect(first.body.decision).toBe('committed');
  const sent = Date.now();
  expect((await spend({ amount: 30, from: 'burst' })).body.decision).toBe('committed');
  const full = await spend({ amount: 1, from: 'burst' });
  expect(full.body).toMatchObject({ decision: 'denied_budget' });
  expect(full.body.budgets).toEqual([
    expect.objectContaining({ budget: 'money/burst', spent: 100, remaining: 0, resets_at: null }),
  ]);
  await vi.waitFor(async () => expect((await spend({ amount: 100, from: 'burst' })).body.decision).toBe('committed'), {
    timeout: 30_000,
    interval: 25,
  });
  expect(Date.now() - sent).toBeGreaterThanOrEqual(ROLLING_MS - 250);
  // A hold never ages out, however long the outcome stays unknown.
  await vi.waitFor(
    async () =>
      expect((await spend({ amount: 90, from: 'burst', note: 'mode:drop_after' })).body.decision).toBe(
        'unknown_effect',
      ),
    { timeout: 30_000, interval: 25 },
  );
  const held = Date.now();
  const burst = async (): Promise<Row | undefined> => (await rows()).find(({ budget }) => budget === 'money/burst');
  await vi.waitFor(() => expect(Date.now() - held).toBeGreaterThan(ROLLING_MS + 250), {
    timeout: 30_000,
    interval: 50,
  });
  expect(await burst()).toMatchObject({ spent: 0, held: 90 });
  expect((await spend({ amount: 11, from: 'burst' })).body.decision).toBe('denied_budget');
  expect((await spend({ amount: 10, from: 'burst' })).body.decision).toBe('committed');
});

describe('amounts', () => {
  it.each([
    ['negative', -1],
    ['negative and huge', -9_007_199_254_740_991],
    ['a fraction', 0.5],
    ['a tiny fraction', 1e-300],
    ['a text', '10'],
    ['a list', [10]],
    ['an object', { value: 10 }],
    ['null', null],
    ['true', true],
  ])('%s is no amount', async (_name, amount) => {
    const before = await rows();
    const answer = await spend({ amount, from: 'whole' });
    expect(answer.status).toBe(402);
    expect(answer.body).toMatchObject({
      decision: 'denied_budget',
      did_it_happen: 'no',
      reason: { code: 'amount_invalid' },
    });
    expect(await rows()).toEqual(before);
  });

  it('one that is absent is none', async () => {
    expect((await spend({ from: 'whole' })).body).toMatchObject({
      decision: 'denied_budget',
      reason: { code: 'amount_invalid' },
    });
  });

  it('nothing, and all there can be, to the unit', async () => {
    const whole = async (): Promise<Row | undefined> => (await rows()).find(({ budget }) => budget === 'money/whole');
    expect((await spend({ amount: 0, from: 'whole' })).body.decision).toBe('committed');
    expect((await spend({ amount: 9_007_199_254_740_990, from: 'whole' })).body.decision).toBe('committed');
    expect(await whole()).toMatchObject({ spent: 9_007_199_254_740_990, remaining: 1 });
    expect((await spend({ amount: 2, from: 'whole' })).body).toMatchObject({ reason: { code: 'budget_exceeded' } });
    expect((await spend({ amount: 9_007_199_254_740_991, from: 'whole' })).body).toMatchObject({
      reason: { code: 'budget_exceeded' },
    });
    expect((await spend({ amount: 1, from: 'whole' })).body.decision).toBe('committed');
    expect(await whole()).toMatchObject({ spent: 9_007_199_254_740_991, held: 0, remaining: 0 });
  });
});

it('at once, from every side: never more than the lowest level allows', async () => {
  // The other agents' team is spent; the workspace has 300 left, in pieces of 7.
  const before = (await world.upstream.counts()).effects;
  const calls = Array.from({ length: 80 }, () => ({
    tool: 'spend',
    params: { amount: 7 },
    idempotency_key: freshKey(),
  }));
  const answers = await Promise.all(calls.map((call) => untilSent(() => world.run(call, elsewhere))));
  const ran = answers.filter(({ body }) => body.decision === 'committed').length;
  expect(ran).toBe(Math.floor(300 / 7));
  expect(answers.filter(({ body }) => body.decision === 'denied_budget').length).toBe(80 - ran);
  expect((await world.upstream.counts()).effects - before).toBe(ran);
  expect(await levels()).toMatchObject({
    'money/agent ["loner"]': `${ran * 7}+0`,
    'money/workspace []': `${1500 + ran * 7}+0`,
  });
  expect((await send(world.gateway.url, world.keys.account, 'GET', '/readyz')).status).toBe(200);
});
