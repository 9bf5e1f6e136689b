import { connect } from 'node:net';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { makeApiKey } from '../system/gateway.ts';
import { shortest } from '../shortest.ts';
import { HOSTILE_REQUESTS, type HostileRequest } from './hostile-requests.ts';
import { startWatchedWorld, type Watched, type WatchedWorld } from './watched-world.ts';

/** No request holds the event loop for longer, CPU ms. */
const MOST_HELD_MS = 50;
/** All of them together leave no more memory behind, bytes. */
const MOST_GROWTH = 100 * 1024 * 1024;
/**
 * Bytes of the process come and go by a hundred million with the young generations of its two threads: more than this is
 * held by what no thread counts.
 */
const MOST_GROWTH_OF_PROCESS = 256 * 1024 * 1024;
/** A client that hears nothing goes away after this time, ms. */
const PATIENCE_MS = 1_000;
/** One whose connection does not end, after this time, ms: what is wrong shows at once, or in the time the loop is held. */
const LISTENS_MS = 250;
/** Requests that are under way together. */
const TOGETHER = 1;

let watched: WatchedWorld;
let keys: Readonly<Record<string, string>>;
beforeAll(async () => {
  watched = await startWatchedWorld();
  const { world } = watched;
  keys = {
    account: world.keys.account,
    none: '',
    agent: await makeApiKey(world.gateway, 'olga', { kind: 'agent', agent_id: 'bot', workspace: 'demo' }),
    administrative: world.gateway.administrativeKey,
    profile: world.keys.readonly,
  };
}, 60_000);
afterAll(() => watched.close());

/** Sends one request on a connection of its own, and gives the statuses that come back. */
async function send(
  request: HostileRequest,
  key: string,
): Promise<{ readonly statuses: readonly number[]; readonly text: string }> {
  const { hostname, port, host } = new URL(watched.world.gateway.url);
  const socket = connect(Number(port), hostname);
  let text = '';
  socket.setEncoding('latin1').on('data', (chunk: string) => {
    if (text.length < 100_000) text += chunk;
  });
  socket.on('error', () => undefined);
  socket.setTimeout(request.after === 'listen' ? LISTENS_MS : PATIENCE_MS, () => socket.destroy());
  const closed = new Promise<void>((resolve) => socket.once('close', () => resolve()));
  socket.write(request.bytes({ host, key: key === '' ? '' : `x-api-key: ${key}\r\n` }), () => {
    if (request.after === 'leave') socket.destroy();
  });
  await closed;
  return { statuses: [...text.matchAll(/HTTP\/1\.1 (\d{3}) /g)].map(([, status]) => Number(status)), text };
}

test(`${HOSTILE_REQUESTS.length} hostile requests with each kind of key`, async () => {
  expect(HOSTILE_REQUESTS.length).toBeGreaterThanOrEqual(300);
  const bad: string[] = [];
  const round = async (requests: readonly HostileRequest[], kind: string): Promise<void> => {
    const waiting = [...requests];
    const one = async (): Promise<void> => {
      for (let next = waiting.shift(); next !== undefined; next = waiting.shift()) {
        const { statuses, text } = await send(next, keys[kind] ?? '');
        const ours = statuses.filter((status) => status >= 500 && status !== 501 && status !== 502);
        if (ours.length > 0 && !/The gateway is overloaded|Too many requests of this connection/.test(text))
          bad.push(`${kind} ${next.name}: ${text.slice(0, 1500)}`);
        const held = await shortest(MOST_HELD_MS, async (time) => {
          if (time > 0) await send(next, keys[kind] ?? '');
          return (await watched.watched()).held;
        });
        if (held > MOST_HELD_MS) bad.push(`${kind} ${next.name}: the loop was held for ${held.toFixed(1)} ms`);
      }
    };
    await Promise.all(Array.from({ length: TOGETHER }, one));
  };
  // What is compiled and filled on first use is no growth, and not the next request's.
  await round(
    HOSTILE_REQUESTS.filter((_, index) => index % 4 === 0),
    'account',
  );
  bad.length = 0;
  let before: Watched | null = null;
  for (const kind of Object.keys(keys)) {
    // What is no request carries no key.
    await round(
      HOSTILE_REQUESTS.filter(({ name }) => kind === 'none' || !name.startsWith('socket:')),
      kind,
    );
    // Pools, caches and heaps have their size after the first round: what later ones add is growth.
    before ??= await watched.settled();
  }
  const after = await watched.settled();
  expect(bad).toEqual([]);
  expect(after.used - (before?.used ?? 0)).toBeLessThan(MOST_GROWTH);
  expect(after.threads.length).toBeGreaterThan(0);
  expect(after.rss - (before?.rss ?? 0)).toBeLessThan(MOST_GROWTH_OF_PROCESS);
  expect(after.open).toBeLessThanOrEqual((before?.open ?? 0) + 2);
  const alive = await watched.world.get('/effects');
  expect(alive.status).toBe(200);
}, 120_000);
