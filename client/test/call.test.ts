import { afterEach, describe, expect, test } from 'vitest';
import { type CallResult, Svc, SvcError } from '../src/index.ts';
import { answer, type Play, type ScriptedServer, scriptedServer } from './server.ts';

const servers: ScriptedServer[] = [];

afterEach(async () => {
  await Promise.all(servers.splice(0).map((server) => server.close()));
});

async function against(script: readonly Play[], attempts = 4): Promise<{ svc: Svc; server: ScriptedServer }> {
  const server = await scriptedServer(script);
  servers.push(server);
  return { server, svc: new Svc({ apiKey: 'k', baseUrl: server.url, workspace: 'demo', attempts }) };
}

const REFUND = { tool: 'payments.refund', params: { payment_id: 'pay_1', someValue: 1 }, agentId: 'bot' };

describe('what is sent', () => {
  test('names are in snake_case, params and metadata as they are', async () => {
    const { svc, server } = await against([{ status: 200, body: answer('committed') }]);
    await svc.call({
      ...REFUND,
      metadata: { traceId: 'x' },
      claimId: 'clm_1',
      stateCheck: { intent: 'i', requiredFields: ['a'], assumedState: { aB: 1 }, conditions: {}, onMismatch: 'replan' },
    });
    expect(server.received).toHaveLength(1);
    const [sent] = server.received;
    expect(sent?.method).toBe('POST');
    expect(sent?.path).toBe('/v1/workspaces/demo/effects');
    expect(sent?.key).toBe('k');
    expect(sent?.body).toEqual({
      tool: 'payments.refund',
      params: { payment_id: 'pay_1', someValue: 1 },
      agent_id: 'bot',
      idempotency_key: expect.stringMatching(/^[0-9a-f-]{36}$/),
      metadata: { traceId: 'x' },
      claim_id: 'clm_1',
      state_check: {
        intent: 'i',
        required_fields: ['a'],
        assumed_state: { aB: 1 },
        conditions: {},
        on_mismatch: 'replan',
      },
    });
  });

  test('each logical call has a key of its own', async () => {
    const { svc, server } = await against([{ status: 200, body: answer('committed') }]);
    await svc.call(REFUND);
    await svc.call(REFUND);
    const keys = server.received.map(({ body }) => body['idempotency_key']);
    expect(new Set(keys).size).toBe(2);
  });
});

describe('one key per logical call, kept over retries', () => {
  const LOST: readonly (readonly [string, Play])[] = [
    ['a connection reset before the answer', { drop: 'before' }],
    ['an answer cut in its body', { drop: 'headers' }],
    [
      '503',
      { status: 503, body: { code: 'store_unavailable', title: 't', detail: 'd' }, headers: { 'retry-after': '0' } },
    ],
    ['408', { status: 408, body: { code: 'invalid_request', title: 't' }, headers: { 'retry-after': '0' } }],
    ['429', { status: 429, body: { code: 'too_many_requests', title: 't' }, headers: { 'retry-after': '0' } }],
    ["a load balancer's 502", { status: 502, body: '<html>bad gateway</html>' }],
  ];
  test.each(LOST)('%s', async (_, lost) => {
    const { svc, server } = await against([
      lost,
      { status: 409, body: answer('duplicate_blocked', { receipt: { jws: 'x' } }) },
    ]);
    const result = await svc.call(REFUND);
    expect(result.status).toBe('duplicate_blocked');
    expect(server.received).toHaveLength(2);
    expect(server.received[1]?.body).toEqual(server.received[0]?.body);
  });

  test('a key of the caller is used as it is', async () => {
    const { svc, server } = await against([{ drop: 'before' }, { status: 200, body: answer('committed') }]);
    await svc.call({ ...REFUND, idempotencyKey: 'mine' });
    expect(server.received.map(({ body }) => body['idempotency_key'])).toEqual(['mine', 'mine']);
  });

  test('it gives up after the attempts allowed, and says under which key it may have happened', async () => {
    const { svc, server } = await against([{ drop: 'before' }], 3);
    const error = await failure(svc.call({ ...REFUND, idempotencyKey: 'mine' }));
    expect(error).toMatchObject({ code: 'no_answer', status: 0, idempotencyKey: 'mine', didItHappen: 'maybe' });
    expect(server.received).toHaveLength(3);
  });

  const waits: Play = { status: 202, body: answer('pending_approval', { idempotency_key: 'mine' }) };
  test.each<[string, string, readonly Play[]]>([
    ['an answer that is no object', 'bad_answer', [{ status: 200, body: [] }]],
    ['a decision of a later gateway', 'bad_answer', [{ status: 409, body: answer('denied_weather') }]],
    ['a gateway that goes while the call waits', 'no_answer', [waits, { drop: 'before' }]],
    ['a later decision of a call that waits', 'bad_answer', [waits, { status: 200, body: { effect: {} } }]],
    [
      'a key that ends while its call waits',
      'invalid_key',
      [waits, { status: 401, body: { code: 'invalid_key', title: 't', did_it_happen: 'no' } }],
    ],
  ])('after %s it says under which key it may have happened', async (_what, code, script) => {
    const { svc } = await against(script, 1);
    const error = await failure(svc.call({ ...REFUND, idempotencyKey: 'mine', wait: true }));
    expect(error).toMatchObject({ code, idempotencyKey: 'mine', didItHappen: 'maybe' });
  });

  test('a vote, a pause or a release whose answer is lost may have happened; a look has not', async () => {
    const { svc, server } = await against([{ drop: 'headers' }], 1);
    const changes: readonly (() => Promise<unknown>)[] = [
      () => svc.approvals.approve('apr_1'),
      () => svc.claims.take({ target: 't', ttlS: 60 }),
      () => svc.pauses.set({ scope: { workspace: true }, reason: 'r' }),
      () => svc.reservations.release('rsv_1'),
    ];
    for (const change of changes)
      expect(await failure(change())).toMatchObject({ code: 'no_answer', idempotencyKey: null, didItHappen: 'maybe' });
    expect(await failure(svc.claims.list())).toMatchObject({ code: 'no_answer', didItHappen: 'no' });
    expect(server.received).toHaveLength(5);
  });

  test('Retry-After is waited for', async () => {
    const busy = { status: 503, body: { code: 'not_ready', title: 't' }, headers: { 'retry-after': '1' } };
    const { svc } = await against([busy, { status: 200, body: answer('committed') }]);
    const began = performance.now();
    await svc.call(REFUND);
    expect(performance.now() - began).toBeGreaterThan(950);
  });

  test('other problems are not sent again', async () => {
    const body = {
      code: 'invalid_request',
      title: 't',
      detail: 'the body',
      request_id: 'req_1',
      did_it_happen: 'no',
      errors: [{ path: '/tool', message: 'is missing' }],
    };
    const { svc, server } = await against([{ status: 400, body }]);
    expect(await failure(svc.call(REFUND))).toMatchObject({
      name: 'SvcError',
      message: 'the body',
      code: 'invalid_request',
      status: 400,
      requestId: 'req_1',
      didItHappen: 'no',
      errors: [{ path: '/tool', message: 'is missing' }],
    });
    expect(server.received).toHaveLength(1);
  });

  test('giving up by the caller ends it at once', async () => {
    const busy = { status: 503, body: { code: 'not_ready', title: 't' }, headers: { 'retry-after': '20' } };
    const { svc, server } = await against([busy]);
    const control = new AbortController();
    const call = failure(svc.call({ ...REFUND, signal: control.signal }));
    while (server.received.length === 0) await new Promise(setImmediate);
    control.abort();
    expect((await call).code).toBe('aborted');
  });

  test('a redirect is not followed: the key stays with the gateway', async () => {
    const { server: other } = await against([{ status: 200, body: answer('committed') }]);
    const { svc } = await against([{ status: 307, body: '', headers: { location: other.url } }], 1);
    expect((await failure(svc.call(REFUND))).code).toBe('no_answer');
    expect(other.received).toHaveLength(0);
  });
});

const DECISIONS = [
  ['committed', 200],
  ['duplicate_blocked', 409],
  ['pending_approval', 202],
  ['in_progress', 409],
  ['denied_permission', 403],
  ['denied_policy', 403],
  ['denied_identity', 403],
  ['denied_budget', 402],
  ['denied_claim', 409],
  ['idempotency_conflict', 409],
  ['denied_reservation', 423],
  ['denied_paused', 423],
  ['failed', 502],
  ['unknown_effect', 504],
] as const;

describe('results', () => {
  test.each(DECISIONS)('%s is a result, and is sent once', async (decision, status) => {
    const { svc, server } = await against([{ status, body: answer(decision) }]);
    const result = await svc.call(REFUND);
    expect(result.status).toBe(decision);
    expect(result).toMatchObject({ effectId: 'eff_1', agentId: 'bot', idempotencyKey: 'k1', safeToRetry: true });
    expect(server.received).toHaveLength(1);
  });

  test('drift under replan is replan_required, under block denied_claim', async () => {
    const reason = { code: 'state_drift', message: 'm' };
    const mismatches = [{ field: 'a', assumed: { some_name: 1 }, current: null }];
    const { svc } = await against([
      { status: 409, body: answer('denied_claim', { reason, mismatches, next: 'replan' }) },
      { status: 409, body: answer('denied_claim', { reason, mismatches, next: 'block' }) },
    ]);
    expect(await svc.call(REFUND)).toMatchObject({ status: 'replan_required', mismatches });
    expect(await svc.call(REFUND)).toMatchObject({ status: 'denied_claim', mismatches });
  });

  test('receipt and result are as the gateway sent them', async () => {
    const receipt = { id: 'rcp_1', agent_id: 'x', jws: 'a.b.c' };
    const result = { refund_id: 1, nested: { some_name: 2 } };
    const { svc } = await against([
      { status: 200, body: answer('committed', { receipt, result, response_truncated: true }) },
    ]);
    expect(await svc.call(REFUND)).toMatchObject({ receipt, result, responseTruncated: true, accepted: false });
  });

  test('what every answer says is in every result, under names of the language', async () => {
    const said = {
      attempt: 2,
      reason: { code: 'c', message: 'm' },
      did_it_happen: 'maybe',
      next: 'wait',
      observed: { would: 'denied_policy', rule: 'p/r' },
      budgets: [{ budget: 'b', resets_at: null }],
      retry_after_ms: 7,
      links: { some_link: 'http://x' },
    };
    for (const [decision, status] of DECISIONS) {
      const { svc } = await against([{ status, body: answer(decision, said) }]);
      expect(await svc.call(REFUND)).toMatchObject({
        tool: 'payments.refund',
        target: 'payment:pay_1',
        attempt: 2,
        reason: { code: 'c', message: 'm' },
        didItHappen: 'maybe',
        next: 'wait',
        observed: { would: 'denied_policy', rule: 'p/r' },
        budgets: [{ budget: 'b', resetsAt: null }],
        retryAfterMs: 7,
        links: { some_link: 'http://x' },
      });
    }
  });

  test.each<[(typeof DECISIONS)[number][0], object, object]>([
    ['committed', {}, { result: null, accepted: false, responseTruncated: false }],
    [
      'committed',
      { upstream_status: 202, accepted: true, settlement: 'pending' },
      { upstreamStatus: 202, accepted: true, settlement: 'pending' },
    ],
    ['duplicate_blocked', {}, { resultExpired: false }],
    ['duplicate_blocked', { result_expired: true }, { resultExpired: true }],
    ['failed', { result: { e: 1 }, upstream_status: 422 }, { result: { e: 1 }, upstreamStatus: 422 }],
    ['denied_budget', {}, { budgets: [] }],
    ['denied_claim', {}, { mismatches: [] }],
    // What the gateway does not call safe is not.
    ['unknown_effect', { safe_to_retry: undefined }, { safeToRetry: false }],
  ])('%s has its own fields, and what it is where the gateway said none: %j', async (decision, said, fields) => {
    const { svc } = await against([{ status: 200, body: answer(decision, { ...said }) }]);
    expect(await svc.call(REFUND)).toMatchObject(fields);
  });

  test('a state that could not be read is no drift, also under replan', async () => {
    const reason = { code: 'state_unreadable', message: 'm' };
    const { svc } = await against([{ status: 409, body: answer('denied_claim', { reason, next: 'replan' }) }]);
    expect((await svc.call(REFUND)).status).toBe('denied_claim');
  });

  test('fields that do not belong to a status are not there', async () => {
    const { svc } = await against([
      { status: 403, body: answer('denied_policy', { approval: { id: 'x' }, receipt: {} }) },
    ]);
    const result = await svc.call(REFUND);
    expect(result).not.toHaveProperty('approval');
    expect(result).not.toHaveProperty('receipt');
  });

  test('a decision of a later gateway is an error, not a guess', async () => {
    const { svc } = await against([{ status: 409, body: answer('denied_weather') }]);
    // It may have happened: the decision is one that this client cannot read.
    expect(await failure(svc.call(REFUND))).toMatchObject({ code: 'bad_answer', didItHappen: 'maybe' });
  });

  test('a switch over status is exhaustive at compile time', () => {
    const seen = DECISIONS.map(([decision]) => describeResult({ status: decision } as CallResult));
    expect(new Set(seen).size).toBe(DECISIONS.length);
  });
});

/** Does not compile when a status is missing: `never` refuses what is left over. */
function describeResult(result: CallResult): string {
  switch (result.status) {
    case 'committed':
      return `committed ${String(result.receipt?.id)} ${String(result.accepted)}`;
    case 'duplicate_blocked':
      return `duplicate ${String(result.resultExpired)}`;
    case 'pending_approval':
      return `pending ${String(result.approval?.id)}`;
    case 'in_progress':
      return 'running';
    case 'denied_permission':
    case 'denied_policy':
    case 'denied_identity':
    case 'denied_reservation':
    case 'denied_paused':
      return `denied ${result.status}`;
    case 'denied_budget':
      return `budget ${String(result.budgets?.length)}`;
    case 'denied_claim':
    case 'replan_required':
      return `${result.status} ${String(result.mismatches?.length)}`;
    case 'idempotency_conflict':
      return 'conflict';
    case 'failed':
      return 'failed';
    case 'unknown_effect':
      return `unknown ${String(result.safeToRetry)}`;
    default: {
      const nothing: never = result;
      return nothing;
    }
  }
}

async function failure(call: Promise<unknown>): Promise<SvcError> {
  try {
    await call;
  } catch (error) {
    if (error instanceof SvcError) return error;
    throw error;
  }
  throw new Error('it did not fail');
}
