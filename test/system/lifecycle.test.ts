import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { Agent, request as httpRequest } from 'node:http';
import { join } from 'node:path';
import { afterEach, expect, it, vi } from 'vitest';
import { openEmbeddedStore } from '../../src/gateway/embedded-store.ts';
import { type Answer, makeApiKey, send, type TestGateway } from './gateway.ts';
import { shortest } from '../shortest.ts';
import { freshKey, refund, startWorld, type World } from './world.ts';
import { KEY_SEALS } from '../identity/key-seals.ts';

/** For what has to come, and how soon is not the question. */
const PATIENT = { timeout: 30_000, interval: 20 } as const;

const EFFECTS = '/v1/workspaces/demo/effects';

let world: World | null = null;
let second: TestGateway | null = null;
afterEach(async () => {
  await second?.stop();
  second = null;
  await world?.close();
  world = null;
});

interface Sent {
  readonly key: string;
  /** Status and body of the answer, or the error of the connection. */
  readonly status: number;
  readonly decision: string | null;
  readonly code: string | null;
  readonly error: string | null;
}

/** One run request on a connection of the agent's. */
async function runOn(agent: Agent, url: string, apiKey: string, body: Record<string, unknown>): Promise<Sent> {
  const key = String(body['idempotency_key']);
  const { hostname, port } = new URL(url);
  const text = JSON.stringify(body);
  const headers = {
    'x-api-key': apiKey,
    'content-type': 'application/json',
    'content-length': Buffer.byteLength(text),
  };
  try {
    const outgoing = httpRequest({ hostname, port, method: 'POST', path: EFFECTS, agent, headers });
    outgoing.end(text);
    const [incoming] = await once(outgoing, 'response');
    const chunks: Buffer[] = [];
    for await (const chunk of incoming) chunks.push(chunk as Buffer);
    const answer = JSON.parse(Buffer.concat(chunks).toString('utf8'));
    return {
      key,
      status: incoming.statusCode,
      decision: answer.decision ?? null,
      code: answer.code ?? null,
      error: null,
    };
  } catch (error) {
    const code = error instanceof Error && 'code' in error ? String(error.code) : String(error);
    return { key, status: 0, decision: null, code: null, error: code };
  }
}

it('SIGTERM under load: not ready, no reset connection, every admitted effect has an outcome', async () => {
  world = await startWorld();
  const { gateway, keys, upstream } = world;
  await upstream.mode({ latency_ms: 50, mode: 'late', times: 1, path: '/v1/deployments', late_ms: 1_500 });
  const sent: Sent[] = [];
  // As a load balancer does: it looks at /readyz, and sends nobody to a gateway that is not ready.
  let isReady = true;
  const looking = (async () => {
    while (isReady) isReady = (await fetch(`${gateway.url}/readyz`)).ok;
  })();
  // Half of the clients keep their connections, half open one for each request.
  const clients = Array.from({ length: 16 }, async (_, n) => {
    const agent = new Agent({ keepAlive: n % 2 === 0, maxSockets: 1 });
    while (isReady) {
      const one = await runOn(agent, gateway.url, keys.bot, {
        tool: 'notes.add',
        params: { text: 'x' },
        idempotency_key: freshKey(),
      });
      sent.push(one);
      if (one.error !== null) break;
    }
    agent.destroy();
  });
  await vi.waitFor(() => expect(sent.length).toBeGreaterThan(50), PATIENT);
  const slow = runOn(new Agent({ keepAlive: true }), gateway.url, keys.bot, {
    tool: 'deploy.start',
    params: { service: 'slow' },
    idempotency_key: freshKey(),
  });
  const isSent = async (): Promise<void> =>
    expect((await upstream.ledger()).effects.filter(({ path }) => path === '/v1/deployments').length).toBe(1);
  await vi.waitFor(isSent, PATIENT);
  // One signal: a second one ends the process at once, as a person who presses Ctrl-C twice means it.
  await gateway.stop();
  expect(
    gateway
      .log()
      .split('\n')
      .filter((line) => line.includes('"code":"store_')),
  ).toEqual([]);
  await Promise.all([looking, ...clients]);
  expect(await slow).toMatchObject({ decision: 'committed' });
  // Nobody was cut off, and nobody turned away.
  expect(sent.filter(({ decision }) => decision !== 'committed')).toEqual([]);
  await upstream.mode({ latency_ms: 0 });

  // Everything that was sent on has its outcome, and nothing else has one.
  second = await gateway.restart();
  const { effects } = await upstream.ledger();
  const committed = sent.filter(({ decision }) => decision === 'committed');
  expect(effects.length).toBe(committed.length + 1);
  for (const state of ['executing', 'unknown', 'pending_approval']) {
    const list = await send(second.url, keys.account, 'GET', `${EFFECTS}?state=${state}`);
    expect([state, list.body.effects]).toEqual([state, []]);
  }
  const { url } = second;
  for (const { key } of sent.slice(-40)) {
    const again = await send(url, keys.bot, 'POST', EFFECTS, {
      tool: 'notes.add',
      params: { text: 'x' },
      idempotency_key: key,
    });
    expect(again.body.decision).toBe('duplicate_blocked');
  }
});

it('a killed gateway: what it had under way is unknown from the first answer on, and stays resolvable', async () => {
  world = await startWorld();
  const { gateway, keys, upstream } = world;
  await upstream.mode({ mode: 'never', times: 4 });
  const under = Array.from({ length: 4 }, () => freshKey());
  const agent = new Agent();
  const lost = under.map((key) =>
    runOn(agent, gateway.url, keys.bot, { tool: 'deploy.start', params: { service: key }, idempotency_key: key }),
  );
  // One holds the pool, and the others are refused by it: exactly one is under way.
  await vi.waitFor(async () => expect((await upstream.counts()).requests).toBe(1), PATIENT);
  const notes = under
    .slice(1)
    .map((key) =>
      runOn(agent, gateway.url, keys.bot, { tool: 'notes.add', params: { text: key }, idempotency_key: `note-${key}` }),
    );
  await vi.waitFor(async () => expect((await upstream.counts()).requests).toBe(4), PATIENT);
  gateway.kill('SIGKILL');
  const ends = await Promise.all([...lost, ...notes]);
  expect(ends.filter(({ error }) => error !== null).length).toBe(4);
  second = await gateway.restart();
  const { url } = second;
  const first = await Promise.all(
    under.slice(1).map((key) =>
      send(url, keys.bot, 'POST', EFFECTS, {
        tool: 'notes.add',
        params: { text: key },
        idempotency_key: `note-${key}`,
      }),
    ),
  );
  for (const answer of first) {
    expect(answer.status).toBe(409);
    expect(answer.body).toMatchObject({ decision: 'unknown_effect', safe_to_retry: false, did_it_happen: 'maybe' });
  }
  const executing = await send(url, keys.account, 'GET', `${EFFECTS}?state=executing`);
  expect(executing.body.effects).toEqual([]);
  const unknown = await send(url, keys.account, 'GET', `${EFFECTS}?state=unknown`);
  expect(unknown.body.effects.length).toBe(4);
  for (const { id, attempt } of unknown.body.effects) {
    expect(attempt).toBe(1);
    const { body } = await send(url, keys.account, 'GET', `${EFFECTS}/${id}`);
    expect(body.ledger.map(({ kind }: { kind: string }) => kind)).toContain('execution.lost');
    const resolved = await send(url, keys.account, 'POST', `${EFFECTS}/${id}/resolve`, { outcome: 'happened' });
    expect(resolved.body.effect).toMatchObject({ state: 'committed', receipt_id: expect.any(String) });
  }
  expect((await upstream.counts()).requests).toBe(4);
});

it('what was approved and not sent when the gateway died is sent after the restart, once', async () => {
  world = await startWorld({ entry: join(process.cwd(), 'test', 'system', 'failpoint-gateway.mjs') });
  const { gateway, keys, upstream } = world;
  const asked = await world.run(refund({ amount: 60_000 }));
  expect(asked.body.decision).toBe('pending_approval');
  const { approval, effect_id: effectId } = asked.body;
  const vote = `/v1/workspaces/demo/approvals/${approval.id}/approve`;
  // The gateway ends itself between the vote and the admission.
  await expect(
    send(gateway.url, keys.approver, 'POST', vote, { comment: 'failpoint:die_after_vote' }),
  ).rejects.toThrow();
  await gateway.stop();
  expect((await upstream.counts()).requests).toBe(0);
  second = await gateway.restart();
  const { url } = second;
  await vi.waitFor(async () => {
    const { body } = await send(url, keys.account, 'GET', `${EFFECTS}/${effectId}`);
    expect(body.effect).toMatchObject({ state: 'committed' });
  }, PATIENT);
  expect((await upstream.counts()).effects).toBe(1);
});

/** `svc keys create` in a process of its own. */
async function createKey(
  gateway: TestGateway,
  args: readonly string[],
): Promise<{ readonly id: string; readonly key: string }> {
  const child = spawn(
    process.execPath,
    [join(process.cwd(), 'bin', 'svc.mjs'), 'keys', 'create', '--config', gateway.configFile, '--json', ...args],
    {
      env: { ...process.env, SVC_TEST_DATA: gateway.dataFolder, SVC_TEST_POLICIES: gateway.policyFolder },
      stdio: ['ignore', 'pipe', 'inherit'],
    },
  );
  let out = '';
  child.stdout.setEncoding('utf8').on('data', (text: string) => {
    out += text;
  });
  const [code] = await once(child, 'close');
  expect(code).toBe(0);
  return JSON.parse(out);
}

it('a key made beside the running gateway works at once; a revoked one is refused within a second, at every door', async () => {
  world = await startWorld();
  const { gateway, upstream } = world;
  const { run } = world;
  const options = ['--kind', 'agent', '--workspace', 'demo', '--agent', 'bot', '--user', 'olga'];
  const revoke = async (): Promise<number> => {
    const { id, key } = await createKey(gateway, options);
    const first = await run(refund(), key);
    expect(first.body.decision).toBe('committed');
    const read = (): Promise<Answer> => send(gateway.url, key, 'GET', '/payments/v1/payments/pay_1');
    expect((await read()).status).toBe(200);

    const revoked = await send(gateway.url, gateway.administrativeKey, 'DELETE', `/v1/beta/users/olga/keys/${id}`);
    expect(revoked.status).toBe(200);
    const since = performance.now();
    await vi.waitFor(async () => {
      expect((await run(refund(), key)).status).toBe(401);
      expect((await read()).status).toBe(401);
    }, PATIENT);
    const ms = performance.now() - since;
    const before = await upstream.counts();
    for (let n = 0; n < 5; n += 1) expect((await run(refund(), key)).body.code).toBe('invalid_key');
    expect(await upstream.counts()).toEqual(before);
    return ms;
  };
  expect(await shortest(1_000, revoke)).toBeLessThan(1_000);
});

it('time never goes back: a clock set back while the gateway was down stretches nothing and ends nothing early', async () => {
  world = await startWorld();
  const { gateway, keys } = world;
  const short = await makeApiKey(gateway, 'olga', {
    kind: 'agent',
    workspace: 'demo',
    agent_id: 'bot',
    expires_in: 3_600,
  });
  expect((await world.run(refund(), short)).body.decision).toBe('committed');
  await gateway.stop();
  // The store has seen a time two hours ahead of the clock that the machine has now.
  const ahead = Date.now() + 7_200_000;
  const store = await openEmbeddedStore({
    path: gateway.dataFolder,
    lockWaitMs: 5_000,
    retention: { keysMs: null, effectsMs: 1e12, denialsMs: 1e12 },
    keySeals: KEY_SEALS,
    worker: 'never',
    clock: () => ahead,
  });
  await store.append('demo', [
    { kind: 'policy.loaded', effectId: null, actor: { type: 'gateway', id: 'test' }, data: {} },
  ]);
  await store.close();

  second = await gateway.restart();
  const { url } = second;
  const run = await send(url, keys.bot, 'POST', EFFECTS, refund());
  expect(run.body.decision).toBe('committed');
  const { body } = await send(url, keys.account, 'GET', `${EFFECTS}/${run.body.effect_id}`);
  expect(Date.parse(body.effect.created_at)).toBeGreaterThanOrEqual(ahead);
  expect(body.ledger.every(({ at }: { at: string }) => Date.parse(at) >= ahead)).toBe(true);
  // A key that had an hour left has none any more.
  expect((await send(url, short, 'POST', EFFECTS, refund())).body).toMatchObject({ code: 'invalid_key' });
});
