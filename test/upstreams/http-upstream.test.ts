import { spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { createServer as createHttpServer } from 'node:http';
import { createServer, type Server, type Socket } from 'node:net';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import type { HttpAnswer, UpstreamAnswer } from '../../src/effects/model/answer.ts';
import type { UpstreamResult } from '../../src/effects/upstream.ts';
import { takeFiles } from '../../src/upstreams/http/given-files.ts';
import { createUpstreams, type Upstreams } from '../../src/upstreams/upstreams.ts';
import { type LedgerUpstream, startLedgerUpstream } from '../upstream/start.ts';
import { makeDispatch, makeTool } from './tool.ts';

/** An upstream that says in its body, whatever the status, that nothing was done. */
const FAILS = { path: 'ok', equals: false, outcome: 'failed' } as const;
const LIMITS = { responseBytes: 100_000, responseKeptBytes: 1000 };
let service: LedgerUpstream;
let upstreams: Upstreams;

beforeAll(async () => {
  service = await startLedgerUpstream({ lateMs: 3000 });
});
afterAll(async () => {
  await service.stop();
});
afterEach(async () => {
  await upstreams.close();
});

function open(changes: Partial<Parameters<typeof createUpstreams>[0][number]> = {}): Upstreams {
  upstreams = createUpstreams(
    [
      {
        id: 'payments',
        url: service.url,
        timeoutMs: 10_000,
        connections: 4,
        network: 'any',
        credentials: null,
        ...changes,
      },
    ],
    LIMITS,
  );
  return upstreams;
}

async function since<T>(act: () => Promise<T>): Promise<{ result: T; requests: number; effects: number }> {
  const before = await service.counts();
  const result = await act();
  const after = await service.counts();
  return { result, requests: after.requests - before.requests, effects: after.effects - before.effects };
}

function send(mode: string, changes: Parameters<typeof makeTool>[0] = {}): Promise<UpstreamResult> {
  return upstreams.send(
    makeDispatch({ tool: makeTool(changes), params: { payment_id: 'p1', amount: 100, note: `mode:${mode}` } }),
  );
}

function overHttp(answer: UpstreamAnswer): HttpAnswer {
  if (answer.kind !== 'http') throw new Error(answer.kind);
  return answer;
}

describe('each row of the table against a real upstream', () => {
  const rows: [string, UpstreamResult['kind'], string, number][] = [
    ['ok', 'committed', 'http_status', 1],
    ['accepted', 'committed', 'http_status', 1],
    ['empty', 'committed', 'http_status', 1],
    ['early_hints', 'committed', 'http_status', 1],
    ['multi', 'unknown', 'http_status', 1],
    ['half', 'committed', 'http_status', 1],
    ['half_chunked', 'committed', 'http_status', 1],
    ['half_error', 'unknown', 'http_status', 1],
    ['redirect', 'unknown', 'http_status', 1],
    ['refuse', 'failed', 'http_status', 0],
    ['unavailable', 'unknown', 'http_status', 0],
    ['error_after', 'unknown', 'http_status', 1],
    ['drop_after', 'unknown', 'reset', 1],
    ['reset_after', 'unknown', 'reset', 1],
    ['drop_before', 'unknown', 'reset', 0],
    ['malformed', 'unknown', 'malformed', 1],
    ['status_308', 'failed', 'http_status', 0],
    ['status_304', 'failed', 'http_status', 0],
    ['status_408', 'unknown', 'http_status', 0],
    ['status_425', 'unknown', 'http_status', 0],
    ['status_429', 'failed', 'busy', 0],
    ['status_499', 'unknown', 'http_status', 0],
    ['status_504', 'unknown', 'http_status', 0],
  ];
  test.each(rows)('%s: %s', async (mode, kind, code, effects) => {
    open();
    const seen = await since(() => send(mode));
    expect(seen.result.kind).toBe(kind);
    expect(seen.result.evidence.code).toBe(code);
    // Once, whatever came of it: nothing is repeated, no redirect is followed.
    expect(seen.requests).toBe(1);
    expect(seen.effects).toBe(effects);
  });

  test('what the answers carry', async () => {
    open();
    const ok = await send('ok');
    if (ok.kind !== 'committed') throw new Error(ok.kind);
    expect(ok.accepted).toBe(false);
    expect(JSON.parse(overHttp(ok.answer).body.toString())).toMatchObject({
      path: '/v1/payments/p1/refunds',
      received: { amount: 100 },
    });
    expect(ok.result).toMatchObject({ status: 201, body: { kind: 'json' }, truncated: false });
    expect(ok.evidence.startedAt).toBeLessThanOrEqual(ok.evidence.endedAt ?? 0);
    const accepted = await send('accepted');
    expect(accepted).toMatchObject({ kind: 'committed', accepted: true });
    const half = await send('half');
    expect(half).toMatchObject({ kind: 'committed', responseTruncated: true, result: { truncated: true } });
    const failed = await send('unavailable', { outcomes: { committed: [], failed: [503], unknown: [], body: [] } });
    expect(failed).toMatchObject({
      kind: 'failed',
      evidence: { code: 'busy', answered: { kind: 'http', status: 503 } },
      answer: { kind: 'http', status: 503 },
      result: { kind: 'http', status: 503 },
    });
    const plain = await send('plain');
    expect(plain).toMatchObject({ kind: 'committed', result: { body: { kind: 'text', value: 'done' } } });
  });

  test('an answer longer than what is read is cut, and the call committed', async () => {
    open();
    const big = await send('big');
    if (big.kind !== 'committed') throw new Error(big.kind);
    expect(big.responseTruncated).toBe(true);
    expect(overHttp(big.answer).body.byteLength).toBe(LIMITS.responseBytes);
    expect(big.result.truncated).toBe(true);
    // The next call gets a connection.
    expect((await send('ok')).kind).toBe('committed');
  });

  test('an answer as long as what is read is whole, and one that is longer is asked for its JSON all the same', async () => {
    const most = JSON.stringify({ ok: false, pad: 'x'.repeat(LIMITS.responseBytes - 21) });
    const outcomes = { committed: [], failed: [], unknown: [], body: [FAILS] };
    expect(most.length).toBe(LIMITS.responseBytes);
    let body = most;
    const odd = createHttpServer((request, response) => {
      request.resume().on('end', () => response.writeHead(200, { 'content-type': 'application/json' }).end(body));
    });
    odd.listen(0, '127.0.0.1');
    await once(odd, 'listening');
    open({ url: urlOf(odd, 'http') });
    expect(await send('ok')).toMatchObject({ kind: 'committed', responseTruncated: false });
    // Longer than what is kept, and still the body decides.
    expect(await send('ok', { outcomes })).toMatchObject({ kind: 'failed', evidence: { code: 'declared' } });
    body = `${most} `;
    expect(await send('ok')).toMatchObject({ kind: 'committed', responseTruncated: true });
    expect(await send('ok', { outcomes })).toMatchObject({ kind: 'unknown' });
    await upstreams.close();
    odd.close();
  });

  test('what was spent is read from an answer that is too long to be kept, and not known where it does not say', async () => {
    let body = '';
    const odd = createHttpServer((request, response) => {
      request.resume().on('end', () => response.writeHead(200, { 'content-type': 'application/json' }).end(body));
    });
    odd.listen(0, '127.0.0.1');
    await once(odd, 'listening');
    open({ url: urlOf(odd, 'http') });
    for (const [usage, token] of [
      [{ total: 7 }, 7],
      [{}, null],
    ] as const) {
      body = JSON.stringify({ usage, pad: 'x'.repeat(2 * LIMITS.responseKeptBytes) });
      const result = await send('ok', { actual: { token: [['usage.total']] } });
      expect(result).toMatchObject({ kind: 'committed', amounts: { token } });
    }
    expect(await send('ok')).not.toHaveProperty('amounts');
    await upstreams.close();
    odd.close();
  });

  test.each([
    ['{"ok":true}', 'application/json', 'committed'],
    ['{"ok":false}', 'application/json', 'failed'],
    ['{"ok":false,"id":9007199254740993}', 'application/json', 'unknown'],
    ['{"ok":false,"Ok":true}', 'application/json', 'unknown'],
    ['{"ok":false}', 'text/html', 'unknown'],
    ['', 'application/json', 'committed'],
  ])('a body that decides, and says %s as %s: %s', async (body, type, kind) => {
    const odd = createHttpServer((request, response) => {
      request.resume().on('end', () => response.writeHead(200, { 'content-type': type }).end(body));
    });
    odd.listen(0, '127.0.0.1');
    await once(odd, 'listening');
    open({ url: urlOf(odd, 'http') });
    const outcomes = { committed: [], failed: [], unknown: [], body: [FAILS] };
    expect((await send('ok', { outcomes })).kind).toBe(kind);
    await upstreams.close();
    odd.close();
  });

  test('time-out: unknown for a write, failed for a read, and the connection is reset', async () => {
    open();
    expect(await send('late', { timeoutMs: 100 })).toMatchObject({ kind: 'unknown', evidence: { code: 'timeout' } });
    expect(await send('never', { timeoutMs: 100 })).toMatchObject({ kind: 'unknown', evidence: { code: 'timeout' } });
    expect(await send('never', { timeoutMs: 100, kind: 'read' })).toMatchObject({ kind: 'failed' });
    // The status line was read before the time was over.
    expect(await send('stalled', { timeoutMs: 2500 })).toMatchObject({ kind: 'committed', responseTruncated: true });
    expect((await send('ok')).kind).toBe('committed');
  });

  test('after a time-out the upstream sees its connection reset, and not one that may still hear its answer', async () => {
    const seen: string[] = [];
    const server = createServer((socket) => {
      socket.on('end', () => seen.push('end')).on('error', ({ message }) => seen.push(message));
      socket.on('data', () => undefined).once('close', () => server.emit('left'));
    }).listen(0, '127.0.0.1');
    await once(server, 'listening');
    open({ url: urlOf(server, 'http') });
    const left = once(server, 'left');
    // Of what nobody answered, the receipt says what was sent all the same.
    const sent = createHash('sha256').update('POST /v1/payments/p1/refunds\n{"amount":100,"note":"mode:ok"}');
    const evidence = { code: 'timeout', sent: sent.digest('base64url') };
    expect(await send('ok', { timeoutMs: 100 })).toMatchObject({ kind: 'unknown', evidence });
    await left;
    expect(seen).toEqual(['read ECONNRESET']);
    await closed(server);
  });

  test('a reused connection that is reset after the write: unknown, and not repeated', async () => {
    open({ connections: 1 });
    expect((await send('ok')).kind).toBe('committed');
    const seen = await since(() => send('reset_reused'));
    expect(seen.result).toMatchObject({ kind: 'unknown', evidence: { code: 'reset' } });
    expect(seen).toMatchObject({ requests: 1, effects: 1 });
  });

  test('reads', async () => {
    open();
    const read = makeTool({
      kind: 'read',
      request: { method: 'GET', path: '/v1/payments/{payment_id}', query: ['mode'], headers: {}, body: [] },
    });
    const get = (mode: string): Promise<UpstreamResult> =>
      upstreams.send(makeDispatch({ tool: read, params: { payment_id: 'p1', mode } }));
    expect((await get('ok')).kind).toBe('committed');
    for (const mode of ['half', 'unavailable', 'refuse', 'drop_before', 'status_303']) {
      const seen = await since(() => get(mode));
      expect([mode, seen.result.kind, seen.requests]).toEqual([mode, 'failed', 1]);
    }
  });
});

/** A server whose every byte the test writes, and which is asked over one connection at a time. */
async function answering(answer: (socket: Socket, connection: number) => void): Promise<{ stop(): Promise<void> }> {
  let connections = 0;
  const server = createServer((socket) => {
    connections += 1;
    const connection = connections;
    socket.on('error', () => {}).on('data', () => answer(socket, connection));
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  open({ url: urlOf(server, 'http'), connections: 1 });
  return {
    async stop() {
      await upstreams.close();
      await closed(server);
    },
  };
}

describe('an upstream that gives too much, or takes too long over it', () => {
  const OK = 'HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok';
  const ANNOUNCED = 'HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n';

  test('is not waited for while it drips: the time is that of the whole answer', async () => {
    const server = await answering((socket) => {
      const says = (text: string, afterMs: number) => setTimeout(() => socket.write(text), afterMs);
      says('HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n', 600);
      says('o', 800);
      says('k', 1_400);
    });
    expect(await send('ok', { timeoutMs: 1_000 })).toMatchObject({ kind: 'committed', responseTruncated: true });
    await server.stop();
  });

  test('loses its connection where its answer has no end near, and the next call has another', async () => {
    const chunk = `1000\r\n${'x'.repeat(0x1000)}\r\n`;
    let left = 10_000;
    let hasEnded = false;
    const server = await answering((socket, connection) => {
      if (connection > 1) {
        socket.write(OK);
        return;
      }
      const more = (): void => {
        while (!socket.destroyed && left > 0) {
          left -= 1;
          if (!socket.write(left > 0 ? chunk : '0\r\n\r\n')) return;
        }
      };
      socket.on('drain', more).once('close', () => (hasEnded = true));
      socket.write('HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n');
      more();
    });
    expect(await send('ok')).toMatchObject({ kind: 'committed', responseTruncated: true });
    await expect.poll(() => hasEnded).toBe(true);
    // Of 40 MB the most was never written.
    expect(left).toBeGreaterThan(0);
    expect(await send('ok')).toMatchObject({ kind: 'committed', responseTruncated: false });
    await server.stop();
  });

  test('may announce its answer 32 times; after one more it is unknown what it did', async () => {
    const says = [`${ANNOUNCED.repeat(32)}${OK}`, ANNOUNCED.repeat(33)];
    const server = await answering((socket) => socket.write(says.shift() ?? ''));
    expect((await send('ok')).kind).toBe('committed');
    const message = 'the upstream sent more than 32 informational answers (1xx)';
    expect(await send('ok')).toMatchObject({ kind: 'unknown', evidence: { code: 'malformed', message } });
    await server.stop();
  });

  test('has sent no HTTP where its headers are beyond all measure', async () => {
    const server = await answering((socket) => {
      socket.write(`HTTP/1.1 200 OK\r\n${'x-a: bbbbbbbb\r\n'.repeat(2_000)}content-length: 2\r\n\r\nok`);
    });
    const evidence = { code: 'malformed', message: 'the upstream sent something that is not HTTP' };
    expect(await send('ok')).toMatchObject({ kind: 'unknown', evidence });
    await server.stop();
  });

  test.each([
    ['in seconds', () => '3', 3_000, 3_000],
    ['as a date', () => new Date(Date.now() + 60_000).toUTCString(), 50_000, 60_000],
  ])('says %s when it can take the call, and that is what is known of it', async (_, after, least, most) => {
    const server = await answering((socket) => {
      socket.write(`HTTP/1.1 429 Too Many Requests\r\nretry-after: ${after()}\r\ncontent-length: 0\r\n\r\n`);
    });
    const result = await send('ok');
    const { retryAfterMs = 0 } = result.kind === 'failed' ? result : {};
    expect([result.kind, retryAfterMs >= least, retryAfterMs <= most]).toEqual(['failed', true, true]);
    await server.stop();
  });
});

describe('nothing sent', () => {
  test('nobody listens', async () => {
    const server = createServer().listen(0, '127.0.0.1');
    await once(server, 'listening');
    const address = server.address();
    const port = typeof address === 'object' && address !== null ? address.port : 0;
    server.close();
    await once(server, 'close');
    open({ url: `http://127.0.0.1:${port}` });
    const result = await send('ok');
    expect(result).toMatchObject({ kind: 'failed', evidence: { code: 'connect_failed', startedAt: null } });
    // No address in what people are told.
    expect(JSON.stringify(result)).not.toContain('127.0.0.1');
  });

  test('TLS that does not come about', async () => {
    const got: Buffer[] = [];
    const server = createServer((socket) => {
      socket.on('data', (chunk) => {
        got.push(chunk);
        socket.destroy();
      });
      socket.on('error', () => {});
    }).listen(0, '127.0.0.1');
    await once(server, 'listening');
    open({ url: urlOf(server, 'https') });
    expect(await send('ok')).toMatchObject({ kind: 'failed', evidence: { code: 'connect_failed' } });
    expect(Buffer.concat(got).toString('latin1')).not.toContain('POST');
    await closed(server);
  });

  test('a request that cannot be written, whose connection is free for the next', async () => {
    open({ connections: 1 });
    const to = { method: 'POST', pathAndQuery: '/v1/payments/p1/refunds', headers: { 'x-odd': 'a\r\nb: c' } };
    const proxied = { kind: 'http', ...to, body: Buffer.from('{}'), setCookie: false } as const;
    const seen = await since(() => upstreams.send(makeDispatch({ proxied })));
    expect(seen.result).toMatchObject({ kind: 'failed', evidence: { startedAt: null } });
    expect(seen.requests).toBe(0);
    const deadline = performance.now() + 5_000;
    const gate = (): 'go' | 'late' => (performance.now() < deadline ? 'go' : 'late');
    const params = { payment_id: 'p1', amount: 100, note: 'mode:ok' };
    expect((await upstreams.send(makeDispatch({ gate, params }))).kind).toBe('committed');
  });

  test('a call that waits for a connection when the gateway closes them', async () => {
    open({ connections: 1 });
    const running = send('late', { timeoutMs: 10_000 });
    const waiting = send('ok');
    const closing = upstreams.close();
    const evidence = { code: 'connect_failed', message: 'the gateway closes its connections', startedAt: null };
    expect(await waiting).toMatchObject({ kind: 'failed', evidence });
    // What runs is let to its end, and nothing begins any more.
    expect((await running).kind).toBe('committed');
    await closing;
    expect(await send('ok')).toMatchObject({ kind: 'failed', evidence: { code: 'not_dispatched' } });
    expect(upstreams.stream('payments')).toBeNull();
  });

  test.each(['late', 'paused'] as const)('a shut gate: %s', async (by) => {
    open();
    const seen = await since(() => upstreams.send(makeDispatch({ gate: () => by })));
    expect(seen.result).toMatchObject({ kind: 'held_back', by });
    expect(seen.requests).toBe(0);
  });

  test.each(['late', 'paused'] as const)(
    'a gate that shuts while the bytes of an upload are fetched: %s, and none of them is sent',
    async (by) => {
      open();
      let asked = 0;
      const gate = (): 'go' | typeof by => {
        asked += 1;
        return asked === 1 ? 'go' : by;
      };
      const body = { contentType: 'application/octet-stream', length: 3, pieces: [Buffer.from('abc')] };
      const proxied = {
        kind: 'http',
        method: 'POST',
        pathAndQuery: '/v1/payments/p1/refunds',
        headers: {},
        body,
        setCookie: false,
      } as const;
      const seen = await since(() => upstreams.send(makeDispatch({ gate, proxied })));
      expect(seen.result).toMatchObject({ kind: 'held_back', by });
      expect([asked, seen.requests]).toEqual([2, 0]);
    },
  );

  test('an upload whose connection is gone before its first bytes were fetched', async () => {
    const sockets: Socket[] = [];
    const server = createServer((socket) => void sockets.push(socket.on('error', () => {}))).listen(0, '127.0.0.1');
    await once(server, 'listening');
    open({ url: urlOf(server, 'http') });
    const bytes = Buffer.from('abc');
    const file = { sha256: createHash('sha256').update(bytes).digest('hex'), bytes: bytes.byteLength };
    const files = {
      bytes: file.bytes,
      async *read() {
        await expect.poll(() => sockets.length).toBe(1);
        sockets[0]?.resetAndDestroy();
        for (let turn = 0; turn < 50; turn += 1) await nextTurn();
        yield bytes;
      },
    };
    const body = { contentType: 'application/octet-stream', length: file.bytes, pieces: [file] };
    const to = { method: 'POST', pathAndQuery: '/', headers: {}, setCookie: false };
    const result = await upstreams.send(makeDispatch({ files, proxied: { kind: 'http', ...to, body } }));
    const message = 'the connection was gone before a byte was written';
    expect(result).toMatchObject({ kind: 'failed', evidence: { code: 'connect_failed', message } });
    await upstreams.close();
    await closed(server);
  });

  test('a body that is written anew goes with its own type: its boundary is another than the caller’s', async () => {
    open();
    const body = { contentType: 'multipart/form-data; boundary=own', length: 3, pieces: [Buffer.from('abc')] };
    const headers = { 'content-type': 'multipart/form-data; boundary=callers' };
    const to = { method: 'POST', pathAndQuery: '/v1/payments/p1/refunds' };
    const proxied = { kind: 'http', ...to, headers, body, setCookie: false } as const;
    await upstreams.send(makeDispatch({ proxied }));
    const last = (await service.ledger()).requests.at(-1);
    expect(last).toMatchObject({ text: 'abc', headers: { 'content-type': body.contentType, 'content-length': '3' } });
  });

  test('the event loop blocked between the decision to send and the write', async () => {
    open({ connections: 1 });
    await send('ok');
    const deadline = performance.now() + 150;
    const gate = (): 'go' | 'late' => (performance.now() < deadline ? 'go' : 'late');
    const seen = await since(async () => {
      const sending = upstreams.send(makeDispatch({ gate }));
      // The connection is free and reused; the process stands still before its turn to write comes.
      const until = performance.now() + 250;
      while (performance.now() < until);
      return sending;
    });
    expect(seen.result).toMatchObject({ kind: 'held_back', by: 'late' });
    expect(seen.requests).toBe(0);
  });

  test('blocked while the connection opens', async () => {
    open();
    const deadline = performance.now() + 150;
    const seen = await since(async () => {
      const sending = upstreams.send(makeDispatch({ gate: () => (performance.now() < deadline ? 'go' : 'late') }));
      const until = performance.now() + 250;
      while (performance.now() < until);
      return sending;
    });
    expect(seen.result).toMatchObject({ kind: 'held_back', by: 'late' });
    expect(seen.requests).toBe(0);
  });

  test('the gate is asked in the turn of the write: what it says at the last moment holds', async () => {
    open({ connections: 1 });
    let shut = false;
    const slow = send('late', { timeoutMs: 400 });
    const seen = await since(async () => {
      const queued = upstreams.send(makeDispatch({ gate: () => (shut ? 'paused' : 'go') }));
      shut = true;
      return queued;
    });
    const evidence = { code: 'not_dispatched', message: 'a pause was heard before it was sent', startedAt: null };
    expect(seen.result).toMatchObject({ kind: 'held_back', by: 'paused', evidence });
    await slow;
    expect(seen.requests).toBeLessThanOrEqual(1);
    const { requests } = await service.ledger();
    expect(requests.filter((request) => request.text.includes('"amount":100}')).length).toBe(0);
  });

  test('a call that waits for a connection is held back as soon as its time is over', async () => {
    open({ connections: 1 });
    let isFree = false;
    const slow = send('late', { timeoutMs: 10_000 }).then(() => {
      isFree = true;
    });
    const deadline = performance.now() + 100;
    const result = await upstreams.send(makeDispatch({ gate: () => (performance.now() < deadline ? 'go' : 'late') }));
    const evidence = { code: 'not_dispatched', message: 'the time to send it was over', startedAt: null };
    expect(result).toMatchObject({ kind: 'held_back', by: 'late', evidence });
    // Not only when the connection is free, seconds later.
    expect(isFree).toBe(false);
    await slow;
  });

  test('a process that was frozen past its time sends nothing when it wakes', async () => {
    open({ connections: 1 });
    await send('ok');
    const deadline = performance.now() + 150;
    const seen = await since(async () => {
      // More than once: on a busy machine this process may stop only after the first.
      const waker = spawn('sh', ['-c', `while sleep 0.4; do kill -CONT ${process.pid} || exit; done`]);
      const ended = once(waker, 'exit');
      const sending = upstreams.send(makeDispatch({ gate: () => (performance.now() < deadline ? 'go' : 'late') }));
      process.kill(process.pid, 'SIGSTOP');
      expect(performance.now()).toBeGreaterThan(deadline);
      waker.kill();
      await ended;
      return sending;
    });
    expect(seen.result).toMatchObject({ kind: 'held_back', by: 'late' });
    expect(seen.requests).toBe(0);
  });
});

describe('addresses', () => {
  test.each([
    'http://169.254.169.254',
    'http://2852039166',
    'http://0xa9fea9fe',
    'http://[::ffff:169.254.169.254]',
    'http://[fd00:ec2::254]',
    'http://0.0.0.0:1',
    'http://[::]:1',
    'http://224.0.0.1',
  ])('%s is refused, whatever the network', async (url) => {
    open({ url });
    expect(await send('ok')).toMatchObject({ kind: 'failed', evidence: { code: 'connect_failed' } });
  });

  test('loopback is refused where the network is public, by literal and by name', async () => {
    const port = new URL(service.url).port;
    for (const host of ['127.0.0.1', 'localhost']) {
      open({ url: `http://${host}:${port}`, network: 'public' });
      const seen = await since(() => send('ok'));
      expect(seen.result).toMatchObject({ kind: 'failed', evidence: { code: 'connect_failed' } });
      // A name is not even connected to: none of its addresses is one that may be.
      const { message } = seen.result.evidence;
      expect(message.startsWith('every address of the upstream is refused')).toBe(host === 'localhost');
      expect(seen.requests).toBe(0);
      // Reads that stream through have connections of their own.
      const read = await since(async () =>
        upstreams
          .stream('payments')
          ?.request({ method: 'GET', path: '/' })
          .then(() => 'read', String),
      );
      expect([read.result, read.requests]).toEqual([expect.stringContaining('address'), 0]);
      await upstreams.close();
    }
  });

  test('proxies from the environment are not used', async () => {
    process.env['HTTP_PROXY'] = process.env['http_proxy'] = 'http://127.0.0.1:1';
    try {
      open();
      expect((await send('ok')).kind).toBe('committed');
    } finally {
      delete process.env['HTTP_PROXY'];
      delete process.env['http_proxy'];
    }
  });
});

describe('headers', () => {
  test('credentials and the upstream key are set by the gateway, and over what the caller sent', async () => {
    open({ credentials: { header: 'Authorization', value: 'Bearer upstream-secret' } });
    const proxied = {
      kind: 'http',
      method: 'POST',
      pathAndQuery: '/v1/payments/p9/refunds?a=1',
      headers: {
        authorization: 'Bearer agent',
        'idempotency-key': 'agent',
        'user-agent': 'agent/1',
        'content-type': 'application/json',
      },
      body: Buffer.from('{"amount":  7}'),
      setCookie: false,
    } as const;
    const tool = makeTool({ idempotent: { kind: 'header', header: 'Idempotency-Key', forMs: 1000 } });
    await upstreams.send(makeDispatch({ tool, proxied }));
    const last = (await service.ledger()).requests.at(-1);
    expect(last?.headers['authorization']).toBe('Bearer upstream-secret');
    expect(last?.headers['idempotency-key']).toBe('eff_1.1');
    expect(last?.url).toBe('/v1/payments/p9/refunds?a=1');
    expect(last?.headers).toMatchObject({ 'user-agent': 'agent/1', accept: '*/*' });
    // The bytes themselves went on.
    expect(last?.text).toBe('{"amount":  7}');
  });

  test('a body with files has a type and a length of its own, and its digest is that of all that was sent', async () => {
    open();
    const request = {
      method: 'POST',
      path: '/v1/files',
      query: [],
      headers: {},
      body: '*',
      bodyType: 'multipart',
    } as const;
    const tool = makeTool({ request, target: null });
    const { params, files } = takeFiles(tool, { note: 'n', file: { filename: 'f.txt', data: 'aGVsbG8=' } });
    const headers = { 'content-type': 'multipart/form-data; boundary=of-the-caller', 'x-note': 'n' };
    const result = await upstreams.send(makeDispatch({ tool, params, files, headers }));
    const last = (await service.ledger()).requests.at(-1);
    const boundary =
      /^multipart\/form-data; boundary="?([^"]+)"?$/.exec(String(last?.headers['content-type']))?.[1] ?? '';
    expect(['', 'of-the-caller']).not.toContain(boundary);
    expect(last?.headers['x-note']).toBe('n');
    expect(last?.text).toContain(`--${boundary}`);
    expect(last?.headers['content-length']).toBe(String(Buffer.byteLength(last?.text ?? '')));
    const sent = createHash('sha256').update(`POST /v1/files\n${last?.text}`).digest('base64url');
    expect(result.evidence.sent).toBe(sent);
  });

  test('no key is sent to an upstream that does not dedupe', async () => {
    open();
    await upstreams.send(makeDispatch());
    expect((await service.ledger()).requests.at(-1)?.headers['idempotency-key']).toBeUndefined();
  });

  test('what comes back in the name of the gateway, of a connection or as a cookie is removed', async () => {
    open();
    const loud = await send('loud');
    if (loud.kind !== 'committed') throw new Error(loud.kind);
    expect(Object.keys(overHttp(loud.answer).headers).sort()).toEqual([
      'content-length',
      'content-type',
      'date',
      'x-kept',
    ]);
    // Cookies are the caller's where the route says so.
    const to = { method: 'POST', pathAndQuery: '/v1/payments/p1/refunds?mode=loud', headers: {} };
    const proxied = { kind: 'http', ...to, body: Buffer.from('{}'), setCookie: true } as const;
    const asked = await upstreams.send(makeDispatch({ proxied }));
    if (asked.kind !== 'committed') throw new Error(asked.kind);
    expect(overHttp(asked.answer).headers).toHaveProperty('set-cookie');
  });
});

describe('state', () => {
  test('is asked for with the credentials of the upstream, and nothing of the call', async () => {
    open({ credentials: { header: 'X-Upstream-Key', value: 'upstream-secret' } });
    await service.state('/v1/payments/p1', { status: 'open' });
    await upstreams.readState(makeTool(), { payment_id: 'p1', amount: 5, note: 'n' });
    const last = (await service.ledger()).requests.at(-1);
    expect(last).toMatchObject({ method: 'GET', url: '/v1/payments/p1', text: '' });
    expect(last?.headers).toMatchObject({ 'x-upstream-key': 'upstream-secret', 'user-agent': 'svc-gateway' });
  });

  test.each<[string, number, string, number, string]>([
    ['an address elsewhere', 302, '{"status":"open"}', 17, 'the upstream answered 302'],
    ['a part of an answer', 200, '{"status":"open"}', 100, 'the answer was cut, or longer than what is read'],
    ['a list', 200, '[1]', 3, 'the answer is not a JSON object'],
  ])('is not %s', async (_, status, body, length, message) => {
    const server = createHttpServer((_request, response) => {
      response.writeHead(status, { 'content-type': 'application/json', 'content-length': length });
      response.write(body, () => response.destroy());
    }).listen(0, '127.0.0.1');
    await once(server, 'listening');
    const address = server.address();
    open({ url: `http://127.0.0.1:${typeof address === 'object' ? address?.port : ''}` });
    try {
      expect(await upstreams.readState(makeTool(), { payment_id: 'p1' })).toEqual({ kind: 'unreadable', message });
    } finally {
      server.close();
    }
  });

  test('is not waited for longer than the tool may take', async () => {
    open({ connections: 1 });
    const running = send('late', { timeoutMs: 10_000 });
    const read = await upstreams.readState(makeTool({ timeoutMs: 100 }), { payment_id: 'p1' });
    expect(read).toEqual({ kind: 'unreadable', message: 'no connection became free in time' });
    await running;
  });

  test('is read, or said to be unreadable', async () => {
    open();
    await service.state('/v1/payments/p1', { status: 'open', amount: 5 });
    const tool = makeTool();
    expect(await upstreams.readState(tool, { payment_id: 'p1' })).toEqual({
      kind: 'read',
      state: { status: 'open', amount: 5 },
    });
    await service.state('/v1/payments/p2', [1]);
    expect(await upstreams.readState(tool, { payment_id: 'p2' })).toMatchObject({ kind: 'unreadable' });
    expect(await upstreams.readState(tool, {})).toMatchObject({ kind: 'unreadable' });
    await service.mode({ mode: 'unavailable' });
    expect(await upstreams.readState(tool, { payment_id: 'p1' })).toMatchObject({ kind: 'unreadable' });
    await service.mode({ mode: 'half' });
    expect(await upstreams.readState(tool, { payment_id: 'p1' })).toMatchObject({ kind: 'unreadable' });
  });
});

describe('the state of a target', () => {
  test.each([
    [200, 'read'],
    // Where something else has it, or there is a page about it, its own state is not known.
    [304, 'unreadable'],
    [302, 'unreadable'],
    [404, 'unreadable'],
  ])('an object that comes with %d is %s', async (status, kind) => {
    const server = createHttpServer((_request, response) => {
      response.writeHead(status, { 'content-type': 'application/json' }).end('{"status":"open"}');
    }).listen(0, '127.0.0.1');
    await once(server, 'listening');
    open({ url: urlOf(server, 'http') });
    expect(await upstreams.readState(makeTool(), { payment_id: 'p1' })).toMatchObject({ kind });
    server.closeAllConnections();
    await closed(server);
  });
});

describe('change', () => {
  test('an update takes on other settings; what runs ends on its own connection', async () => {
    open();
    const running = send('late', { timeoutMs: 20_000 });
    while ((await service.ledger()).requests.at(-1)?.text.includes('mode:late') !== true);
    upstreams.update([], LIMITS);
    expect(await send('ok')).toMatchObject({ kind: 'failed', evidence: { code: 'not_dispatched' } });
    expect((await running).kind).toBe('committed');
  });

  test('another address, network, time-out or number of connections holds from the next call on', async () => {
    const other = createHttpServer(({ url: path }, response) => {
      if (path !== '/never') response.end('{}');
    });
    let connections = 0;
    other.on('connection', () => (connections += 1));
    other.listen(0, '127.0.0.1');
    await once(other, 'listening');
    const here = { id: 'payments', url: service.url, timeoutMs: 60_000, connections: 4, credentials: null } as const;
    const update = (changes: object): void => upstreams.update([{ ...here, network: 'any', ...changes }], LIMITS);
    const read = (path = '/') => upstreams.stream('payments')?.request({ method: 'GET', path });
    open();
    expect((await send('ok')).kind).toBe('committed');
    await (await read())?.body.dump();

    const url = urlOf(other, 'http');
    update({ url });
    const elsewhere = await since(() => send('ok'));
    expect([elsewhere.result.kind, elsewhere.requests]).toEqual(['committed', 0]);
    expect(await (await read())?.body.text()).toBe('{}');

    update({ url, connections: 1 });
    const before = connections;
    await Promise.all([send('ok'), send('ok'), send('ok')]);
    expect(connections - before).toBe(1);

    // Neither goes on over a connection that was opened before.
    update({ url, connections: 1, network: 'public' });
    expect((await send('ok')).evidence.code).toBe('connect_failed');
    await expect(read()).rejects.toThrow('address');

    update({ url });
    await (await read())?.body.dump();
    update({ url, timeoutMs: 100 });
    await expect(read('/never')).rejects.toThrow('Headers Timeout');
    other.closeAllConnections();
    await closed(other);
  });
});

function urlOf(server: Server, scheme: string): string {
  const address = server.address();
  if (typeof address !== 'object' || address === null) throw new Error('not listening');
  return `${scheme}://127.0.0.1:${address.port}`;
}

async function closed(server: Server): Promise<void> {
  server.close();
  await once(server, 'close');
}
