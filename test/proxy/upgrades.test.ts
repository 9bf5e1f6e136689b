import { once } from 'node:events';
import { connect, createServer, type Socket } from 'node:net';
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest';
import { type ProxiedWorld, startProxiedWorld } from './gateway.ts';

let world: ProxiedWorld;
beforeAll(async () => {
  world = await startProxiedWorld();
});
afterAll(() => world.close());

/** Byte for byte what java.net.http.HttpClient of Java 17 sends, but for host and key. */
const WISH = [
  'Connection: Upgrade, HTTP2-Settings',
  'Content-Length: LENGTH',
  'Host: HOST',
  'HTTP2-Settings: AAEAAEAAAAIAAAAAAAMAAAAAAAQBAAAAAAUAAEAAAAYABgAA',
  'Upgrade: h2c',
  'User-Agent: Java-http-client/17.0.15',
];

function java(method: string, path: string, body = '', headers: readonly string[] = []): string {
  const { host } = new URL(world.url);
  const lines = [`${method} ${path} HTTP/1.1`, ...WISH, ...headers, `X-API-Key: ${world.keys.bot}`, '', body];
  return lines.join('\r\n').replace('LENGTH', String(body.length)).replace('HOST', host);
}

function note(key: string, text: string): string {
  const headers = ['Content-Type: application/json', `Idempotency-Key: ${key}`];
  return java('POST', '/shop/v1/notes', JSON.stringify({ text }), headers);
}

interface Connection {
  readonly socket: Socket;
  /** Resolves with everything received once there are so many answers, or the connection is closed. */
  answers(count: number): Promise<{ readonly statuses: readonly number[]; readonly text: string }>;
}

function open(url = world.url, allowHalfOpen = false): Connection {
  const { hostname, port } = new URL(url);
  const socket = connect({ port: Number(port), host: hostname, allowHalfOpen })
    .setEncoding('latin1')
    .setNoDelay();
  let text = '';
  socket.on('data', (chunk) => {
    text += String(chunk);
  });
  socket.on('error', () => {});
  const statuses = (): number[] => [...text.matchAll(/HTTP\/1\.1 (\d{3}) /g)].map(([, status]) => Number(status));
  return {
    socket,
    async answers(count) {
      while (statuses().length < count && !socket.destroyed) await new Promise((resolve) => setTimeout(resolve, 2));
      return { statuses: statuses(), text };
    },
  };
}

describe('a wish for h2c is ignored, and the request served', () => {
  test('on the gateway’s own paths, again and again on one connection', async () => {
    const warnings: Error[] = [];
    const onWarning = (warning: Error): void => void warnings.push(warning);
    process.on('warning', onWarning);
    const { socket, answers } = open();
    for (let n = 1; n <= 30; n += 1) {
      socket.write(java('GET', '/livez'));
      expect((await answers(n)).statuses).toEqual(Array<number>(n).fill(200));
    }
    process.off('warning', onWarning);
    // Listeners that pile up on the connection would be one.
    expect(warnings).toEqual([]);
    socket.destroy();
  });

  test('on reads and governed writes, the body with the headers, behind them, and in pieces', async () => {
    const { socket, answers } = open();
    socket.write(java('GET', '/shop/v1/orders/o1?limit=1'));
    expect((await answers(1)).statuses).toEqual([200]);
    socket.write(note('java-1', 'at once'));
    expect((await answers(2)).statuses).toEqual([200, 201]);
    const [head, body] = note('java-2', 'later').split('\r\n\r\n');
    socket.write(`${head}\r\n\r\n`);
    await new Promise((resolve) => setTimeout(resolve, 30));
    socket.write(body?.slice(0, 5) ?? '');
    await new Promise((resolve) => setTimeout(resolve, 30));
    socket.write(body?.slice(5) ?? '');
    expect((await answers(3)).statuses).toEqual([200, 201, 201]);
    const long = 'x'.repeat(60_000);
    socket.write(note('java-3', long));
    await answers(4);
    socket.write(note('java-1', 'at once'));
    const { statuses, text } = await answers(5);
    expect(statuses).toEqual([200, 201, 201, 201, 201]);
    expect(text).toContain('idempotency-replayed: true');
    socket.destroy();
    const { requests, effects } = await world.upstream.ledger();
    const notes = requests.filter(({ url }) => url === '/v1/notes');
    expect(notes.map(({ body: sent }) => sent)).toEqual(['at once', 'later', long].map((sent) => ({ text: sent })));
    expect(effects).toHaveLength(3);
    for (const { headers } of requests) {
      expect(Object.keys(headers)).not.toContain('upgrade');
      expect(Object.keys(headers)).not.toContain('http2-settings');
    }
  });

  test('with its refusals', async () => {
    const { socket, answers } = open();
    socket.write(java('POST', '/shop/v1/notes', '{', ['Content-Type: application/json', 'Idempotency-Key: java-bad']));
    const { statuses, text } = await answers(1);
    expect(statuses).toEqual([400]);
    expect(text).toContain('application/problem+json');
    socket.destroy();
  });

  test('and so is one for a WebSocket of a request that writes: it is a write like any other', async () => {
    const { socket, answers } = open();
    socket.write(note('not-a-socket', 'a note').replace('Upgrade: h2c', 'Upgrade: websocket'));
    expect((await answers(1)).statuses).toEqual([201]);
    socket.destroy();
  });

  test('with what was sent behind it in one piece; nothing is lost or answered in another order', async () => {
    const plain = (path: string): string => java('GET', path).replace(/^Upgrade: h2c\r\n/m, '');
    const { socket, answers } = open();
    socket.write(java('GET', '/livez') + plain('/shop/v1/orders/o2') + plain('/nowhere'));
    expect((await answers(3)).statuses).toEqual([200, 200, 403]);
    socket.destroy();
  });

  test.each([
    ['while an earlier answer is under way', 1, () => note('java-under-way', 'x') + java('GET', '/livez')],
    [
      'with more headers than Node keeps, the body’s length behind them',
      0,
      () =>
        java('POST', '/shop/v1/free', 'GET /livez')
          .replace(/Content-Length.*\r\n/, '')
          .replace('\r\n\r\n', `${'\r\nA: b'.repeat(1100)}\r\nContent-Length: 10\r\n\r\n`),
    ],
  ] as const)('but not %s: that connection is closed', async (_name, goOn, bytes) => {
    const { requests } = await world.upstream.counts();
    const { socket, answers } = open();
    const closed = once(socket, 'close');
    socket.write(bytes());
    await closed;
    // Node 24 says itself that the headers are too many.
    expect((await answers(1)).statuses.filter((status) => status !== 431)).toEqual([]);
    // A write whose caller has gone goes on.
    await vi.waitFor(async () => expect((await world.upstream.counts()).requests).toBe(requests + goOn), 30_000);
  });
});

describe('an upgrade to WebSocket', () => {
  const handshake = (host: string, ...headers: string[]): string =>
    [
      'GET /shop/v1/stream HTTP/1.1',
      host,
      'Connection: keep-alive, Upgrade',
      'Upgrade: websocket',
      'Sec-WebSocket-Version: 13',
      'Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==',
      `X-API-Key: ${world.keys.bot}`,
      ...headers,
      '',
      '',
    ].join('\r\n');

  test('whose caller has gone before there was a place for it opens no tunnel, and leaves the place free', async () => {
    const before = (await world.upstream.counts()).requests;
    const known = new Set(world.accessed);
    const isOver = (): Promise<void> =>
      vi.waitFor(() => {
        const since = world.accessed.filter((line) => !known.has(line));
        expect(since).toContainEqual(expect.objectContaining({ tool: 'orders.stream', status: 499, cut: true }));
      }, 30_000);
    const gone = open();
    const left = new Promise<void>((resolve) => {
      world.beforePlace(async () => {
        gone.socket.resetAndDestroy();
        await isOver();
        resolve();
      });
    });
    gone.socket.write(handshake('Host: localhost'));
    await left;
    const next = open();
    next.socket.write(handshake('Host: localhost'));
    expect((await next.answers(1)).statuses).toEqual([101]);
    expect([(await world.upstream.counts()).requests, world.placed()]).toEqual([before + 1, 1]);
    next.socket.destroy();
    await vi.waitFor(() => expect(world.placed()).toBe(0), 30_000);
  });

  test('behind a call that is still being answered is no answer to that call: the connection ends', async () => {
    const before = (await world.upstream.counts()).requests;
    const { socket, answers } = open();
    const closed = once(socket, 'close');
    const call = note('behind-it-upgrade', 'x').replace(/^(Upgrade|Connection|HTTP2-Settings): .*\r\n/gm, '');
    socket.write(call + handshake('Host: evil.example'));
    await closed;
    expect((await answers(1)).statuses).toEqual([]);
    await vi.waitFor(async () => expect((await world.upstream.counts()).requests).toBe(before + 1), 30_000);
  });

  /** A gateway before an upstream that does this with each connection, and a handshake with it. */
  async function before(
    upstream: (socket: Socket) => void,
    settings: { readonly network?: 'public'; readonly mode?: 'observe' } = {},
    allowHalfOpen = false,
  ) {
    const server = createServer({ allowHalfOpen }, (socket) => {
      socket.on('error', () => {});
      upstream(socket);
    });
    await once(server.listen(0, '127.0.0.1'), 'listening');
    const address = server.address();
    if (address === null || typeof address === 'string') throw new Error('it has no port');
    const own = await startProxiedWorld({ model: `http://127.0.0.1:${address.port}`, ...settings });
    const asked = (...headers: string[]): Connection => {
      const connection = open(own.url, allowHalfOpen);
      connection.socket.write(
        handshake('Host: localhost', ...headers)
          .replace('/shop/v1/stream', '/model/v1/live')
          .replace(world.keys.bot, own.keys.bot),
      );
      return connection;
    };
    const close = async (): Promise<void> => {
      await own.close();
      server.close();
    };
    return { asked, close, own, silences: own.silences };
  }

  const SWITCHING = 'HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n';

  test.each([
    ['that opens', '/shop/v1/stream', 101, { decision: 'committed', lasts: true, cut: false, tool: 'orders.stream' }],
    ['that is refused', '/shop/v1/orders/o1', 403, { decision: 'denied_policy', lasts: false, tool: 'orders.get' }],
  ] as const)('%s is one line of the log, with all bytes of its connection', async (_what, path, status, line) => {
    const began = performance.now();
    const of = world.accessed.length;
    const trace = '4bf92f3577b34da6a3ce929d0e0e4736';
    const sent = handshake('Host: localhost', `traceparent: 00-${trace}-00f067aa0ba902b7-01`).replace(
      '/shop/v1/stream',
      path,
    );
    const { socket, answers } = open();
    const closed = once(socket, 'close');
    socket.write(sent);
    await answers(1);
    if (status === 101) socket.destroy();
    await closed;
    const { text } = await answers(1);
    const effectId = /^svc-effect-id: (eff_\w+)\r$/m.exec(text)?.[1] ?? null;
    expect(effectId === null).toBe(status === 101);
    await expect
      .poll(() => world.accessed.slice(of))
      .toMatchObject([
        {
          ...line,
          method: 'GET',
          status,
          effectId,
          traceId: trace,
          requestId: expect.stringMatching(/^req_/),
          workspace: 'demo',
          agentId: 'bot',
          upstream: 'shop',
          bytesIn: sent.length,
          bytesOut: text.length,
        },
      ]);
    expect(world.accessed.at(-1)?.durationMs).toBeLessThan(performance.now() - began);
  });

  test.each([
    ['on a path of the gateway', '/livez', 400, 'invalid_request', 'This path does not take upgrades.'],
    ['that no rule lets pass', '/shop/v1/orders/o1', 403, 'route_not_declared', 'lets an upgrade pass here'],
    ['that does not fit its tool', '/shop/v1/stream?x=1', 400, 'invalid_request', 'fit the tool orders.stream'],
    ['with another key', '/shop/v1/stream?api_key=KEY', 401, 'invalid_key', ''],
  ] as const)('%s is answered as a whole, and its connection ends', async (_what, path, status, code, says) => {
    const { socket, answers } = open();
    const closed = once(socket, 'close');
    socket.write(handshake('Host: localhost').replace('/shop/v1/stream', path));
    await closed;
    const { text, statuses } = await answers(1);
    const [head = '', body = ''] = text.split('\r\n\r\n');
    expect(statuses).toEqual([status]);
    expect(head).toMatch(/^x-should-retry: false\r$/m);
    expect(head).toMatch(/^connection: close$/m);
    expect(head).toContain(`\r\ncontent-length: ${body.length}\r\n`);
    expect(body).toContain(code);
    expect(body).toContain(says);
  });

  test('is one in any case, and beside other protocols', async () => {
    for (const asked of ['WebSocket', 'h2c, websocket']) {
      const { socket, answers } = open();
      socket.write(handshake('Host: localhost').replace('Upgrade: websocket', `Upgrade: ${asked}`));
      expect((await answers(1)).statuses, asked).toEqual([101]);
      socket.destroy();
    }
  });

  test('that fails while it waits for its place ends, and the next one opens', async () => {
    world.beforePlace(() => Promise.reject(new Error('planted')));
    const failed = open();
    const closed = once(failed.socket, 'close');
    failed.socket.write(handshake('Host: localhost'));
    await closed;
    expect((await failed.answers(1)).statuses).toEqual([]);
    const next = open();
    next.socket.write(handshake('Host: localhost'));
    expect((await next.answers(1)).statuses).toEqual([101]);
    next.socket.destroy();
  });

  test.each(['its caller', 'its upstream'] as const)(
    'that is open ends on both sides when %s stops sending',
    async (side) => {
      const sockets: Socket[] = [];
      const { asked, close, own } = await before(
        (socket) => {
          sockets.push(socket);
          socket.once('data', () => socket.write(SWITCHING));
        },
        {},
        true,
      );
      const { socket, answers } = asked();
      await answers(1);
      const [upstream] = sockets;
      if (upstream === undefined) throw new Error('nothing has arrived');
      const ended = once(side === 'its caller' ? upstream : socket, 'end');
      (side === 'its caller' ? socket : upstream).end();
      await ended;
      await expect.poll(() => own.placed()).toBe(0);
      for (const one of [socket, upstream]) one.destroy();
      await close();
    },
  );

  test('that is open lasts longer than the time-out of its tool; when it is cut, its upstream sees it', async () => {
    const ends: string[] = [];
    const { asked, close, own } = await before((socket) => {
      socket.on('close', () => ends.push('closed'));
      socket.once('data', () => {
        socket.write(SWITCHING);
        setTimeout(() => socket.write('still here'), 300);
      });
    });
    const { socket } = asked();
    let text = '';
    socket.on('data', (piece) => (text += String(piece)));
    await expect.poll(() => text, { timeout: 10_000 }).toContain('still here');
    expect(ends).toEqual([]);
    await own.pause('model.live');
    await expect.poll(() => ends, { timeout: 10_000 }).toEqual(['closed']);
    socket.destroy();
    await close();
  });

  test('whose caller leaves before its upstream has answered is not asked for any longer', async () => {
    let asks = 0;
    const ends: string[] = [];
    const { asked, close } = await before((socket) => {
      socket.on('data', () => (asks += 1)).on('close', () => ends.push('closed'));
    });
    const { socket } = asked();
    await expect.poll(() => asks, { interval: 1 }).toBe(1);
    socket.destroy();
    await expect.poll(() => ends, { timeout: 10_000 }).toEqual(['closed']);
    await close();
  });

  test('that is open does not hold up a stop', async () => {
    const { asked, close } = await before((socket) => void socket.once('data', () => socket.write(SWITCHING)));
    const { socket, answers } = asked();
    await answers(1);
    await Promise.all([once(socket, 'close'), close()]);
  });

  test('that a rule asks more of than a tunnel can be held to is refused for that', async () => {
    const { asked, close } = await before(() => undefined);
    const { socket, answers } = asked('User-Agent: counted/1');
    await once(socket, 'close');
    const { text } = await answers(1);
    expect(text).toMatch(/^HTTP\/1\.1 403 [^]*more than a tunnel can be held to/);
    await close();
  });

  test('of a gateway that has not heard of keys and pauses for too long is refused', async () => {
    world.heard(false);
    const { socket, answers } = open();
    socket.write(handshake('Host: localhost'));
    await once(socket, 'close');
    expect((await answers(1)).text).toMatch(/^HTTP\/1\.1 503 [^]*"code":"not_ready"/);
    world.heard(true);
  });

  test('of upstreams that say nothing is given up after the time-out of the tool, and noted until one answers', async () => {
    let isSilent = true;
    const { asked, close, own, silences } = await before((socket) => {
      socket.on('data', () => void (isSilent || socket.end('HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n')));
    });
    const tried = async (): Promise<string> => {
      const { socket, answers } = asked();
      const { text } = await answers(1);
      socket.destroy();
      return text;
    };
    for (let calls = 0; calls < 3; calls += 1) {
      const text = await tried();
      expect(text).toMatch(/^HTTP\/1\.1 502 [^]*within the time-out/);
      expect(text).toMatch(/^svc-decision: failed\r$/m);
      expect(text).toMatch(/^x-should-retry: true\r$/m);
    }
    await expect.poll(() => own.accessed.at(-1)).toMatchObject({ status: 502, decision: 'failed', lasts: false });
    expect(silences()).toMatchObject([
      { message: expect.stringMatching(/^The last 3 calls of model .*\(UND_ERR_HEADERS_TIMEOUT\)/) },
    ]);
    isSilent = false;
    expect(await tried()).toMatch(/^HTTP\/1\.1 404 [^]*^connection: close\r$/im);
    expect(silences()).toEqual([]);
    await expect.poll(() => own.accessed.at(-1)).toMatchObject({ status: 404, decision: 'failed', lasts: false });
    await close();
  });

  test('to this machine is refused where the upstream may be public only, and nothing is sent', async () => {
    let connections = 0;
    const { asked, close } = await before(() => (connections += 1), { network: 'public' });
    const { socket, answers } = asked();
    expect((await answers(1)).text).toMatch(/^HTTP\/1\.1 502 [^]*"did_it_happen":"no"/);
    expect(connections).toBe(0);
    socket.destroy();
    await close();
  });

  test('that is open and breaks ends, and nothing is written into it', async () => {
    const { asked, close, silences } = await before((socket) => {
      socket.once('data', () => {
        socket.write('HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n');
        socket.once('data', () => socket.resetAndDestroy());
      });
    });
    for (let tunnels = 0; tunnels < 3; tunnels += 1) {
      const { socket, answers } = asked();
      await answers(1);
      socket.write('a frame');
      await once(socket, 'close');
      expect((await answers(2)).text).toMatch(/^HTTP\/1\.1 101 [^]*\r\n\r\n$/);
    }
    expect(silences()).toEqual([]);
    await close();
  });

  test('that a rule denies is refused, and where policies are observed opens and says what they would have done', async () => {
    const switching = (socket: Socket): void => {
      socket.once('data', () => {
        socket.write('HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n');
      });
    };
    for (const [mode, first] of [
      [{}, /^HTTP\/1\.1 403 /],
      [{ mode: 'observe' }, /^HTTP\/1\.1 101 [^]*\r\nsvc-observed: denied_policy\r\n/i],
    ] as const) {
      const { asked, close } = await before(switching, mode);
      const { socket, answers } = asked('User-Agent: crawler/1');
      expect((await answers(1)).text).toMatch(first);
      socket.destroy();
      const { socket: other, answers: allowed } = asked('User-Agent: reader/1');
      const { text } = await allowed(1);
      expect(text).toMatch(/^HTTP\/1\.1 101 /);
      expect(text).not.toMatch(/svc-observed/i);
      other.destroy();
      await close();
    }
  });

  test.each([
    ['the protocols that its caller offers', (): string => 'chat, notes', true],
    ['no protocol that is the caller’s key', (): string => `chat, ${world.keys.bot}`, false],
  ] as const)('takes %s to the upstream', async (_what, protocols, isSent) => {
    const before: number = (await world.upstream.ledger()).requests.length;
    const { socket, answers } = open();
    socket.write(handshake('Host: localhost', `Sec-WebSocket-Protocol: ${protocols()}`));
    expect((await answers(1)).statuses).toEqual([101]);
    const { headers } = (await world.upstream.ledger()).requests[before] ?? {};
    expect(headers?.['sec-websocket-key']).toBe('dGhlIHNhbXBsZSBub25jZQ==');
    expect(headers?.['sec-websocket-protocol']).toBe(isSent ? protocols() : undefined);
    expect(JSON.stringify(headers)).not.toContain(world.keys.bot);
    socket.destroy();
  });

  test.each([
    ['another host', () => handshake('Host: evil.example'), 403, 'host_not_allowed'],
    ['no host', () => handshake('X: y'), 400, 'invalid_request'],
    ['two hosts', () => handshake('Host: localhost', 'Host: evil.example'), 400, 'invalid_request'],
    [
      'a page of another origin',
      () => handshake('Host: localhost', 'Origin: https://evil.example'),
      403,
      'origin_not_allowed',
    ],
  ] as const)('for %s is refused before its key is looked at', async (_name, bytes, status, code) => {
    const before = (await world.upstream.counts()).requests;
    for (const request of [bytes(), bytes().replace(world.keys.bot, 'no-key-at-all')]) {
      const { socket, answers } = open();
      const closed = once(socket, 'close');
      socket.write(request);
      await closed;
      const { statuses, text } = await answers(1);
      expect(statuses).toEqual([status]);
      expect(text).toContain('application/problem+json');
      expect(text).toContain(`"code":"${code}"`);
    }
    expect((await world.upstream.counts()).requests).toBe(before);
  });
});
