import { cpSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, expect, it } from 'vitest';
import { DEEP } from '../deep.ts';
import { type RedisServer, startRedis, until } from '../redis/servers.ts';
import { svcBeside } from './command-line.ts';
import { type Fleet, startFleet } from './fleet.ts';
import { refund } from './world.ts';

/*
 * A Redis that is set back to an older snapshot between two starts of its gateways: what ran after it must not run again
 * where a gateway comes first that did not run it.
 */

const closers: (() => Promise<unknown>)[] = [];
afterEach(async () => {
  for (const close of closers.splice(0).reverse()) await close();
});

interface Kept {
  readonly redis: RedisServer;
  readonly fleet: Fleet;
  /** Copies what Redis has. @returns puts it back, with Redis killed meanwhile */
  snapshot(): Promise<() => Promise<void>>;
}

async function kept(): Promise<Kept> {
  const redis = await startRedis();
  closers.push(() => redis.stop());
  const fleet = await startFleet({ gateways: 2, store: `url: "${redis.url}", max_freeze: 1s` });
  closers.push(() => fleet.close());
  return {
    redis,
    fleet,
    async snapshot() {
      const copy = mkdtempSync(join(tmpdir(), 'svc-snapshot-'));
      closers.push(async () => rmSync(copy, { recursive: true }));
      cpSync(redis.folder, copy, { recursive: true });
      return () =>
        redis.restart(() => {
          rmSync(redis.folder, { recursive: true });
          cpSync(copy, redis.folder, { recursive: true });
        });
    },
  };
}

/** How a gateway ends. */
type End = 'stopped' | 'killed';

async function end(fleet: Fleet, gateway: number, how: End): Promise<void> {
  const one = fleet.gateways[gateway]!;
  if (how === 'stopped') return one.stop();
  one.kill('SIGKILL');
  await one.ended;
}

/** Asks a call again and again for a while: it must never leave. */
async function neverRuns(
  fleet: Fleet,
  gateway: number,
  call: Record<string, unknown>,
  forMs: number,
): Promise<Set<string>> {
  const before = await fleet.upstream.counts();
  const said = new Set<string>();
  for (const until = Date.now() + forMs; Date.now() < until; ) {
    const { status, body } = await fleet.run(gateway, call);
    said.add(status === 503 ? '503' : String(body.decision));
    await new Promise((resolve) => setTimeout(resolve, 200));
  }
  expect(await fleet.upstream.counts(), [...said].join()).toEqual(before);
  return said;
}

const ENDS: readonly [End, End][] = [
  ['stopped', 'killed'],
  ['killed', 'stopped'],
];
const ALIKE: readonly [End, End][] = [
  ['stopped', 'stopped'],
  ['killed', 'killed'],
];

it.each(DEEP ? [...ENDS, ...ALIKE] : ENDS)(
  'the first gateway was %s before, the one that ran it %s after: the first runs it not again',
  async (first, second) => {
    const { fleet, snapshot } = await kept();
    expect((await fleet.run(0, refund())).body.decision).toBe('committed');
    expect((await fleet.run(1, refund())).body.decision).toBe('committed');
    await end(fleet, 0, first);
    const putBack = await snapshot();
    const call = refund();
    expect((await fleet.run(1, call)).body.decision).toBe('committed');
    await end(fleet, 1, second);
    await putBack();
    await fleet.restart(0);
    expect(await neverRuns(fleet, 0, call, 2_000)).toEqual(new Set(['503']));
    await fleet.restart(1);
    await until(async () => (await fleet.run(0, call)).body.decision === 'duplicate_blocked', 40_000);
  },
);

it.each<End>(['stopped', 'killed'])(
  'where all had left before the snapshot, accept-loss waits for the one that ran it and was %s after',
  async (second) => {
    const { fleet, snapshot } = await kept();
    for (const gateway of [0, 1]) expect((await fleet.run(gateway, refund())).body.decision).toBe('committed');
    for (const gateway of [0, 1]) await end(fleet, gateway, 'stopped');
    const putBack = await snapshot();
    await fleet.restart(1);
    const call = refund();
    await until(async () => (await fleet.run(1, call)).body.decision === 'committed');
    await end(fleet, 1, second);
    await putBack();
    // Nothing in Redis or beside the first gateway tells that anything ran: whoever puts a snapshot back has to say so.
    expect(await svcBeside(fleet, 0, 'store', 'accept-loss')).toMatchObject({ code: 0 });
    await fleet.restart(0);
    expect(await neverRuns(fleet, 0, call, 2_000)).toEqual(new Set(['503']));
    await fleet.restart(1);
    await until(async () => (await fleet.run(0, call)).body.decision === 'duplicate_blocked', 40_000);
  },
);
