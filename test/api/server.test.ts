import { once } from 'node:events';
import { connect } from 'node:net';
import { PassThrough } from 'node:stream';
import { setImmediate } from 'node:timers/promises';
import { afterEach, describe, expect, it } from 'vitest';
import type { ApiApp } from '../../src/api/app.ts';
import { createServer, problemOf, type ServerOptions } from '../../src/api/server.ts';
import { ArchiveUnavailable, StoreUnavailable } from '../../src/effects/store.ts';
import { createLogger } from '../../src/telemetry/logger.ts';

const HOST = '127.0.0.1';

let app: ApiApp;
afterEach(() => app.close());

/** The server without a door, to which each test adds what it asks for. */
function serve(options: Partial<ServerOptions> = {}): ApiApp {
  app = createServer({
    logger: createLogger({ level: 'silent', sink: new PassThrough() }),
    settings: () => ({
      publicUrl: `http://${HOST}`,
      allowedHosts: [],
      queryKey: 'refuse',
      jsonLimits: { depth: 8, values: 100 },
    }),
    bodyLimit: 1_000_000,
    connections: 10,
    ...options,
  });
  return app;
}

const get = (url: string, headers: Readonly<Record<string, string>> = {}) =>
  app.inject({ url, headers: { host: HOST, ...headers } });

async function opened() {
  const { port } = new URL(await app.listen({ host: HOST, port: 0 }));
  const socket = connect(Number(port), HOST).on('error', () => undefined);
  let text = '';
  socket.on('data', (chunk: Buffer) => {
    text += chunk.toString();
  });
  return { socket, text: () => text };
}

describe('what a browser opens as a page', () => {
  const policyOf = async (url: string, dest: string) =>
    (await get(url, { 'sec-fetch-dest': dest })).headers['content-security-policy'];

  it.each(['document', 'iframe', 'frame', 'embed', 'object', 'fencedframe'])(
    'has no origin and runs nothing, by itself or in another page: %s',
    async (dest) => {
      serve().get('/answer', async () => ({}));
      app.get('/strict', async (_request, reply) => reply.header('content-security-policy', "img-src 'none'").send({}));
      app.get('/own', { config: { page: true } }, async () => ({}));
      expect(await policyOf('/answer', dest)).toBe('sandbox');
      // What the answer says itself counts beside it.
      expect(await policyOf('/strict', dest)).toBe("img-src 'none', sandbox");
      expect(await policyOf('/own', dest)).toBeUndefined();
    },
  );

  it.each(['empty', 'image', 'script'])('is another thing than what a page loads: %s', async (dest) => {
    serve().get('/answer', async () => ({}));
    expect(await policyOf('/answer', dest)).toBeUndefined();
  });
});

it('every answer that is not 2xx says whether to try again; what its handler says of that stays', async () => {
  serve().get('/as/:status', async (request, reply) => reply.code(Number(Object(request.params).status)).send({}));
  app.get('/said', async (_request, reply) => reply.code(409).header('x-should-retry', 'true').send({}));
  const said = async (url: string) => (await get(url)).headers['x-should-retry'];
  expect(await said('/as/200')).toBeUndefined();
  expect(await said('/as/299')).toBeUndefined();
  expect(await said('/as/300')).toBe('false');
  expect(await said('/as/503')).toBe('true');
  expect(await said('/said')).toBe('true');
});

it('believes no header about who asks, from where, or under which id', async () => {
  serve().get('/who', async ({ ip, protocol, hostname, id }) => ({ ip, protocol, hostname, id }));
  const claims = {
    'x-forwarded-for': '192.0.2.1',
    'x-forwarded-proto': 'https',
    'x-forwarded-host': 'evil.example',
    'x-request-id': 'mine',
    'request-id': 'mine',
  };
  const answer = await get('/who', claims);
  expect(answer.json()).toEqual({ ip: HOST, protocol: 'http', hostname: HOST, id: answer.headers['x-request-id'] });
  expect(answer.headers['x-request-id']).toMatch(/^req_/);
});

it('sees both of two headers of one name: of two keys none is passed over', async () => {
  serve().get('/key', async ({ headers }) => ({ key: headers.authorization }));
  const { socket, text } = await opened();
  const keys = 'Authorization: Bearer a\r\nAuthorization: Bearer b\r\n';
  socket.write(`GET /key HTTP/1.1\r\nHost: ${HOST}\r\n${keys}Connection: close\r\n\r\n`);
  await once(socket, 'close');
  expect(text()).toContain('{"key":"Bearer a, Bearer b"}');
});

describe('while the gateway closes', () => {
  it.each([
    ['/livez', '200'],
    ['/readyz', '200'],
    ['/metrics', '200'],
    ['/slow', '503'],
  ])('%s is answered with %s; of health nobody hears as of a call', async (path, status) => {
    let arrived = 0;
    let isAsked = (): void => undefined;
    let letGo = (): void => undefined;
    const asked = new Promise<void>((resolve) => (isAsked = resolve));
    const held = new Promise<void>((resolve) => (letGo = resolve));
    serve({ arrived: () => (arrived += 1) }).get('/slow', async () => {
      isAsked();
      await held;
      return {};
    });
    for (const probe of ['/livez', '/readyz', '/metrics']) app.get(probe, async () => ({ probe }));
    await get('/readyz');
    const { socket, text } = await opened();
    const ask = (url: string) => socket.write(`GET ${url} HTTP/1.1\r\nHost: ${HOST}\r\n\r\n`);
    ask('/slow');
    await asked;
    const closing = app.close();
    while (app.server.listening) await setImmediate();
    const second = once(app.server, 'request');
    ask(path);
    await second;
    letGo();
    await once(socket, 'close');
    await closing;
    const [, first = '', last = ''] = text().split('HTTP/1.1 ');
    expect([first.slice(0, 3), last.slice(0, 3), arrived]).toEqual(['200', status, 1]);
    expect(last).toMatch(/^connection: close\r$/im);
  });
});

describe('a body that nobody reads', () => {
  const answered = async (framing: string): Promise<string> => {
    const { socket, text } = await opened();
    // Refused at the door, before a byte of the body.
    socket.write(`POST / HTTP/1.1\r\nHost: evil.example\r\n${framing}\r\n\r\n`);
    await expect.poll(text).toContain('host_not_allowed');
    socket.destroy();
    return /^connection: (.*)\r$/im.exec(text())?.[1] ?? '';
  };
  it.each([
    ['no more than 64 KiB of it are still to come', 'Content-Length: 65536', 'keep-alive'],
    ['one byte more is still to come', 'Content-Length: 65537', 'close'],
    ['nobody knows how much is still to come', 'Transfer-Encoding: chunked', 'close'],
  ])('leaves its connection as it is, or ends it, where %s', async (_, framing, connection) => {
    serve();
    expect(await answered(framing)).toBe(connection);
  });
});

describe('what was thrown', () => {
  const thrown = (members: object) => problemOf(Object.assign(new Error('secret of 10.0.0.1'), members));

  it.each([
    ['a caller that left in mid-body', { code: 'ECONNRESET' }, 'invalid_request'],
    ['what cannot be read', { statusCode: 400 }, 'invalid_request'],
    ['the last of what is the caller’s', { statusCode: 499 }, 'invalid_request'],
    ['what is the gateway’s', { statusCode: 500 }, 'internal'],
    ['what has no status', {}, 'internal'],
    ['another media type', { code: 'FST_ERR_CTP_INVALID_MEDIA_TYPE', statusCode: 415 }, 'unsupported_media_type'],
  ])('%s', (_, members, code) => {
    serve();
    expect(thrown(members)).toMatchObject({ code, detail: expect.not.stringContaining('secret') });
  });

  it('a store that is away is asked again after a second, an archive after a minute', () => {
    serve();
    const store = problemOf(new StoreUnavailable('of /var/lib/svc'));
    expect(store).toMatchObject({ code: 'store_unavailable', retryAfterMs: 1_000 });
    expect(store.detail).not.toContain('/var/lib');
    const archive = problemOf(new ArchiveUnavailable('The segment 2026-11 is not there.'));
    const detail = 'The segment 2026-11 is not there.';
    expect(archive).toMatchObject({ code: 'store_unavailable', retryAfterMs: 60_000, detail });
  });
});
