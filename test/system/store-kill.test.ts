import { type ChildProcessWithoutNullStreams, spawn } from 'node:child_process';
import { rmSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, afterEach, beforeEach, describe, expect, it } from 'vitest';
import { type EffectStore, StoreUnavailable } from '../../src/effects/store.ts';
import { openEmbeddedStore } from '../../src/gateway/embedded-store.ts';
import { storeFolder } from '../contract/embedded-store.ts';
import { admitRequest, ANY, WORKSPACE } from '../contract/requests.ts';
import { compileStore } from '../stores/compiled.ts';
import { KEY_SEALS } from '../identity/key-seals.ts';
import { expectSilentFsck } from '../silent-fsck.ts';

const compiled = compileStore();
afterAll(compiled.remove);

interface Load {
  readonly child: ChildProcessWithoutNullStreams;
  /** Complete lines so far. */
  lines(): readonly string[];
  /** Waits until so many lines are there. */
  reaches(lines: number): Promise<void>;
  /** Waits until it has archived so many effects. */
  archives(effects: number): Promise<void>;
  kill(): Promise<void>;
  errors(): string;
}

function startLoad(path: string, ...more: readonly string[]): Load {
  const child = spawn(process.execPath, [compiled.file('test/stores/load.ts'), path, ...more]);
  let output = '';
  let errors = '';
  child.stdout.setEncoding('utf8').on('data', (chunk: string) => {
    output += chunk;
  });
  child.stderr.setEncoding('utf8').on('data', (chunk: string) => {
    errors += chunk;
  });
  const ended = new Promise<void>((resolve) => {
    child.on('close', () => resolve());
  });
  const lines = (): readonly string[] => output.split('\n').slice(0, -1);
  async function until(isThere: () => boolean): Promise<void> {
    while (!isThere()) {
      if (child.exitCode !== null) throw new Error(`the load ended with ${child.exitCode}: ${errors}`);
      await Promise.race([new Promise((resolve) => child.stdout.once('data', resolve)), ended]);
    }
  }
  const archived = (): number => {
    const swept = lines().flatMap((line) => /^swept (\d+)$/.exec(line)?.[1] ?? []);
    return swept.reduce((sum, effects) => sum + Number(effects), 0);
  };
  return {
    child,
    lines,
    reaches: (count) => until(() => lines().length >= count),
    archives: (effects) => until(() => archived() >= effects),
    async kill() {
      child.kill('SIGKILL');
      await ended;
    },
    errors: () => errors,
  };
}

function open(
  path: string,
  lockWaitMs = 10_000,
  archive: string | null = null,
  effectsMs = 1e12,
): Promise<EffectStore> {
  const retention = { keysMs: null, effectsMs, denialsMs: 1e12 };
  return openEmbeddedStore({
    path,
    lockWaitMs,
    retention,
    archive: archive === null ? null : { kind: 'folder', path: archive },
    keySeals: KEY_SEALS,
    worker: 'never',
  });
}

let path = '';
let running: Load | null = null;
beforeEach(() => {
  path = storeFolder();
});
afterEach(async () => {
  await running?.kill();
  running = null;
  rmSync(path, { recursive: true });
});

describe('the embedded store, when its process is killed', () => {
  it('has everything that was acknowledged, and nothing half', async () => {
    const admitted = new Map<string, string>();
    const settled = new Map<string, string>();
    for (const round of [1, 2, 3, 4]) {
      running = startLoad(path, `round${round}`);
      await running.reaches(150 * round);
      await running.kill();
      expect(running.errors()).toBe('');
      for (const line of running.lines()) {
        const [word, ...values] = line.split(' ');
        const [first = '', second = ''] = values;
        if (word === 'admitted') admitted.set(first, second);
        if (word === 'settled') settled.set(first, second);
      }
    }
    expect(settled.size).toBeGreaterThan(100);

    const store = await open(path);
    try {
      const states = new Map<string, number>();
      for (const [key, id] of admitted) {
        const effect = await store.effect(WORKSPACE, id);
        expect(effect, `${key} was acknowledged`).toMatchObject({ idempotencyKey: key });
      }
      for (const [id, jws] of settled) {
        expect(await store.receipt(WORKSPACE, id), `${id} was acknowledged`).toMatchObject({ jws });
      }
      let cursor: string | null = null;
      do {
        const page = await store.effects(WORKSPACE, { ...ANY, limit: 500, cursor });
        for (const { life } of page.items) states.set(life.state, (states.get(life.state) ?? 0) + 1);
        cursor = page.next;
      } while (cursor !== null);
      expect([...states.keys()].sort()).toEqual(['committed', 'unknown']);
      expect(await store.budgets(WORKSPACE)).toMatchObject([
        { spent: 3 * (states.get('committed') ?? 0), held: 3 * (states.get('unknown') ?? 0) },
      ]);
      let seq = 0;
      for (;;) {
        const events = await store.ledger(WORKSPACE, seq, 1_000);
        if (events.length === 0) break;
        for (const event of events) {
          seq += 1;
          expect(event.seq).toBe(seq);
        }
      }
      expect(seq).toBeGreaterThan(admitted.size);
    } finally {
      await store.close();
    }
  });

  it('has everything in one place that it was archiving, in the store or in a segment that the ledger names', async () => {
    const archive = join(path, 'archive');
    const settled = new Map<string, string>();
    for (const round of [1, 2, 3, 4, 5, 6]) {
      running = startLoad(path, `round${round}`, archive);
      // Some segments are written, and others under way.
      await running.archives(30 * round);
      await running.kill();
      expect(running.errors()).toBe('');
      for (const line of running.lines()) {
        const [word, first = '', second = ''] = line.split(' ');
        if (word === 'settled') settled.set(first, second);
      }
    }
    const store = await open(path, 10_000, archive);
    try {
      for (const [id, jws] of settled) {
        expect(await store.receipt(WORKSPACE, id), `${id} was acknowledged`).toMatchObject({ jws });
        expect(await store.effect(WORKSPACE, id)).toMatchObject({ id, life: { state: 'committed' } });
      }
      const listed: string[] = [];
      const inStore: string[] = [];
      let cursor: string | null = null;
      do {
        const page = await store.effects(WORKSPACE, { ...ANY, limit: 500, cursor });
        listed.push(...page.items.map(({ id }) => id));
        inStore.push(...page.items.filter(({ sealed }) => sealed !== null).map(({ id }) => id));
        cursor = page.next;
      } while (cursor !== null);
      expect(new Set(listed).size).toBe(listed.length);
      for (const id of settled.keys()) expect(listed).toContain(id);
      const events = [];
      for (let seq = 0; ; seq = events.at(-1)?.seq ?? 0) {
        const slice = await store.ledger(WORKSPACE, seq, 1_000);
        events.push(...slice);
        if (slice.length === 0) break;
      }
      const segments = events.filter(({ kind }) => kind === 'archive.segment').map(({ data }) => data);
      expect(segments.length).toBeGreaterThan(1);
      expect(segments.map(({ segment }) => segment)).toEqual(segments.map((_, index) => index + 1));
      const archived = segments.reduce((sum, { effects }) => sum + Number(effects), 0);
      expect(archived).toBe(listed.length - inStore.length);
    } finally {
      await store.close();
    }
  });

  it('has everything, and a smaller file, when it is killed while it gives back what the archive has', async () => {
    const archive = join(path, 'archive');
    const size = (): number => statSync(join(path, 'store.db')).size;
    running = startLoad(path, 'filled', '', '32', '6000');
    await running.reaches(1_600);
    await running.kill();
    const settled = running.lines().flatMap((line) => (line.startsWith('settled ') ? [line.split(' ')] : []));
    await (await open(path)).close();
    const sizes = [size()];
    for (const round of [1, 2, 3]) {
      running = startLoad(path, 'none', archive, '0');
      await running.archives(200);
      // Each ends at another step of a sweep.
      await new Promise((resolve) => setTimeout(resolve, 3 * round));
      await running.kill();
      expect(running.errors()).toBe('');
      const store = await open(path, 10_000, archive);
      await expectSilentFsck(store);
      await store.close();
      sizes.push(size());
    }
    // It was killed while it did that.
    expect(sizes.at(-1)).toBeLessThan(sizes[0] ?? 0);
    const store = await open(path, 10_000, archive, 1);
    while ((await store.sweep(100)).aged > 0);
    for (let rest = 0; rest < 20; rest += 1) await store.sweep(100);
    for (const [, id = '', jws = ''] of settled)
      expect((await store.receipt(WORKSPACE, id))?.jws?.slice(0, jws.length)).toBe(jws);
    await expectSilentFsck(store);
    await store.close();
    expect(size()).toBeLessThan((sizes[0] ?? 0) / 2);
  });

  it('keeps a second gateway out while the first lives, and lets it in when that is killed', async () => {
    running = startLoad(path, 'holder');
    await running.reaches(20);
    await expect(open(path, 100)).rejects.toBeInstanceOf(StoreUnavailable);
    await expect(open(path, 0)).rejects.toThrow(/Another gateway uses the store/);
    const waiting = open(path, 10_000);
    await running.kill();
    const store = await waiting;
    expect(await store.admit(admitRequest())).toMatchObject({ kind: 'dispatch' });
    await store.close();
  });

  it('stops nothing of a gateway that runs when another is turned away', async () => {
    running = startLoad(path, 'holder');
    await running.reaches(20);
    await expect(open(path, 0)).rejects.toBeInstanceOf(StoreUnavailable);
    await running.reaches(running.lines().length + 100);
    await expect(open(path, 0)).rejects.toBeInstanceOf(StoreUnavailable);
  });
});
