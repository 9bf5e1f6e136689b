import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, describe, expect, test } from 'vitest';
import { type Bridged, bridged, json, stream } from './bridged.ts';

const running: Bridged[] = [];
afterAll(async () => {
  await Promise.all(running.map((one) => one.close()));
});

async function begin(handle: Parameters<typeof bridged>[0]): Promise<Bridged> {
  const one = await bridged(handle);
  running.push(one);
  return one;
}

const idOf = (body: string): unknown => (body === '' ? undefined : (JSON.parse(body) as { id?: unknown }).id);
const call = (id: number) => ({ id, method: 'tools/call', params: { name: 'pay' } });
const STATELESS = { 'io.modelcontextprotocol/protocolVersion': '2026-07-28' };
const answers = ({ lines }: Bridged, id: unknown) =>
  lines.filter((line) => line.id === id && line.method === undefined);

describe('each request gets exactly one answer', () => {
  test('from a server that answers twice, and one that keeps the stream open', async () => {
    const open = new Set<unknown>();
    const bridge = await begin(({ body }, response) => {
      const id = idOf(body);
      open.add(id);
      response.on('close', () => open.delete(id));
      stream(response, { id, result: { n: 1 } }, { id, result: { n: 2 } }, { id, error: { code: 1, message: 'no' } });
    });
    bridge.write(...Array.from({ length: 300 }, (_, at) => call(at)));
    await expect.poll(() => bridge.lines.length).toBeGreaterThanOrEqual(300);
    // Of the first, all were answered; those beyond 256 at once were refused.
    bridge.write(call(1_000));
    await expect.poll(() => answers(bridge, 1_000).length).toBe(1);
    expect(answers(bridge, 1_000)[0]?.result).toEqual({ n: 1 });
    for (let id = 0; id < 300; id += 1) expect(answers(bridge, id).length).toBe(1);
    // A stream whose answer is there holds no connection for long.
    await expect.poll(() => open.size).toBe(0);
  });

  test('where the answer comes on the stream of another request, or on the one of the server', async () => {
    const streams: Parameters<typeof stream>[0][] = [];
    const bridge = await begin(({ body, method }, response) => {
      if (method === 'GET') return void streams.push(response);
      const { id, method: rpc } = JSON.parse(body) as { id: number; method: string };
      if (rpc === 'initialize')
        return json(response, { jsonrpc: '2.0', id, result: { protocolVersion: '2025-11-25' } });
      if (id === undefined) return void response.writeHead(202).end();
      if (id === 2) return (stream(response, { id: 1, result: { on: 2 } }, { id: 2, result: {} }), void response.end());
      if (id === 3) {
        stream(streams[0]!, { id: 3, result: { on: 'GET' } });
        return void sleep(50).then(() => response.writeHead(202).end());
      }
      // The stream of the first one ends without an answer, later.
      return void bridge.ended.then(() => response.end());
    });
    bridge.write({ id: 0, method: 'initialize' }, { method: 'notifications/initialized' });
    await expect.poll(() => streams.length).toBe(1);
    bridge.write(call(1), call(2), call(3));
    await expect.poll(() => bridge.lines.length).toBe(4);
    bridge.input.end();
    await bridge.ended;
    expect(answers(bridge, 1)).toMatchObject([{ result: { on: 2 } }]);
    expect(answers(bridge, 3)).toMatchObject([{ result: { on: 'GET' } }]);
    expect(bridge.lines.length).toBe(4);
  });

  test.each([
    ['neither result nor error', { jsonrpc: '2.0', id: 1 }],
    ['a result that is no object', { jsonrpc: '2.0', id: 1, result: 'done' }],
    ['an error that is none', { jsonrpc: '2.0', id: 1, error: 'no' }],
    ['both', { jsonrpc: '2.0', id: 1, result: {}, error: { code: 1, message: 'no' } }],
    ['no version', { id: 1, result: {} }],
    ['a method that is no text', { jsonrpc: '2.0', id: 1, method: 7, result: null }],
  ])('from a server whose answer clients cannot read: %s', async (_what, answer) => {
    const bridge = await begin(({ body }, response) =>
      body.includes('"stream"') ? stream(response, `data: ${JSON.stringify(answer)}\n\n`) : json(response, answer),
    );
    bridge.write({ ...call(1), params: { as: 'json' } });
    await expect.poll(() => bridge.lines).toMatchObject([{ id: 1, error: { code: -32_005 } }]);
    bridge.write({ ...call(1), params: { as: 'stream' } });
    await expect.poll(() => bridge.lines.length).toBe(2);
    expect(bridge.lines[1]).toMatchObject({ id: 1, error: { code: -32_005 } });
  });

  test('from a server that forgets each session that it has begun', async () => {
    let begun = 0;
    const bridge = await begin(({ body, rpc }, response) => {
      if (rpc !== 'initialize') return void response.writeHead(404).end();
      begun += 1;
      response.setHeader('mcp-session-id', `session-${begun}`);
      return json(response, { jsonrpc: '2.0', id: idOf(body), result: { protocolVersion: '2025-11-25' } });
    });
    bridge.write({ id: 0, method: 'initialize' }, call(1));
    await expect.poll(() => answers(bridge, 1), { timeout: 5_000 }).toMatchObject([{ error: { code: -32_005 } }]);
    // The client's own session, and one more for the call.
    expect(begun).toBe(2);
  });

  test('in a line of its own, though the server breaks it into several', async () => {
    const bridge = await begin(({ body }, response) => {
      response.writeHead(200, { 'content-type': 'application/json' });
      response.end(JSON.stringify({ jsonrpc: '2.0', id: idOf(body), result: {} }, null, 2).replaceAll('\n', '\r\n'));
    });
    let written = '';
    bridge.output.removeAllListeners('data').on('data', (chunk: Buffer) => (written += chunk.toString()));
    bridge.write(call(1));
    await expect.poll(() => written).toMatch(/\n$/);
    expect(written).toMatch(/^[^\r\n]*\n$/);
    expect(JSON.parse(written)).toEqual({ jsonrpc: '2.0', id: 1, result: {} });
  });

  test('where an id could be read in two ways, or stands for no number', async () => {
    const bridge = await begin(({ body }, response) => json(response, { jsonrpc: '2.0', id: idOf(body), result: {} }));
    bridge.write(
      '{"jsonrpc":"2.0","id":9007199254740993,"method":"ping"}',
      '{"jsonrpc":"2.0","id":1e999,"method":"ping"}',
    );
    bridge.write({ id: 1.5, method: 'ping' });
    await expect.poll(() => bridge.lines.length).toBe(3);
    expect(bridge.lines.map(({ id }) => id)).toEqual([null, null, 1.5]);
    expect(bridge.came.length).toBe(1);
  });

  test('where its id is still open: the second is not sent, and the first has its answer', async () => {
    let answer = (): void => undefined;
    const bridge = await begin(({ body }, response) => {
      answer = () => json(response, { jsonrpc: '2.0', id: idOf(body), result: {} });
    });
    bridge.write(call(1));
    await expect.poll(() => bridge.came.length).toBe(1);
    bridge.write(call(1));
    await expect.poll(() => answers(bridge, 1)).toMatchObject([{ error: { code: -32_600 } }]);
    answer();
    await expect.poll(() => answers(bridge, 1).length).toBe(2);
    expect(answers(bridge, 1)[1]).toMatchObject({ result: {} });
    expect(bridge.came.length).toBe(1);
  });

  test('a cancelled one gets none, and makes room for others, whatever the server does', async () => {
    const bridge = await begin(({ body }, response) => {
      if (idOf(body) === undefined) response.writeHead(202).end();
      if (idOf(body) === 300) json(response, { jsonrpc: '2.0', id: 300, result: {} });
    });
    bridge.write(...Array.from({ length: 256 }, (_, at) => call(at)));
    await expect.poll(() => bridge.came.length).toBe(256);
    bridge.write(call(256));
    await expect.poll(() => bridge.lines).toMatchObject([{ id: 256, error: { code: -32_004 } }]);
    for (let id = 0; id < 256; id += 1) bridge.write({ method: 'notifications/cancelled', params: { requestId: id } });
    await expect.poll(() => bridge.came.length).toBe(512);
    bridge.write(call(300));
    await expect.poll(() => bridge.lines.slice(1)).toMatchObject([{ id: 300, result: {} }]);
    bridge.input.end();
    await bridge.ended;
    expect(bridge.lines.length).toBe(2);
  });
});

test('a call whose connection was kept from before, and breaks, is not sent again: it may have run', async () => {
  const bridge = await begin(({ body }, response, { socket }) => {
    if (idOf(body) === 2) socket.destroy();
    else json(response, { jsonrpc: '2.0', id: idOf(body), result: {} });
  });
  bridge.write({ id: 1, method: 'ping' });
  await expect.poll(() => answers(bridge, 1).length).toBe(1);
  bridge.write(call(2));
  await expect.poll(() => answers(bridge, 2)).toMatchObject([{ error: { data: { did_it_happen: 'maybe' } } }]);
  expect(bridge.came.filter(({ body }) => idOf(body) === 2)).toHaveLength(1);
});

test('a request that changes nothing is repeated once where its connection breaks, and no more', async () => {
  let breaks = 1;
  const bridge = await begin(({ body }, response, { socket }) => {
    breaks -= 1;
    if (breaks >= 0) socket.destroy();
    else json(response, { jsonrpc: '2.0', id: idOf(body), result: {} });
  });
  bridge.write({ id: 1, method: 'tools/list' });
  await expect.poll(() => bridge.lines).toMatchObject([{ id: 1, result: {} }]);
  breaks = 100;
  bridge.write({ id: 2, method: 'tools/list' });
  await expect
    .poll(() => answers(bridge, 2))
    .toMatchObject([{ error: { code: -32_003, data: { did_it_happen: 'no' } } }]);
  expect(bridge.came.filter(({ body }) => idOf(body) === 2)).toHaveLength(2);
});

test('a call that nobody listened to is sent when somebody does again, and once', async () => {
  const bridge = await begin(({ body }, response) => json(response, { jsonrpc: '2.0', id: idOf(body), result: {} }));
  await bridge.listens(false);
  bridge.write(call(1));
  // It is tried at once, and after a quarter of a second.
  await sleep(350);
  await bridge.listens(true);
  await expect.poll(() => bridge.lines).toMatchObject([{ id: 1, result: {} }]);
  expect(bridge.came).toHaveLength(1);
});

test('what comes after a message without an answer is sent once the server has taken it', async () => {
  let taken = 0;
  const seen: number[] = [];
  const bridge = await begin(({ body }, response) => {
    if (idOf(body) !== undefined) {
      seen.push(taken);
      return json(response, { jsonrpc: '2.0', id: idOf(body), result: {} });
    }
    return void sleep(100).then(() => {
      taken += 1;
      response.writeHead(202).end();
    });
  });
  bridge.write({ method: 'notifications/roots/list_changed' }, { id: 1, method: 'ping' });
  await expect.poll(() => answers(bridge, 1).length).toBe(1);
  expect(seen).toEqual([1]);
});

test('at the end of its input the bridge waits for the answers that are left', async () => {
  const bridge = await begin(({ body }, response) => {
    bridge.input.end();
    void sleep(150).then(() => json(response, { jsonrpc: '2.0', id: idOf(body), result: {} }));
  });
  bridge.write(call(1));
  await bridge.ended;
  expect(bridge.lines).toMatchObject([{ id: 1, result: {} }]);
});

describe('a server that is silent', () => {
  test('is no reason to stay: the bridge ends with its input, or by a signal, and what was not sent has its answer, too', async () => {
    const silentAfter = async (silent: string, end: (bridge: Bridged) => void): Promise<Bridged> => {
      const bridge = await begin(({ rpc, body }, response) => {
        if (rpc !== silent) json(response, { jsonrpc: '2.0', id: idOf(body), result: {} });
      });
      bridge.write({ id: 0, method: 'initialize' }, { method: 'notifications/initialized' }, call(1));
      await expect.poll(() => bridge.came.some(({ rpc }) => rpc === silent)).toBe(true);
      end(bridge);
      await bridge.ended;
      expect(bridge.lines.map(({ id }) => id)).toEqual([0, 1]);
      return bridge;
    };
    const [first] = await Promise.all([
      silentAfter('initialize', ({ input }) => input.end()),
      silentAfter('notifications/initialized', ({ input }) => input.end()),
      silentAfter('tools/call', ({ input }) => input.end()),
      silentAfter('initialize', ({ stop }) => stop()),
    ]);
    expect(first?.lines[1]?.error).toMatchObject({
      message: 'The bridge ends. This one was not sent. An earlier request for the same action may have run.',
      data: { did_it_happen: 'maybe' },
    });
  });

  test('on what needs no answer: what comes after it is not held up', async () => {
    let givenUp = 0;
    const bridge = await begin(({ body }, response) => {
      if (idOf(body) !== undefined && !body.includes('"result"'))
        return json(response, { jsonrpc: '2.0', id: idOf(body), result: {} });
      response.on('close', () => (givenUp += 1));
    });
    bridge.write({ id: 'q', result: {} }, { method: 'notifications/progress' }, { id: 1, method: 'ping' });
    await expect.poll(() => answers(bridge, 1).length).toBe(1);
    // The server may still take them.
    expect(givenUp).toBe(0);
  });
});

describe('a client that does not read', () => {
  test('is waited for, and the bridge ends all the same', async () => {
    const bridge = await begin(() => {});
    bridge.output.removeAllListeners('data').pause();
    for (let at = 0; at < 100_000; at += 1) bridge.write('{');
    const { writableLength } = bridge.input;
    expect(writableLength).toBeGreaterThan(0);
    await sleep(50);
    expect(bridge.output.readableLength + bridge.output.writableLength).toBeLessThan(1_000_000);
    bridge.stop();
    await bridge.ended;
  });

  test('a line for people is no flood either', async () => {
    const bridge = await begin(({ body }, response) => {
      for (let at = 0; at < 5_000; at += 1) stream(response, 'data: no message\n\n');
      stream(response, { id: idOf(body), result: {} });
      response.end();
    });
    bridge.write(call(1));
    await expect.poll(() => answers(bridge, 1).length).toBe(1);
    expect(bridge.said.length).toBeGreaterThan(0);
    expect(bridge.said.length).toBeLessThan(100);
  });
});

describe('the streams of a server', () => {
  test('that ends them at once with "retry: 0" is not asked in a loop', async () => {
    const bridge = await begin(({ method, body }, response) => {
      if (method === 'GET') return (stream(response, 'retry: 0\n\n'), void response.end());
      if (idOf(body) === undefined) return void response.writeHead(202).end();
      return json(response, { jsonrpc: '2.0', id: 0, result: { protocolVersion: '2025-11-25' } });
    });
    bridge.write({ id: 0, method: 'initialize' }, { method: 'notifications/initialized' });
    await expect.poll(() => bridge.came.some(({ method }) => method === 'GET')).toBe(true);
    await sleep(400);
    expect(bridge.came.filter(({ method }) => method === 'GET').length).toBeLessThan(4);
  });

  test('that lets its client poll is polled until it answers, as long as events come', async () => {
    let polls = 0;
    const bridge = await begin(({ body }, response) => {
      if (polls === 12) stream(response, { id: 1, result: {} });
      stream(response, `id: ${polls}-ü\nretry: 1\ndata:\n\n`);
      response.end();
      polls += 1;
      return body;
    });
    bridge.write(call(1));
    await expect.poll(() => bridge.lines).toMatchObject([{ id: 1, result: {} }]);
    expect(bridge.came.filter(({ method }) => method === 'POST').length).toBe(1);
    expect(Buffer.from(String(bridge.came[1]?.headers['last-event-id']), 'latin1').toString('utf8')).toBe('0-ü');
  });

  test('that says nothing new is not taken up for ever: the request gets an error', async () => {
    const bridge = await begin((_came, response) => {
      stream(response, 'id: same\nretry: 1\ndata:\n\n');
      response.end();
    });
    bridge.write(call(1));
    await expect.poll(() => bridge.lines, { timeout: 5_000 }).toMatchObject([{ id: 1, error: { code: -32_003 } }]);
  });

  test('an event beyond all measure is not asked for again', async () => {
    const bridge = await begin((_came, response) => {
      stream(response, 'id: 1\ndata:\n\n', `id: 2\ndata: ${'x'.repeat(17 * 1024 * 1024)}`);
    });
    bridge.write(call(1));
    await expect
      .poll(() => bridge.lines)
      .toMatchObject([{ error: { code: -32_003, data: { did_it_happen: 'maybe' } } }]);
    expect(bridge.lines[0]?.error?.message).toContain('16777216 bytes');
    expect(bridge.came.length).toBe(1);
  });

  test('all together have a bound', async () => {
    const most = 15 * 1024 * 1024;
    const bridge = await begin(({ body }, response) => {
      const id = idOf(body);
      stream(response, `data: {"jsonrpc":"2.0","id":${String(id)},"result":{"x":"${'x'.repeat(most)}`);
    });
    bridge.write(...Array.from({ length: 10 }, (_, at) => call(at)));
    // Those that fit are held; the others are told.
    await expect.poll(() => bridge.lines.length).toBeGreaterThanOrEqual(2);
    for (const { error } of bridge.lines)
      expect(error).toMatchObject({ code: -32_003, data: { did_it_happen: 'maybe' } });
  });
});

test('requests that were answered make room for others: more than 64 MiB in all go through', async () => {
  const bridge = await begin(({ body }, response) => json(response, { jsonrpc: '2.0', id: idOf(body), result: {} }));
  const long = 'x'.repeat(3 * 1024 * 1024);
  for (let id = 0; id < 24; id += 1) {
    bridge.write({ id, method: 'tools/call', params: { name: 'pay', arguments: { long } } });
    await expect.poll(() => answers(bridge, id)).toMatchObject([{ result: {} }]);
  }
});

test('a message has at most 16 MiB, in either direction', async () => {
  const most = 16 * 1024 * 1024;
  const bridge = await begin(({ body }, response) =>
    json(response, { jsonrpc: '2.0', id: idOf(body), result: { long: 'x'.repeat(most) } }),
  );
  bridge.write({ id: 1, method: 'ping', params: { long: 'x'.repeat(most) } });
  await expect.poll(() => bridge.lines).toMatchObject([{ id: null, error: { code: -32_600 } }]);
  expect(bridge.came).toEqual([]);
  bridge.write(call(2));
  await expect
    .poll(() => answers(bridge, 2))
    .toMatchObject([{ error: { code: -32_003, message: expect.stringContaining(`${most} bytes`) as unknown } }]);
});

test('requests that are open at once have 64 MiB together: what is beyond that is not sent', async () => {
  const bridge = await begin(() => undefined);
  const long = 'x'.repeat(15 * 1024 * 1024);
  for (let id = 0; id < 5; id += 1) {
    bridge.write({ id, method: 'tools/call', params: { name: 'pay', long } });
    await expect.poll(() => bridge.came.length + bridge.lines.length).toBe(id + 1);
  }
  expect(bridge.lines).toMatchObject([{ id: 4, error: { code: -32_004, data: { did_it_happen: 'maybe' } } }]);
});

describe('sessions and keys', () => {
  test.each([
    ['', []],
    // A client that tries the era without sessions first.
    [', also of one that tried without', [{ id: 1, method: 'ping', params: { _meta: STATELESS } }]],
  ])('a call goes into the session that there is, and what begins one goes into none%s', async (_of, tried) => {
    const bridge = await begin(({ body }, response) => {
      if (idOf(body) === undefined) return response.writeHead(202).end();
      const given = body.includes('initialize') ? { 'mcp-session-id': 's1' } : {};
      return json(response, { jsonrpc: '2.0', id: idOf(body), result: { protocolVersion: '2025-06-18' } }, given);
    });
    const said = [
      { id: 2, method: 'initialize' },
      { id: 3, method: 'ping' },
      { id: 4, method: 'initialize' },
    ];
    for (const message of tried) {
      bridge.write(message);
      await expect.poll(() => answers(bridge, message.id).length).toBe(1);
    }
    for (const message of said) {
      bridge.write(message);
      await expect.poll(() => answers(bridge, message.id).length).toBe(1);
    }
    const sent = said.map(({ id }) => bridge.came.find(({ body }) => idOf(body) === id)?.headers);
    const of = (name: string): unknown[] => sent.map((headers) => headers?.[name]);
    expect(of('mcp-session-id')).toEqual([undefined, 's1', undefined]);
    expect(of('mcp-protocol-version')[1]).toBe('2025-06-18');
  });

  test('a client that begins again ends the session before', async () => {
    let sessions = 0;
    const bridge = await begin(({ method, body }, response) => {
      if (method === 'DELETE') return void response.writeHead(204).end();
      sessions += 1;
      return json(response, { jsonrpc: '2.0', id: idOf(body), result: {} }, { 'mcp-session-id': `s${sessions}` });
    });
    bridge.write({ id: 1, method: 'initialize' }, { id: 2, method: 'initialize' });
    await expect.poll(() => bridge.lines.length).toBe(2);
    bridge.input.end();
    await bridge.ended;
    const deleted = bridge.came
      .filter(({ method }) => method === 'DELETE')
      .map(({ headers }) => headers['mcp-session-id']);
    expect(new Set(deleted)).toEqual(new Set(['s1', 's2']));
  });

  test('a version that no header can carry goes into none', async () => {
    const bridge = await begin(({ body }, response) =>
      json(response, { jsonrpc: '2.0', id: idOf(body), result: { protocolVersion: '2025\r\nX-Other: 1 …' } }),
    );
    bridge.write({ id: 0, method: 'initialize' }, { id: 1, method: 'ping' });
    bridge.write({ id: 2, method: 'ping', params: { _meta: { 'io.modelcontextprotocol/protocolVersion': 'a\nb' } } });
    await expect
      .poll(() => bridge.lines.map(({ id, error }) => [id, error?.code]))
      .toEqual([
        [0, undefined],
        [1, undefined],
        [2, undefined],
      ]);
    expect(bridge.came.every(({ headers }) => headers['mcp-protocol-version'] === undefined)).toBe(true);
  });

  test('a key that was replaced serves all requests that the old one was refused for, and stands in no words of the bridge', async () => {
    const waiting: (() => void)[] = [];
    const bridge = await begin(({ headers, body }, response) => {
      if (headers.authorization === 'Bearer svc_agent_second')
        return json(response, { jsonrpc: '2.0', id: idOf(body), result: {} });
      const refuse = (): void => {
        response.writeHead(401, { 'content-type': 'application/json' });
        response.end(JSON.stringify({ detail: `${String(headers.authorization)} is not valid` }));
      };
      waiting.push(refuse);
      if (idOf(body) === 9) refuse();
    });
    bridge.write(call(9));
    await expect.poll(() => bridge.lines).toMatchObject([{ id: 9, error: { code: -32_001 } }]);
    bridge.write(call(1), call(2), call(3));
    await expect.poll(() => waiting.length).toBe(4);
    bridge.key = 'svc_agent_second';
    for (const refuse of waiting.slice(1)) refuse();
    await expect.poll(() => bridge.lines.length).toBe(4);
    for (const id of [1, 2, 3]) expect(answers(bridge, id)).toMatchObject([{ result: {} }]);
    expect(JSON.stringify([bridge.lines, bridge.said])).not.toContain('svc_agent_');
  });
});
