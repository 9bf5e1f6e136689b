import { once } from 'node:events';
import { connect } from 'node:net';
import { PassThrough } from 'node:stream';
import { setImmediate } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { ownerOf } from '../../src/api/caller.ts';
import { createInvalidKeyLimiter, INVALID_KEY_LIMIT } from '../../src/api/invalid-key-limiter.ts';
import { Refused } from '../../src/api/problem.ts';
import { createServer } from '../../src/api/server.ts';
import { ArchiveUnavailable } from '../../src/effects/store.ts';
import { createLogger } from '../../src/telemetry/logger.ts';
import { type Rig, refund, startRig } from './rig.ts';

const EFFECTS = '/v1/workspaces/demo/effects';

let rig: Rig;
beforeAll(async () => {
  rig = await startRig();
});
afterAll(() => rig.close());

/** A run request as text, with something put into it. */
const call = (member: string): string =>
  `{"tool":"payments.refund","agent_id":"bot","idempotency_key":"hostile","params":{"payment_id":"pay_1","amount":1,"currency":"EUR"}${member}}`;

describe('bodies', () => {
  it.each([
    ['a name twice', call(',"tool":"payments.refund"')],
    ['names equal but for case', call(',"Tool":"payments.refund"')],
    ['__proto__', call(',"__proto__":{"x":1}')],
    ['an integer beyond 2^53', call(',"metadata":{"n":9007199254740993}')],
    ['a number that is not finite', call(',"metadata":{"n":1e400}')],
    ['a lone surrogate', call(',"metadata":{"s":"\\ud800"}')],
    ['nesting beyond 64', call(`,"metadata":${'{"a":'.repeat(70)}1${'}'.repeat(70)}`)],
    ['a comma too many', call(',')],
    ['two values', `${call('')}{}`],
    ['a byte order mark', `\ufeff${call('')}`],
    ['NaN', call(',"metadata":NaN')],
    ['a comment', call('/* */')],
    ['single quotes', "{'tool':1}"],
  ])('refuses %s', async (_what, raw) => {
    const answer = await rig.send('POST', EFFECTS, { raw });
    expect(answer.status).toBe(400);
    expect(answer.json).toMatchObject({ code: 'invalid_json', did_it_happen: 'no', safe_to_retry: true });
  });

  it('refuses bytes that are not UTF-8', async () => {
    const answer = await rig.send('POST', EFFECTS, { raw: Buffer.from([0x7b, 0x22, 0xff, 0x22, 0x3a, 0x31, 0x7d]) });
    expect(answer.json['code']).toBe('invalid_json');
  });

  it.each([
    [415, 'unsupported_media_type', { 'content-type': 'text/plain' }],
    [415, 'unsupported_media_type', { 'content-type': 'application/x-www-form-urlencoded' }],
    [415, 'unsupported_media_type', { 'content-encoding': 'gzip' }],
    [400, 'invalid_request', { 'content-type': 'application/json; charset=latin1' }],
  ])('%i %s for %o', async (status, code, headers) => {
    const answer = await rig.send('POST', EFFECTS, { raw: call(''), headers });
    expect([answer.status, answer.json['code']]).toEqual([status, code]);
  });

  it('takes charset=utf-8 in any spelling', async () => {
    for (const charset of ['utf-8', 'UTF-8', '"utf-8"']) {
      const answer = await rig.send('POST', EFFECTS, {
        body: refund(),
        headers: { 'content-type': `application/json; charset=${charset}` },
      });
      expect(answer.status).toBe(200);
    }
  });

  it.each([
    ['an array', []],
    ['a string', 'tool'],
    ['null', null],
    ['a number', 7],
  ])('refuses %s where an object is wanted', async (_what, body) => {
    const answer = await rig.send('POST', EFFECTS, { body });
    expect([answer.status, answer.json['code']]).toEqual([400, 'invalid_request']);
  });

  it('names what is missing where nothing was sent', async () => {
    const answer = await rig.send('POST', EFFECTS);
    const errors = answer.json['errors'] as unknown as { path: string }[];
    expect(errors.map(({ path }) => path).toSorted()).toEqual(['/idempotency_key', '/tool']);
  });

  it('refuses a body over the limit', async () => {
    const answer = await rig.send('POST', EFFECTS, { body: refund({ metadata: { pad: 'x'.repeat(300_000) } }) });
    expect([answer.status, answer.json['code']]).toEqual([413, 'too_large']);
  });

  it('coerces nothing', async () => {
    for (const change of [{ metadata: '{}' }, { tool: 5 }, { params: 'x' }, { agent_id: true }])
      expect((await rig.send('POST', EFFECTS, { body: refund(change) })).status).toBe(400);
  });

  it('has run none of it', async () => {
    const { json } = await rig.send('GET', `${EFFECTS}?limit=200`);
    const keys = (json['effects'] as unknown as { idempotency_key: string }[]).map((effect) => effect.idempotency_key);
    expect(keys).not.toContain('hostile');
  });
});

describe('keys', () => {
  it.each([
    ['none', null, {}, 'missing_key'],
    ['an empty one', '', {}, 'missing_key'],
    ['a malformed one', 'svc_acct_nonsense', {}, 'invalid_key'],
    ['another scheme', null, { authorization: 'Basic YTpi' }, 'missing_key'],
  ])('401 for %s', async (_what, key, headers, code) => {
    const answer = await rig.send('GET', EFFECTS, { key, headers });
    expect([answer.status, answer.json['code']]).toEqual([401, code]);
    expect(answer.headers['www-authenticate']).toBeDefined();
  });

  it('401 says the same of every key that lets nobody in, so that nobody learns what is wrong with one', async () => {
    const reasons = ['malformed', 'unknown', 'wrong_secret', 'expired', 'revoked', 'user_removed'] as const;
    const answers = await Promise.all(
      reasons.map((why) =>
        ownerOf(
          { authenticate: () => ({ failure: 'invalid_key', why }) },
          createInvalidKeyLimiter(() => 0),
          { kind: 'key', key: rig.keys.account },
          '192.0.2.1',
        ).catch((error: unknown) => error instanceof Refused && [error.problem, error.members]),
      ),
    );
    expect(answers[0]).toMatchObject([{ code: 'invalid_key' }, {}]);
    for (const answer of answers) expect(answer).toEqual(answers[0]);
  });

  it('401 for two keys that differ, and not for one sent twice', async () => {
    const { account, agent } = rig.keys;
    const two = await rig.send('GET', EFFECTS, { key: account, headers: { authorization: `Bearer ${agent}` } });
    expect([two.status, two.json['code']]).toEqual([401, 'invalid_key']);
    const same = await rig.send('GET', EFFECTS, { key: account, headers: { authorization: `Bearer ${account}` } });
    expect(same.status).toBe(200);
    const query = await rig.send('GET', `${EFFECTS}?api_key=${agent}`, { key: account });
    expect(query.status).toBe(401);
  });

  it('count two keys in one request among the invalid ones of an address, so that nobody guesses in pairs', async () => {
    const limiter = createInvalidKeyLimiter(() => 0);
    const two = { kind: 'invalid', detail: 'Two keys.' } as const;
    const code = async (): Promise<string | null> =>
      ownerOf(rig.ports, limiter, two, '10.0.0.9').then(
        () => null,
        (error: unknown) => (error instanceof Refused ? error.problem.code : null),
      );
    const codes = new Set<string | null>();
    for (let sent = 0; sent < INVALID_KEY_LIMIT.burst; sent += 1) codes.add(await code());
    expect([[...codes], await code()]).toEqual([['invalid_key'], 'too_many_requests']);
  });

  it('400 for a name that stands twice in a query: which of them would count is not guessed', async () => {
    const answer = await rig.send('GET', `${EFFECTS}?limit=1&limit=2`);
    expect([answer.status, answer.json['code']]).toEqual([400, 'invalid_request']);
    expect(answer.json['errors']).toEqual([{ path: '/query/limit', message: 'stands more than once' }]);
  });

  it('401 on a run leaves open whether it happened: an earlier one with the same idempotency key may have', async () => {
    const run = await rig.send('POST', EFFECTS, { key: rig.keys.revoked, body: refund() });
    expect(run.status).toBe(401);
    expect(run.json).toMatchObject({ did_it_happen: 'maybe', safe_to_retry: true });
    const read = await rig.send('GET', EFFECTS, { key: rig.keys.revoked });
    expect(read.status).toBe(401);
    expect(read.json).toMatchObject({ did_it_happen: 'no', safe_to_retry: true });
  });

  it('takes a bearer token, and a key in the query with a word of warning', async () => {
    const bearer = await rig.send('GET', EFFECTS, {
      key: null,
      headers: { authorization: `Bearer ${rig.keys.agent}` },
    });
    expect(bearer.status).toBe(200);
    expect(bearer.headers['deprecation']).toBeUndefined();
    const query = await rig.send('GET', `${EFFECTS}?api_key=${rig.keys.agent}&limit=5`, { key: null });
    expect(query.status).toBe(200);
    expect(query.headers['deprecation']).toMatch(/^@\d+$/);
    expect(query.headers['link']).toMatch(/\/docs\/errors\/missing_key>; rel="deprecation"$/);
  });

  it('says 401 before 403 before 400', async () => {
    const body = { tool: 5 };
    expect((await rig.send('POST', `${EFFECTS}/preview`, { key: null, body })).status).toBe(401);
    expect((await rig.send('POST', `${EFFECTS}/preview`, { key: rig.keys.readonly, body })).status).toBe(403);
    expect((await rig.send('POST', `${EFFECTS}/preview`, { body })).status).toBe(400);
    expect((await rig.send('GET', `${EFFECTS}?bad=1`, { key: rig.keys.admin })).status).toBe(403);
  });

  it('never logs a key, in whatever carrier it came', async () => {
    await rig.send('GET', `${EFFECTS}?api_key=${rig.keys.agent}&bad=1`, { key: null });
    await rig.send('GET', '/nowhere', { headers: { authorization: `Bearer ${rig.keys.account}` } });
    const logs = rig.logs();
    expect(logs).toContain('"path":"/v1/workspaces/demo/effects"');
    for (const key of Object.values(rig.keys)) expect(logs).not.toContain(key);
    expect(logs).not.toContain('api_key=');
  });
});

describe('hosts and origins', () => {
  it.each(['127.0.0.1', '127.0.0.1:1', 'localhost:8080', '[::1]:8080', 'LOCALHOST'])('takes %s', async (host) => {
    expect((await rig.send('GET', '/livez', { key: null, headers: { host } })).status).toBe(200);
  });

  it.each(['evil.example', 'localhost.evil.example', '127.0.0.1.evil.example', 'localhost@evil.example', 'a b'])(
    'refuses the host "%s"',
    async (host) => {
      const answer = await rig.send('GET', '/livez', { key: null, headers: { host } });
      expect([answer.status, answer.json['code']]).toEqual([403, 'host_not_allowed']);
    },
  );

  it.each(['https://evil.example', 'null', 'http://localhost.evil.example', 'file://localhost'])(
    'refuses the origin %s',
    async (origin) => {
      const answer = await rig.send('GET', EFFECTS, { headers: { origin } });
      expect([answer.status, answer.json['code']]).toEqual([403, 'origin_not_allowed']);
    },
  );

  it('takes its own origin', async () => {
    expect((await rig.send('GET', EFFECTS, { headers: { origin: 'http://127.0.0.1:8080' } })).status).toBe(200);
  });
});

it('a request has 60 s to arrive, its headers 10 s; a connection is idle for 72 s at most', () => {
  const { requestTimeout, headersTimeout, keepAliveTimeout } = rig.app.server;
  expect({ requestTimeout, headersTimeout, keepAliveTimeout }).toEqual({
    requestTimeout: 60_000,
    headersTimeout: 10_000,
    keepAliveTimeout: 72_000,
  });
  // Node ends what is late only when it looks for it, every 30 s unless it is told otherwise.
  expect(Reflect.get(rig.app.server, 'connectionsCheckingInterval')).toBeLessThanOrEqual(headersTimeout / 2);
});

describe('x-should-retry', () => {
  it.each([
    ['GET', '/nowhere', 404, 'not_found'],
    ['PUT', EFFECTS, 405, 'method_not_allowed'],
    ['PUT', `${EFFECTS}?limit=1`, 405, 'method_not_allowed'],
    ['DELETE', '/state/verify', 405, 'method_not_allowed'],
    ['GET', '/v1/workspaces/demo/effects/', 404, 'not_found'],
    ['GET', '/v1/workspaces/nowhere/effects', 403, 'wrong_workspace'],
    ['GET', '/v1/workspaces/%zz/effects', 400, 'invalid_request'],
    ['GET', `/v1/workspaces/${'x'.repeat(600)}/effects`, 400, 'invalid_request'],
    ['GET', '/docs/errors/nothing', 404, 'not_found'],
    ['POST', EFFECTS, 400, 'invalid_request'],
  ] as const)('%s %s', async (method, path, status, code) => {
    const answer = await rig.send(method, path);
    expect([answer.status, answer.json['code']]).toEqual([status, code]);
    expect(answer.headers['x-should-retry']).toBe('false');
    expect(answer.headers['content-type']).toContain('application/problem+json');
    expect(answer.json).toMatchObject({
      status,
      type: `http://127.0.0.1:8080/docs/errors/${code}`,
      request_id: answer.headers['x-request-id'],
      did_it_happen: 'no',
    });
  });

  it('names the methods that a path takes', async () => {
    expect((await rig.send('PUT', EFFECTS)).headers['allow']).toBe('GET, HEAD, POST');
  });

  it('is on what Node itself cannot read', async () => {
    await rig.app.listen({ host: '127.0.0.1', port: 0 });
    const address = rig.app.server.address();
    if (typeof address !== 'object' || address === null) throw new Error('no address');
    for (const [request, detail] of [
      ['GET / HTTP/9.9\r\n\r\n', 'RFC 9112'],
      ['NONSENSE\r\n\r\n', 'RFC 9112'],
      ['GET /livez HTTP/1.1\r\nhost: localhost\r\nexpect: miracles\r\nconnection: close\r\n\r\n', 'Expect'],
      ['CONNECT a.example:443 HTTP/1.1\r\nhost: localhost\r\n\r\n', 'no CONNECT'],
      [`GET / HTTP/1.1\r\nx: ${'y'.repeat(70_000)}\r\n\r\n`, 'too large'],
    ] as const) {
      const socket = connect(address.port, '127.0.0.1');
      socket.end(request);
      let text = '';
      socket.on('data', (chunk: Buffer) => {
        text += chunk.toString();
      });
      await once(socket, 'close');
      expect(text).toMatch(/^HTTP\/1\.1 (4\d\d|501) /);
      expect(text).toContain('x-should-retry: false');
      expect(text).toContain(detail);
    }
  });
});

it.each([
  ['no Host', 'GET /livez HTTP/1.1', 400, 'The request has no Host header.'],
  ['no Host, as HTTP/1.0 allows', 'GET /livez HTTP/1.0', 400, 'The request has no Host header.'],
  ['two Hosts', 'GET /livez HTTP/1.1\r\nHost: localhost\r\nHost: localhost', 400, 'more than one Host'],
  [
    'another host in the target',
    'GET http://evil.example/livez HTTP/1.1\r\nHost: localhost',
    403,
    'does not name this gateway',
  ],
  ['an empty Host', 'GET /livez HTTP/1.1\r\nHost:', 403, 'does not name this gateway'],
])('a request with %s is refused like any other', async (_name, head, status, detail) => {
  const door = await startRig();
  await door.app.listen({ host: '127.0.0.1', port: 0 });
  const address = door.app.server.address();
  if (typeof address !== 'object' || address === null) throw new Error('no address');
  const socket = connect(address.port, '127.0.0.1');
  socket.end(`${head}\r\nConnection: close\r\n\r\n`);
  let text = '';
  socket.on('data', (chunk: Buffer) => {
    text += chunk.toString();
  });
  await once(socket, 'close');
  const [top = '', body = ''] = text.split('\r\n\r\n');
  expect(top).toMatch(new RegExp(`^HTTP/1\\.1 ${status} `));
  expect(top).toContain('application/problem+json');
  expect(top).toContain('x-should-retry: false');
  expect(JSON.parse(body)).toMatchObject({ status, did_it_happen: 'no', detail: expect.stringContaining(detail) });
  await door.close();
});

describe('what goes wrong inside', () => {
  it('a store that is gone is a 503 that may be tried again, and tells nothing else', async () => {
    const broken = await startRig();
    // Whoever is known already gets as far as the core.
    expect((await broken.send('GET', EFFECTS)).status).toBe(200);
    await broken.ports.store.close();
    const run = await broken.send('POST', EFFECTS, { body: refund() });
    expect([run.status, run.json['code'], run.headers['x-should-retry']]).toEqual([503, 'store_unavailable', 'true']);
    expect(run.json).toMatchObject({ did_it_happen: 'maybe', safe_to_retry: true, next: 'retry' });
    const earlier = 'An earlier request for the same action may have run.';
    expect(run.json).toHaveProperty('detail', expect.stringContaining(earlier));
    expect(Number(run.headers['retry-after'])).toBeGreaterThan(0);
    // An earlier run of a write may have happened. A read changes nothing, whatever became of it.
    const body = { tool: 'payments.get', params: { payment_id: 'pay_1' }, idempotency_key: 'read-1', agent_id: 'bot' };
    const read = await broken.send('POST', EFFECTS, { body });
    expect([read.status, read.json['code']]).toEqual([503, 'store_unavailable']);
    expect(read.json).toMatchObject({ did_it_happen: 'no', safe_to_retry: true, next: 'retry' });
    expect(read.json).toHaveProperty('detail', expect.not.stringContaining(earlier));
    const preview = await broken.send('POST', `${EFFECTS}/preview`, { body: refund() });
    expect([preview.status, preview.json['code']]).toEqual([503, 'store_unavailable']);
    expect(preview.headers['retry-after']).toBe('1');
    // What is no run says as well when to come back.
    const list = await broken.send('GET', '/v1/workspaces/demo/claims');
    expect([list.status, list.json['code'], list.headers['retry-after']]).toEqual([503, 'store_unavailable', '1']);
    await broken.close();
  });

  it('where the archive is, people hear, and agents only that the store is away', async () => {
    const broken = await startRig();
    const message = 'The segment s3://inner/2026-11 cannot be read.';
    Object.assign(broken.ports.store, {
      effects: () => {
        throw new ArchiveUnavailable(message);
      },
    });
    const [account, agent] = await Promise.all(
      [broken.keys.account, broken.keys.agent].map((key) => broken.send('GET', EFFECTS, { key })),
    );
    expect(account).toMatchObject({ status: 503, json: { code: 'store_unavailable', detail: message } });
    const detail = 'The store cannot be reached; nothing was sent.';
    expect(agent).toMatchObject({ status: 503, json: { code: 'store_unavailable', detail } });
    await broken.close();
  });

  it('an exception shows neither stack nor message', async () => {
    const broken = await startRig();
    Object.assign(broken.ports.store, {
      claims: () => {
        throw new Error('secret detail of http://10.0.0.1/');
      },
    });
    const answer = await broken.send('GET', '/v1/workspaces/demo/claims');
    expect([answer.status, answer.json['code']]).toEqual([500, 'internal']);
    expect(answer.text).not.toContain('secret detail');
    expect(answer.text).not.toContain('at ');
    expect(broken.logs()).toContain('secret detail');
    // It is the one request that failed, and not the server.
    expect((await broken.send('GET', '/v1/workspaces/demo/reservations')).status).toBe(200);
    await broken.close();
  });
});

it('counts requests by their route, and names nothing of a path that leads nowhere', async () => {
  const counted: string[] = [];
  const app = createServer({
    logger: createLogger({ level: 'error', sink: new PassThrough() }),
    settings: rig.ports.settings,
    bodyLimit: 1024,
    connections: 10,
    isStopping: () => false,
    answered: (route, method, status) => counted.push(`${method} ${route} ${status}`),
  });
  app.get('/there/:id', async () => ({}));
  for (const url of ['/there/pay_1', '/nowhere/pay_1?agent=bot'])
    await app.inject({ url, headers: { host: '127.0.0.1' } });
  expect(counted).toEqual(['GET /there/:id 200', 'GET  404']);
  await app.close();
});

describe('shutting down', () => {
  it('ends the connection with each answer, whatever it is, so that nobody sends the next call on it', async () => {
    let isStopping = false;
    const app = createServer({
      logger: createLogger({ level: 'error', sink: new PassThrough() }),
      settings: rig.ports.settings,
      bodyLimit: 1024,
      connections: 10,
      isStopping: () => isStopping,
    });
    app.get('/there', async () => ({}));
    const connections = async () =>
      Promise.all(
        ['/there', '/nowhere'].map(async (url) => {
          const { headers } = await app.inject({ url, headers: { host: '127.0.0.1' } });
          return headers['connection'];
        }),
      );
    expect(await connections()).not.toContain('close');
    isStopping = true;
    expect(await connections()).toEqual(['close', 'close']);
    await app.close();
  });

  it('answers in full while it shuts down', async () => {
    const own = await startRig();
    const { server } = own.app;
    const { port } = new URL(await own.app.listen({ host: '127.0.0.1', port: 0 }));
    const { store } = own.ports;
    const claims = store.claims.bind(store);
    let release = (): void => undefined;
    const entered = new Promise<void>((enter) => {
      const released = new Promise<void>((resolve) => {
        release = resolve;
      });
      Object.assign(store, {
        claims: async (workspace: string) => {
          enter();
          await released;
          return claims(workspace);
        },
      });
    });
    const request = `GET /v1/workspaces/demo/claims HTTP/1.1\r\nhost: 127.0.0.1\r\nx-api-key: ${own.keys.account}\r\n\r\n`;
    const socket = connect(Number(port), '127.0.0.1');
    let text = '';
    socket.on('data', (chunk: Buffer) => {
      text += chunk.toString();
    });
    socket.write(request);
    await entered;
    const closing = own.app.close();
    while (server.listening) await setImmediate();
    const second = once(server, 'request');
    socket.write(request);
    await second;
    release();
    await once(socket, 'close');
    await closing;
    const [, first = '', last = ''] = text.split('HTTP/1.1 ');
    expect(first).toMatch(/^200 /);
    expect(last).toMatch(/^503 /);
    expect(last).toContain('x-should-retry: true');
    expect(last).toContain('"code":"not_ready"');
    await own.close();
  });
});

describe('invalid keys', () => {
  it('are shed by address, while keys that were valid go on', async () => {
    const own = await startRig();
    expect((await own.send('GET', EFFECTS)).status).toBe(200);
    let shed: Awaited<ReturnType<Rig['send']>> | null = null;
    for (let count = 0; count < 2000 && shed === null; count += 1) {
      const answer = await own.send('GET', EFFECTS, { key: 'svc_acct_guess' });
      if (answer.status !== 401) shed = answer;
    }
    expect(shed?.status).toBe(429);
    expect(shed?.json['code']).toBe('too_many_requests');
    expect(shed?.headers['x-should-retry']).toBe('true');
    expect(Number(shed?.headers['retry-after'])).toBeGreaterThan(0);
    expect((await own.send('GET', EFFECTS)).status).toBe(200);
    await own.close();
  });
});
