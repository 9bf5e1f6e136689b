import { once } from 'node:events';
import { get, IncomingMessage, ServerResponse } from 'node:http';
import { type AddressInfo, createServer, Socket } from 'node:net';
import Fastify from 'fastify';
import { afterEach, expect, test } from 'vitest';
import { type PassingDoor, passInPlace, type ReadCaller } from '../../src/proxy/streaming.ts';
import type { StreamedRead } from '../../src/proxy/streamed-read.ts';
import { createStream } from '../../src/upstreams/http/http-upstreams.ts';
import { makeCa } from '../upstream/certificates.ts';
import { startTlsUpstream } from '../upstream/tls-start.ts';
import type { UpstreamTls } from '../../src/effects/upstream.ts';

const closed: (() => Promise<unknown>)[] = [];
afterEach(async () => {
  await Promise.all(closed.splice(0).map((close) => close()));
});

const PASSED: StreamedRead['passed'] = {
  workspace: 'demo',
  agentId: 'bot',
  keyId: 'key',
  tool: 'get',
  upstream: 'x',
  rule: null,
  policyVersion: '',
  observed: null,
};

function readOf(upstreamUrl: string, pathAndQuery: string): StreamedRead {
  return {
    upstreamId: 'x',
    upstreamUrl,
    pathAndQuery,
    headers: {},
    body: null,
    timeoutMs: null,
    prefix: '/x',
    setCookie: false,
    origin: () => 'http://gateway',
    foreignLinks: 'hide',
    links: [],
    style: { errorFormat: 'problem', finalStatus: null },
    passed: PASSED,
    live: { key: '', address: '', mayStay: () => true },
  };
}

/** Passes reads on to a server that answers by hand. */
async function startPassing(
  answer: (socket: Socket, request: string) => void,
  {
    links = [],
    at = null,
    observed = null,
    style = { errorFormat: 'problem', finalStatus: null },
  }: Partial<Pick<StreamedRead, 'links' | 'style'>> & {
    at?: { url: string; tls: UpstreamTls } | null;
    observed?: StreamedRead['passed']['observed'];
  } = {},
) {
  const sockets = new Set<Socket>();
  const upstream = createServer((socket) => {
    sockets.add(socket);
    socket.setEncoding('latin1').on('error', () => {});
    socket.on('data', (text: string) => answer(socket, text));
  }).listen(0, '127.0.0.1');
  await once(upstream, 'listening');
  const url = at?.url ?? `http://127.0.0.1:${(upstream.address() as AddressInfo).port}`;
  const pool = createStream({ url, connections: 1, network: 'any', timeoutMs: 20_000, tls: at?.tls ?? null });
  const logged: string[] = [];
  const app = Fastify({ logger: { level: 'warn', stream: { write: (line: string) => void logged.push(line) } } });
  const recorded: (number | null)[] = [];
  const arrived: string[] = [];
  const heard: (string | null)[] = [];
  app.get('/*', (request, reply) => {
    arrived.push(request.url);
    const read: StreamedRead = { ...readOf(url, request.url), links, style, passed: { ...PASSED, observed } };
    const ports: PassingDoor['ports'] = {
      place: () => () => {},
      renderProblem: () => ({ status: 429, headers: {}, body: {} }),
      stream: () => pool,
      heard: (_upstream: string, code: string | null) => void heard.push(code),
      settings: () => ({ publicUrl: 'http://gateway' }),
    };
    const warn = (err: Error): void => app.log.warn({ err }, 'a read was not answered as a whole');
    const caller = {
      request: { id: 'req_1', method: 'GET', keyed: false },
      response: reply.raw,
      head({ status, headers }: Parameters<ReadCaller['head']>[0]) {
        reply.raw.writeHead(status, headers);
        reply.hijack();
      },
      send: ({ status, headers, body }: Parameters<ReadCaller['send']>[0]) =>
        void reply.code(status).headers(headers).send(body),
      stands: () => false,
    };
    const reads: PassingDoor['reads'] = { record: (_read, status) => void recorded.push(status) };
    void passInPlace({ ports, reads, live: { add: () => {}, remove: () => {} }, warn }, caller, read);
  });
  await app.listen({ host: '127.0.0.1', port: 0 });
  closed.push(async () => {
    for (const socket of sockets) socket.destroy();
    upstream.close();
    app.server.closeAllConnections();
    await app.close();
    await pool.destroy();
  });
  return { url: `http://127.0.0.1:${(app.server.address() as AddressInfo).port}`, recorded, arrived, heard, logged };
}

test('a read whose caller has left already takes no place, and nobody holds it', () => {
  const response = new ServerResponse(new IncomingMessage(new Socket()));
  response.destroy();
  const asked: string[] = [];
  const note = (what: string) => (): never => {
    asked.push(what);
    throw new Error(what);
  };
  const ports = {
    place: note('place'),
    stream: note('stream'),
    heard: note('heard'),
    renderProblem: note('problem'),
    settings: () => ({ publicUrl: 'http://gateway' }),
  };
  const door = {
    ports,
    reads: { record: note('record') },
    live: { add: note('live'), remove: () => {} },
    warn: note('warn'),
  };
  const request = { id: 'req_1', method: 'GET', keyed: false };
  const caller = { request, response, head: note('head'), send: note('send'), stands: () => false };
  expect(passInPlace(door, caller, readOf('http://127.0.0.1:1', '/'))).toBeNull();
  expect(asked).toEqual([]);
});

test('a stream of events begins before its first event', async () => {
  const { url } = await startPassing((socket) =>
    socket.write('HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n'),
  );
  const answer = await fetch(url);
  expect([answer.status, answer.headers.get('svc-decision')]).toEqual([200, 'committed']);
  await answer.body?.cancel();
});

test('an upstream that breaks off is answered for before its first byte, and cut after it', async () => {
  const { url, recorded, heard, logged } = await startPassing((socket, request) => {
    socket.end(
      `HTTP/1.1 200 OK\r\nx-secret: a\r\ncontent-length: 9\r\n\r\n${request.includes('/after') ? 'some' : ''}`,
    );
  });
  const before = await fetch(`${url}/before`);
  expect([before.status, before.headers.get('x-secret'), before.headers.get('svc-decision')]).toEqual([
    502,
    null,
    'failed',
  ]);
  expect(await before.json()).toMatchObject({ decision: 'failed', did_it_happen: 'no', safe_to_retry: true });
  const after = await fetch(`${url}/after`);
  expect(after.status).toBe(200);
  await expect(after.text()).rejects.toThrow('terminated');
  expect(recorded).toEqual([200, 200]);
  expect(logged.map((line) => JSON.parse(line).msg)).toEqual(Array(2).fill('a read was not answered as a whole'));
  // It has answered, however badly.
  expect(heard).toEqual([null, null]);
});

test('a status that is none is not passed on', async () => {
  const { url, recorded } = await startPassing((socket) =>
    socket.write('HTTP/1.1 777 Odd\r\ncontent-length: 2\r\n\r\nok'),
  );
  const answer = await fetch(url);
  expect([answer.status, recorded]).toEqual([502, [null]]);
});

test('announcements before an answer are not taken for it', async () => {
  const { url, recorded } = await startPassing((socket) =>
    socket.write('HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok'),
  );
  const answer = await fetch(url);
  expect([answer.status, await answer.text(), recorded]).toEqual([200, 'ok', [200]]);
});

test('an upstream that only announces is given up after 32 times', async () => {
  const { url, recorded } = await startPassing((socket, request) => {
    const times = Number(/\/(\d+)/.exec(request)?.[1]);
    socket.write(`${'HTTP/1.1 103 Early Hints\r\n\r\n'.repeat(times)}HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok`);
  });
  const statuses: number[] = [];
  for (const times of [32, 33]) {
    const answer = await fetch(`${url}/${times}`);
    statuses.push(answer.status);
    await answer.text();
  }
  expect([statuses, recorded]).toEqual([
    [200, 502],
    [200, null],
  ]);
});

test('a read that policy would have stopped says so, also where it was not answered', async () => {
  const { url } = await startPassing(
    (socket, request) =>
      request.includes('/gone') ? socket.destroy() : socket.write('HTTP/1.1 404 Gone\r\ncontent-length: 0\r\n\r\n'),
    { observed: { would: 'denied_policy', rule: 'p/r', example: 'GET /here' } },
  );
  const said = async (path: string) => {
    const { status, headers } = await fetch(`${url}${path}`);
    return [status, headers.get('svc-decision'), headers.get('svc-observed')];
  };
  expect(await said('/here')).toEqual([404, 'failed', 'denied_policy']);
  expect(await said('/gone')).toEqual([502, 'failed', 'denied_policy']);
});

test.each([
  ['problem', 502],
  // A library that repeats by the status alone is to repeat a read.
  ['github', 502],
  ['slack', 200],
] as const)('a read that was not answered may be repeated, in the words of %s', async (errorFormat, status) => {
  const { url } = await startPassing((socket) => socket.destroy(), { style: { errorFormat, finalStatus: 422 } });
  const answer = await fetch(url);
  expect([answer.status, answer.headers.get('x-should-retry'), answer.headers.get('stripe-should-retry')]).toEqual([
    status,
    'true',
    'true',
  ]);
  const docs = 'http://gateway/docs/errors/upstream_refused';
  const body = await answer.json();
  expect(body).toMatchObject({ did_it_happen: 'no', safe_to_retry: true, next: 'retry', links: { docs } });
  // Whose read it was, and nothing of the key.
  expect(body).toMatchObject({ tool: 'get', agent_id: 'bot', reason: { code: 'upstream_refused' } });
  expect(body).toMatchObject({ message: expect.any(String), ...(errorFormat === 'slack' ? { ok: false } : {}) });
});

test('an answer without a body has none, whatever length it names, also where links are looked for', async () => {
  const { url } = await startPassing(
    (socket) =>
      socket.write('HTTP/1.1 304 Not Modified\r\ncontent-type: application/json\r\ncontent-length: 9\r\n\r\n'),
    { links: [['url']] },
  );
  const answer = await fetch(url);
  expect([answer.status, answer.headers.get('content-length'), await answer.text()]).toEqual([304, '9', '']);
});

test('the upstream is read no faster than the caller takes', async () => {
  const MB = 1_048_576;
  let sent = 0;
  const { url } = await startPassing((socket) => {
    socket.write(`HTTP/1.1 200 OK\r\ncontent-length: ${100 * MB}\r\n\r\n`);
    const more = (): void => {
      while (sent < 100) {
        sent += 1;
        if (!socket.write(Buffer.alloc(MB, 'x'))) {
          socket.once('drain', more);
          return;
        }
      }
    };
    more();
  });
  const sending = get(url);
  const [answer] = (await once(sending, 'response')) as [IncomingMessage];
  // What the system keeps between three sockets is filled until nothing moves any more.
  let before = -1;
  while (sent !== before) {
    before = sent;
    await new Promise((resolve) => setTimeout(resolve, 250));
  }
  expect(sent).toBeLessThan(50);
  let got = 0;
  for await (const piece of answer) got += (piece as Buffer).byteLength;
  expect(got).toBe(100 * MB);
});

test('a read whose caller leaves while it waits for a connection is not sent', async () => {
  const seen: string[] = [];
  let first: Socket | null = null;
  const { url, recorded, arrived } = await startPassing((socket, request) => {
    seen.push(request.split(' ')[1] ?? '');
    if (request.includes('/first')) first = socket;
    else socket.write('HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n');
  });
  const held = fetch(`${url}/first`);
  await expect.poll(() => seen).toEqual(['/first']);
  const left = get(`${url}/left`).on('error', () => {});
  await expect.poll(() => arrived).toContain('/left');
  left.destroy();
  await expect.poll(() => recorded).toEqual([null]);
  (first as Socket | null)?.write('HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n');
  expect((await held).status).toBe(200);
  expect((await fetch(`${url}/third`)).status).toBe(200);
  expect(seen).toEqual(['/first', '/third']);
});

test('an upstream is not heard to its end where its caller has left', async () => {
  let ended = false;
  const { url } = await startPassing((socket) => {
    socket.once('close', () => {
      ended = true;
    });
    socket.write('HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nsome');
  });
  const sending = get(url).on('error', () => {});
  const [answer] = (await once(sending, 'response')) as [IncomingMessage];
  answer.on('error', () => {});
  sending.destroy();
  // Sooner than the upstream's own time-out would end it.
  await expect.poll(() => ended, { timeout: 15_000 }).toBe(true);
});

const LINKED = '{"url":"/a/b","n":1}';

test.each([
  [200, 'identity'],
  [404, 'Identity'],
])('links in a body (%i) are the gateway’s, and nothing is said of the bytes that came', async (status, coding) => {
  const { url } = await startPassing(
    (socket) =>
      socket.write(
        `HTTP/1.1 ${status} So\r\ncontent-type: application/json\r\ncontent-encoding: ${coding}\r\ncontent-length: ${LINKED.length}\r\ncontent-digest: sha-256=:a:\r\n\r\n${LINKED}`,
      ),
    { links: [['url']] },
  );
  const answer = await fetch(url);
  expect(answer.headers.get('content-digest')).toBeNull();
  expect(await answer.json()).toEqual({ url: '/x/a/b', n: 1 });
});

// docs/upstreams/rest.md: "What cannot be followed is not passed on: an answer that is compressed all the same, that is
// no JSON, is nested more than 1,000 deep, or holds an address of more than 16 KiB."
test.each([
  ['compressed', 'content-encoding: br\r\n', 'abcd'],
  ['no JSON', '', '{"url":"/a",}'],
  ['nested too deep', '', `${'['.repeat(1_001)}${']'.repeat(1_001)}`],
  ['an address that is too long', '', `{"url":"/${'a'.repeat(16_385)}"}`],
])('a body whose links nobody can read is not passed on: %s', async (_, headers, body) => {
  const { url } = await startPassing(
    (socket) =>
      socket.write(
        `HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n${headers}content-length: ${body.length}\r\n\r\n${body}`,
      ),
    { links: [['url']] },
  );
  const answer = await fetch(url).then(async (sent) => [sent.status, await sent.text()] as const, String);
  expect(String(answer)).toMatch(/502.*links in the upstream's answer cannot be read|terminated|fetch failed/s);
});

test('a body that is nested 1,000 deep, and an address of 16 KiB, are passed on', async () => {
  const deep = `${'['.repeat(1_000)}${']'.repeat(1_000)}`;
  const long = `{"url":"/${'a'.repeat(16_383)}"}`;
  for (const [body, expected] of [
    [deep, deep],
    [long, long.replace('"/', '"/x/')],
  ] as const) {
    const head = `HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: ${body.length}\r\n\r\n`;
    const { url } = await startPassing((socket) => socket.write(`${head}${body}`), { links: [['url']] });
    expect((await (await fetch(url)).text()) === expected, body.slice(0, 10)).toBe(true);
  }
});

test('an upstream that wants a certificate may say so late: what the read is told is what other reads are', async () => {
  const ca = makeCa('ca.internal');
  const upstream = await startTlsUpstream({
    ...ca.issue('localhost'),
    ca: ca.cert,
    requestCert: true,
    rejectUnauthorized: true,
    minVersion: 'TLSv1.3',
  });
  closed.push(() => upstream.stop());
  const tls = { ca: ca.cert, client: null, serverName: null, minVersion: 'TLSv1.3' as const };
  const { url } = await startPassing(() => {}, { at: { url: upstream.url, tls } });
  const answer = await fetch(`${url}/read`);
  expect([answer.status, answer.headers.get('svc-decision')]).toEqual([502, 'failed']);
  expect(await answer.json()).toMatchObject({
    reason: {
      code: 'upstream_refused',
      message:
        "The connection broke before the answer came; it was new: the upstream may refuse the gateway's certificate, or want one (tls: { cert, key }).",
    },
  });
});

test.each(['text/event-stream', 'application/jsonl', 'text/plain', 'application/json-seq'])(
  'links are looked for in JSON alone: an answer of the type %s is passed on as it came',
  async (type) => {
    const { url } = await startPassing(
      (socket) => {
        const body = `{"url":"http://127.0.0.1:${socket.localPort}/2"}`;
        socket.write(`HTTP/1.1 200 OK\r\ncontent-type: ${type}\r\ncontent-length: ${body.length}\r\n\r\n${body}`);
      },
      { links: [['url']] },
    );
    expect(await (await fetch(url)).text()).toMatch(/^\{"url":"http:\/\/127\.0\.0\.1:\d+\/2"\}$/);
  },
);
