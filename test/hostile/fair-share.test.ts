import { once } from 'node:events';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import { type AddressInfo, connect, type Socket } from 'node:net';
import { afterAll, afterEach, beforeAll, expect, it, vi } from 'vitest';
import { startWorld, type World, worldFiles } from '../system/world.ts';

/** For what has to come, and how soon is not the question. */
const PATIENT = { timeout: 20_000, interval: 20 } as const;

/** Of 8 connections one agent alone has 6. */
const CONNECTIONS = 8;
const SHARE = 6;

/** An upstream that keeps what is `slow` waiting, and tunnels what asks for it. */
const upstream = createServer((request, response) => {
  let text = '';
  request.on('data', (chunk) => {
    text += String(chunk);
  });
  request.on('end', () => {
    const slow = request.url?.endsWith('/slow') === true || text.includes('slow');
    if (slow) waiting.set(request, response);
    else response.end('{"ok":true}');
    // Of a request that its sender has left nothing waits any more.
    response.on('close', () => waiting.delete(request));
  });
});
const waiting = new Map<IncomingMessage, ServerResponse>();
const tunnels = new Set<Socket>();
const callers: Socket[] = [];
upstream.on('upgrade', (_request, socket: Socket) => {
  tunnels.add(socket);
  socket.on('error', () => {});
  socket.on('close', () => tunnels.delete(socket));
  socket.resume();
  socket.write('HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: upgrade\r\n\r\n');
});

let world: World;
beforeAll(async () => {
  upstream.listen(0, '127.0.0.1');
  await once(upstream, 'listening');
  const { port } = upstream.address() as AddressInfo;
  world = await startWorld({
    files: () => {
      const { config, policies } = worldFiles(`http://127.0.0.1:${port}`);
      const few = config
        .replaceAll('timeout: 20s', 'timeout: 60s')
        .replace('timeout: 10s }', `timeout: 60s, connections: ${CONNECTIONS} }`)
        .replace('tool: payments.get }', 'tool: payments.get, frames: ungoverned }');
      return { config: few, policies };
    },
  });
});
afterEach(() => {
  for (const response of waiting.values()) response.end('{"ok":true}');
});
afterAll(async () => {
  for (const socket of [...callers, ...tunnels]) socket.destroy();
  upstream.close();
  upstream.closeAllConnections();
  await world.close();
});

const note = (text: string, key: string) => ({ tool: 'notes.add', params: { text }, idempotency_key: key });

function read(path: string, key: string, signal?: AbortSignal): Promise<Response> {
  const headers = { 'x-api-key': key };
  return fetch(`${world.gateway.url}/payments/v1/payments/${path}`, signal ? { headers, signal } : { headers });
}

it('writes: an agent with many slow calls leaves places for others; who is over the share is told before admission', async () => {
  const { bot, otherBot } = world.keys;
  const calls = Array.from({ length: 14 }, (_, index) => world.run(note('slow', `fair-${index}`), bot));
  await vi.waitFor(() => expect(waiting.size).toBe(SHARE), PATIENT);
  for (let index = 0; index < 10; index += 1) {
    const other = await world.run(note('fast', `other-${index}`), otherBot);
    expect([other.status, other.body.decision]).toEqual([200, 'committed']);
  }
  expect(waiting.size).toBe(SHARE);
  const busy = new Set<number>();
  const ended = calls.map(async (call, index) => {
    const answer = await call;
    if (answer.status === 200) return answer.body.decision;
    busy.add(index);
    expect(answer.body).toMatchObject({ code: 'busy', next: 'retry', safe_to_retry: true });
    expect([answer.headers.get('retry-after'), answer.headers.get('x-should-retry')]).toEqual(['1', 'true']);
    return answer.status;
  });
  await vi.waitFor(() => expect(busy.size).toBe(14 - SHARE), PATIENT);
  for (const response of waiting.values()) response.end('{"ok":true}');
  expect((await Promise.all(ended)).filter((end) => end === 'committed')).toHaveLength(SHARE);
  // What was refused was never admitted: the same key runs as a first attempt.
  const records = (await world.get('/effects?limit=200')).body.effects;
  for (const index of busy) {
    expect(records.filter((record: { idempotency_key: string }) => record.idempotency_key === `fair-${index}`)).toEqual(
      [],
    );
    const again = await world.run(note('fast', `again-${index}`), bot);
    expect([again.body.decision, again.body.attempt]).toEqual(['committed', 1]);
  }
});

it('writes: what is sent in no case is answered also where there is no place for it', async () => {
  const { bot, otherBot } = world.keys;
  const first = await world.run(note('fast', 'full-before'), bot);
  const calls = Array.from({ length: SHARE }, (_, index) => world.run(note('slow', `full-${index}`), bot));
  await vi.waitFor(() => expect(waiting.size).toBe(SHARE), PATIENT);
  const refund = (key: string, amount: number, currency = 'EUR') =>
    world.run(
      { tool: 'payments.refund', params: { payment_id: 'pay_1', amount, currency }, idempotency_key: key },
      bot,
    );
  const [again, running, reused, denied, asked, broke, fresh] = await Promise.all([
    world.run(note('fast', 'full-before'), bot),
    world.run(note('slow', 'full-0'), bot),
    world.run(note('other', 'full-before'), bot),
    refund('full-denied', 100, 'XAU'),
    refund('full-asked', 60_000),
    world.run({ tool: 'notes.secret', params: { text: 'x' }, idempotency_key: 'full-no-rule' }, bot),
    world.run(note('fast', 'full-fresh'), bot),
  ]);
  expect(again.body).toMatchObject({ decision: 'duplicate_blocked', receipt: first.body.receipt });
  expect(running.body.decision).toBe('in_progress');
  expect([reused.status, reused.body.decision]).toEqual([409, 'idempotency_conflict']);
  expect([denied.status, denied.body.decision]).toEqual([403, 'denied_policy']);
  expect([asked.status, asked.body.decision]).toEqual([202, 'pending_approval']);
  expect([broke.status, broke.body.decision]).toEqual([403, 'denied_policy']);
  expect([fresh.status, fresh.body.code]).toEqual([429, 'busy']);
  // They are on record as ever.
  for (const { body } of [reused, denied, asked])
    expect((await world.get(`/effects/${body.effect_id}`)).body.effect.decision).toBe(body.decision);
  // A call that is approved now is sent later, by the gateway itself.
  const vote = await world.post(`/approvals/${asked.body.approval.id}/approve`, {}, world.keys.approver);
  expect([vote.status, vote.body.code]).toEqual([429, 'busy']);
  expect(waiting.size).toBe(SHARE);
  for (const response of waiting.values()) response.end('{"ok":true}');
  await vi.waitFor(
    async () =>
      expect((await world.get(`/effects/${asked.body.effect_id}`)).body.effect).toMatchObject({
        state: 'committed',
        attempt: 1,
      }),
    PATIENT,
  );
  for (const call of await Promise.all(calls)) expect(call.body.decision).toBe('committed');
  expect((await world.run(note('fast', 'full-fresh'), otherBot)).body.attempt).toBe(1);
});

it('reads: the same, and those whose caller leaves are ended at the upstream at once', async () => {
  const { bot, otherBot } = world.keys;
  const leave = new AbortController();
  const statuses: (number | string)[] = [];
  const reads = Array.from({ length: 14 }, () =>
    read('slow', bot, leave.signal).then(
      ({ status }) => statuses.push(status),
      () => statuses.push('left'),
    ),
  );
  await vi.waitFor(() => expect(waiting.size).toBe(SHARE), PATIENT);
  for (let index = 0; index < 10; index += 1) expect((await read('fast', otherBot)).status).toBe(200);
  await vi.waitFor(() => expect(statuses).toEqual(Array.from({ length: 14 - SHARE }, () => 429)), PATIENT);
  expect(await (await read('slow', bot)).json()).toMatchObject({ code: 'busy' });
  const left = performance.now();
  leave.abort();
  await vi.waitFor(() => expect(waiting.size).toBe(0), PATIENT);
  // Well before the upstream's time-out of a minute.
  expect(performance.now() - left).toBeLessThan(30_000);
  await Promise.all(reads);
  expect((await read('fast', bot)).status).toBe(200);
});

it('tunnels: the same, and a place is free again when its tunnel is closed', async () => {
  const { hostname, port, host } = new URL(world.gateway.url);
  const open = async (key: string): Promise<string> => {
    const socket = connect(Number(port), hostname);
    callers.push(socket);
    socket.on('error', () => {});
    socket.write(
      `GET /payments/v1/payments/ws HTTP/1.1\r\nHost: ${host}\r\nX-API-Key: ${key}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n`,
    );
    let text = '';
    socket.on('data', (chunk) => {
      text += String(chunk);
    });
    // Of a tunnel the head has come, of a refusal all.
    await vi.waitFor(() => expect(text).toMatch(/ 101 [\s\S]*\r\n\r\n|\}$/), PATIENT);
    return text;
  };
  const { bot, otherBot } = world.keys;
  const answers: string[] = [];
  for (let index = 0; index < 14; index += 1) answers.push(await open(bot));
  expect(answers.filter((text) => text.startsWith('HTTP/1.1 101 '))).toHaveLength(SHARE);
  const refused = answers.filter((text) => text.startsWith('HTTP/1.1 429 '));
  expect(refused).toHaveLength(14 - SHARE);
  expect(refused.every((text) => text.includes('retry-after: 1') && text.includes('"code":"busy"'))).toBe(true);
  expect(await open(otherBot)).toContain('HTTP/1.1 101 ');
  // The upstream keeps its side open: the place is free all the same.
  for (const socket of callers) socket.destroy();
  await vi.waitFor(async () => expect(await open(bot)).toContain('HTTP/1.1 101 '), PATIENT);
});
