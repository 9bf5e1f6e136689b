import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { type Answer, makeApiKey, send } from './gateway.ts';
import { freshKey, refund, startWorld, type World, worldFiles } from './world.ts';

let world: World;
beforeAll(async () => {
  world = await startWorld({
    files(url) {
      const { config, policies } = worldFiles(url);
      return {
        config: config
          .replace('policies: { paths:', 'policies: { mode: observe, paths:')
          .replace('prefix: /payments\n', 'prefix: /payments\n    undeclared: passthrough_reads\n'),
        policies: { ...policies, 'strict.yaml': STRICT },
      };
    },
  });
});
afterAll(() => world.close());

/** Beside the policy of the tests: something of every kind that refuses. */
const STRICT = `
apiVersion: svc-gateway/v1
kind: PolicySet
name: strict
owner: team-test
rules:
  - { id: often, effect: constrain, match: { tools: [notes.add] }, obligations: [ { rate_limit: { by: [agent.id], limit: 2, per: hour } } ] }
  - { id: claimed, effect: constrain, match: { tools: [payments.charge] }, obligations: [ { claim: { on: "charges", hold: existing } } ] }
  - { id: halted, effect: pause, match: { tools: [payments.refund] }, when: { params.currency: USD }, reason: "Dollars are halted" }
  - { id: forbidden, effect: deny, match: { tools: [payments.get] }, when: { target: "payment:forbidden" } }
  - { id: tried-write, mode: shadow, effect: deny, match: { tools: [payments.charge] }, when: { params.reason: { eq: tried, if_absent: false } } }
  - { id: tried-read, mode: shadow, effect: deny, match: { tools: [payments.get] }, when: { target: "payment:tried" } }
`;

function call(tool: string, params: Record<string, unknown>, key = freshKey()): Promise<Answer> {
  return world.run({ tool, params, idempotency_key: key });
}

/** The call ran, and answer, record and ledger say what policy would have done. */
async function expectObserved(answer: Answer, would: string, rule: string | null): Promise<void> {
  const observed = { would, rule };
  expect(answer.body).toMatchObject({ decision: 'committed', observed, receipt: expect.anything() });
  expect(answer.status).toBe(200);
  const { body } = await world.get(`/effects/${answer.body.effect_id}`);
  expect(body.effect).toMatchObject({ state: 'committed', observed });
  const admitted = body.ledger.find(({ kind }: { kind: string }) => kind === 'effect.admitted');
  expect(admitted.data).toMatchObject({ observed });
}

describe('what policy alone would stop runs, and says so', () => {
  it('no rule allows it', async () => {
    await expectObserved(await call('notes.secret', { text: 'x' }), 'denied_policy', null);
  });

  it('a rule denies it', async () => {
    await expectObserved(await world.run(refund({ currency: 'GBP' })), 'denied_policy', 'world/currency');
  });

  it('a rule pauses it', async () => {
    await expectObserved(await world.run(refund({ currency: 'USD' })), 'denied_paused', 'strict/halted');
  });

  it('a rule wants an approval: nobody is asked', async () => {
    await expectObserved(await world.run(refund({ amount: 50_001 })), 'pending_approval', 'world/refund-large');
    expect((await world.get('/approvals')).body.approvals).toEqual([]);
  });

  it('the budget is spent: what fits is counted, what does not is not', async () => {
    const spent = async (): Promise<number> =>
      (await world.get('/budgets')).body.budgets.find((one: { budget: string }) => one.budget === 'world/agent-day')
        .spent;
    const before = await spent();
    const left = 100_000 - before;
    const fits = await world.run(refund({ amount: Math.min(left, 49_000) }));
    expect(fits.body.decision).toBe('committed');
    expect(fits.body).not.toHaveProperty('observed');
    expect(await spent()).toBe(before + Math.min(left, 49_000));
    await expectObserved(await world.run(refund({ amount: 49_999 })), 'denied_budget', 'world/refund-small');
    await expectObserved(await world.run(refund({ amount: -1 })), 'denied_budget', 'world/refund-small');
    expect(await spent()).toBe(before + Math.min(left, 49_000));
  });

  it('the rate is reached', async () => {
    for (let n = 0; n < 2; n += 1) expect((await call('notes.add', { text: 'x' })).body).not.toHaveProperty('observed');
    await expectObserved(await call('notes.add', { text: 'x' }), 'denied_budget', 'strict/often');
  });

  it('the pool is full', async () => {
    const made = await world.post('/reservations', { pool: 'deploy-slot', units: 1, ttl_s: 60 }, world.keys.otherBot);
    expect(made.status).toBe(201);
    await expectObserved(await call('deploy.start', { service: 'a' }), 'denied_reservation', 'world/deploy');
  });

  it('a claim is wanted that nobody holds', async () => {
    await expectObserved(await call('payments.charge', { amount: 1 }), 'denied_claim', 'strict/claimed');
  });

  it('through the proxy too, writes and reads', async () => {
    const { url } = world.gateway;
    const write = await send(
      url,
      world.keys.bot,
      'POST',
      '/payments/v1/payments/pay_9/refunds',
      { amount: 1, currency: 'GBP' },
      { 'idempotency-key': freshKey() },
    );
    expect([write.status, write.headers.get('svc-decision')]).toEqual([201, 'committed']);
    const { body } = await world.get(`/effects/${write.headers.get('svc-effect-id') ?? ''}`);
    expect(body.effect.observed).toEqual({ would: 'denied_policy', rule: 'world/currency' });
  });
});

describe('reads, and params that do not fit, are observed too', () => {
  const proxied = (method: string, path: string, body?: unknown) =>
    send(world.gateway.url, world.keys.bot, method, `/payments${path}`, body, { 'idempotency-key': freshKey() });
  const counted = async (would: string): Promise<number> => {
    const text = await (await fetch(`${world.gateway.url}/metrics`)).text();
    const line = new RegExp(`^svc_observed_total\\{would="${would}",via="proxy"\\} (\\d+)$`, 'm');
    return Number(line.exec(text)?.[1] ?? 0);
  };

  it.each([
    ['a read that a rule denies', '/v1/payments/forbidden', 'denied_policy'],
    ['a read that no tool declares and no rule allows', '/v1/undeclared', 'denied_policy'],
    ['a read that does not fit its tool', '/v1/payments/pay_1?surprise=1', 'invalid_request'],
  ])('%s', async (_, path, would) => {
    const before = await counted(would);
    const read = await proxied('GET', path);
    expect([read.status, read.headers.get('svc-decision'), read.headers.get('svc-observed')]).toEqual([
      200,
      'committed',
      would,
    ]);
    expect(await counted(would)).toBe(before + 1);
  });

  it('are listed, added up, without their query, and those of another agent not to an agent', async () => {
    await proxied('GET', '/v1/undeclared?token=secret');
    const listed = async (key = world.keys.account, query = '') =>
      (await send(world.gateway.url, key, 'GET', `/v1/workspaces/demo/observed-reads${query}`)).body;
    // They go into the ledger once a second.
    const reads = await vi.waitFor(
      async () => {
        const { reads } = await listed();
        expect(reads.map(({ observed }: { observed: object }) => observed)).toEqual(
          expect.arrayContaining([
            { would: 'denied_policy', rule: 'strict/forbidden' },
            { would: 'denied_policy', rule: null },
            { would: 'invalid_request', rule: null },
          ]),
        );
        return reads;
      },
      { timeout: 30_000 },
    );
    const undeclared = reads.find(({ tool }: { tool: string | null }) => tool === null);
    expect(undeclared).toMatchObject({ agent_id: 'bot', upstream: 'payments', count: expect.any(Number) });
    expect(undeclared.example).toBe('GET /v1/undeclared');
    expect(JSON.stringify(reads)).not.toContain('secret');
    const paged = async (): Promise<readonly object[]> => {
      const pages: object[] = [];
      for (let cursor = ''; ; ) {
        const page = await listed(world.keys.account, `?limit=1${cursor}`);
        expect(page.reads.length).toBeLessThanOrEqual(1);
        pages.push(...page.reads);
        if (page.next_cursor === null) return pages;
        cursor = `&cursor=${page.next_cursor}`;
      }
    };
    // What was read last may come into the ledger between two pages.
    await vi.waitFor(async () => expect(await paged()).toEqual((await listed()).reads), { timeout: 30_000 });
    expect((await listed(world.keys.bot)).reads).toEqual((await listed()).reads);
    expect((await listed(world.keys.otherBot)).reads).toEqual([]);
  });

  it('a read that policy allows has nothing to say', async () => {
    const read = await proxied('GET', '/v1/payments/pay_1');
    expect([read.status, read.headers.has('svc-observed')]).toEqual([200, false]);
  });

  it('a write whose params do not fit goes on as it came', async () => {
    const before = await counted('invalid_request');
    const write = await proxied('POST', '/v1/notes', { text: 'x', surprise: 1 });
    expect([write.status, write.headers.get('svc-observed')]).toEqual([201, 'invalid_request']);
    expect((await world.upstream.ledger()).requests.at(-1)?.body).toEqual({ text: 'x', surprise: 1 });
    const { body } = await world.get(`/effects/${write.headers.get('svc-effect-id') ?? ''}`);
    expect(body.effect).toMatchObject({ state: 'committed', observed: { would: 'invalid_request', rule: null } });
    const run = await world.get(`/effects/${body.effect.effect_id}/run`);
    expect(run.body.stages).toContainEqual(expect.objectContaining({ stage: 'validate', status: 'failed' }));
    expect(await counted('invalid_request')).toBe(before + 1);
  });

  it('the query of a write goes on as it came', async () => {
    const write = await proxied('POST', '/v1/notes?b=x+y&a=%7e', { text: 'x' });
    expect([write.status, write.headers.get('svc-observed')]).toEqual([201, 'invalid_request']);
    expect((await world.upstream.ledger()).requests.at(-1)?.url).toBe('/v1/notes?b=x+y&a=%7e');
  });
});

it('a rule in shadow mode counts what it would have refused, each call once, and decides nothing', async () => {
  const counted = async (rule: string): Promise<number> => {
    const text = await (await fetch(`${world.gateway.url}/metrics`)).text();
    return Number(
      new RegExp(`^svc_shadow_refusals_total\\{rule="strict/${rule}"\\} (\\d+)$`, 'm').exec(text)?.[1] ?? 0,
    );
  };
  const charge = { tool: 'payments.charge', params: { amount: 1, reason: 'tried' }, idempotency_key: freshKey() };
  expect((await world.post('/effects/preview', charge, world.keys.bot)).status).toBe(200);
  expect([await counted('tried-write'), await counted('tried-read')]).toEqual([0, 0]);
  expect((await world.run(charge)).body.decision).toBe('committed');
  expect((await world.run(charge)).body.decision).toBe('duplicate_blocked');
  await send(world.gateway.url, world.keys.bot, 'GET', '/payments/v1/payments/tried');
  expect([await counted('tried-write'), await counted('tried-read')]).toEqual([1, 1]);
});

describe('what is no matter of policy stays in force', () => {
  it('permission and identity', async () => {
    const readonly = await world.run({ ...refund(), agent_id: 'bot' }, world.keys.readonly);
    expect(readonly.body).toMatchObject({ decision: 'denied_permission' });
    const posing = await world.run({ ...refund(), agent_id: 'other-bot' });
    expect(posing.body).toMatchObject({ decision: 'denied_identity', reason: { code: 'agent_mismatch' } });
    const unknown = await world.run({ ...refund(), agent_id: 'nobody' }, world.keys.account);
    expect(unknown.body).toMatchObject({ decision: 'denied_identity', reason: { code: 'unknown_agent' } });
    const limited = await makeApiKey(world.gateway, 'olga', {
      kind: 'agent',
      workspace: 'demo',
      agent_id: 'bot',
      allowed_tools: ['notes.add'],
    });
    expect((await world.run(refund(), limited)).body).toMatchObject({ reason: { code: 'tool_not_allowed' } });
  });

  it('what is not declared, and what does not fit', async () => {
    expect((await call('notes.none', {})).body).toMatchObject({
      decision: 'denied_policy',
      reason: { code: 'tool_not_declared' },
    });
    expect((await call('notes.add', { txt: 'x' })).status).toBe(400);
    const undeclared = await send(world.gateway.url, world.keys.bot, 'POST', '/payments/v1/undeclared');
    expect(undeclared.body).toMatchObject({ decision: 'denied_policy', reason: { code: 'route_not_declared' } });
  });

  it('idempotency', async () => {
    const key = freshKey();
    const first = await world.run(refund({ currency: 'GBP' }, key));
    expect(first.body.decision).toBe('committed');
    const before = await world.upstream.counts();
    const again = await world.run(refund({ currency: 'GBP' }, key));
    expect(again.body).toMatchObject({ decision: 'duplicate_blocked', receipt: first.body.receipt });
    expect((await world.run(refund({ currency: 'GBP', amount: 7 }, key))).body.decision).toBe('idempotency_conflict');
    expect(await world.upstream.counts()).toEqual(before);
  });

  it('pauses', async () => {
    const { body } = await world.post('/pauses', { scope: { tool: 'notes.*' }, reason: 'incident' });
    expect((await call('notes.secret', { text: 'x' })).body).toMatchObject({ decision: 'denied_paused' });
    await send(world.gateway.url, world.keys.account, 'DELETE', `/v1/workspaces/demo/pauses/${body.id}`);
    expect((await call('notes.secret', { text: 'x' })).body.decision).toBe('committed');
  });

  it('a claim that another agent holds, and state that has drifted', async () => {
    const key = freshKey();
    const claim = await world.post('/claims', { target: `payment:pay_${key}`, ttl_s: 60 }, world.keys.otherBot);
    expect(claim.status).toBe(201);
    expect((await world.run(refund({}, key))).body).toMatchObject({
      decision: 'denied_claim',
      reason: { code: 'claim_held' },
    });
    const drifted = freshKey();
    await world.upstream.state(`/v1/payments/pay_${drifted}`, { status: 'refunded' });
    const check = {
      intent: 'refund',
      required_fields: ['status'],
      assumed_state: { status: 'paid' },
      conditions: {},
      on_mismatch: 'replan',
    };
    const answer = await world.run({ ...refund({}, drifted), state_check: check });
    expect(answer.body).toMatchObject({ decision: 'denied_claim', reason: { code: 'state_drift' }, next: 'replan' });
  });
});

it('preview says what would run, and what policy thinks of it', async () => {
  const { body } = await world.post('/effects/preview', refund({ currency: 'GBP' }), world.keys.bot);
  expect(body).toMatchObject({ would: 'committed', observed: { would: 'denied_policy', rule: 'world/currency' } });
});

// docs/upstreams/openapi.md: "**Say `mode: enforce`** in `gateway.yaml`: from then on, what no rule allows is refused."
it('is switched to enforcing while it runs', async () => {
  const { configFile } = world.gateway;
  const config = await readFile(configFile, 'utf8');
  await writeFile(configFile, config.replace('mode: observe, ', ''));
  await vi.waitFor(
    async () => expect((await world.run(refund({ currency: 'GBP' }))).body.decision).toBe('denied_policy'),
    { timeout: 40_000, interval: 50 },
  );
  expect((await call('notes.secret', { text: 'x' })).body).toMatchObject({ decision: 'denied_policy' });
  expect((await world.run(refund({ currency: 'USD' }))).body.decision).toBe('denied_paused');
  expect((await call('notes.add', { text: 'x' })).body).toMatchObject({
    decision: 'denied_budget',
    reason: { code: 'rate_limited' },
  });
  const undeclared = await send(world.gateway.url, world.keys.bot, 'GET', '/payments/v1/undeclared');
  expect(undeclared.body).toMatchObject({ decision: 'denied_policy', reason: { code: 'no_rule_allows' } });
  const misfit = await send(world.gateway.url, world.keys.bot, 'GET', '/payments/v1/payments/pay_1?surprise=1');
  expect(misfit.status).toBe(400);
  expect(await readFile(join(world.gateway.policyFolder, 'strict.yaml'), 'utf8')).toBe(STRICT);
});
