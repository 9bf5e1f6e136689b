import { afterEach, describe, expect, test, vi } from 'vitest';
import { Svc, SvcError } from '../src/index.ts';
import { answer, type Play, type ScriptedServer, scriptedServer } from './server.ts';

const servers: ScriptedServer[] = [];

afterEach(async () => {
  vi.unstubAllEnvs();
  await Promise.all(servers.splice(0).map((server) => server.close()));
});

async function against(...script: Play[]): Promise<{ svc: Svc; server: ScriptedServer }> {
  const server = await scriptedServer(script);
  servers.push(server);
  return { server, svc: new Svc({ apiKey: 'k', baseUrl: `${server.url}/`, workspace: 'demo' }) };
}

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
    vi.stubEnv('SVC_BASE_URL', server.url);
    vi.stubEnv('SVC_WORKSPACE', 'elsewhere');
    await new Svc().call({ tool: 't' });
    expect(server.received[0]).toMatchObject({ key: 'from-environment', path: '/v1/workspaces/elsewhere/effects' });
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
    [
      'approvals',
      (svc) => svc.approvals.list({ status: 'pending' }),
      'GET /v1/workspaces/demo/approvals?status=pending',
      {},
    ],
    ['approval', (svc) => svc.approvals.get('a'), 'GET /v1/workspaces/demo/approvals/a', {}],
    ['approve', (svc) => svc.approvals.approve('a'), 'POST /v1/workspaces/demo/approvals/a/approve', {}],
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

  test('what changes something and has no key is not sent twice after a lost answer', async () => {
    const { svc, server } = await against({ drop: 'before' });
    await expect(svc.claims.take({ target: 't', ttlS: 9 })).rejects.toMatchObject({ code: 'no_answer' });
    expect(server.received).toHaveLength(1);
  });
});
