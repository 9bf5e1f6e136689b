import { copyFileSync, mkdirSync, rmSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { createSyncQueue } from '../../src/stores/embedded/sync-queue.ts';
import { startEngine } from '../../src/stores/embedded/engine.ts';
import { asking } from '../../src/stores/threads/operations.ts';
import { type EffectStore, StoreUnavailable } from '../../src/effects/store.ts';
import { openEmbeddedStore } from '../../src/gateway/embedded-store.ts';
import { storeFolder } from '../contract/embedded-store.ts';
import { KEY_SEALS } from '../identity/key-seals.ts';
import { changeOf, putOf } from '../port/changes.ts';
import { admitRequest, committed, dispatched, settleRequest, WORKSPACE } from '../contract/requests.ts';

type Done = (error: Error | null) => void;

/** Syncs that were asked for and have not returned; the disk is as slow, or as broken, as a test says. */
const disk = vi.hoisted(() => ({
  held: null as (() => void)[] | null,
  fault: null as Error | null,
  syncs: 0,
  /** Syncs that a thread waited for, and how long each takes, ms. */
  waitedFor: 0,
  waitMs: 0,
}));

vi.mock('node:fs', async (original) => {
  const real = await original<typeof import('node:fs')>();
  return {
    ...real,
    fdatasync(descriptor: number, done: Done) {
      disk.syncs += 1;
      const go = (): void => {
        if (disk.fault === null) real.fdatasync(descriptor, done);
        else done(disk.fault);
      };
      if (disk.held === null) go();
      else disk.held.push(go);
    },
    fdatasyncSync(descriptor: number) {
      disk.waitedFor += 1;
      const until = performance.now() + disk.waitMs;
      while (performance.now() < until);
      if (disk.fault !== null) throw disk.fault;
      real.fdatasyncSync(descriptor);
    },
  };
});

const OPTIONS = {
  lockWaitMs: 0,
  retention: { keysMs: null, effectsMs: 1e12, denialsMs: 1e12 },
  keySeals: KEY_SEALS,
  worker: 'never',
} as const;

let path = '';
let store: EffectStore;

beforeEach(async () => {
  disk.held = null;
  disk.fault = null;
  disk.waitedFor = 0;
  disk.waitMs = 0;
  path = storeFolder();
  store = await openEmbeddedStore({ ...OPTIONS, path });
});
afterEach(async () => {
  release();
  await store.close();
  rmSync(path, { recursive: true });
});

function hold(): void {
  disk.held = [];
}

function release(): void {
  const held = disk.held ?? [];
  disk.held = null;
  for (const go of held) go();
}

/** Whether a promise has come to anything after many turns of the event loop. */
async function isAnswered(promise: Promise<unknown>): Promise<boolean> {
  let answered = false;
  const note = (): void => {
    answered = true;
  };
  promise.then(note, note);
  for (let turn = 0; turn < 50; turn += 1) await new Promise((resolve) => setImmediate(resolve));
  return answered;
}

describe('no answer leaves before the disk has it', () => {
  it('an admission, and a settlement', async () => {
    hold();
    const admission = dispatched(store);
    expect(await isAnswered(admission)).toBe(false);
    release();
    const { effect } = await admission;
    hold();
    const settlement = store.settle(settleRequest(effect, committed()));
    expect(await isAnswered(settlement)).toBe(false);
    release();
    expect(await settlement).toMatchObject({ kind: 'settled' });
  });

  it('what has only looked at it waits as well, and what looks at nothing new does not', async () => {
    const { effect } = await dispatched(store);
    hold();
    expect(await store.effect(WORKSPACE, effect.id)).toMatchObject({ life: { state: 'executing' } });
    const settlement = store.settle(settleRequest(effect, committed()));
    const look = store.effect(WORKSPACE, effect.id);
    expect(await isAnswered(settlement)).toBe(false);
    const later = store.receipt(WORKSPACE, effect.id);
    expect([await isAnswered(look), await isAnswered(later)]).toEqual([false, false]);
    release();
    expect(await look).toMatchObject({ life: { state: 'committed' } });
    expect(await later).not.toBeNull();
  });

  it('what is committed while the disk works waits for the next sync, all of it for one', async () => {
    // What is done once for a workspace is done before.
    await dispatched(store);
    hold();
    const first = dispatched(store);
    expect(await isAnswered(first)).toBe(false);
    const next = [dispatched(store), dispatched(store)];
    expect(await isAnswered(Promise.race(next))).toBe(false);
    const later = dispatched(store);
    expect(await isAnswered(later)).toBe(false);
    const before = disk.syncs;
    // The first sync returns; the one that it makes room for is held again.
    const held = disk.held?.splice(0) ?? [];
    for (const go of held) go();
    await first;
    await vi.waitFor(() => expect(disk.syncs).toBe(before + 1), { timeout: 30_000 });
    expect(await isAnswered(Promise.race([...next, later]))).toBe(false);
    release();
    await Promise.all([...next, later]);
    expect(disk.syncs).toBe(before + 1);
  });
});

const EIO = Object.assign(new Error('input/output error'), { code: 'EIO' });

describe('a disk that fails to sync', () => {
  it('makes every step that waited for it fail, and nothing is admitted by this process any more', async () => {
    const { effect } = await dispatched(store, { idempotencyKey: 'early' });
    hold();
    const covered = store.admit(admitRequest({ idempotencyKey: 'covered' }));
    expect(await isAnswered(covered)).toBe(false);
    const behind = store.settle(settleRequest(effect, committed()));
    expect(await isAnswered(behind)).toBe(false);
    disk.fault = EIO;
    release();
    await expect(covered).rejects.toBeInstanceOf(StoreUnavailable);
    await expect(behind).rejects.toThrow('cannot be used: input/output error');
    expect(store.health()).toMatchObject({ ready: false, problem: { code: 'store_sync_failed' } });
    // The next sync would succeed, and prove nothing.
    disk.fault = null;
    const before = disk.syncs;
    await expect(store.admit(admitRequest())).rejects.toThrow('has to end');
    await expect(store.effect(WORKSPACE, effect.id)).rejects.toThrow('has to end');
    await store.close();
    expect(disk.syncs).toBe(before);
    // What this process has of the file in memory must not be gone on with.
    await expect(openEmbeddedStore({ ...OPTIONS, path })).rejects.toThrow('Another gateway uses the store');
  });

  it('is heard of by a close that came in between: the sync under way is waited for', async () => {
    hold();
    const admission = dispatched(store);
    expect(await isAnswered(admission)).toBe(false);
    const closing = store.close();
    expect(await isAnswered(closing)).toBe(false);
    disk.fault = EIO;
    release();
    await expect(admission).rejects.toBeInstanceOf(StoreUnavailable);
    await closing;
    expect(store.health()).toMatchObject({ problem: { code: 'store_sync_failed' } });
  });
});

it('a journal that somebody left is synced before anything is built on it: where it cannot be, nothing is', async () => {
  await dispatched(store);
  const copy = join(path, 'copy');
  mkdirSync(copy);
  for (const name of ['store.db', 'store.db-wal', 'install.json']) copyFileSync(join(path, name), join(copy, name));
  disk.waitedFor = 0;
  disk.fault = new Error('EIO: no such sector');
  await expect(openEmbeddedStore({ ...OPTIONS, path: copy })).rejects.toThrow('no such sector');
  expect(disk.waitedFor).toBe(1);
  disk.fault = null;
  await (await openEmbeddedStore({ ...OPTIONS, path: copy })).close();
});

it('closing waits for the disk', async () => {
  hold();
  const admission = dispatched(store);
  expect(await isAnswered(admission)).toBe(false);
  const closing = store.close();
  expect([await isAnswered(admission), await isAnswered(closing)]).toEqual([false, false]);
  release();
  await closing;
  expect((await admission).effect.life.state).toBe('executing');
});

it('what waits for a sync is not answered by it when another sync of the file has failed meanwhile', async () => {
  const journal = createSyncQueue(join(path, 'store.db-wal'), 8192, false, () => {});
  hold();
  const said: string[] = [];
  const wait = (name: string): void =>
    journal.add({ answer: () => void said.push(`${name}: answered`), fail: () => void said.push(`${name}: failed`) });
  wait('under way');
  wait('behind it');
  journal.distrust(EIO);
  expect(said).toEqual(['under way: failed', 'behind it: failed']);
  release();
  await journal.finish();
  wait('later');
  expect(said).toEqual(['under way: failed', 'behind it: failed', 'later: failed']);
  journal.close();
});

describe('a thread that may wait for the disk', () => {
  const opened = (mayWait = true, faulted: (error: Error) => void = () => {}) => {
    const journal = createSyncQueue(join(path, 'store.db-wal'), 8192, mayWait, faulted);
    const said: string[] = [];
    const add = (name: string): void =>
      journal.add({ answer: () => void said.push(name), fail: () => void said.push(`${name}: failed`) });
    /** Nothing is known of the disk before its first sync; on a slow one that is tried until one is short. */
    const afterShortSync = async (): Promise<void> => {
      do {
        said.length = 0;
        disk.waitedFor = 0;
        add('first');
        await journal.finish();
        add('second');
        await journal.finish();
      } while (disk.waitedFor === 0);
      said.length = 0;
      disk.waitedFor = 0;
    };
    /** From then on syncs are made beside the thread; the 17th commit tries the disk again. */
    const afterSlowSync = async (): Promise<void> => {
      await afterShortSync();
      disk.waitMs = 3;
      add('slow');
      disk.waitMs = 0;
    };
    /** So many commits, each with a slow sync beside the thread. */
    const addBeside = async (times: number): Promise<void> => {
      for (let n = 0; n < times; n += 1) {
        hold();
        add('beside');
        await releaseLate();
        await journal.finish();
      }
    };
    return { journal, said, add, afterShortSync, afterSlowSync, addBeside };
  };
  const releaseLate = async (): Promise<void> => {
    await sleep(2);
    release();
  };

  it('does so for a commit after a short sync, and the answer is there at once', async () => {
    const { journal, said, add, afterShortSync } = opened();
    await afterShortSync();
    disk.waitMs = 3;
    add('slow');
    expect([said, disk.waitedFor]).toEqual([['slow'], 1]);
    disk.waitMs = 0;
    add('after a slow one');
    expect([said, disk.waitedFor]).toEqual([['slow'], 1]);
    await journal.finish();
    expect(said).toEqual(['slow', 'after a slow one']);
    journal.close();
  });

  it('tries the disk again after a while, although syncs beside the thread take long', async () => {
    const { journal, said, add, afterSlowSync, addBeside } = opened();
    await afterSlowSync();
    await addBeside(16);
    expect([said.length, disk.waitedFor]).toEqual([17, 1]);
    add('waited for');
    expect([said.length, disk.waitedFor]).toEqual([18, 2]);
    journal.close();
  });

  it('does so for what was committed during a sync beside it, after the answers that this one covers', async () => {
    const { journal, afterSlowSync, addBeside } = opened();
    await afterSlowSync();
    await addBeside(15);
    const answered: [string, number][] = [];
    const note = (name: string): void =>
      journal.add({ answer: () => void answered.push([name, disk.waitedFor]), fail: () => {} });
    hold();
    note('beside');
    note('meanwhile');
    await releaseLate();
    await journal.finish();
    expect(answered).toEqual([
      ['beside', 1],
      ['meanwhile', 2],
    ]);
    journal.close();
  });

  it('has not finished while what is committed then waits for its sync', async () => {
    const { journal, add, said, afterSlowSync, addBeside } = opened();
    await afterSlowSync();
    await addBeside(15);
    said.length = 0;
    hold();
    const finished = new Promise<void>((resolve) => {
      const answer = (): void => void journal.finish().then(resolve);
      journal.add({ answer, fail: () => {} });
    });
    add('meanwhile');
    await releaseLate();
    await finished;
    expect(said).toEqual(['meanwhile']);
    journal.close();
  });

  it('does not where a sync is under way', async () => {
    const { journal, said, add, afterSlowSync } = opened();
    await afterSlowSync();
    hold();
    add('beside');
    add('while it runs');
    expect([said, disk.waitedFor]).toEqual([['slow'], 1]);
    release();
    await journal.finish();
    expect(said).toEqual(['slow', 'beside', 'while it runs']);
    journal.close();
  });

  it('is never the gateway’s own', async () => {
    const { journal, said, add } = opened(false);
    for (let n = 0; n < 5; n += 1) {
      add('lone');
      add('while it runs');
      await journal.finish();
    }
    expect([said.length, disk.waitedFor]).toEqual([10, 0]);
    journal.close();
  });

  it('takes nothing more after a sync that failed', async () => {
    const faults: Error[] = [];
    const { journal, said, add, afterShortSync } = opened(true, (error) => void faults.push(error));
    await afterShortSync();
    disk.fault = EIO;
    add('lone');
    disk.fault = null;
    add('later');
    expect([said, faults]).toEqual([['lone: failed', 'later: failed'], [EIO]]);
    journal.close();
  });

  it('brings nothing into the file after a sync that failed, however long the journal is', async () => {
    const own = storeFolder();
    const engine = await startEngine(
      {
        path: own,
        lockWaitMs: 0,
        clock: Date.now,
        maxClockJumpMs: 1e12,
        isOwnThread: true,
        program: null,
        keys: new Map(),
      },
      () => {},
    );
    const ask = asking(engine.handlers);
    const { epoch } = await ask('commit', changeOf('w', 0));
    const put = (name: string, texts: number, text: string) =>
      ask(
        'commit',
        changeOf('w', epoch, { puts: Array.from({ length: texts }, (_, n) => putOf('k', `${name}${n}`, text)) }),
      );
    for (let n = 0; n < 50 && disk.waitedFor === 0; n += 1) await put(`small ${n} `, 1, 'x');
    expect(disk.waitedFor).toBeGreaterThan(0);
    disk.fault = EIO;
    await expect(put('long ', 40, 'x'.repeat(1_000_000))).rejects.toThrow(StoreUnavailable);
    const sizeOf = (file: string): number => statSync(join(own, file)).size;
    expect(sizeOf('store.db-wal')).toBeGreaterThan(4_000 * 8_192);
    expect(sizeOf('store.db')).toBeLessThan(1_000_000);
    expect(await engine.close()).toBe(false);
    rmSync(own, { recursive: true });
  });
});
