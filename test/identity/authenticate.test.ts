import { createSecretKey } from 'node:crypto';
import { crc32 } from 'node:zlib';
import { beforeEach, describe, expect, it } from 'vitest';
import { type Authenticator, createAuthenticator, faultOfKey } from '../../src/identity/authenticate.ts';
import { makeKey } from '../../src/identity/key-format.ts';
import { type KeyShelf, keyShelf, PEPPER, shelve } from './key-shelf.ts';

const OLD_PEPPER = createSecretKey(Buffer.alloc(32, 6));

let shelf: KeyShelf;
let authenticator: Authenticator;
let clock = 0;

beforeEach(() => {
  shelf = keyShelf();
  clock = 0;
  authenticator = createAuthenticator({
    store: shelf,
    users: shelf,
    peppers: [PEPPER, OLD_PEPPER],
    elapsed: () => clock,
  });
});

/** The answer at once, without a promise: what the hot path gives. */
function cached(key: string) {
  const answer = authenticator.authenticate(key);
  if (answer instanceof Promise) throw new Error('asked the store');
  return answer;
}

describe('who a key belongs to', () => {
  it('is found in the store once, then answered at once', async () => {
    const { key, record } = shelve(shelf, 'agent');
    const first = await authenticator.authenticate(key);
    expect(first).toEqual({
      kind: 'agent',
      keyId: record.id,
      workspace: 'demo',
      agentId: 'bot',
      user: 'maria',
      madeBy: null,
      keyCreatedAt: record.createdAt,
      readOnly: false,
      allowedTools: null,
    });
    for (let round = 0; round < 100; round += 1) expect(cached(key)).toBe(first);
    expect(shelf.reads).toBe(1);
  });

  it.each(['account', 'administrative', 'profile'] as const)('is told for kind %s', async (kind) => {
    const { key } = shelve(shelf, kind);
    expect(await authenticator.authenticate(key)).toMatchObject({ kind });
  });

  it('has what its record limits it to, and was made when the record was, whenever it was used', async () => {
    const limits = { scopes: ['effects:run'], readOnly: true, allowedTools: ['a.b'], agentId: 'bot' } as const;
    const { key } = shelve(shelf, 'profile', { ...limits, madeBy: 'root', createdAt: 1, lastUsedAt: 2 });
    expect(await authenticator.authenticate(key)).toMatchObject({
      ...limits,
      workspace: 'demo',
      profile: 'mcp_agent',
      madeBy: 'root',
      keyCreatedAt: 1,
    });
  });

  it('asks the store once for many at a time', async () => {
    const { key } = shelve(shelf, 'account');
    const all = await Promise.all(Array.from({ length: 200 }, async () => authenticator.authenticate(key)));
    expect(new Set(all).size).toBe(1);
    expect(shelf.reads).toBe(1);
  });
});

describe('a key that is not valid', () => {
  it('is refused without a read when it is malformed', () => {
    const { key } = shelve(shelf, 'account');
    for (const text of ['', 'svc_', key.slice(0, -1), `${key.slice(0, -1)}${key.endsWith('0') ? '1' : '0'}`])
      expect(cached(text)).toEqual({ failure: 'invalid_key', why: 'malformed' });
    expect(shelf.reads).toBe(0);
  });

  it('is unknown when the store has no such handle', async () => {
    expect(await authenticator.authenticate(makeKey('account').key)).toEqual({
      failure: 'invalid_key',
      why: 'unknown',
    });
  });

  it('is refused when only the secret is wrong, also from the cache, and does not push out the right one', async () => {
    const { key, record } = shelve(shelf, 'account');
    let forged = '';
    // A key with the right handle and a right checksum, but a secret of its own.
    const letters = '0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz';
    const body = `svc_acct_${record.handle}${'a'.repeat(32)}`;
    let rest = crc32(body);
    for (let place = 0; place < 6; place += 1) {
      forged = letters.charAt(rest % 62) + forged;
      rest = Math.floor(rest / 62);
    }
    forged = body + forged;
    expect(await authenticator.authenticate(forged)).toEqual({ failure: 'invalid_key', why: 'wrong_secret' });
    expect(cached(key)).toMatchObject({ kind: 'account' });
    expect(cached(forged)).toEqual({ failure: 'invalid_key', why: 'wrong_secret' });
    expect(shelf.reads).toBe(1);
  });

  it.each([
    ['an agent key without agent', 'agent', { agentId: null }],
    ['an agent key without workspace', 'agent', { workspace: null }],
    ['an account key without workspace', 'account', { workspace: null }],
    ['a profile key without profile', 'profile', { profile: null }],
    ['a damaged hash', 'account', { hash: 'AAAA' }],
    ['an empty hash', 'account', { hash: '' }],
  ] as const)('is %s', async (_, kind, change) => {
    const { key } = shelve(shelf, kind, change);
    expect(await authenticator.authenticate(key)).toMatchObject({ failure: 'invalid_key' });
  });

  it('expires by the store’s time, from the cache as well', async () => {
    const { key } = shelve(shelf, 'account', { expiresAt: shelf.time + 100 });
    expect(await authenticator.authenticate(key)).toMatchObject({ kind: 'account' });
    shelf.time += 99;
    expect(cached(key)).toMatchObject({ kind: 'account' });
    shelf.time += 1;
    expect(cached(key)).toEqual({ failure: 'invalid_key', why: 'expired' });
  });
});

describe('a revocation', () => {
  const revoke = (handle: string) =>
    shelf.records.set(handle, { ...shelf.records.get(handle)!, revokedAt: shelf.time });

  it.each([
    ['by handle', false],
    ['of all', true],
  ])('is in force at once after the notice %s', async (_, all) => {
    const { key, record } = shelve(shelf, 'account');
    await authenticator.authenticate(key);
    revoke(record.handle);
    shelf.announce(all ? null : [record.handle]);
    expect(await authenticator.authenticate(key)).toEqual({ failure: 'invalid_key', why: 'revoked' });
  });

  it('is in force within a second when its notice is lost', async () => {
    const { key, record } = shelve(shelf, 'account');
    await authenticator.authenticate(key);
    revoke(record.handle);
    clock = 1000;
    expect(await authenticator.authenticate(key)).toEqual({ failure: 'invalid_key', why: 'revoked' });
  });

  it('is in force a second after a slow read began, not after it ended', async () => {
    const { key, record } = shelve(shelf, 'account');
    let open = (): void => undefined;
    shelf.gate = new Promise((resolve) => {
      open = resolve;
    });
    const slow = authenticator.authenticate(key);
    revoke(record.handle);
    clock = 900;
    open();
    expect(await slow).toMatchObject({ kind: 'account' });
    clock = 1000;
    expect(await authenticator.authenticate(key)).toMatchObject({ why: 'revoked' });
  });

  it.each([
    ['by handle', false],
    ['of all', true],
  ])('is not undone by a read that was under way at the notice %s', async (_, all) => {
    const { key, record } = shelve(shelf, 'account');
    let open = (): void => undefined;
    shelf.gate = new Promise((resolve) => {
      open = resolve;
    });
    const early = authenticator.authenticate(key);
    revoke(record.handle);
    shelf.announce(all ? null : [record.handle]);
    shelf.gate = null;
    const late = authenticator.authenticate(key);
    await new Promise((resolve) => setImmediate(resolve));
    open();
    await early;
    expect(await late).toMatchObject({ why: 'revoked' });
    expect(cached(key)).toMatchObject({ why: 'revoked' });
  });

  it('of a busy key needs no notice and makes no request wait', async () => {
    const { key, record } = shelve(shelf, 'account');
    await authenticator.authenticate(key);
    revoke(record.handle);
    clock = 499;
    expect(cached(key)).toMatchObject({ kind: 'account' });
    expect(shelf.reads).toBe(1);
    clock = 600;
    expect(cached(key)).toMatchObject({ kind: 'account' });
    await new Promise((resolve) => setImmediate(resolve));
    expect(shelf.reads).toBe(2);
    expect(cached(key)).toMatchObject({ why: 'revoked' });
  });

  it('reaches keys that were removed altogether', async () => {
    const { key, record } = shelve(shelf, 'account');
    await authenticator.authenticate(key);
    shelf.records.delete(record.handle);
    clock = 600;
    cached(key);
    await new Promise((resolve) => setImmediate(resolve));
    expect(await authenticator.authenticate(key)).toMatchObject({ why: 'unknown' });
  });
});

describe('a session that began with a key', () => {
  it('is whose key it is, without the key, and ends with it', async () => {
    const { record } = shelve(shelf, 'account', { expiresAt: shelf.time + 100 });
    expect(await authenticator.stillValid(record.id)).toMatchObject({ kind: 'account', keyId: record.id });
    expect(await authenticator.stillValid(record.id)).toMatchObject({ user: 'maria' });
    expect(shelf.reads).toBe(1);
    shelf.time += 100;
    expect(await authenticator.stillValid(record.id)).toEqual({ failure: 'invalid_key', why: 'expired' });
    shelf.records.set(record.handle, { ...record, revokedAt: shelf.time });
    shelf.announce([record.handle]);
    expect(await authenticator.stillValid(record.id)).toEqual({ failure: 'invalid_key', why: 'revoked' });
    shelf.records.delete(record.handle);
    clock = 1_000;
    expect(await authenticator.stillValid(record.id)).toEqual({ failure: 'invalid_key', why: 'unknown' });
    shelf.fault = new Error('store down');
    clock = 2_000;
    await expect(authenticator.stillValid(record.id)).rejects.toThrow('store down');
  });
});

describe('a record that can let nobody in', () => {
  it.each([
    ['an id that is not that of its handle', 'account', { id: 'key_000000000000' }, 'its id is not that of its handle'],
    ['a hash that is cut', 'account', { hash: 'AAAA' }, 'its hash is none'],
    ['no agent', 'agent', { agentId: null }, 'it lacks what its kind needs'],
    ['no workspace', 'account', { workspace: null }, 'it lacks what its kind needs'],
    ['nothing amiss', 'administrative', {}, null],
  ] as const)('is named by fsck: %s', (_, kind, change, fault) => {
    expect(faultOfKey(shelve(shelf, kind, change).record)).toBe(fault);
  });
});

describe('what is remembered of keys', () => {
  it('is dropped of the key that changed, and not of the others', async () => {
    const one = shelve(shelf, 'account');
    const other = shelve(shelf, 'account');
    await authenticator.authenticate(one.key);
    await authenticator.authenticate(other.key);
    shelf.announce([one.record.handle]);
    expect(cached(other.key)).toMatchObject({ keyId: other.record.id });
    expect(authenticator.authenticate(one.key)).toBeInstanceOf(Promise);
  });

  it('is bounded: whoever has fifty thousand keys pushes out the oldest', async () => {
    const first = shelve(shelf, 'account');
    const second = shelve(shelf, 'account');
    await authenticator.authenticate(first.key);
    await authenticator.authenticate(second.key);
    const { key } = shelf;
    shelf.key = async (handle) => (await key(handle)) ?? { ...first.record, handle };
    for (let n = 0; n < 49_999; n += 1) await authenticator.authenticate(makeKey('account').key);
    expect(cached(second.key)).toMatchObject({ keyId: second.record.id });
    const asked = authenticator.authenticate(first.key);
    expect(asked).toBeInstanceOf(Promise);
    expect(await asked).toMatchObject({ keyId: first.record.id });
  });

  it('is what a later read found, whenever an earlier one ends', async () => {
    const { key, record } = shelve(shelf, 'account');
    const gates: (() => void)[] = [];
    const gate = (): void => {
      shelf.gate = new Promise((resolve) => gates.push(resolve));
    };
    gate();
    const early = authenticator.authenticate(key);
    shelf.announce([record.handle]);
    gate();
    const late = authenticator.authenticate(key);
    gates[0]?.();
    await early;
    // The later one is under way still, and whoever asks waits for it.
    const third = authenticator.authenticate(key);
    expect(shelf.reads).toBe(2);
    gates[1]?.();
    expect(await third).toBe(await late);
  });
});

describe('when the store cannot be asked', () => {
  it('says so, and never that a key is invalid', async () => {
    const { key } = shelve(shelf, 'account');
    shelf.fault = new Error('store down');
    await expect(authenticator.authenticate(key)).rejects.toThrow('store down');
    shelf.fault = null;
    expect(await authenticator.authenticate(key)).toMatchObject({ kind: 'account' });
  });

  it('goes on with a fresh record, and not with an old one', async () => {
    const { key } = shelve(shelf, 'account');
    await authenticator.authenticate(key);
    shelf.fault = new Error('store down');
    clock = 999;
    expect(cached(key)).toMatchObject({ kind: 'account' });
    await new Promise((resolve) => setImmediate(resolve));
    clock = 1000;
    await expect(authenticator.authenticate(key)).rejects.toThrow('store down');
  });
});

describe('the user of a key', () => {
  it('ends it at once when the configuration names him no more, also after a start; until it does again', async () => {
    const { key, record } = shelve(shelf, 'account', { user: 'tom' });
    shelf.users.set('tom', true);
    expect(await authenticator.authenticate(key)).toMatchObject({ kind: 'account', user: 'tom' });
    shelf.users.set('tom', false);
    const refused = { failure: 'invalid_key', why: 'user_removed' };
    expect(cached(key)).toEqual(refused);
    expect(await authenticator.stillValid(record.id)).toEqual(refused);
    const started = createAuthenticator({ store: shelf, users: shelf, peppers: [PEPPER], elapsed: () => clock });
    expect(await started.authenticate(key)).toEqual(refused);
    shelf.users.set('tom', true);
    expect(cached(key)).toMatchObject({ user: 'tom' });
  });

  it('may be one whom no configuration ever named', async () => {
    const { key } = shelve(shelf, 'account', { user: 'nobody' });
    expect(await authenticator.authenticate(key)).toMatchObject({ user: 'nobody' });
  });
});

describe('rotating the master secret', () => {
  it('keeps keys valid that were made under the old pepper', async () => {
    const { key } = shelve(shelf, 'account', {}, OLD_PEPPER);
    expect(await authenticator.authenticate(key)).toMatchObject({ kind: 'account' });
    const without = createAuthenticator({ store: shelf, users: shelf, peppers: [PEPPER], elapsed: () => clock });
    expect(await without.authenticate(key)).toMatchObject({ why: 'wrong_secret' });
  });

  it('keeps keys valid under each secret that is named, however many there were since', async () => {
    const oldest = createSecretKey(Buffer.alloc(32, 9));
    const peppers = [PEPPER, OLD_PEPPER, oldest] as const;
    const all = createAuthenticator({ store: shelf, users: shelf, peppers, elapsed: () => clock });
    for (const pepper of peppers) {
      const { key } = shelve(shelf, 'account', {}, pepper);
      expect(await all.authenticate(key)).toMatchObject({ kind: 'account' });
    }
  });
});

describe('when a key was last used', () => {
  it('is written in one batch, at most once a minute and key, and never for a key that was refused', async () => {
    const one = shelve(shelf, 'account');
    const two = shelve(shelf, 'account');
    const gone = shelve(shelf, 'account', { revokedAt: 1 });
    const removed = shelve(shelf, 'account', { user: 'tom' });
    shelf.users.set('tom', false);
    const recent = shelve(shelf, 'account', { lastUsedAt: shelf.time - 59_999 });
    for (const { key } of [one, two, gone, removed, recent, one, two]) await authenticator.authenticate(key);
    await authenticator.close();
    expect(shelf.touched).toEqual([{ ids: [one.record.id, two.record.id], at: shelf.time }]);
    shelf.time += 59_999;
    await authenticator.authenticate(one.key);
    await authenticator.close();
    expect(shelf.touched).toHaveLength(1);
    shelf.time += 1;
    await authenticator.authenticate(one.key);
    await authenticator.close();
    expect(shelf.touched[1]).toEqual({ ids: [one.record.id], at: shelf.time });
  });

  it('is written a second later, however long the gateway runs', async () => {
    const { key, record } = shelve(shelf, 'account');
    await authenticator.authenticate(key);
    expect(shelf.touched).toEqual([]);
    await expect.poll(() => shelf.touched).toEqual([{ ids: [record.id], at: shelf.time }]);
    const other = shelve(shelf, 'account');
    await authenticator.authenticate(other.key);
    await expect.poll(() => shelf.touched).toHaveLength(2);
  });

  it('costs no request anything when it cannot be written', async () => {
    const { key } = shelve(shelf, 'account');
    shelf.touchKeys = () => Promise.reject(new Error('disk full'));
    expect(await authenticator.authenticate(key)).toMatchObject({ kind: 'account' });
    await expect(authenticator.close()).resolves.toBeUndefined();
  });
});
