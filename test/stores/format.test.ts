import { readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { openEmbeddedStore, openKeyStore } from '../../src/gateway/embedded-store.ts';
import { checkFormat } from '../../src/gateway/store-format.ts';
import type { EffectStore } from '../../src/effects/store.ts';
import { checkBackup, writeBackup } from '../../src/stores/embedded/backup.ts';
import { loadDriver } from '../../src/stores/embedded/driver.ts';
import { storeFolder } from '../contract/embedded-store.ts';
import { keyRecord, PERSON } from '../contract/requests.ts';
import { KEY_SEALS } from '../identity/key-seals.ts';

const retention = { keysMs: null, effectsMs: 1e12, denialsMs: 1e12 };

let path = '';
beforeEach(() => {
  path = storeFolder();
});
afterEach(() => rmSync(path, { recursive: true }));

const open = (): Promise<EffectStore> =>
  openEmbeddedStore({ path, lockWaitMs: 0, retention, keySeals: KEY_SEALS, worker: 'never' });

/** What `svc migrate --check` reports. */
async function check(): ReturnType<typeof checkFormat> {
  const configFile = join(path, 'gateway.yaml');
  writeFileSync(configFile, `store: {kind: embedded, path: ${path}}\n`);
  return checkFormat({ configFile, environment: {} });
}

async function inFile(sql: string): Promise<void> {
  const database = (await loadDriver())(join(path, 'store.db'));
  database.exec(sql);
  database.close();
}

async function storeWithKey(): Promise<void> {
  const store = await open();
  await store.putKey(keyRecord(), PERSON);
  await store.close();
}

describe('a store of another format', () => {
  it.each([
    [1, /has the format 1, this program works with 2: it was written by an earlier version/],
    [3, /has the format 3, this program works with 2: it was written by a later version; use that version/],
  ])('%i is refused in words by the gateway and by svc keys, and is left as it is', async (format, words) => {
    await storeWithKey();
    await inFile(`PRAGMA wal_checkpoint(TRUNCATE); PRAGMA user_version = ${format}`);
    const before = readFileSync(join(path, 'store.db'));
    await expect(open()).rejects.toThrow(words);
    await expect(openKeyStore({ path }, KEY_SEALS)).rejects.toThrow(words);
    const { start, explanation } = await check();
    expect(start).toBe('refuses');
    expect(explanation.join()).toMatch(words);
    expect(readFileSync(join(path, 'store.db')).equals(before)).toBe(true);
    await inFile('PRAGMA user_version = 2');
    const store = await open();
    expect(await store.hasKeys()).toBe(true);
    await store.close();
  });

  it.each([1, 3])('%i is refused where it stands in a backup', async (format) => {
    await storeWithKey();
    const backup = join(path, 'backup');
    const content = await writeBackup(path, backup, null);
    writeFileSync(join(backup, 'backup.json'), JSON.stringify({ ...content, store_format: format }));
    expect(() => checkBackup(backup)).toThrow(`has the store format ${format}, this program works with 2`);
  });

  it('is refused if it is a database of another program', async () => {
    await inFile('CREATE TABLE tunes (name TEXT)');
    await expect(open()).rejects.toThrow('store.db is a database of another program');
    expect(await check()).toMatchObject({ start: 'refuses', format: null });
  });
});

describe('svc migrate --check', () => {
  it('reports what a start would do, and changes nothing', async () => {
    expect(await check()).toMatchObject({ start: 'makes', format: null, current: 2, records: null });
    await storeWithKey();
    expect(await check()).toMatchObject({ start: 'opens', format: 2, current: 2, records: { api_key: 1, events: 1 } });
    const store = await open();
    const loaded = { kind: 'policy.loaded', effectId: null, actor: PERSON, data: { version: 'v' } } as const;
    // Those of one step stand together, and of each workspace in a ledger of its own.
    for (const workspace of ['a', 'b']) await store.append(workspace, [loaded, loaded, loaded]);
    await store.close();
    expect(await check()).toMatchObject({ records: { events: 7 } });
  });
});
