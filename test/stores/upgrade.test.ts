import { execFileSync, spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { mkdirSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { gunzipSync } from 'node:zlib';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import type { EffectStore } from '../../src/effects/store.ts';
import { openEmbeddedStore } from '../../src/gateway/embedded-store.ts';
import type { Retention } from '../../src/records/retention.ts';
import { upgradeStore } from '../../src/upgrade/upgrade-store.ts';
import { loadDriver } from '../../src/stores/embedded/driver.ts';
import { acquireLock } from '../../src/stores/embedded/lock.ts';
import { glanceAtFormat } from '../../src/upgrade/upgrade-file.ts';
import { storeFolder } from '../contract/embedded-store.ts';
import { admitRequest } from '../contract/requests.ts';
import { type CompiledStore, compileStore } from './compiled.ts';
import { type Asked, told } from './fixtures/told.ts';
import { KEY_SEALS } from '../identity/key-seals.ts';
import type { KeySeals } from '../../src/effects/model/key.ts';
import { UNJUDGED } from '../../src/gateway/key-seals.ts';

interface Recorded {
  readonly install: unknown;
  readonly retention: Retention;
  readonly asked: Asked;
  readonly said: readonly { readonly name: string; readonly at: number; readonly told: unknown }[];
}

const FIXTURES = join(import.meta.dirname, 'fixtures');
const file = (name: string): Buffer => gunzipSync(readFileSync(join(FIXTURES, name)));
const recorded: Recorded = JSON.parse(file('format-1.json.gz').toString('utf8'));

let path = '';
let opened: EffectStore | null = null;

beforeEach(() => {
  path = storeFolder();
});
afterEach(async () => {
  await opened?.close();
  opened = null;
  rmSync(path, { recursive: true });
});

/** The store that the version before left. */
function layOut(folder = path): void {
  mkdirSync(folder, { recursive: true });
  writeFileSync(join(folder, 'store.db'), file('format-1.db.gz'));
  writeFileSync(join(folder, 'install.json'), JSON.stringify(recorded.install));
}

/** All but the bytes of the header that say how the journal is kept, and by which library. */
function content(bytes: Buffer): string {
  const rest = Buffer.from(bytes);
  rest.fill(0, 18, 20).fill(0, 24, 28).fill(0, 92, 100);
  return createHash('sha256').update(rest).digest('hex');
}
const contentOf = (name: string): string => content(readFileSync(join(path, name)));
/** On Node 20 the driver lets go of a journal when its statements are collected. */
const files = (): readonly string[] =>
  readdirSync(path)
    .filter((name) => !/^store\.db-(?:wal|shm)$/.test(name))
    .toSorted();
const before = (): string => content(file('format-1.db.gz'));

async function open(at: number, folder = path, keySeals: KeySeals = UNJUDGED): Promise<EffectStore> {
  const { retention } = recorded;
  opened = await openEmbeddedStore({
    path: folder,
    lockWaitMs: 0,
    retention,
    keySeals,
    worker: 'never',
    clock: () => at,
  });
  return opened;
}

describe('a store of format 1', () => {
  it.each(recorded.said)('says after the upgrade what it said before: $name', async ({ at, told: before }) => {
    layOut();
    const store = await open(at);
    expect(await told(store, recorded.asked, admitRequest)).toEqual(before);
  });
});

describe('keys of a store of format 1', () => {
  it('are sealed when the store is bound to its master secret, and count from then on', async () => {
    layOut();
    const store = await open(recorded.said[0]?.at ?? 0, path, KEY_SEALS);
    expect(await store.keys(null)).toEqual([]);
    const marks = { current: ['another'], unsealed: [(await store.secretMark()) ?? ''] } as const;
    expect(await store.bindSecret(marks)).toEqual({ kind: 'bound', sealed: 4 });
    expect(await store.keys(null)).toHaveLength(4);
    expect(await store.secretMark()).toBe('another');
  });
});

describe('the upgrade of a file', () => {
  it('keeps the file as it was, and says what it did; a second start finds nothing to do', async () => {
    layOut();
    const upgraded = await upgradeStore(path, 0);
    expect(upgraded).toMatchObject({ from: 1, to: 2, kept: join(path, 'store.db.format-1') });
    expect(upgraded?.records).toMatchObject({ 'effects and tombstones': 45, 'API keys': 4, claims: 3 });
    expect(files()).toEqual(['install.json', 'lock.db', 'store.db', 'store.db.format-1']);
    expect(contentOf('store.db.format-1')).toEqual(before());
    expect(await upgradeStore(path, 0)).toBeNull();
  });

  it('goes on from the epoch, the boots, the commits and the clock that the file had', async () => {
    layOut();
    await upgradeStore(path, 0);
    const database = (await loadDriver())(join(path, 'store.db'));
    const meta = 'SELECT install_id, epoch, boots, clock, commits FROM meta';
    const is = database.prepare(meta).get();
    database.close();
    const old = (await loadDriver())(join(path, 'store.db.format-1'));
    const was = old.prepare(meta).get();
    old.close();
    for (const column of ['install_id', 'epoch', 'boots', 'clock', 'commits'])
      expect([column, is?.[column]]).toEqual([column, was?.[column]]);
  });

  it('leaves a store that another gateway holds as it is', async () => {
    layOut();
    const lock = await acquireLock(path, await loadDriver(), 0);
    await expect(upgradeStore(path, 0)).rejects.toThrow('Another gateway uses the store');
    lock.release();
    expect(contentOf('store.db')).toEqual(before());
  });

  it('refuses a file of another program, and one of a version that was never released', async () => {
    const database = (await loadDriver())(join(path, 'store.db'));
    database.exec('CREATE TABLE tunes (name TEXT); PRAGMA user_version = 1');
    database.close();
    await expect(upgradeStore(path, 0)).rejects.toThrow('store.db is a database of another program');
    await expect(open(recorded.said[0]?.at ?? 0)).rejects.toThrow('store.db is a database of another program');
    expect(await glanceAtFormat(path)).toMatchObject({ state: 'unusable' });
    expect(files()).toEqual(['lock.db', 'store.db']);
  });

  it('refuses a file that lacks a table', async () => {
    layOut();
    const database = (await loadDriver())(join(path, 'store.db'));
    database.exec('DROP TABLE uses');
    database.close();
    await expect(upgradeStore(path, 0)).rejects.toThrow('has no table uses');
  });

  it('takes the place of a file only when nothing was left behind', async () => {
    layOut();
    const database = (await loadDriver())(join(path, 'store.db'));
    // An event that says of itself that it is two.
    database.exec('UPDATE ledger SET size = size + 1 WHERE n = (SELECT max(n) FROM ledger)');
    database.close();
    await expect(upgradeStore(path, 0)).rejects.toThrow('Nothing is lost');
    expect(files()).not.toContain('store.db.format-2');
    expect((await glanceAtFormat(path)).state).toBe('old');
  });
});

describe('an upgrade that does not come to its end', () => {
  let compiled: CompiledStore;
  beforeAll(() => {
    compiled = compileStore(['test/stores/upgrade-now.ts']);
  });
  afterAll(() => compiled.remove());

  const upgradeNow = (...args: readonly string[]) =>
    spawnSync(process.execPath, [compiled.file('test/stores/upgrade-now.ts'), path, ...args], { encoding: 'utf8' });

  /** Of the calls that change what is in the folder, and slices: the process ends itself before the nth. */
  it('loses nothing when it is killed at any point, and the next start begins anew', async () => {
    const [first] = recorded.said;
    if (first === undefined) throw new Error('the fixture says nothing');
    let points = 0;
    for (let n = 0; ; n += 1) {
      rmSync(path, { recursive: true });
      layOut();
      const ran = upgradeNow(String(n));
      if (ran.status === 0) {
        points = n;
        break;
      }
      expect([n, ran.signal, ran.stderr]).toEqual([n, 'SIGKILL', '']);
      // Whichever file has the name, it is whole.
      expect([1, 2]).toContain(readFileSync(join(path, 'store.db')).readUInt32BE(60));
      expect(upgradeNow()).toMatchObject({ status: 0, stderr: '' });
      expect(files()).toEqual(['install.json', 'lock.db', 'store.db', 'store.db.format-1']);
      if (n % 5 === 0) {
        const store = await open(first.at);
        expect(await told(store, recorded.asked, admitRequest)).toEqual(first.told);
        await store.close();
        opened = null;
      }
    }
    expect(points).toBeGreaterThan(15);
  });

  it.skipIf(process.getuid?.() !== 0)('says so where there is no room, and leaves the store as it was', (context) => {
    const mounted = spawnSync('/bin/mount', ['-t', 'tmpfs', '-o', 'size=1m', 'tmpfs', path]).status === 0;
    if (!mounted) {
      context.skip('this machine lets nobody mount a file system');
      return;
    }
    try {
      layOut();
      const { size } = statSync(join(path, 'store.db'));
      writeFileSync(join(path, 'filler'), Buffer.alloc(2 ** 20 - size - 120_000));
      const full = upgradeNow();
      expect(full.stderr).toContain('There is no room in');
      expect(full.stderr).toContain('Nothing is lost');
      expect(contentOf('store.db')).toEqual(before());
      expect(files()).not.toContain('store.db.format-2');
      rmSync(join(path, 'filler'));
      expect(upgradeNow().status).toBe(0);
    } finally {
      execFileSync('/bin/umount', ['-l', path]);
    }
  });
});

describe('svc migrate --check', () => {
  it('says what a start would do, and changes nothing', async () => {
    layOut();
    expect(await glanceAtFormat(path)).toMatchObject({ state: 'old', format: 1, current: 2, inUse: false, kept: null });
    expect(files()).toEqual(['install.json', 'store.db']);
    expect(contentOf('store.db')).toEqual(before());
  });

  it('says of a file that was brought forward where the old one is', async () => {
    expect(await glanceAtFormat(path)).toEqual({ state: 'absent', current: 2 });
    layOut();
    await upgradeStore(path, 0);
    expect(await glanceAtFormat(path)).toMatchObject({
      state: 'current',
      format: 2,
      kept: join(path, 'store.db.format-1'),
      records: { effect: 45, api_key: 4, claim: 3 },
    });
  });
});
