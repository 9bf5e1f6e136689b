import { IncomingMessage } from 'node:http';
import { Socket } from 'node:net';
import { describe, expect, test } from 'vitest';
import type { Route } from '../../src/config/configuration.ts';
import type { KeptResult } from '../../src/effects/model/answer.ts';
import type { RunOutcome } from '../../src/effects/model/outcome.ts';
import { renderProblem } from '../../src/api/problem.ts';
import type { Code } from '../../src/effects/model/codes.ts';
import {
  afterWait,
  type AnswerContext,
  contextOf,
  linkedAnswer,
  outcomeAnswer,
  passedOnHeaders,
  problemAnswer,
} from '../../src/proxy/answer.ts';
import { createCatalog } from '../../src/upstreams/catalog.ts';
import { type Arrived, readQuery } from '../../src/proxy/arrival.ts';
import { makeTool } from '../upstreams/tool.ts';
import { BOT } from './principal.ts';
import { UPLOADS } from './uploads.ts';
import { APPROVAL, OUTCOME } from '../effects/records.ts';

const PORTS: Parameters<typeof outcomeAnswer>[0] = {
  receiptView: () => ({}),
  catalog: () => createCatalog([]),
  renderProblem: (problem, { id, keyed }) =>
    renderProblem(problem, {}, { publicUrl: 'http://gateway', requestId: id, run: keyed, changes: true }),
  settings: () => ({
    publicUrl: 'http://gateway',
    queryKey: 'allow',
    bodyLimit: 1000,
    jsonLimits: { depth: 10, values: 100 },
    uploads: UPLOADS,
  }),
  upstream: () => null,
};

const CONTEXT: AnswerContext = {
  request: { id: 'req_1', method: 'POST', keyed: true },
  principal: BOT,
  prefix: '/shop',
  upstream: 'shop',
  setCookie: false,
  origin: () => 'https://gateway.test',
  foreignLinks: 'hide',
  links: [],
  onDuplicate: 'replay',
  pendingStatus: 202,
  style: { errorFormat: 'problem', finalStatus: null },
};
const FORMATS = ['problem', 'stripe', 'openai', 'anthropic', 'github', 'slack', 'graphql', 'kubernetes'] as const;

function answerOf(truncated: boolean, kept?: KeptResult): ReturnType<typeof outcomeAnswer> {
  const cut = {
    kind: 'http',
    status: 201,
    headers: {},
    body: { kind: 'text', value: 'the first pa' },
    truncated,
  } as const;
  return outcomeAnswer(PORTS, { kind: 'outcome', outcome: repeated(kept ?? cut) }, CONTEXT);
}

/** The outcome of a call that ran before, and what is kept of its answer. */
function repeated(result: KeptResult | null): RunOutcome {
  return {
    decision: 'duplicate_blocked',
    ...OUTCOME,
    reason: { code: 'already_committed', message: 'It ran before.' },
    repeat: true,
    receipt: { id: 'rcp_1', jws: 'e30.e30.e30' },
    result,
    resultExpired: false,
  };
}

test('on_duplicate: replay gives the whole stored answer; of one that was cut it gives the decision', () => {
  expect(answerOf(false)).toMatchObject({
    status: 201,
    headers: { 'idempotency-replayed': 'true' },
    body: 'the first pa',
  });
  const cut = answerOf(true);
  expect(cut.status).toBe(409);
  expect(cut.headers).not.toHaveProperty('idempotency-replayed');
  expect(JSON.parse(String(cut.body))).toMatchObject({ decision: 'duplicate_blocked', effect_id: 'eff_1' });
});

test('an answer of another kind is not replayed as if it were HTTP: the decision has it as its result', () => {
  const message = { kind: 'message', body: { kind: 'json', value: { isError: false } }, truncated: false } as const;
  const answer = answerOf(false, message);
  expect(answer.status).toBe(409);
  expect(JSON.parse(String(answer.body))).toMatchObject({
    decision: 'duplicate_blocked',
    result: { isError: false },
  });
});

test('what the upstream answered has the decision in its headers: what is not settled yet, and what was cut', () => {
  const headers = { 'content-type': 'application/json', 'retry-after': '7' };
  const outcome = {
    decision: 'committed',
    ...OUTCOME,
    reason: { code: 'committed', message: 'It ran.' },
    observed: { would: 'denied_policy', rule: null },
    receipt: { id: 'rcp_1', jws: 'e30.e30.e30' },
    result: null,
    answer: { kind: 'http', status: 201, headers, body: Buffer.from('{}') },
    accepted: false,
    responseTruncated: true,
    settlement: 'pending',
  } satisfies RunOutcome;
  const sent = (one: RunOutcome) => outcomeAnswer(PORTS, { kind: 'outcome', outcome: one }, CONTEXT).headers;
  expect(sent(outcome)).toMatchObject({
    'svc-receipt': 'http://gateway/v1/workspaces/demo/effects/eff_1/receipt',
    'svc-observed': 'denied_policy',
    'svc-settlement': 'pending',
    'svc-response-truncated': 'true',
    'retry-after': '7',
  });
  const plain = sent({ ...outcome, observed: null, responseTruncated: false, settlement: 'done' });
  for (const name of ['svc-observed', 'svc-settlement', 'svc-response-truncated'])
    expect(plain).not.toHaveProperty(name);
});

describe('links in the answer to a write', () => {
  const linked = (coding: string | null) => {
    const headers = { 'content-type': 'application/json', ...(coding === null ? {} : { 'content-encoding': coding }) };
    const outcome: RunOutcome = {
      decision: 'committed',
      ...OUTCOME,
      reason: { code: 'committed', message: 'It ran.' },
      receipt: { id: 'rcp_1', jws: 'e30.e30.e30' },
      result: null,
      answer: { kind: 'http', status: 201, headers, body: Buffer.from('{"url":"http://shop.test/v1/notes/1"}') },
      accepted: false,
      responseTruncated: false,
      settlement: 'done',
    };
    const ports = {
      ...PORTS,
      upstream: () => ({ url: 'http://shop.test', network: 'any', credentials: null }) as const,
    };
    return linkedAnswer(ports, { kind: 'outcome', outcome }, { ...CONTEXT, links: [['url']] });
  };

  test.each([null, 'identity', 'Identity'])('lead to the gateway (content-encoding: %s)', async (coding) => {
    const answer = await linked(coding);
    expect([answer.status, String(answer.body)]).toEqual([201, '{"url":"https://gateway.test/shop/v1/notes/1"}']);
  });

  test('that is packed are not passed on: the caller gets the decision', async () => {
    const answer = await linked('gzip');
    expect(answer.headers).not.toHaveProperty('content-encoding');
    expect(JSON.parse(String(answer.body))).toMatchObject({ decision: 'committed', effect_id: 'eff_1' });
    expect(String(answer.body)).not.toContain('shop.test');
  });

  test('that is given again are read like those of the first: where nobody can, the caller gets the decision', async () => {
    const again = async (value: string): Promise<string> => {
      const headers = { 'content-type': 'application/json' };
      const kept = { kind: 'http', status: 201, headers, body: { kind: 'text', value }, truncated: false } as const;
      const ports = {
        ...PORTS,
        upstream: () => ({ url: 'http://shop.test', network: 'any', credentials: null }) as const,
      };
      const context = { ...CONTEXT, links: [['url']] };
      return String((await linkedAnswer(ports, { kind: 'outcome', outcome: repeated(kept) }, context)).body);
    };
    expect(await again('{"url":"http://shop.test/a"}')).toBe('{"url":"https://gateway.test/shop/a"}');
    expect(JSON.parse(await again('{"url":"http://shop.test/a",}'))).toMatchObject({ decision: 'duplicate_blocked' });
  });

  test('are none in what the gateway itself answers, whatever its members are called', async () => {
    const outcome: RunOutcome = {
      decision: 'denied_policy',
      ...OUTCOME,
      reason: { code: 'rule_denied', message: '/no' },
      mismatches: [],
    };
    const links = [['reason', 'message'], ['message']];
    const answer = await linkedAnswer(PORTS, { kind: 'outcome', outcome }, { ...CONTEXT, links });
    expect(answer).toEqual(outcomeAnswer(PORTS, { kind: 'outcome', outcome }, CONTEXT));
  });
});

test('where no route is meant, an answer passes nothing on: no cookie, no foreign link, no form of a library', () => {
  const raw = new IncomingMessage(new Socket());
  raw.method = 'POST';
  raw.headers.host = 'gateway.test';
  const arrived: Arrived = {
    kind: 'arrived',
    principal: BOT,
    key: 'k',
    carriedIn: [],
    authorization: null,
    viaQuery: false,
    workspace: 'demo',
    agentId: null,
    match: { kind: 'none' },
    path: '/',
    query: readQuery(null),
    address: '',
    requestId: 'req_1',
    authenticatedAt: 0,
    authenticatedInMs: 0,
  };
  const { origin, request, ...nowhere } = contextOf(PORTS, raw, 'req_1', arrived);
  expect([origin(), request]).toEqual(['http://gateway.test', { id: 'req_1', method: 'POST', keyed: false }]);
  expect(nowhere).toMatchObject({
    prefix: '',
    upstream: '',
    links: [],
    foreignLinks: 'hide',
    setCookie: false,
    onDuplicate: 'conflict',
    pendingStatus: 202,
    style: { errorFormat: 'problem', finalStatus: null },
  });
  raw.headers['idempotency-key'] = 'k';
  const route: Route = {
    upstream: 'shop',
    prefix: '/shop',
    host: null,
    listen: null,
    undeclared: 'deny',
    setCookie: true,
    foreignLinks: 'pass',
    links: [['next']],
    rules: [],
    headers: { forward: [], drop: [], volatile: [], set: {} },
    keys: { headers: [], schemes: [], query: [] },
    pendingStatus: 409,
    errorFormat: 'stripe',
    finalStatus: 422,
    undeclaredQuery: null,
  };
  const { request: keyed, ...there } = contextOf(PORTS, raw, 'req_1', {
    ...arrived,
    match: { kind: 'undeclared', route, tool: makeTool(), resembles: false },
  });
  const { upstream, prefix, setCookie, foreignLinks, links, pendingStatus } = route;
  expect(keyed.keyed).toBe(true);
  expect(there).toMatchObject({ upstream, prefix, setCookie, foreignLinks, links, pendingStatus, style: route });
});

test('an answer whose caller has waited says so, and another does not', () => {
  const answer = { status: 200, headers: { etag: '"1"' }, body: '' };
  expect(afterWait(answer, 'wait=5')).toEqual({ ...answer, headers: { etag: '"1"', 'preference-applied': 'wait=5' } });
  expect(afterWait(answer, null)).toEqual(answer);
});

describe('what is no decision, as the libraries of the route read it', () => {
  const refusals: readonly (readonly [Code, number])[] = [
    ['invalid_request', 400],
    ['invalid_key', 401],
    ['too_large', 413],
    ['unsupported_media_type', 415],
    ['busy', 429],
  ];
  /** Where each format has the message. */
  const messageIn = (format: (typeof FORMATS)[number], body: unknown): string => {
    const places = new Map([
      ['slack', ['response_metadata', 'messages', '0']],
      ['graphql', ['errors', '0', 'message']],
      ['github', ['message']],
      ['kubernetes', ['message']],
    ]);
    const found = (places.get(format) ?? ['error', 'message']).reduce<unknown>(
      (inner, name) => (typeof inner === 'object' && inner !== null ? Reflect.get(inner, name) : undefined),
      body,
    );
    return String(found).replace('[ERROR] ', '');
  };

  test.each(FORMATS.flatMap((format) => refusals.map(([code, status]) => [format, code, status] as const)))(
    '%s: %s',
    (format, code, status) => {
      const problem = { code, detail: 'It cannot be.', errors: [], retryAfterMs: 2000 };
      const {
        status: shown,
        headers,
        body,
      } = problemAnswer(PORTS, problem, CONTEXT.request, {
        errorFormat: format,
        finalStatus: null,
      });
      expect(headers['content-type']).toMatch(
        format === 'problem' ? /^application\/problem\+json/ : /^application\/json/,
      );
      const says = JSON.parse(String(body));
      expect([messageIn(format, says), JSON.stringify(says).includes(`"${code}"`)]).toEqual(['It cannot be.', true]);
      // Slack and GraphQL say no with 200, but not to come back later: their libraries wait and ask again.
      const isTheirs = format === 'slack' ? status !== 429 : format === 'graphql' && status !== 429 && status !== 401;
      expect([shown, headers['retry-after']]).toEqual([isTheirs ? 200 : status, '2']);
    },
  );

  test('says of a fault where it is, and has at most 1,000 characters of it', () => {
    const errors = [{ path: '/params/a', message: `is ${'x'.repeat(2000)}` }];
    const problem = { code: 'invalid_request', detail: 'It cannot be.', errors, retryAfterMs: null } as const;
    const { message } = JSON.parse(String(problemAnswer(PORTS, problem, CONTEXT.request).body));
    expect([message.slice(0, 28), message.length]).toEqual(['It cannot be. /params/a is x', 1000]);
  });

  test('kubernetes: a Status', () => {
    const problem = { code: 'invalid_key' as const, detail: 'Which key?', errors: [], retryAfterMs: null };
    const style = { errorFormat: 'kubernetes', finalStatus: null } as const;
    expect(JSON.parse(String(problemAnswer(PORTS, problem, CONTEXT.request, style).body))).toMatchObject({
      kind: 'Status',
      apiVersion: 'v1',
      status: 'Failure',
      reason: 'Unauthorized',
      code: 401,
      message: 'Which key?',
      details: { causes: [{ reason: 'invalid_key' }] },
    });
  });
});

test.each(FORMATS)('%s: an answer without receipt and result has at most 1,500 bytes', (errorFormat) => {
  const budget = {
    row: { budget: 'b'.repeat(60), unit: 'cent', limit: 5, spent: 5, held: 0, resetsAt: 0 },
    sharing: 'own',
    warnAt: 80,
  };
  const outcome = {
    decision: 'denied_claim',
    workspace: 'demo',
    effectId: `eff_${'0'.repeat(26)}`,
    tool: 't'.repeat(128),
    target: 'ü'.repeat(1024),
    agentId: 'a'.repeat(64),
    idempotencyKey: 'k'.repeat(255),
    attempt: 1,
    reason: { code: 'state_drift', message: 'é'.repeat(2_000), policy: 'p'.repeat(64), rule: 'r'.repeat(64) },
    budgets: Array.from({ length: 20 }, () => budget),
    observed: null,
    repeat: false,
    retryAfterMs: null,
    next: null,
    mismatches: Array.from({ length: 50 }, (_, index) => ({
      field: `f${index}`,
      assumed: 'x'.repeat(100),
      current: null,
    })),
  } as unknown as RunOutcome;
  const { body } = outcomeAnswer(
    PORTS,
    { kind: 'outcome', outcome },
    { ...CONTEXT, style: { errorFormat, finalStatus: null } },
  );
  expect(Buffer.byteLength(body)).toBeLessThanOrEqual(1_500);
  expect(JSON.parse(String(body))).toMatchObject({
    decision: 'denied_claim',
    effect_id: outcome.effectId,
    truncated: true,
  });
  const short = { ...outcome, target: 't', mismatches: [], budgets: [], reason: { ...outcome.reason, message: 'No' } };
  const whole = outcomeAnswer(
    PORTS,
    { kind: 'outcome', outcome: short as RunOutcome },
    { ...CONTEXT, style: { errorFormat, finalStatus: null } },
  );
  expect(JSON.parse(String(whole.body))).not.toHaveProperty('truncated');
});

test('what is short enough but for one text keeps what an agent plans anew by; bytes count, and not characters', () => {
  const drifted: RunOutcome = {
    decision: 'denied_claim',
    ...OUTCOME,
    reason: { code: 'state_drift', message: 'No.' },
    mismatches: [
      { field: 'status', assumed: 'open', current: 'closed' },
      { field: 'owner', assumed: 'tom', current: null },
    ],
  };
  const answer = (target: string) =>
    JSON.parse(String(outcomeAnswer(PORTS, { kind: 'outcome', outcome: { ...drifted, target } }, CONTEXT).body));
  const fits = 'x'.repeat(600);
  expect(answer(fits)).toMatchObject({ target: fits, mismatches: drifted.mismatches });
  // As many characters, and twice the bytes.
  const cut = answer('ü'.repeat(600));
  expect(cut).toMatchObject({ truncated: true, mismatches: drifted.mismatches });
  expect(cut.target.length).toBeLessThan(600);
});

test('what has a receipt, or a result, is whole, however long it is', () => {
  const target = 'x'.repeat(1024);
  const reason = { code: 'already_committed', message: 'm'.repeat(1000) } as const;
  const message = { kind: 'message', body: { kind: 'json', value: { a: 1 } }, truncated: false } as const;
  const shown = (outcome: RunOutcome) => {
    const { body } = outcomeAnswer(PORTS, { kind: 'outcome', outcome: { ...outcome, target, reason } }, CONTEXT);
    return JSON.parse(String(body));
  };
  const failed: RunOutcome = {
    decision: 'failed',
    ...OUTCOME,
    reason,
    result: message,
    answer: null,
    settlement: 'done',
  };
  for (const [outcome, has] of [
    [repeated(null), { receipt: {} }],
    [failed, { result: { a: 1 } }],
  ] as const) {
    const whole = shown(outcome);
    expect(whole).toMatchObject({ target, reason, ...has });
    expect(whole).not.toHaveProperty('truncated');
  }
});

test('who has to find out what happened is told of the probe, where the tool has one', () => {
  const outcome: RunOutcome = {
    decision: 'unknown_effect',
    ...OUTCOME,
    reason: { code: 'outcome_unknown', message: 'Who knows?' },
    safeToRetry: false,
    settlement: 'done',
  };
  const times = { everyMs: 1, afterMs: 1, forMs: 0 };
  const probe = { read: makeTool({ kind: 'read' }), params: {}, happened: {}, notHappened: {}, ...times };
  const linksOf = (tool: ReturnType<typeof makeTool>) => {
    const ports = { ...PORTS, catalog: () => createCatalog([tool]) };
    return JSON.parse(String(outcomeAnswer(ports, { kind: 'outcome', outcome }, CONTEXT).body)).links;
  };
  const effect = 'http://gateway/v1/workspaces/demo/effects/eff_1';
  expect(linksOf(makeTool({ name: 'notes.add', probe }))).toMatchObject({ probe: `${effect}/probe` });
  expect(linksOf(makeTool({ name: 'notes.add' }))).toEqual(expect.not.objectContaining({ probe: expect.anything() }));
});

test('figures of a shared budget are for people: an agent, or a key with a profile, gets a level', () => {
  const row = { budget: 'team', unit: 'cent', bucket: '', window: '', limit: 5, spent: 5, held: 0, resetsAt: null };
  const outcome: RunOutcome = {
    decision: 'denied_budget',
    ...OUTCOME,
    reason: { code: 'budget_exceeded', message: 'No.' },
    budgets: [{ row, sharing: 'shared', warnAt: 80 }],
    mismatches: [],
  };
  const key = { keyId: 'key_1', user: null, madeBy: null, keyCreatedAt: 0, readOnly: false, allowedTools: null };
  const nobody = { ...key, workspace: 'demo' };
  const shown = (principal: AnswerContext['principal']): unknown =>
    JSON.parse(String(outcomeAnswer(PORTS, { kind: 'outcome', outcome }, { ...CONTEXT, principal }).body));
  const level = { budgets: [expect.not.objectContaining({ limit: 5 })] };
  expect(shown(BOT)).toMatchObject(level);
  expect(shown({ ...nobody, kind: 'profile', profile: 'runner', agentId: null, scopes: [] })).toMatchObject(level);
  expect(shown({ ...nobody, kind: 'account' })).toMatchObject({ budgets: [{ limit: 5 }] });
});

describe('the answer to a write', () => {
  const BASE = {
    ...OUTCOME,
    reason: { code: 'rule_denied', message: 'No.' },
  } as const;
  const upstreams = (status: number, headers: Record<string, string> = {}) =>
    ({ kind: 'http', status, headers, body: Buffer.from('theirs') }) as const;
  const answerTo = (outcome: RunOutcome, context: Partial<AnswerContext> = {}) =>
    outcomeAnswer(PORTS, { kind: 'outcome', outcome }, { ...CONTEXT, ...context });
  const failed = (
    status: number,
    { retryAfterMs = null, headers = {} }: { retryAfterMs?: number | null; headers?: Record<string, string> } = {},
  ): RunOutcome => ({
    ...BASE,
    retryAfterMs,
    decision: 'failed',
    answer: upstreams(status, headers),
    result: null,
    settlement: 'done',
  });

  test('of an upstream that refused is its own, and says that libraries are not to repeat it by themselves', () => {
    const { status, headers, body, isUpstreams } = answerTo(failed(422));
    expect([status, String(body), isUpstreams]).toEqual([422, 'theirs', true]);
    expect(headers).toMatchObject({
      'svc-decision': 'failed',
      'x-should-retry': 'false',
      'stripe-should-retry': 'false',
    });
    expect(headers).not.toHaveProperty('svc-receipt');
    // What the upstream took as done is not to be repeated anyway.
    expect(answerTo(failed(299)).headers).not.toHaveProperty('x-should-retry');
    expect(answerTo(failed(300)).headers).toHaveProperty('x-should-retry', 'false');
  });

  test.each([409, 500, 503])(
    'of an upstream that did it, and says so with %d, is not repeated by libraries',
    (status) => {
      const { headers } = answerTo({
        ...BASE,
        decision: 'committed',
        receipt: { id: 'rcp_1', jws: 'e30.e30.e30' },
        answer: upstreams(status),
        result: null,
        accepted: false,
        responseTruncated: false,
        settlement: 'done',
      });
      expect(headers).toMatchObject({
        'svc-decision': 'committed',
        'x-should-retry': 'false',
        'stripe-should-retry': 'false',
      });
    },
  );

  test('has the pause that the upstream asks for once, in the upstream’s words', () => {
    const retryAfterMs = 5_000;
    expect(answerTo(failed(429, { retryAfterMs })).headers['retry-after']).toBe('5');
    const headers = { 'retry-after': 'Tue, 24 Nov 2026 00:00:07 GMT' };
    expect(answerTo(failed(429, { retryAfterMs, headers })).headers).toMatchObject(headers);
  });

  test('that is kept is given again where the route says so, and only that', () => {
    const kept = (body: Extract<KeptResult, { kind: 'http' }>['body'], replays: 'replay' | 'conflict' = 'replay') =>
      answerTo(
        {
          ...BASE,
          decision: 'duplicate_blocked',
          receipt: { id: 'rcp_1', jws: 'e30.e30.e30' },
          result: { kind: 'http', status: 201, headers: { etag: '"1"' }, body, truncated: false },
          resultExpired: false,
        },
        { onDuplicate: replays },
      );
    for (const [body, text] of [
      [{ kind: 'json', value: { a: 1 } }, '{"a":1}'],
      [{ kind: 'text', value: 'done' }, 'done'],
      [{ kind: 'base64', value: 'ZG9uZQ==' }, 'done'],
    ] as const) {
      const answer = kept(body);
      expect([answer.status, String(answer.body), answer.isUpstreams]).toEqual([201, text, true]);
      expect(answer.headers).toMatchObject({
        etag: '"1"',
        'idempotency-replayed': 'true',
        'svc-receipt': 'http://gateway/v1/workspaces/demo/effects/eff_1/receipt',
      });
      expect(answer.headers).not.toHaveProperty('x-should-retry');
      expect(kept(body, 'conflict').status).toBe(409);
    }
  });

  test('that another request got, as people approved it meanwhile, is given as the first one', () => {
    const committed: RunOutcome = {
      ...BASE,
      decision: 'committed',
      receipt: { id: 'rcp_1', jws: 'e30.e30.e30' },
      answer: null,
      result: { kind: 'http', status: 201, headers: {}, body: { kind: 'text', value: 'done' }, truncated: false },
      accepted: false,
      responseTruncated: false,
      settlement: 'done',
    };
    const { status, headers, body } = answerTo(committed, { onDuplicate: 'conflict' });
    expect([status, body]).toEqual([201, 'done']);
    expect(headers).not.toHaveProperty('idempotency-replayed');
    // Where none was kept, libraries have to take the decision for what it is.
    const style = { errorFormat: 'slack', finalStatus: null } as const;
    const none = answerTo({ ...committed, result: null }, { style });
    expect([none.status, JSON.parse(String(none.body))]).toMatchObject([200, { ok: true, decision: 'committed' }]);
  });

  test('that is the gateway’s own says so, and is not repeated by libraries where it is final', () => {
    const denied = answerTo({ ...BASE, decision: 'denied_policy', mismatches: [] });
    expect([denied.status, denied.isUpstreams]).toEqual([403, undefined]);
    expect(denied.headers).toMatchObject({ 'svc-decision': 'denied_policy', 'x-should-retry': 'false' });
    expect(denied.headers['content-type']).toBe('application/json; charset=utf-8');
    expect(denied.headers).not.toHaveProperty('svc-receipt');
    expect(JSON.parse(String(denied.body))).toMatchObject({
      decision: 'denied_policy',
      error: { type: 'denied_policy', code: 'rule_denied', message: 'No.' },
    });
    const style = { errorFormat: 'stripe', finalStatus: 422 } as const;
    const conflict: RunOutcome = { ...BASE, decision: 'idempotency_conflict' };
    expect([answerTo(conflict).status, answerTo(conflict, { style }).status]).toEqual([409, 422]);
    // What may be repeated keeps its status.
    const running: RunOutcome = { ...BASE, decision: 'in_progress', retryAfterMs: 1_000 };
    const again = answerTo(running, { style });
    expect([again.headers['x-should-retry'], again.status]).toEqual(['true', 409]);
  });
});

test('a call that waits has the status that the route says, is not repeated by libraries, and says what it waits for', () => {
  const waiting: RunOutcome = {
    decision: 'pending_approval',
    approval: { ...APPROVAL, tool: 'notes.add', target: 'notes' },
    ...OUTCOME,
    attempt: 0,
    reason: { code: 'approval_required', message: 'Adds a note.' },
  };
  const answer = (pendingStatus: number) =>
    outcomeAnswer(PORTS, { kind: 'outcome', outcome: waiting }, { ...CONTEXT, pendingStatus });
  expect([answer(202).status, answer(202).headers['x-should-retry']]).toEqual([202, undefined]);
  expect([answer(409).status, answer(409).headers['x-should-retry']]).toEqual([409, 'false']);
  expect(JSON.parse(String(answer(409).body)).error).toEqual({
    type: 'pending_approval',
    code: 'approval_required',
    message: 'Waits for approval apr_1: Adds a note.',
  });
});

test.each([
  ['too_large', 422],
  ['invalid_request', 400],
  // It may be sent again, and is to be.
  ['busy', 429],
] as const)('what is no decision has the final status of the route, where it is final: %s', (code, status) => {
  const problem = { code, detail: 'No.', errors: [], retryAfterMs: null };
  expect(problemAnswer(PORTS, problem, CONTEXT.request, { errorFormat: 'openai', finalStatus: 422 }).status).toBe(
    status,
  );
});

test('a request without an agent is told to name it where this door has it, and other faults stay where they are', () => {
  const fault = (path: string) => ({ path, message: 'is odd' });
  const answer = (...paths: string[]) => {
    const problem = { code: 'invalid_request', detail: 'No.', errors: paths.map(fault), retryAfterMs: null } as const;
    const result = outcomeAnswer(PORTS, { kind: 'problem', problem }, CONTEXT);
    expect(result.status).toBe(400);
    return JSON.parse(String(result.body));
  };
  const named = answer('/params/a', '/agent_id');
  expect(named.errors.map(({ path }: { path: string }) => path)).toEqual(['/params/a', '/headers/svc-agent-id']);
  expect(named.errors[1].message).toContain('this key belongs to no agent');
  expect(named.message).toBe('No. /params/a is odd');
  expect(answer('/params/a').errors).toEqual([fault('/params/a')]);
  expect(answer().message).toBe('No.');
});

test('while an answer is passed on, its head says which effect it is, and where its receipt will be', () => {
  const head = {
    kind: 'http',
    status: 200,
    headers: { 'content-type': 'text/event-stream', 'content-length': '5' },
  } as const;
  const effect = { id: 'eff_7', workspace: 'demo' };
  expect(passedOnHeaders(PORTS, head, effect, CONTEXT)).toEqual({
    'content-type': 'text/event-stream',
    'svc-effect-id': 'eff_7',
    'svc-receipt': 'http://gateway/v1/workspaces/demo/effects/eff_7/receipt',
  });
});

test('headers about the bytes of a body do not stand at one whose links were rewritten', async () => {
  const ofTheBytes = ['accept-ranges', 'content-digest', 'content-length', 'content-md5', 'digest', 'repr-digest'];
  const headers = {
    'content-type': 'application/json',
    ...Object.fromEntries(ofTheBytes.map((name) => [name, 'x'])),
    etag: '"1"',
  };
  const body = Buffer.from('{"url":"http://shop.test/a"}');
  const outcome = {
    decision: 'failed',
    ...OUTCOME,
    reason: { code: 'upstream_refused', message: 'No.' },
    result: null,
    answer: { kind: 'http', status: 422, headers, body },
    settlement: 'done',
  } satisfies RunOutcome;
  const ports = { ...PORTS, upstream: () => ({ url: 'http://shop.test', network: 'any', credentials: null }) as const };
  const linked = (one: RunOutcome, links: AnswerContext['links']) =>
    linkedAnswer(ports, { kind: 'outcome', outcome: one }, { ...CONTEXT, links });
  const answer = await linked(outcome, [['url']]);
  expect(String(answer.body)).toBe('{"url":"https://gateway.test/shop/a"}');
  expect(answer.headers).toHaveProperty('etag', '"1"');
  for (const name of ofTheBytes) expect(answer.headers).not.toHaveProperty(name);
  // Where the route names no links, nothing is touched.
  const untouched = await linked(outcome, []);
  expect([String(untouched.body), untouched.headers['content-md5']]).toEqual([String(body), 'x']);
  // What is refused, too, is not passed on where nobody can read its links.
  const packed = { ...outcome.answer, headers: { ...headers, 'content-encoding': 'gzip' } };
  const decision = await linked({ ...outcome, answer: packed }, [['url']]);
  expect(JSON.parse(String(decision.body))).toMatchObject({ decision: 'failed', effect_id: 'eff_1' });
});
