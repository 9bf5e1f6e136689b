import { describe, expect, it } from 'vitest';
import { createAuthenticator } from '../../src/identity/authenticate.ts';
import { bootstrapAdministrativeKey } from '../../src/identity/bootstrap.ts';
import { makeKey } from '../../src/identity/key-format.ts';
import { keyShelf, PEPPER, shelve } from './key-shelf.ts';

/** No file is named. */
const none = async (): Promise<null> => null;

describe('the first administrative key', () => {
  it('is made on an empty store, once, and works', async () => {
    const store = keyShelf();
    const first = await bootstrapAdministrativeKey({ store, pepper: PEPPER, provided: none });
    expect(first.made).toBe(true);
    const authenticator = createAuthenticator({ store, users: store, peppers: [PEPPER], elapsed: () => 0 });
    expect(await authenticator.authenticate(first.key ?? '')).toMatchObject({ kind: 'administrative', user: null });
    expect(await bootstrapAdministrativeKey({ store, pepper: PEPPER, provided: none })).toEqual({
      made: false,
      key: null,
    });
    expect(store.records.size).toBe(1);
  });

  it('is one, where several gateways start at once', async () => {
    const store = keyShelf();
    const made = await Promise.all(
      [1, 2, 3].map(() => bootstrapAdministrativeKey({ store, pepper: PEPPER, provided: none })),
    );
    expect(made.map((one) => one.made).filter(Boolean)).toHaveLength(1);
    expect(store.records.size).toBe(1);
  });

  it('is the one that the operator provides, and is then not given back to be printed', async () => {
    const store = keyShelf();
    const { key } = makeKey('administrative');
    expect(await bootstrapAdministrativeKey({ store, pepper: PEPPER, provided: async () => `${key}\n` })).toEqual({
      made: true,
      key: null,
    });
    const authenticator = createAuthenticator({ store, users: store, peppers: [PEPPER], elapsed: () => 0 });
    expect(await authenticator.authenticate(key)).toMatchObject({ kind: 'administrative' });
  });

  it('is never made where there are keys, or where the store is not ready', async () => {
    const store = keyShelf();
    shelve(store, 'agent', { revokedAt: 1 });
    // The file may be gone by then: it is not read.
    const gone = (): never => {
      throw new Error('ENOENT');
    };
    expect((await bootstrapAdministrativeKey({ store, pepper: PEPPER, provided: gone })).made).toBe(false);
    const rolledBack = keyShelf();
    rolledBack.ready = false;
    expect((await bootstrapAdministrativeKey({ store: rolledBack, pepper: PEPPER, provided: none })).made).toBe(false);
    expect(rolledBack.records.size).toBe(0);
  });

  it.each([
    ['nothing', ''],
    ['a key of another kind', makeKey('account').key],
    ['a key with a slip', `${makeKey('administrative').key.slice(0, -1)}_`],
    ['two keys', `${makeKey('administrative').key}\n${makeKey('administrative').key}`],
    ['a pass phrase', 'canary-pass-phrase'],
  ])('is refused when the file holds %s, without showing it', async (_, provided) => {
    const store = keyShelf();
    const error = await bootstrapAdministrativeKey({ store, pepper: PEPPER, provided: async () => provided }).catch(
      (caught: unknown) => caught,
    );
    expect(String(error)).toMatch(/SVC_BOOTSTRAP_ADMIN_KEY_FILE/);
    if (provided !== '') expect(String(error)).not.toContain(provided.slice(0, 20));
    expect(store.records.size).toBe(0);
  });
});
