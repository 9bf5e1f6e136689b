import { randomBytes } from 'node:crypto';
import { existsSync } from 'node:fs';
import { chmod, copyFile, mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, describe, expect, it } from 'vitest';
import type { RunningGateway } from '../../src/cli/ports.ts';
import { StoreUnavailable } from '../../src/effects/store.ts';
import { findSecret, openSecretsFor } from '../../src/gateway/master-secret.ts';
import { createKey } from '../../src/gateway/offline-keys.ts';
import { checkStore } from '../../src/gateway/operate-store.ts';
import { startGateway } from '../../src/gateway/start.ts';
import { openKeyStore } from '../../src/gateway/embedded-store.ts';
import { openEmbeddedStore } from '../../src/gateway/embedded-store.ts';
import { openSecrets } from '../../src/secrets/vault.ts';
import { keyRecord, PERSON } from '../contract/requests.ts';
import { KEY_SEALS } from '../identity/key-seals.ts';

const closers: (() => Promise<unknown>)[] = [];
afterEach(async () => {
  for (const close of closers.splice(0).reverse()) await close();
});

const newSecret = (): string => `${randomBytes(32).toString('base64url')}\n`;

const configuration = (secrets: string): string => `
server: { host: 127.0.0.1, port: 0 }
store: { kind: embedded, path: "\${DATA}" }
secrets: ${secrets}
workspaces: [ { id: demo } ]
users: [ { id: maria } ]
policies: { paths: [] }
`;

/** An installation whose gateway has run, and is stopped. */
async function installation() {
  const folder = await mkdtemp(join(tmpdir(), 'svc-master-'));
  closers.push(() => rm(folder, { recursive: true, force: true }));
  const configFile = join(folder, 'gateway.yaml');
  const data = join(folder, 'data');
  const master = join(folder, 'master');
  const configure = (secrets: string) => writeFile(configFile, configuration(secrets));
  await mkdir(data);
  await configure(`{ master: { file: "${master}" } }`);
  const environment = { DATA: data };
  const start = async (): Promise<RunningGateway> => {
    const gateway = await startGateway({ configFile, environment, port: 0, log: 'none', firstKey: 'shown' });
    closers.push(() => gateway.close());
    return gateway;
  };
  const first = await start();
  const administrative = first.administrativeKey;
  if (administrative === null || !('key' in administrative)) throw new Error('no first key');
  await first.close();
  return {
    data,
    master,
    configure,
    start,
    fsck: () => checkStore({ configFile, environment }),
    makeKey: () =>
      createKey({
        configFile,
        environment,
        kind: 'administrative',
        workspace: null,
        agent: null,
        user: null,
        profile: null,
        name: null,
      }),
    takesKey: async ({ url }: RunningGateway) => {
      const headers = { 'x-api-key': administrative.key };
      return (await fetch(`${url}/v1/workspaces`, { headers })).status === 200;
    },
  };
}

describe('the master secret of a store', () => {
  it('that is missing is an error, and no new one is made; fsck names it', async () => {
    const at = await installation();
    expect(await at.fsck()).toEqual([]);
    await rm(at.master);
    await expect(at.start()).rejects.toThrow(/master secret .* is missing, and the store is in use/);
    await expect(at.makeKey()).rejects.toThrow('is missing');
    expect(await at.fsck()).toMatchObject([{ what: 'secret', where: at.master }]);
    expect(existsSync(at.master)).toBe(false);
  });

  it('that is another, or is refused, is an error too; the right one works again', async () => {
    const at = await installation();
    await copyFile(at.master, `${at.master}.kept`);
    await writeFile(at.master, newSecret());
    await expect(at.start()).rejects.toThrow(/is used with another master secret than .*secrets\.previous/);
    await expect(at.makeKey()).rejects.toThrow('another master secret');
    expect(await at.fsck()).toMatchObject([{ what: 'secret', store: 'another secret' }]);
    await copyFile(`${at.master}.kept`, at.master);
    await chmod(at.master, 0o644);
    expect(await at.fsck()).toMatchObject([{ what: 'secret', store: expect.stringContaining('chmod 600') }]);
    await chmod(at.master, 0o600);
    expect(await at.fsck()).toEqual([]);
    expect(await at.takesKey(await at.start())).toBe(true);
  });

  it('is rotated by naming the old one; from then on the new one is the store’s', async () => {
    const at = await installation();
    const old = `${at.master}.old`;
    await copyFile(at.master, old);
    await writeFile(at.master, newSecret());
    await at.configure(`{ master: { file: "${at.master}" }, previous: ["${old}"] }`);
    const rotated = await at.start();
    expect(await at.takesKey(rotated)).toBe(true);
    await rotated.close();
    expect(await at.fsck()).toEqual([]);
    await at.configure(`{ master: { file: "${at.master}" } }`);
    // The key was not rotated before the old secret went. Since when maria is known stands under the new one.
    expect(await at.fsck()).toMatchObject([{ what: 'key', store: expect.stringContaining('not named here') }]);
    await copyFile(at.master, `${at.master}.new`);
    await copyFile(old, at.master);
    expect(await at.fsck()).toMatchObject([{ what: 'secret' }]);
    // Nor is one that ended a fault: nobody is to be let in by it.
    const { keySeals } = await openSecrets({ masterFile: old, previous: [] });
    const keys = await openKeyStore({ path: at.data }, keySeals);
    for (const { id } of await keys.keys(null)) await keys.endKey(id, { kind: 'revoked' }, PERSON);
    await keys.close();
    await copyFile(`${at.master}.new`, at.master);
    expect(await at.fsck()).toEqual([]);
  });

  it('fsck names a key that lets nobody in', async () => {
    const at = await installation();
    const { keySeals } = await openSecrets({ masterFile: at.master, previous: [] });
    const keys = await openKeyStore({ path: at.data }, keySeals);
    const [key] = await keys.keys(null);
    if (key === undefined) throw new Error('there is no key');
    await keys.putKey({ ...key, hash: 'AAAA' }, { type: 'gateway', id: 'test' });
    await keys.close();
    expect(await at.fsck()).toMatchObject([{ what: 'key', where: key.id, store: 'its hash is none' }]);
  });

  it('that is missing is an error too where a store without a mark has keys', async () => {
    const folder = await mkdtemp(join(tmpdir(), 'svc-master-'));
    closers.push(() => rm(folder, { recursive: true, force: true }));
    const files = { masterFile: join(folder, 'master'), previous: [] };
    const retention = { keysMs: null, effectsMs: 1e12, denialsMs: 1e12 };
    const store = await openEmbeddedStore({
      path: join(folder, 'data'),
      lockWaitMs: 0,
      retention,
      keySeals: KEY_SEALS,
      worker: 'never',
    });
    closers.push(() => store.close());
    expect(await findSecret(store, files)).toEqual({ kind: 'none' });
    await store.putKey(keyRecord(), PERSON);
    expect(await store.secretMark()).toBeNull();
    expect(await findSecret(store, files)).toEqual({ kind: 'fault', fault: expect.stringContaining('is missing') });
    await expect(openSecretsFor(store, files)).rejects.toThrow('is missing');
    expect(existsSync(files.masterFile)).toBe(false);
  });

  it('is made anew for no store that was used with one, nor for one that cannot be asked', async () => {
    const folder = await mkdtemp(join(tmpdir(), 'svc-master-'));
    closers.push(() => rm(folder, { recursive: true, force: true }));
    const files = { masterFile: join(folder, 'master'), previous: [] };
    const asked = (mark: () => Promise<string | null>) =>
      openSecretsFor({ secretMark: mark, hasKeys: () => Promise.resolve(false) }, files);
    await expect(asked(() => Promise.resolve('of another'))).rejects.toThrow('is missing, and the store is in use');
    await expect(asked(() => Promise.reject(new StoreUnavailable('it is away')))).rejects.toThrow(
      'the store cannot be asked whether it was used with one before',
    );
    expect(existsSync(files.masterFile)).toBe(false);
    await asked(() => Promise.resolve(null));
    expect(existsSync(files.masterFile)).toBe(true);
  });
});
