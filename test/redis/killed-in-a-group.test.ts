import { afterAll, beforeAll, expect, it } from 'vitest';
import { openRedisRows, type RedisRows } from '../../src/stores/redis/rows/open.ts';
import { done, newPlace, putOf } from '../port/changes.ts';
import { journalFolder } from './contract.ts';
import { rowsOptions } from './rows.ts';
import { type RedisServer, startRedis, until } from './servers.ts';

/** More than a script call takes at once: some groups run, others wait behind them. */
const CHANGES = 300;

/** How many changes have been answered when the server is killed. */
const KILLED_AFTER = [0, 1, 65, 200];

let server: RedisServer;
let store: RedisRows;
beforeAll(async () => {
  server = await startRedis();
  store = await openRedisRows(rowsOptions(server, { journalFolder: journalFolder() }));
});
afterAll(async () => {
  await store.close();
  await server.stop();
}, 10_000);

it('a server killed in the middle of a group: each change is answered, and what was answered as made is there', {
  timeout: 30_000,
}, async () => {
  let made = 0;
  let failed = 0;
  for (const [round, killedAfter] of KILLED_AFTER.entries()) {
    const place = await newPlace(store);
    let answers = 0;
    async function put(n: number): Promise<void> {
      try {
        done(await place.commit({ puts: [putOf('thing', `r${round}-${n}`, 'text')] }));
      } finally {
        answers += 1;
        if (answers === killedAfter) void server.kill();
      }
    }
    const asked = Array.from({ length: CHANGES }, (_, n) => put(n));
    if (killedAfter === 0) setImmediate(() => setImmediate(() => void server.kill()));
    const settled = await Promise.allSettled(asked);
    await server.kill();
    await server.start();
    // A store that was not asked meanwhile does not know that its connection is gone.
    await until(async () => (await newPlace(store).catch(() => null)) !== null);
    const wants = asked.map((_, n) => ({ kind: 'thing', id: `r${round}-${n}` }));
    const { rows } = await store.read(place.workspace, wants, []);
    const there = new Set(rows.filter(({ row }) => row !== null).map(({ id }) => id));
    for (const [n, outcome] of settled.entries()) {
      if (outcome.status === 'fulfilled') {
        made += 1;
        expect(there).toContain(`r${round}-${n}`);
      } else {
        failed += 1;
        expect(outcome.reason).toMatchObject({ name: 'StoreUnavailable' });
      }
    }
  }
  expect(made).toBeGreaterThan(0);
  expect(failed).toBeGreaterThan(0);
});

it('a listener that throws fails its own change, and not the rest of the group', async () => {
  const place = await newPlace(store);
  store.watch(['broken'], () => {
    throw new Error('a listener is broken');
  });
  async function change(kind: string): Promise<void> {
    done(await place.commit({ puts: [putOf(kind, 'one', 'text')] }));
  }
  const settled = await Promise.allSettled([change('before'), change('broken'), change('after')]);
  expect(settled.map(({ status }) => status)).toEqual(['fulfilled', 'rejected', 'fulfilled']);
});
