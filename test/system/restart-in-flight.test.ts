import { join } from 'node:path';
import { afterEach, expect, it } from 'vitest';
import { checkWorkspace } from '../../src/effects/fsck.ts';
import { loadDriver } from '../../src/stores/embedded/driver.ts';
import { openEmbeddedStore } from '../../src/stores/embedded/open.ts';
import { until } from '../redis/servers.ts';
import type { TestFiles, TestGateway } from './gateway.ts';
import { dieInFlight, type InFlight, note } from './in-flight.ts';
import { startWorld, type World, worldFiles } from './world.ts';

/**
 * How many effects are in flight. The promise speaks of 200,000; they take a minute or two:
 * `SVC_IN_FLIGHT=200000 npx vitest run --project system test/system/restart-in-flight.test.ts`
 */
const IN_FLIGHT = Number(process.env['SVC_IN_FLIGHT'] ?? 20_000);

/** From the start of the process to its first answer, ms; 2 s on a quiet machine. */
const FIRST_ANSWER_MS = 8000;

let world: World | null = null;
let restarted: TestGateway | null = null;
afterEach(async () => {
  await restarted?.stop();
  restarted = null;
  await world?.close();
  world = null;
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

it(`with ${IN_FLIGHT} effects in flight a restart answers each as unknown from the first request on`, async () => {
  world = await startWorld({ files: withBudget });
  const { gateway, upstream, keys } = world;
  const calls = await dieInFlight(world, IN_FLIGHT);
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
  const database = (await loadDriver())(join(gateway.dataFolder, 'store.db'));
  const executing = database.prepare('SELECT count(*) AS rows FROM running');
  const times: number[] = [];
  let committed = 0;
  await until(async () => {
    const began = performance.now();
    const answer = await world?.run(note(`after-${committed}`), keys.bot);
    times.push(performance.now() - began);
    expect(answer?.body).toMatchObject({ decision: 'committed' });
    committed += 1;
    return executing.get()?.['rows'] === 0;
  }, 300_000);
  const sweptMs = performance.now() - spawned;
  database.close();
  expect((await upstream.counts()).requests).toBe(sent + committed);
  await restarted.stop();
  times.sort((a, b) => a - b);
  console.log(
    `${IN_FLIGHT} in flight: first answer after ${Math.round(firstMs)} ms, all on record after ${Math.round(sweptMs)} ms; ` +
      `${committed} calls meanwhile, median ${times[times.length >> 1]?.toFixed(1)} ms, longest ${times.at(-1)?.toFixed(1)} ms`,
  );

  const store = await openEmbeddedStore({
    path: gateway.dataFolder,
    lockWaitMs: 10_000,
    retention: { keysMs: null, effectsMs: 1e12, denialsMs: 1e12 },
    worker: 'never',
  });
  try {
    expect(await checkWorkspace(store, 'demo')).toEqual([]);
    expect(await store.budgets('demo')).toMatchObject([{ held: IN_FLIGHT, spent: committed }]);
    for (const { id } of some(calls, 200)) {
      const kinds = (await store.effectLedger('demo', id)).map(({ kind }) => kind);
      expect(kinds).toEqual(['effect.admitted', 'budget.held', 'execution.lost']);
    }
  } finally {
    await store.close();
  }
}, 600_000);
