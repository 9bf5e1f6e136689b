import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, expect, it } from 'vitest';
import { checkWorkspace } from '../../src/effects/upkeep/fsck.ts';
import { loadDriver } from '../../src/stores/embedded/driver.ts';
import { DEEP } from '../deep.ts';
import { type RedisServer, startRedis, until } from '../redis/servers.ts';
import type { TestFiles, TestGateway } from './gateway.ts';
import { onRedis } from './fleet.ts';
import { dieInFlight, type InFlight, note, openStoreOf } from './in-flight.ts';
import { startWorld, type World, worldFiles } from './world.ts';

/**
 * How many effects are in flight: more than the pages of any list have. The promise speaks of 200,000; they take some
 * minutes to make: `SVC_IN_FLIGHT=200000 npx vitest run --project measured test/system/restart-in-flight.test.ts`
 */
const ASKED = process.env['SVC_IN_FLIGHT'];
const IN_FLIGHT = {
  embedded: Number(ASKED ?? (DEEP ? 20_000 : 4_000)),
  redis: Number(ASKED ?? (DEEP ? 4_000 : 1_500)),
};

/** From the start of the process to its first answer, ms: what a start costs on a busy machine, however many are in flight. */
const FIRST_ANSWER_MS = 20_000;

let world: World | null = null;
let restarted: TestGateway | null = null;
let redis: RedisServer | null = null;
afterEach(async () => {
  await restarted?.stop();
  restarted = null;
  await world?.close();
  world = null;
  await redis?.stop();
  redis = null;
});

/** The files of the other tests, with a budget that notes are held in. */
function withBudget(upstreamUrl: string): TestFiles {
  const { config, policies } = worldFiles(upstreamUrl);
  const text = policies['world.yaml'] ?? '';
  const budget = 'obligations: [ { budget: { use: charges, amount: 1 } } ]';
  return { config, policies: { 'world.yaml': text.replace('[notes.add] } }', `[notes.add] }, ${budget} }`) } };
}

/** Some of many, from all over. */
function some(calls: readonly InFlight[], count: number): readonly InFlight[] {
  return Array.from({ length: count }, (_, n) => calls[Math.floor(((n + 0.5) * calls.length) / count)]).filter(
    (call) => call !== undefined,
  );
}

const UNKNOWN = { decision: 'unknown_effect', did_it_happen: 'maybe', safe_to_retry: false };

/** Kills a gateway with many calls in flight, starts it again, and looks. `countLeft`: how many still execute on record. */
async function restartInFlight(
  kind: keyof typeof IN_FLIGHT,
  started: World,
  env: Readonly<Record<string, string>>,
  openCount: () => Promise<{ countLeft(): Promise<number> | number; close(): void }>,
): Promise<void> {
  world = started;
  const { gateway, upstream, keys } = world;
  const calls = await dieInFlight(world, IN_FLIGHT[kind], env);
  const sent = (await upstream.counts()).requests;

  const spawned = performance.now();
  restarted = await gateway.restart();
  const [last, ...others] = [...some(calls, 60)].reverse();
  const first = await world.run(note(last?.key ?? ''));
  const firstMs = performance.now() - spawned;
  expect(first.status).toBe(409);
  expect(first.body).toMatchObject({ ...UNKNOWN, effect_id: last?.id });
  expect(firstMs).toBeLessThan(FIRST_ANSWER_MS);

  const listed = await world.get('/effects?state=executing');
  expect(listed.body.effects).toEqual([]);
  for (const filter of ['?state=unknown&limit=50', '?decision=unknown_effect&limit=50', '?limit=50']) {
    const { body } = await world.get(`/effects${filter}`);
    expect(body.effects.map(({ state }: { state: string }) => state)).toEqual(Array(50).fill('unknown'));
  }
  for (const [n, { key, id }] of others.entries()) {
    if (n % 2 === 0) expect((await world.run(note(key))).body, key).toMatchObject({ ...UNKNOWN, effect_id: id });
    else expect((await world.get(`/effects/${id}`)).body.effect, id).toMatchObject({ id, state: 'unknown' });
  }
  const early = await world.post(`/effects/${calls[1]?.id}/resolve`, { outcome: 'not_happened' });
  expect(early.body.code).toBe('too_early');

  // What comes anew is served meanwhile.
  const count = await openCount();
  const times: number[] = [];
  let committed = 0;
  await until(async () => {
    const began = performance.now();
    const answer = await world?.run(note(`after-${committed}`), keys.bot);
    times.push(performance.now() - began);
    expect(answer?.body).toMatchObject({ decision: 'committed' });
    committed += 1;
    return (await count.countLeft()) === 0;
  }, 300_000);
  const sweptMs = performance.now() - spawned;
  count.close();
  expect((await upstream.counts()).requests).toBe(sent + committed);
  await restarted.stop();
  times.sort((a, b) => a - b);
  console.log(
    `${kind}, ${IN_FLIGHT[kind]} in flight: first answer after ${Math.round(firstMs)} ms, all on record after ${Math.round(sweptMs)} ms; ` +
      `${committed} calls meanwhile, median ${times[times.length >> 1]?.toFixed(1)} ms, longest ${times.at(-1)?.toFixed(1)} ms`,
  );

  const { store } = await openStoreOf(gateway, env);
  try {
    expect(await checkWorkspace(store, 'demo')).toEqual([]);
    expect(await store.budgets('demo')).toMatchObject([{ held: IN_FLIGHT[kind], spent: committed }]);
    for (const { id } of some(calls, 200)) {
      const kinds = (await store.effectLedger('demo', id)).map(({ kind }) => kind);
      expect(kinds).toEqual(['effect.admitted', 'budget.held', 'execution.lost']);
    }
  } finally {
    await store.close();
  }
}

it(`with ${IN_FLIGHT.embedded} effects in flight a restart answers each as unknown from the first request on`, async () => {
  const started = await startWorld({ files: withBudget });
  await restartInFlight('embedded', started, {}, async () => {
    const database = (await loadDriver())(join(started.gateway.dataFolder, 'store.db'));
    const executing = database.prepare(
      "SELECT count(*) AS rows FROM places JOIN names ON names.n = places.list WHERE names.name = 'leases'",
    );
    return { countLeft: () => Number(executing.get()?.['rows']), close: () => database.close() };
  });
}, 600_000);

it(`on Redis, with ${IN_FLIGHT.redis} effects of its own in flight, a restarted gateway answers each as unknown from the first request on`, async () => {
  const shared = await mkdtemp(join(tmpdir(), 'svc-shared-'));
  redis = await startRedis();
  const { client, url } = redis;
  const env = { SVC_TEST_SHARED: shared };
  const started = await startWorld({ env, files: (upstream) => onRedis(withBudget(upstream), `url: "${url}"`) });
  const countLeft = (): Promise<number> => client.zcard('svc:{demo}:z:leases');
  await restartInFlight('redis', started, env, async () => ({ countLeft, close: () => undefined }));
  await rm(shared, { recursive: true });
}, 600_000);
