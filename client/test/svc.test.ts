import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterEach, describe, expect, test, vi } from 'vitest';
import { Svc, SvcError, type SvcOptions } from '../src/index.ts';
import { answer, type Play, type ScriptedServer, scriptedServer } from './server.ts';

const servers: ScriptedServer[] = [];

afterEach(async () => {
  vi.useRealTimers();
  vi.restoreAllMocks();
  vi.unstubAllEnvs();
  await Promise.all(servers.splice(0).map((server) => server.close()));
});

async function against(...script: Play[]): Promise<{ svc: Svc; server: ScriptedServer }> {
  const server = await scriptedServer(script);
  servers.push(server);
  return { server, svc: new Svc({ apiKey: 'k', baseUrl: `${server.url}/`, workspace: 'demo' }) };
}

interface Sent {
  readonly line: string;
  readonly init: Parameters<NonNullable<SvcOptions['fetch']>>[1];
}

/** A client without a network: each request gets the next of these answers, the last one for all that follow. */
function scripted(script: readonly Play[], options: Partial<SvcOptions> = {}) {
  const sent: Sent[] = [];
  const fetch: NonNullable<SvcOptions['fetch']> = async (url, init) => {
    sent.push({ line: `${init.method} ${url.slice('http://g.test'.length)}`, init });
    const play = script[Math.min(sent.length, script.length) - 1];
    if (play === undefined || 'drop' in play) throw new TypeError('fetch failed');
    const { status, body, headers = {} } = play;
    return {
      status,
      headers: { get: (name) => headers[name] ?? null },
      text: async () => (typeof body === 'string' ? body : JSON.stringify(body)),
      body,
    };
  };
  const svc = new Svc({ apiKey: 'k', baseUrl: 'http://g.test', workspace: 'demo', fetch, ...options });
  return { svc, sent };
}

async function failure(work: Promise<unknown>): Promise<unknown> {
  try {
    return { resolved: await work };
  } catch (error) {
    return error;
  }
}

const COMMITTED: Play = { status: 200, body: answer('committed') };
const RUNNING: Play = { status: 200, body: { effect: answer('in_progress'), ledger: [] } };

describe('the key', () => {
  const refused = (options?: ConstructorParameters<typeof Svc>[0]): unknown => {
    try {
      return new Svc(options);
    } catch (error) {
      return error;
    }
  };

  test.each([
    ['nowhere', undefined, undefined],
    ['empty', '', undefined],
    ['blank', '  ', undefined],
    ['empty, although the environment has one', '', 'from-environment'],
    ['empty in the environment', undefined, ''],
  ])('%s: throws before anything is sent', (_, apiKey, environment) => {
    vi.stubEnv('SVC_API_KEY', environment);
    const fetch = vi.fn();
    const error = refused({ ...(apiKey !== undefined && { apiKey }), fetch });
    expect(error).toBeInstanceOf(SvcError);
    expect(error).toMatchObject({ code: 'missing_key' });
    expect(fetch).not.toHaveBeenCalled();
  });

  test.each([
    [{ apiKey: 'two\nlines' }, 'invalid_key'],
    [{ apiKey: 'clé' }, 'invalid_key'],
    [{ apiKey: 'k', baseUrl: 'gateway.example' }, 'invalid_url'],
    [{ apiKey: 'k', baseUrl: 'file:///etc' }, 'invalid_url'],
  ])('%j: throws %s before anything is sent', (options, code) => {
    const fetch = vi.fn();
    expect(refused({ ...options, fetch })).toMatchObject({ code });
    expect(fetch).not.toHaveBeenCalled();
  });

  test('comes from SVC_API_KEY, address and workspace from their variables', async () => {
    const { server } = await against({ status: 200, body: answer('committed') });
    vi.stubEnv('SVC_API_KEY', 'from-environment');
    vi.stubEnv('SVC_BASE_URL', `${server.url}//`);
    vi.stubEnv('SVC_WORKSPACE', 'elsewhere');
    await new Svc().call({ tool: 't' });
    expect(server.received[0]).toMatchObject({ key: 'from-environment', path: '/v1/workspaces/elsewhere/effects' });
  });

  test('and address and workspace that are given count before the variables, and there are defaults for the last two', async () => {
    vi.stubEnv('SVC_API_KEY', 'from-environment');
    vi.stubEnv('SVC_BASE_URL', 'http://environment.test');
    vi.stubEnv('SVC_WORKSPACE', 'elsewhere');
    const given = scripted([COMMITTED], { workspace: 'de/mo' });
    await given.svc.call({ tool: 't' });
    expect(given.sent[0]).toMatchObject({
      line: 'POST /v1/workspaces/de%2Fmo/effects',
      init: { headers: { 'x-api-key': 'k' } },
    });
    vi.stubEnv('SVC_BASE_URL', undefined);
    vi.stubEnv('SVC_WORKSPACE', undefined);
    const urls: string[] = [];
    const fetch: NonNullable<SvcOptions['fetch']> = async (url) => {
      urls.push(url);
      throw new TypeError('fetch failed');
    };
    const svc = new Svc({ fetch, attempts: 1 });
    await failure(svc.call({ tool: 't' }));
    expect([svc.baseUrl, urls]).toEqual([
      'http://127.0.0.1:8080',
      ['http://127.0.0.1:8080/v1/workspaces/default/effects'],
    ]);
  });

  test('is not in what the client shows of itself', async () => {
    const { svc } = await against({ status: 500, body: { code: 'internal', title: 't' } });
    const secret = new Svc({ apiKey: 'svc_secret', baseUrl: 'http://127.0.0.1:1', attempts: 1 });
    const error: unknown = await secret.effects.get('x').catch((caught: unknown) => caught);
    const { inspect } = await import('node:util');
    expect(inspect([svc, secret, error], { depth: 10, showHidden: true })).not.toContain('svc_secret');
    expect(JSON.stringify([secret, error])).not.toContain('svc_secret');
  });
});

describe('waiting', () => {
  test('polls until the effect has come to something', async () => {
    const { svc, server } = await against(
      { status: 202, body: answer('pending_approval', { approval: { id: 'apr_1' } }) },
      { status: 200, body: { effect: answer('pending_approval', { approval_id: 'apr_1' }), ledger: [] } },
      { status: 200, body: { effect: answer('in_progress'), ledger: [] } },
      { status: 200, body: { effect: answer('committed', { receipt: { id: 'rcp_1' } }), ledger: [] } },
    );
    const result = await svc.call({ tool: 't', wait: true });
    expect(result).toMatchObject({ status: 'committed', receipt: { id: 'rcp_1' } });
    expect(server.received.map(({ method, path }) => `${method} ${path}`)).toEqual([
      'POST /v1/workspaces/demo/effects',
      'GET /v1/workspaces/demo/effects/eff_1',
      'GET /v1/workspaces/demo/effects/eff_1',
      'GET /v1/workspaces/demo/effects/eff_1',
    ]);
  });

  test('goes on by id after a restart, and ends with the last result when the time is over', async () => {
    const { svc } = await against({ status: 200, body: { effect: answer('in_progress'), ledger: [] } });
    const result = await svc.wait('eff_1', { timeoutMs: 1000 });
    expect(result.status).toBe('in_progress');
  });

  test('looks again after 0.2 s, then ever more seldom, at least every 5 s, and so long as it was told to', async () => {
    vi.useFakeTimers();
    const { svc, sent } = scripted([{ status: 202, body: answer('pending_approval') }, RUNNING]);
    const at: number[] = [];
    const began = performance.now();
    const call = svc.call({ tool: 't', wait: 20_000 });
    for (let ms = 0; ms < 21_000; ms += 100) {
      if (sent.length > at.length) at.push(performance.now() - began);
      await vi.advanceTimersByTimeAsync(100);
    }
    expect((await call).status).toBe('in_progress');
    const gaps = at.slice(1).map((one, index) => one - (at[index] ?? 0));
    expect(gaps.slice(0, 2)).toEqual([200, 300]);
    for (const [index, gap] of gaps.slice(0, -1).entries()) expect(gap).toBeGreaterThanOrEqual(gaps[index - 1] ?? 0);
    expect(Math.max(...gaps)).toBe(5000);
    expect(at.at(-1)).toBe(20_000);
  });

  test('a caller that gives up is told that it may happen yet', async () => {
    const { svc } = scripted([RUNNING]);
    const control = new AbortController();
    const waiting = failure(svc.wait('eff_1', { signal: control.signal }));
    control.abort();
    expect(await waiting).toMatchObject({ code: 'aborted', didItHappen: 'maybe' });
  });

  test('ends for a caller that gives up while its call waits', async () => {
    const { svc, sent } = scripted([{ status: 202, body: answer('pending_approval') }, RUNNING]);
    const control = new AbortController();
    const waiting = failure(svc.call({ tool: 't', wait: true, signal: control.signal }));
    await vi.waitFor(() => expect(sent.length).toBeGreaterThan(1));
    control.abort();
    expect(await waiting).toMatchObject({ code: 'aborted', idempotencyKey: expect.any(String), didItHappen: 'maybe' });
  });

  test('what is not to be waited for is not asked for again', async () => {
    const { svc, sent } = scripted([{ status: 202, body: answer('pending_approval') }]);
    expect((await svc.call({ tool: 't', wait: false })).status).toBe('pending_approval');
    expect(sent).toHaveLength(1);
  });

  test('an unknown outcome is a result', async () => {
    const { svc } = await against({
      status: 200,
      body: { effect: answer('unknown_effect', { safe_to_retry: false }), ledger: [] },
    });
    expect(await svc.wait('eff_1')).toMatchObject({ status: 'unknown_effect', safeToRetry: false });
  });
});

describe('the other operations', () => {
  const BODY = { some_field: 1, data: { left_alone: 1 } };
  const OPERATIONS: readonly (readonly [string, (svc: Svc) => Promise<unknown>, string, object])[] = [
    ['get', (svc) => svc.effects.get('e/1'), 'GET /v1/workspaces/demo/effects/e%2F1', {}],
    [
      'list',
      (svc) => svc.effects.list({ agentId: 'a', limit: 5 }),
      'GET /v1/workspaces/demo/effects?agent_id=a&limit=5',
      {},
    ],
    ['run', (svc) => svc.effects.run('e'), 'GET /v1/workspaces/demo/effects/e/run', {}],
    ['budgets', (svc) => svc.effects.budgets('e'), 'GET /v1/workspaces/demo/effects/e/budgets', {}],
    [
      'approvals',
      (svc) => svc.approvals.list({ status: 'pending' }),
      'GET /v1/workspaces/demo/approvals?status=pending',
      {},
    ],
    ['approval', (svc) => svc.approvals.get('a'), 'GET /v1/workspaces/demo/approvals/a', {}],
    ['approve', (svc) => svc.approvals.approve('a'), 'POST /v1/workspaces/demo/approvals/a/approve', {}],
    [
      'approve with the next',
      (svc) => svc.approvals.approve('a', { allowAlike: { times: 3 } }),
      'POST /v1/workspaces/demo/approvals/a/approve',
      { allow_alike: { times: 3 } },
    ],
    ['allowances', (svc) => svc.allowances.list({ limit: 5 }), 'GET /v1/workspaces/demo/allowances?limit=5', {}],
    ['revoke', (svc) => svc.allowances.revoke('w'), 'DELETE /v1/workspaces/demo/allowances/w', {}],
    [
      'reject',
      (svc) => svc.approvals.reject('a', { comment: 'c' }),
      'POST /v1/workspaces/demo/approvals/a/reject',
      { comment: 'c' },
    ],
    [
      'take',
      (svc) => svc.claims.take({ target: 't', ttlS: 9 }),
      'POST /v1/workspaces/demo/claims',
      { target: 't', ttl_s: 9 },
    ],
    ['renew', (svc) => svc.claims.renew('c', { ttlS: 9 }), 'POST /v1/workspaces/demo/claims/c/renew', { ttl_s: 9 }],
    [
      'reserve',
      (svc) => svc.reservations.make({ pool: 'p', units: 1, ttlS: 9 }),
      'POST /v1/workspaces/demo/reservations',
      { pool: 'p', units: 1, ttl_s: 9 },
    ],
    [
      'pause',
      (svc) => svc.pauses.set({ scope: { tool: '**' }, reason: 'r' }),
      'POST /v1/workspaces/demo/pauses',
      { scope: { tool: '**' }, reason: 'r' },
    ],
    ['pauses', (svc) => svc.pauses.list(), 'GET /v1/workspaces/demo/pauses', {}],
    ['budgets', (svc) => svc.budgets.list(), 'GET /v1/workspaces/demo/budgets', {}],
  ];
  /** Whether what is sent a second time does nothing more than the first. */
  const FURTHER: readonly (readonly [again: boolean, (svc: Svc) => Promise<unknown>, line: string, body?: object])[] = [
    [true, (svc) => svc.effects.probe('e'), 'POST /v1/workspaces/demo/effects/e/probe', {}],
    [true, (svc) => svc.effects.get('e'), 'GET /v1/workspaces/demo/effects/e'],
    [true, (svc) => svc.effects.list(), 'GET /v1/workspaces/demo/effects'],
    [true, (svc) => svc.effects.run('e'), 'GET /v1/workspaces/demo/effects/e/run'],
    [true, (svc) => svc.effects.budgets('e'), 'GET /v1/workspaces/demo/effects/e/budgets'],
    [true, (svc) => svc.tools.list(), 'GET /v1/workspaces/demo/tools'],
    [true, (svc) => svc.approvals.list(), 'GET /v1/workspaces/demo/approvals'],
    [true, (svc) => svc.approvals.get('a'), 'GET /v1/workspaces/demo/approvals/a'],
    [true, (svc) => svc.allowances.list(), 'GET /v1/workspaces/demo/allowances'],
    [false, (svc) => svc.allowances.revoke('w'), 'DELETE /v1/workspaces/demo/allowances/w'],
    [
      false,
      (svc) => svc.claims.take({ target: 't', ttlS: 9 }),
      'POST /v1/workspaces/demo/claims',
      { target: 't', ttl_s: 9 },
    ],
    [false, (svc) => svc.reservations.release('r'), 'DELETE /v1/workspaces/demo/reservations/r'],
    [true, (svc) => svc.pauses.list(), 'GET /v1/workspaces/demo/pauses'],
    [false, (svc) => svc.pauses.lift('p'), 'DELETE /v1/workspaces/demo/pauses/p'],
    [true, (svc) => svc.budgets.list(), 'GET /v1/workspaces/demo/budgets'],
    [true, (svc) => svc.policies.suggestions(), 'GET /v1/workspaces/demo/policies/suggestions'],
    [true, (svc) => svc.effects.observedReads({ limit: 5 }), 'GET /v1/workspaces/demo/observed-reads?limit=5'],
    [true, (svc) => svc.effects.reads({ cursor: 'c' }), 'GET /v1/workspaces/demo/observed-reads?cursor=c&all=true'],
    [true, (svc) => svc.effects.receipt('e'), 'GET /v1/workspaces/demo/effects/e/receipt'],
    [
      true,
      (svc) => svc.effects.disclosure('e', ['a', 'params.b,c', 'params.5%2C']),
      'GET /v1/workspaces/demo/effects/e/receipt?disclosure=1&fields=a%2Cparams.b%252Cc%2Cparams.5%25252C',
    ],
    [false, (svc) => svc.effects.erase('e'), 'DELETE /v1/workspaces/demo/effects/e/params'],
    [true, (svc) => svc.ledger.list({ agentId: 'a' }), 'GET /v1/workspaces/demo/ledger?agent_id=a'],
    [true, (svc) => svc.ledger.installation({ limit: 2 }), 'GET /v1/beta/ledger?limit=2'],
    [false, (svc) => svc.approvals.approve('a'), 'POST /v1/workspaces/demo/approvals/a/approve', {}],
    [false, (svc) => svc.approvals.reject('a'), 'POST /v1/workspaces/demo/approvals/a/reject', {}],
    [true, (svc) => svc.claims.list(), 'GET /v1/workspaces/demo/claims'],
    [true, (svc) => svc.claims.renew('c'), 'POST /v1/workspaces/demo/claims/c/renew', {}],
    [false, (svc) => svc.claims.release('c'), 'DELETE /v1/workspaces/demo/claims/c'],
    [true, (svc) => svc.reservations.list(), 'GET /v1/workspaces/demo/reservations'],
    [
      false,
      (svc) => svc.reservations.make({ pool: 'p', units: 1, ttlS: 9 }),
      'POST /v1/workspaces/demo/reservations',
      { pool: 'p', units: 1, ttl_s: 9 },
    ],
    [
      false,
      (svc) => svc.pauses.set({ scope: { tool: '**' }, reason: 'r' }),
      'POST /v1/workspaces/demo/pauses',
      { scope: { tool: '**' }, reason: 'r' },
    ],
    [true, (svc) => svc.keys.list({ agentId: 'a' }), 'GET /v1/beta/keys?agent_id=a'],
    [false, (svc) => svc.keys.revoke('k/1'), 'DELETE /v1/beta/keys/k%2F1'],
    [false, (svc) => svc.keys.rotate('k', { overlap: 60 }), 'POST /v1/beta/keys/k/rotate', { overlap: 60 }],
    [true, (svc) => svc.passkeys.list('ann'), 'GET /v1/beta/users/ann/passkeys'],
    [false, (svc) => svc.passkeys.remove('ann', 'p'), 'DELETE /v1/beta/users/ann/passkeys/p'],
    [false, (svc) => svc.console.link(), 'POST /v1/beta/console/links', {}],
    [true, (svc) => svc.policies.history(), 'GET /v1/beta/policies/activations'],
    [false, (svc) => svc.policies.activate(), 'POST /v1/beta/policies/activations', {}],
    [
      false,
      (svc) => svc.policies.activate('v1', { comment: 'c' }),
      'POST /v1/beta/policies/activations',
      { comment: 'c', version: 'v1' },
    ],
    [true, (svc) => svc.policies.show('v1'), 'GET /v1/beta/policies/versions/v1'],
    [false, (svc) => svc.policies.rollback({ comment: 'c' }), 'POST /v1/beta/policies/rollback', { comment: 'c' }],
    [true, (svc) => svc.policies.proposals(), 'GET /v1/beta/policies/proposals'],
    [false, (svc) => svc.policies.confirm('p/1'), 'POST /v1/beta/policies/proposals/p%2F1/confirm', {}],
    [false, (svc) => svc.policies.withdraw('p'), 'DELETE /v1/beta/policies/proposals/p'],
    [true, (svc) => svc.notifications.list({ state: 'dead' }), 'GET /v1/beta/notifications?state=dead'],
    [false, (svc) => svc.notifications.resend('n'), 'POST /v1/beta/notifications/n/resend', {}],
  ];
  test.each(FURTHER.map(([again, operation, line, body]) => [line, again, operation, body] as const))(
    '%s, sent again where no answer came: %s',
    async (line, again, operation, body) => {
      vi.useFakeTimers();
      const { svc, sent } = scripted([{ drop: 'before' }, { status: 200, body: BODY }]);
      const done = failure(operation(svc));
      await vi.advanceTimersByTimeAsync(1000);
      expect(sent.map((one) => one.line)).toEqual(again ? [line, line] : [line]);
      if (!again) expect(await done).toMatchObject({ code: 'no_answer' });
      const [{ init } = { init: null }] = sent;
      expect(init?.body === undefined ? undefined : JSON.parse(init.body)).toEqual(body);
      expect(init).toMatchObject({ redirect: 'error', headers: { 'x-api-key': 'k' } });
    },
  );
  test.each(OPERATIONS)('%s', async (_, operation, line, body) => {
    const { svc, server } = await against({ status: 200, body: BODY });
    expect(await operation(svc)).toEqual({ someField: 1, data: { left_alone: 1 } });
    const [sent] = server.received;
    expect(`${sent?.method} ${sent?.path}`).toBe(line);
    expect(sent?.body).toEqual(body);
  });

  test.each([
    ['release', (svc: Svc) => svc.claims.release('c'), 'claims/c'],
    ['release', (svc: Svc) => svc.reservations.release('r'), 'reservations/r'],
    ['lift', (svc: Svc) => svc.pauses.lift('p'), 'pauses/p'],
  ])('%s answers nothing', async (_, operation, path) => {
    const { svc, server } = await against({ status: 200, body: BODY });
    expect(await operation(svc)).toBeUndefined();
    expect(server.received[0]).toMatchObject({ method: 'DELETE', path: `/v1/workspaces/demo/${path}` });
  });

  test('the receipt is as it was signed', async () => {
    const { svc } = await against({ status: 200, body: { id: 'rcp_1', actor: { agent_id: 'x' }, jws: 'a.b.c' } });
    expect(await svc.effects.receipt('e')).toEqual({ id: 'rcp_1', actor: { agent_id: 'x' }, jws: 'a.b.c' });
  });

  test('preview', async () => {
    const { svc, server } = await against({ status: 200, body: { would: 'denied_budget', http_status: 402 } });
    expect(await svc.preview({ tool: 't', params: { aB: 1 } })).toEqual({ would: 'denied_budget', httpStatus: 402 });
    expect(server.received[0]).toMatchObject({
      path: '/v1/workspaces/demo/effects/preview',
      body: { tool: 't', params: { aB: 1 } },
    });
  });

  test('a preview is of the key that is named, and is asked again where no answer came', async () => {
    const { svc, sent } = scripted([{ drop: 'before' }, { status: 200, body: { would: 'duplicate_blocked' } }]);
    expect(await svc.preview({ tool: 't', idempotencyKey: 'mine' })).toEqual({ would: 'duplicate_blocked' });
    expect(sent.map(({ init }) => JSON.parse(init.body ?? ''))).toEqual([
      { tool: 't', idempotency_key: 'mine' },
      { tool: 't', idempotency_key: 'mine' },
    ]);
  });

  test('resolve answers what the effect has come to', async () => {
    const { svc, server } = await against(
      { status: 200, body: { effect: {} } },
      { status: 200, body: { effect: answer('committed', { receipt: { id: 'rcp_1' } }), ledger: [] } },
    );
    const result = await svc.resolve('eff_1', { outcome: 'happened', evidence: { seen: true }, comment: 'c' });
    expect(result).toMatchObject({ status: 'committed', receipt: { id: 'rcp_1' } });
    expect(server.received[0]?.body).toEqual({ outcome: 'happened', evidence: { seen: true }, comment: 'c' });
  });

  test('verifyState and reconcile stand outside the workspace', async () => {
    const { svc, server } = await against(
      { status: 200, body: { status: 'verified', decision: 'proceed', mismatches: [] } },
      { status: 200, body: { status: 'reconciled', decision: 'retry_allowed', reason: 'r' } },
    );
    const state = { intent: 'i', requiredFields: ['a'], assumedState: { a_b: 1 }, conditions: { cD: 1 } };
    expect(await svc.verifyState({ ...state, currentState: { a_b: 1 }, onMismatch: 'block' })).toMatchObject({
      status: 'verified',
    });
    const action = { intent: 'i', tool: 't', params: { x_y: 1 } };
    expect(await svc.reconcile({ action, currentState: {}, conditions: {} })).toMatchObject({
      decision: 'retry_allowed',
    });
    expect(server.received.map(({ path, body }) => [path, body])).toEqual([
      [
        '/state/verify',
        {
          intent: 'i',
          required_fields: ['a'],
          assumed_state: { a_b: 1 },
          conditions: { cD: 1 },
          current_state: { a_b: 1 },
          on_mismatch: 'block',
        },
      ],
      ['/outcomes/reconcile', { outcome: 'UNKNOWN', current_state: {}, conditions: {}, action }],
    ]);
  });

  test('what belongs to others keeps its names in what comes back', async () => {
    const foreign = Object.fromEntries(
      [
        'params',
        'asked_params',
        'editable',
        'varies',
        'metadata',
        'result',
        'receipt',
        'data',
        'assumed',
        'current',
      ].map((name) => [name, { left_alone: [{ this_too: 1 }] }]),
    );
    const evidence = { left_alone: 1 };
    const own = { tool_name: 1, evidence: { started_at: 't' }, settled_by: { key_id: 'k', evidence } };
    const { svc } = scripted([{ status: 200, body: { effect: { ...foreign, ...own }, ledger: [foreign] } }]);
    const { asked_params: askedParams, ...same } = foreign;
    const shown = { ...same, askedParams };
    expect(await svc.effects.get('e')).toEqual({
      effect: { ...shown, toolName: 1, evidence: { startedAt: 't' }, settledBy: { keyId: 'k', evidence } },
      ledger: [shown],
    });
  });

  const STATE = { intent: 'i', currentState: {}, conditions: {} };
  test('a resolution, a comparison and a reconciliation are sent again where no answer came', async () => {
    const answers = [
      { drop: 'before' },
      { status: 200, body: { effect: answer('committed', {}), ledger: [] } },
    ] as const;
    for (const [operation, path] of [
      [(svc: Svc) => svc.resolve('e', { outcome: 'happened' }), '/v1/workspaces/demo/effects/e/resolve'],
      [
        (svc: Svc) => svc.verifyState({ ...STATE, assumedState: {}, requiredFields: [], onMismatch: 'block' }),
        '/state/verify',
      ],
      [
        (svc: Svc) => svc.reconcile({ ...STATE, action: { intent: 'i', tool: 't', params: {} } }),
        '/outcomes/reconcile',
      ],
    ] as const) {
      const { svc, server } = await against(...answers, ...answers.slice(1));
      await operation(svc);
      expect(server.received.slice(0, 2).map((one) => one.path)).toEqual([path, path]);
    }
  });
});

describe('asking again', () => {
  test('four times at most, after pauses that double, of which up to a half is left out by chance', async () => {
    vi.useFakeTimers();
    for (const [random, pauses] of [
      [0, [100, 200, 400]],
      [0.5, [150, 300, 600]],
    ] as const) {
      vi.spyOn(Math, 'random').mockReturnValue(random);
      const { svc, sent } = scripted([{ drop: 'before' }]);
      const done = failure(svc.call({ tool: 't' }));
      for (const [index, pause] of pauses.entries()) {
        await vi.advanceTimersByTimeAsync(pause - 1);
        expect(sent).toHaveLength(index + 1);
        await vi.advanceTimersByTimeAsync(1);
        expect(sent).toHaveLength(index + 2);
      }
      await vi.advanceTimersByTimeAsync(60_000);
      expect(sent).toHaveLength(4);
      expect(await done).toMatchObject({ code: 'no_answer' });
    }
  });

  test('never later than after 30 s, whatever Retry-After says, and at a 429 for anything', async () => {
    vi.useFakeTimers();
    const busy = { status: 429, body: { code: 'busy', title: 't' }, headers: { 'retry-after': '3600' } };
    const { svc, sent } = scripted([busy, { status: 200, body: {} }]);
    const done = svc.claims.take({ target: 't', ttlS: 9 });
    await vi.advanceTimersByTimeAsync(29_999);
    expect(sent).toHaveLength(1);
    await vi.advanceTimersByTimeAsync(1);
    expect(sent).toHaveLength(2);
    await done;
  });

  test.each([
    [408, true],
    [500, false],
    [502, true],
    [503, true],
    [504, true],
  ])('%d without a decision: %s', async (status, again) => {
    const headers = { 'retry-after': '0' };
    const { svc, sent } = scripted([{ status, body: { code: 'c', title: 't' }, headers }, COMMITTED]);
    await failure(svc.call({ tool: 't' }));
    expect(sent).toHaveLength(again ? 2 : 1);
  });

  test('each sending ends after 60 s, or after the time that was given', async () => {
    const limits = vi.spyOn(AbortSignal, 'timeout');
    await scripted([COMMITTED]).svc.call({ tool: 't' });
    await scripted([COMMITTED], { timeoutMs: 5 }).svc.call({ tool: 't' });
    expect(limits.mock.calls).toEqual([[60_000], [5]]);
  });
});

describe('what is no decision', () => {
  test.each([
    ['no JSON', { status: 500, body: '<html>' }, { code: 'bad_answer', status: 500, retryAfterMs: null }],
    ['no code', { status: 404, body: { title: 't' } }, { code: 'bad_answer', status: 404 }],
    ['200 that is no JSON', { status: 200, body: 'hello' }, { code: 'bad_answer', status: 200, didItHappen: 'maybe' }],
    [
      'a problem',
      { status: 400, body: { code: 'c', title: 't' }, headers: { 'retry-after': '7' } },
      { code: 'c', message: 't', retryAfterMs: 7000, requestId: null, errors: [], baseUrl: 'http://g.test' },
    ],
    ['a problem without words', { status: 400, body: { code: 'c' } }, { message: 'c' }],
    [
      'a problem that says whether it happened',
      { status: 500, body: { code: 'c', did_it_happen: 'yes' } },
      { didItHappen: 'yes' },
    ],
    [
      'one that says it oddly',
      { status: 500, body: { code: 'c', did_it_happen: 'perhaps' } },
      { didItHappen: 'maybe' },
    ],
  ])('%s', async (_, play, error) => {
    const { svc } = scripted([play], { attempts: 1 });
    const failed = await failure(svc.call({ tool: 't', idempotencyKey: 'mine' }));
    expect(failed).toBeInstanceOf(SvcError);
    expect(failed).toMatchObject({ idempotencyKey: 'mine', ...error });
  });
});

test('a signal of the caller does not lift the time limit', async () => {
  const fetch: NonNullable<SvcOptions['fetch']> = (_, { signal }) =>
    new Promise((_resolve, reject) => {
      signal.addEventListener('abort', () => reject(new Error('aborted')));
    });
  const { svc } = scripted([], { fetch, timeoutMs: 20, attempts: 1 });
  const control = new AbortController();
  const call = failure(svc.call({ tool: 't', idempotencyKey: 'mine', signal: control.signal }));
  // Without the limit it ends here, as given up by the caller.
  const patience = setTimeout(() => control.abort(), 10_000);
  expect(await call).toMatchObject({ code: 'no_answer', idempotencyKey: 'mine', didItHappen: 'maybe' });
  clearTimeout(patience);
});

describe('an export', () => {
  async function* pieces() {
    yield Buffer.from('{"a":1}\n');
    yield Buffer.from('{"a":2}\n');
  }

  test('comes piece by piece, and may take longer than the time limit once it has begun', async () => {
    vi.useFakeTimers();
    const { svc, sent } = scripted([{ status: 200, body: pieces() }], { timeoutMs: 1000 });
    const read = await svc.ledger.export({ format: 'bundle', agentId: 'a', since: '2026-01-01T00:00:00Z' });
    await vi.advanceTimersByTimeAsync(5000);
    expect(sent[0]?.line).toBe(
      'GET /v1/workspaces/demo/export?format=bundle&agent_id=a&since=2026-01-01T00%3A00%3A00Z',
    );
    expect(sent[0]?.init).toMatchObject({
      redirect: 'error',
      headers: { 'x-api-key': 'k' },
      signal: { aborted: false },
    });
    let text = '';
    for await (const piece of read) text += String(piece);
    expect(text).toBe('{"a":1}\n{"a":2}\n');
  });

  test('is not ended by the time limit while it comes, whatever the clock', async () => {
    const server = createServer((_, response) => {
      response.write('one ');
      setTimeout(() => response.end('two'), 400);
    });
    await once(server.listen(0, '127.0.0.1'), 'listening');
    const { port } = server.address() as AddressInfo;
    const svc = new Svc({ baseUrl: `http://127.0.0.1:${port}`, apiKey: 'k', workspace: 'demo', timeoutMs: 200 });
    let text = '';
    for await (const piece of await svc.ledger.export()) text += String(Buffer.from(piece));
    expect(text).toBe('one two');
    server.close();
  });

  test('that does not begin in time ends; what refuses it says why; it is sent once', async () => {
    vi.useFakeTimers();
    const fetch: NonNullable<SvcOptions['fetch']> = (_, { signal }) =>
      new Promise((_resolve, reject) => {
        signal.addEventListener('abort', () => reject(new Error('aborted')));
      });
    const late = failure(scripted([], { fetch, timeoutMs: 1000 }).svc.ledger.export());
    await vi.advanceTimersByTimeAsync(1000);
    expect(await late).toMatchObject({ code: 'no_answer', didItHappen: 'no' });
    const { svc, sent } = scripted([{ status: 503, body: { code: 'not_ready', title: 't' } }]);
    expect(await failure(svc.ledger.export())).toMatchObject({ code: 'not_ready', status: 503, didItHappen: 'no' });
    expect(sent).toHaveLength(1);
  });
});
