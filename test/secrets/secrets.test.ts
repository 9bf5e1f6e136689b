import { chmod, mkdtemp, open as openFile, readdir, readFile, rm, stat, symlink, writeFile } from 'node:fs/promises';
import { createHash, type KeyObject } from 'node:crypto';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { inspect } from 'node:util';
import fc from 'fast-check';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import type { SealedParams } from '../../src/effects/ports.ts';
import { makeKeyFile, readKeyFile } from '../../src/secrets/key-file.ts';
import { newSalts } from '../../src/secrets/vault.ts';
import { openSecrets } from '../../src/secrets/vault.ts';
import { keyShelf, shelve } from '../identity/key-shelf.ts';

let folder = '';
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'secrets-'));
});
afterEach(() => rm(folder, { recursive: true, force: true }));

const file = (name = 'keys/master'): string => join(folder, name);
const open = (masterFile = file(), previous: string[] = []) => openSecrets({ masterFile, previous });

const bound = { workspace: 'demo', effectId: 'eff_1', fingerprint: 'fp' };
const plain: SealedParams = {
  params: { payment_id: 'pay_1', amount: 50, note: 'ünï 😀' },
  salts: newSalts(),
  stateCheck: null,
  claimId: null,
  reservationId: null,
  requestIp: null,
};

describe('the master file', () => {
  it('is made on first start, for its owner only, whole, and found again', async () => {
    const first = await open();
    expect((await stat(file())).mode & 0o777).toBe(0o600);
    expect((await stat(join(folder, 'keys'))).mode & 0o777).toBe(0o700);
    expect(await readdir(join(folder, 'keys'))).toEqual(['master']);
    expect(Buffer.from((await readFile(file(), 'utf8')).trim(), 'base64url')).toHaveLength(32);
    const second = await open();
    expect(second.keyPepper.equals(first.keyPepper)).toBe(true);
    expect(second.open(first.seal(plain, bound), bound)).toEqual(plain);
  });

  it('is one secret for all who start at once', async () => {
    const all = await Promise.all(Array.from({ length: 12 }, () => open()));
    expect(new Set(all.map(({ keyPepper }) => keyPepper.export().toString('hex'))).size).toBe(1);
    expect(await readdir(join(folder, 'keys'))).toEqual(['master']);
  });

  it.each([
    ['empty', '', /is empty/],
    ['blank', ' \n', /is empty/],
    ['short', `${Buffer.alloc(31, 7).toString('base64url')}\n`, /is not a master secret/],
    ['long', Buffer.alloc(33, 7).toString('base64url'), /is not a master secret/],
    ['two lines', `${'A'.repeat(43)}\n${'B'.repeat(43)}`, /is not a master secret/],
    ['all zero', Buffer.alloc(32).toString('base64'), /can be guessed/],
    ['a pass phrase', 'correct horse battery staple', /is not a master secret/],
  ])('is refused when it is %s, and left alone', async (_, text, message) => {
    await writeFile(file('master'), text, { mode: 0o600 });
    await expect(open(file('master'))).rejects.toThrow(message);
    await expect(open(file('master'))).rejects.toThrow(file('master'));
    expect(await readFile(file('master'), 'utf8')).toBe(text);
  });

  it('is refused where it has fewer than eight different bytes', async () => {
    const master = (different: number): string =>
      Buffer.from(Array.from({ length: 32 }, (_, at) => at % different)).toString('base64url');
    await writeFile(file('seven'), master(7), { mode: 0o600 });
    await writeFile(file('eight'), master(8), { mode: 0o600 });
    await expect(open(file('seven'))).rejects.toThrow(/can be guessed/);
    await expect(open(file('eight'))).resolves.toBeDefined();
  });

  it.each([0o640, 0o604, 0o660, 0o620, 0o644])('is refused with mode %o, and says how to mend it', async (mode) => {
    await open();
    await chmod(file(), mode);
    await expect(open()).rejects.toThrow(`chmod 600 ${file()}`);
  });

  it('takes what `openssl rand -base64 32` prints', async () => {
    const bytes = Buffer.from(Array.from({ length: 32 }, (_, index) => index * 7 + 3));
    await writeFile(file('a'), `${bytes.toString('base64')}\n`, { mode: 0o600 });
    await writeFile(file('b'), bytes.toString('base64url'), { mode: 0o600 });
    expect((await open(file('a'))).keyPepper.equals((await open(file('b'))).keyPepper)).toBe(true);
  });

  it('may be a link to a file, not a folder', async () => {
    await open();
    await symlink(file(), file('link'));
    await expect(open(file('link'))).resolves.toBeDefined();
    await expect(open(folder)).rejects.toThrow(/is not a file/);
  });

  it('is not made where the store has been used with another', async () => {
    const refused = openSecrets({ masterFile: file(), previous: [] }, () => Promise.resolve(false));
    await expect(refused).rejects.toThrow(/master secret .* is missing, and the store is in use already/);
    expect(await readKeyFile(file())).toBeNull();
  });

  it('must exist when it is a previous one', async () => {
    await expect(open(file(), [file('gone')])).rejects.toThrow(/gone is named as a master secret, and is not there/);
  });

  it('never shows its content in an error', async () => {
    const canary = `${'s3cr3tCANARY'.repeat(3)}abcdefg`;
    expect(canary).toHaveLength(43);
    await writeFile(file('m'), `${canary}x`, { mode: 0o600 });
    const error = await open(file('m')).catch((caught: unknown) => caught);
    expect(inspect(error, { depth: 9, showHidden: true })).not.toContain('CANARY');
  });
});

describe('key files', () => {
  it('are never replaced', async () => {
    expect(await makeKeyFile(file('k'), 'one')).toBe(true);
    expect(await makeKeyFile(file('k'), 'two')).toBe(false);
    expect(await readKeyFile(file('k'))).toBe('one');
    expect(await readdir(folder)).toEqual(['k']);
  });

  it('are on the disk before they have their name, and so are the names of new folders', async () => {
    const synced: { readonly inode: number; readonly hasName: boolean }[] = [];
    const probe = await openFile(folder, 'r');
    const prototype: typeof probe = Object.getPrototypeOf(probe);
    await probe.close();
    const sync = vi.spyOn(prototype, 'sync').mockImplementation(async function (this: typeof probe) {
      const hasName = (await readKeyFile(file('new/keys/k'))) !== null;
      synced.push({ inode: (await this.stat()).ino, hasName });
      await this.datasync();
    });
    try {
      await makeKeyFile(file('new/keys/k'), 'one');
    } finally {
      sync.mockRestore();
    }
    const inode = async (name: string): Promise<number> => (await stat(file(name))).ino;
    expect(synced).toEqual([
      { inode: await inode('new'), hasName: false },
      { inode: await inode(''), hasName: false },
      { inode: await inode('new/keys/k'), hasName: false },
      { inode: await inode('new/keys'), hasName: true },
    ]);
  });

  it('that are there and cannot be read are not said to be missing: another would be made', async () => {
    await symlink(file('loop'), file('loop'));
    await expect(readKeyFile(file('loop'))).rejects.toThrow(`${file('loop')} cannot be read (ELOOP).`);
  });

  it('say which folder cannot be written', async () => {
    await writeFile(file('plain'), '');
    const folder = file('plain');
    await expect(makeKeyFile(join(folder, 'k'), 'one')).rejects.toThrow(
      new RegExp(`cannot be made \\(E(NOTDIR|EXIST)\\)\\. The gateway needs to write in ${folder}\\.$`),
    );
  });
});

describe('derived keys', () => {
  it('differ by purpose and by workspace, and are the same at each start', async () => {
    const one = await open();
    const keys = [one.keyPepper, one.fingerprintKey('a'), one.fingerprintKey('b'), one.fingerprintKey('')];
    expect(new Set(keys.map((key) => key.export().toString('hex'))).size).toBe(keys.length);
    for (const key of keys) expect(key.symmetricKeySize).toBe(32);
    expect((await open()).fingerprintKey('a').equals(one.fingerprintKey('a'))).toBe(true);
    expect((await open(file('other'))).fingerprintKey('a').equals(one.fingerprintKey('a'))).toBe(false);
  });
});

it('keys and seals are the same in every version: stores are full of what was made with them', async () => {
  const master = Buffer.from(Array.from({ length: 32 }, (_, at) => at * 7 + 3));
  await writeFile(file('known'), master.toString('base64url'), { mode: 0o600 });
  const { keyPepper, fingerprintKey, marks, keySeals, policySeals, openText } = await open(file('known'));
  const digest = (key: KeyObject): string => createHash('sha256').update(key.export()).digest('base64url');
  expect([digest(keyPepper), digest(fingerprintKey('demo')), ...marks, policySeals.seal('v1')]).toEqual([
    'uqO98W1XZY5IB7xK8nekQX5wLBDnmxCxowj-l4onaMI',
    '38QncH5aI3t_Ewgq0LUsd5M4PH2yxCGDAh8IRMWjNK0',
    'xLq1TcC-1U2-PkKjUCi-IjAHYYPqH1RVSi5xOjafOfM',
    '_FtiDZRpDGNHhlD1X4dWrDu6gsoPoNz6wv1INbfHnqw',
  ]);
  expect(keySeals.sealRow('pauses demo', 'text')).toBe('mog1Xg.Bb4ZVnGTUAv8IUDHn1xUHcZAYk_Vk2xcvtzo7E3h3_c');
  const of = { what: 'result', workspace: 'demo', of: 'eff_1', part: 0 } as const;
  for (const sealed of [
    'AefkqdEFBQUFBQUFBQUFBQUAAAAAAAAAAAAAAABLonOszGpO9JP9sy2P0GEvQE6dJw',
    'AufkqdH4DyFXPOs-5CGd3pQAAAAAAAAAAAAAAAGaIBdPAHu7Z3I03SUdQQEGNsi93w',
  ])
    expect(openText(sealed, of)).toBe('text');
});

const texts = fc.dictionary(fc.string(), fc.string());
const headers = fc.record({ sent: texts, bound: texts });

describe('seals', () => {
  it('open for what they were made for, and give back what went in', async () => {
    const secrets = await open();
    fc.assert(
      fc.property(
        fc.dictionary(fc.string(), fc.jsonValue()),
        fc.string(),
        fc.string(),
        fc.record(
          {
            stateCheck: fc.jsonValue(),
            claimId: fc.string(),
            reservationId: fc.string(),
            requestIp: fc.ipV4(),
            headers,
            files: texts,
            asked: texts,
          },
          { requiredKeys: [] },
        ),
        (params, workspace, effectId, more) => {
          const content: SealedParams = {
            ...JSON.parse(JSON.stringify({ ...plain, params, ...more })),
            salts: newSalts(),
          };
          const where = { workspace, effectId, fingerprint: 'f' };
          expect(secrets.open(secrets.seal(content, where), where)).toEqual(content);
        },
      ),
    );
  });

  it.each([
    ['workspace', { ...bound, workspace: 'demo2' }],
    ['effect', { ...bound, effectId: 'eff_2' }],
    ['fingerprint', { ...bound, fingerprint: 'fq' }],
    ['parts that run together', { workspace: 'demoeff_1', effectId: '', fingerprint: 'fp' }],
  ])('do not open for another %s', async (_, other) => {
    const secrets = await open();
    expect(secrets.open(secrets.seal(plain, bound), other)).toBeNull();
  });

  it('do not open when any byte was changed, or any was cut', async () => {
    const secrets = await open();
    const bytes = Buffer.from(secrets.seal(plain, bound), 'base64url');
    for (let at = 0; at < bytes.length; at += 1) {
      const altered = Buffer.from(bytes);
      altered[at] = (altered[at] ?? 0) ^ 1;
      expect(secrets.open(altered.toString('base64url'), bound), `byte ${at}`).toBeNull();
      expect(secrets.open(bytes.subarray(0, at).toString('base64url'), bound), `cut at ${at}`).toBeNull();
    }
    expect(secrets.open('', bound)).toBeNull();
    expect(secrets.open('not a seal', bound)).toBeNull();
  });

  it('show nothing of the params and are never the same twice', async () => {
    const secrets = await open();
    const seals = Array.from({ length: 50 }, () => secrets.seal(plain, bound));
    expect(new Set(seals).size).toBe(50);
    expect(Buffer.from(seals[0]!, 'base64url').toString('latin1')).not.toContain('pay_1');
  });
});

describe('a seal by the native library and one by node:crypto', () => {
  async function withSodium(mock: () => object): Promise<typeof openSecrets> {
    vi.resetModules();
    vi.doMock('sodium-native', mock);
    const { openSecrets: opened } = await import('../../src/secrets/vault.ts');
    return opened;
  }
  afterEach(() => {
    vi.doUnmock('sodium-native');
    vi.resetModules();
  });
  const cipherOf = (sealed: string): number | undefined => Buffer.from(sealed, 'base64url')[0];

  it('are two forms; gateways with and without the library open both', async () => {
    const native = await open();
    const openWithout = await withSodium(() => {
      throw new Error('Cannot find package');
    });
    const without = await openWithout({ masterFile: file(), previous: [] });
    const all = [native, without].map((by) => by.seal(plain, bound));
    expect(all.map(cipherOf)).toEqual([2, 1]);
    for (const sealed of all)
      for (const secrets of [native, without]) expect(secrets.open(sealed, bound)).toEqual(plain);
    // Longer than what is sealed in the buffer that is used again.
    const text = 'ünï 😀'.repeat(5_000);
    const of = { what: 'result', workspace: 'demo', of: 'eff_1', part: 0 } as const;
    for (const by of [native, without]) expect(without.openText(by.sealText(text, of), of)).toBe(text);
  });

  it('a library that seals what node:crypto cannot open is not used', async () => {
    const sodium = (await import('sodium-native')).default;
    const openWrong = await withSodium(() => ({
      default: {
        ...sodium,
        crypto_aead_chacha20poly1305_ietf_encrypt_detached: (cipher: Buffer) => void cipher.fill(1),
      },
    }));
    const wrong = await openWrong({ masterFile: file(), previous: [] });
    const sealed = wrong.seal(plain, bound);
    expect(cipherOf(sealed)).toBe(1);
    expect(wrong.open(sealed, bound)).toEqual(plain);
  });
});

describe('sealed texts', () => {
  const text = { what: 'approval', workspace: 'demo', of: 'apr_1', part: 0 } as const;
  it.each([
    ['kind', { ...text, what: 'result' } as const],
    ['workspace', { ...text, workspace: 'demo2' }],
    ['record', { ...text, of: 'apr_2' }],
    ['part', { ...text, part: 1 }],
  ])('open for what they were made for, and for no other %s', async (_, other) => {
    const secrets = await open();
    const sealed = secrets.sealText('Refund 5', text);
    expect(secrets.openText(sealed, text)).toBe('Refund 5');
    expect(secrets.openText(sealed, other)).toBeNull();
    expect(secrets.open(sealed, bound)).toBeNull();
  });
});

describe('nonces of seals', () => {
  const nonces = (sealed: string): { subkey: string; iv: string } => {
    const bytes = Buffer.from(sealed, 'base64url');
    return { subkey: bytes.toString('hex', 5, 17), iv: bytes.toString('hex', 17, 29) };
  };

  it('never come twice under one key, and no two processes share a key', async () => {
    const [first, second] = [await open(), await open()];
    const one = Array.from({ length: 300 }, () => nonces(first.seal(plain, bound)));
    const other = nonces(second.seal(plain, bound));
    expect(new Set(one.map(({ subkey }) => subkey)).size).toBe(1);
    expect(new Set(one.map(({ iv }) => iv)).size).toBe(300);
    expect(other.subkey).not.toBe(one[0]?.subkey);
  });
});

describe('salts', () => {
  it('are one per field, 16 bytes, never the same', async () => {
    const secrets = await open();
    const drawn = Array.from({ length: 100 }, () => secrets.newSalts().toString('hex'));
    expect(drawn.map((salts) => salts.length)).toEqual(drawn.map(() => 2 * 16 * 7));
    expect(new Set(drawn.flatMap((salts) => salts.match(/.{32}/g))).size).toBe(700);
  });
});

describe('rotating the master', () => {
  it('opens old seals, keeps fingerprints and old peppers, and seals with the new', async () => {
    const old = await open(file('old'));
    const sealed = old.seal(plain, bound);
    const both = await open(file('new'), [file('old')]);
    expect(both.open(sealed, bound)).toEqual(plain);
    expect(both.fingerprintKey('demo').equals(old.fingerprintKey('demo'))).toBe(true);
    expect(both.keyPepper.equals(old.keyPepper)).toBe(false);
    expect(both.previousPeppers.map((one) => one.equals(old.keyPepper))).toEqual([true]);
    expect(both.policySeals.fits('v1', old.policySeals.seal('v1'))).toBe(true);
    expect(old.policySeals.fits('v1', both.policySeals.seal('v1'))).toBe(false);
    expect(both.policySeals.fitsProposal('terms', old.policySeals.sealProposal('terms'))).toBe(true);
    const fresh = both.seal(plain, bound);
    expect(old.open(fresh, bound)).toBeNull();
    const after = await open(file('new'));
    expect(after.open(fresh, bound)).toEqual(plain);
    expect(after.open(sealed, bound)).toBeNull();
  });
});

describe('two masters that are being rotated out', () => {
  it('keep the fingerprints of the oldest, and open what either sealed', async () => {
    const [first, second] = [await open(file('1')), await open(file('2'), [file('1')])];
    const third = await open(file('3'), [file('2'), file('1')]);
    expect(third.fingerprintKey('demo').equals(first.fingerprintKey('demo'))).toBe(true);
    expect(second.fingerprintKey('demo').equals(first.fingerprintKey('demo'))).toBe(true);
    for (const secrets of [first, second]) expect(third.open(secrets.seal(plain, bound), bound)).toEqual(plain);
  });
});

it('the seal of a key does not depend on the order in which a store gives the fields', async () => {
  const { keySeals } = await open(file('keys'));
  const { record } = shelve(keyShelf(), 'account');
  const seal = keySeals.seal(record);
  const { id, ...others } = record;
  expect(keySeals.judge({ id, ...others }, seal)).toBe('sound');
  expect(keySeals.judge({ ...others, id }, seal)).toBe('sound');
});

it('a seal of a secret that is not here fits nothing, though it may be sound; nor does a part of one', async () => {
  const [here, elsewhere] = [(await open(file('here'))).keySeals, (await open(file('elsewhere'))).keySeals];
  const { record } = shelve(keyShelf(), 'account');
  const [own, foreign] = [here.seal(record), elsewhere.seal(record)];
  const [id = ''] = own.split('.');
  expect([own, foreign, `${id}.AAAA`, `${id}.`, id, '', undefined].map((seal) => here.judge(record, seal))).toEqual([
    'sound',
    'unknown_secret',
    ...Array(5).fill('forged'),
  ]);
  expect([own, foreign].map((seal) => here.fits(record, seal))).toEqual([true, false]);
  const rows = [here, elsewhere].map((of) => of.sealRow('pauses demo', 'text'));
  expect(rows.map((seal) => here.judgeRow('pauses demo', 'text', seal))).toEqual(['sound', 'unknown_secret']);
  expect(rows.map((seal) => here.fitsRow('pauses demo', 'text', seal))).toEqual([true, false]);
  // While a secret is being rotated out its seals fit, and new ones are of the secret that comes.
  const both = (await open(file('elsewhere'), [file('here')])).keySeals;
  expect([own, foreign].map((seal) => both.fits(record, seal))).toEqual([true, true]);
  expect(elsewhere.fits(record, both.seal(record))).toBe(true);
});

it('the seal of a proposal is none of a version in force, and the other way round', async () => {
  const { policySeals } = await open(file('policies'));
  expect(policySeals.fits('v1', policySeals.sealProposal('v1'))).toBe(false);
  expect(policySeals.fitsProposal('v1', policySeals.seal('v1'))).toBe(false);
});

describe('the secrets object', () => {
  it('shows nothing when it is printed or serialised', async () => {
    const secrets = await open();
    const shown = [
      JSON.stringify({ secrets }),
      inspect(secrets, { depth: 9, showHidden: true }),
      inspect({ nested: [secrets] }, { depth: 9 }),
    ].join('\n');
    for (const key of [secrets.keyPepper, secrets.fingerprintKey('demo')].map((one) => one.export()))
      for (const form of [
        key.toString('hex'),
        key.toString('base64'),
        key.toString('base64url'),
        [...key].join(','),
        [...key.subarray(0, 6)].map((byte) => byte.toString(16).padStart(2, '0')).join(' '),
      ])
        expect(shown).not.toContain(form);
    expect(shown).toContain('[secrets]');
  });
});
