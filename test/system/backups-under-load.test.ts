import { rmSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as passes } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { DEEP } from '../deep.ts';
import { seededRandom } from '../torture/random.ts';
import { svc } from './command-line.ts';
import type { TestGateway } from './gateway.ts';
import { freshKey, startWorld, type World } from './world.ts';

/**
 * Backups one after the other while callers take all that the machine has, some of them restored, and keys of all calls
 * repeated. How much of their rate the calls keep is printed and not asserted: a time is no test.
 */
const CALLERS = 16;
const EVERY_MS = DEEP ? 10_000 : 1_500;
const BACKUPS = DEEP ? 60 : 4;
/** Restored, in an order of their own. */
const RESTORED = DEEP ? 20 : 2;
/** How long calls are counted without a backup, before and after those with, ms. */
const ALONE_MS = DEEP ? 60_000 : 1_500;
/** Keys repeated after each restore: those at random, and the last of before it and the first of after it. */
const REPEATED = DEEP ? 2_000 : 200;
const AROUND = 50;
const SEED = 20_261_126;
/** What came after an early backup is half a million calls by then, each of which a restore takes in as unknown. */
const MOST_MS = BACKUPS * EVERY_MS + RESTORED * 300_000 + 240_000;

/** A call that was answered `committed`, and when it was sent and answered, ms. */
interface Committed {
  readonly key: string;
  readonly sent: number;
  readonly answered: number;
}

interface Backup {
  readonly folder: string;
  readonly begun: number;
  readonly ended: number;
}

let world: World;
let gateway: TestGateway;
const committed: Committed[] = [];
beforeAll(async () => {
  world = await startWorld();
  ({ gateway } = world);
});
// It ends with `svc fsck` of the store, which has as many effects as there were calls.
afterAll(() => world.close(), MOST_MS);

const call = (key: string) => world.run({ tool: 'notes.add', params: { text: key }, idempotency_key: key });

/** Calls without a pause, until it is stopped. */
function load(): { stop(): Promise<void> } {
  let isStopped = false;
  const callers = Array.from({ length: CALLERS }, async () => {
    while (!isStopped) {
      const key = freshKey();
      const sent = performance.now();
      const { body } = await call(key);
      if (body.decision === 'committed') committed.push({ key, sent, answered: performance.now() });
    }
  });
  return {
    async stop() {
      isStopped = true;
      await Promise.all(callers);
    },
  };
}

const rate = (from: number, until: number): number =>
  (committed.filter(({ answered }) => from <= answered && answered < until).length * 1_000) / (until - from);

async function backUp(name: string): Promise<Backup> {
  const folder = join(gateway.folder, name);
  const begun = performance.now();
  expect(await svc(gateway.folder, {}, 'backup', folder)).toMatchObject({ code: 0, err: '' });
  return { folder, begun, ended: performance.now() };
}

async function restore({ folder }: Backup): Promise<void> {
  await gateway.stop();
  const { code, out, err } = await svc(gateway.folder, {}, 'restore', folder, '--replace', '--json');
  expect({ code, err }).toEqual({ code: 0, err: '' });
  const { carried, replaced } = JSON.parse(out);
  expect(carried).toMatchObject({ fault: null });
  rmSync(replaced, { recursive: true });
  gateway = await gateway.restart();
}

/** What is repeated: of a busy minute there are too many to repeat them all, twenty times. */
function chosen(random: () => number, { begun, ended }: Backup): readonly Committed[] {
  const before = committed.filter(({ answered }) => answered < begun).slice(-AROUND);
  const after = committed.filter(({ sent }) => sent > ended).slice(0, AROUND);
  const others = Array.from({ length: REPEATED }, () => committed[Math.floor(random() * committed.length)]);
  return [...new Set([...before, ...after, ...others])].filter((call) => call !== undefined);
}

describe(`a backup every ${EVERY_MS / 1_000} s, ${BACKUPS} of them, under the load of ${CALLERS} callers`, () => {
  it(
    'none of its keys runs twice, whichever is restored, and what came after it is not known',
    async () => {
      const random = seededRandom(SEED);
      const order = Array.from({ length: BACKUPS }, (_, n) => n).toSorted(() => random() - 0.5);
      const wanted = new Set(order.slice(0, RESTORED));
      const calls = load();
      const backups: Backup[] = [];
      const begun = performance.now();
      await passes(ALONE_MS);
      const withBackups = performance.now();
      for (let n = 0; n < BACKUPS; n += 1) {
        const backup = await backUp(`backup-${n}`);
        backups.push(backup);
        // All of them would fill a disk. The next one goes on from this one.
        const before = backups[n - 1];
        if (before !== undefined && !wanted.has(n - 1)) rmSync(before.folder, { recursive: true });
        await passes(Math.max(0, withBackups + (n + 1) * EVERY_MS - performance.now()));
      }
      const alone = performance.now();
      await passes(ALONE_MS);
      const ended = performance.now();
      await calls.stop();
      const without = (rate(begun, withBackups) + rate(alone, ended)) / 2;
      const took = backups.map((backup) => backup.ended - backup.begun);
      console.log(
        `${committed.length} calls, ${BACKUPS} backups of ${Math.round(Math.min(...took))} to ${Math.round(Math.max(...took))} ms: ` +
          `${Math.round(rate(withBackups, alone))} calls/s with them, ${Math.round(without)} without, ${(rate(withBackups, alone) / without).toFixed(2)}`,
      );
      expect(committed.length).toBeGreaterThan(20 * BACKUPS);

      const seen = new Map<string, number>();
      for (const n of order.slice(0, RESTORED)) {
        const backup = backups[n];
        if (backup === undefined) throw new Error('it was not made');
        await restore(backup);
        if (DEEP) console.log(`backup ${n} is restored after ${Math.round((performance.now() - ended) / 1000)} s`);
        const repeated = chosen(random, backup);
        for (let at = 0; at < repeated.length; at += CALLERS) {
          const answers = repeated.slice(at, at + CALLERS).map(async ({ key, sent, answered }) => {
            const { decision } = (await call(key)).body;
            const is = answered < backup.begun ? 'before' : sent > backup.ended ? 'after' : 'meanwhile';
            return `${is}: ${decision}`;
          });
          for (const answer of await Promise.all(answers)) seen.set(answer, (seen.get(answer) ?? 0) + 1);
        }
      }
      console.log(Object.fromEntries(seen));
      const allowed = ['before: duplicate_blocked', 'meanwhile: duplicate_blocked', 'meanwhile: unknown_effect'];
      expect([...seen.keys()].filter((answer) => ![...allowed, 'after: unknown_effect'].includes(answer))).toEqual([]);
      expect(seen.get('after: unknown_effect')).toBeGreaterThan(AROUND);
      expect(seen.get('before: duplicate_blocked')).toBeGreaterThan(AROUND);
      expect((await world.upstream.counts()).effects).toBeGreaterThanOrEqual(committed.length);
      expect(await world.upstream.twice()).toEqual([]);
    },
    MOST_MS,
  );
});
