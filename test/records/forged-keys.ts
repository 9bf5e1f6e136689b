import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { KeyRecord, KeySeals } from '../../src/effects/model/key.ts';
import type { EffectStore } from '../../src/effects/store.ts';
import { createLateKeySeals } from '../../src/gateway/key-seals.ts';
import { passkey } from '../contract/passkeys.ts';
import { keyRecord, PERSON } from '../contract/requests.ts';
import { KEY_SEALS } from '../identity/key-seals.ts';

/** A store, and whoever writes to what it is kept in without asking it. */
export interface TamperedStore {
  readonly store: EffectStore;
  /** Text of a row of the installation. */
  text(kind: string, id: string): Promise<string>;
  /** Writes it, or puts it there: in the list `keys` where it is a key. */
  write(kind: string, id: string, text: string): Promise<void>;
  close(): Promise<void>;
}

/** Who can write to the store, and has no more than that, makes no key, and gives none more rights. */
export function describeForgedKeys(name: string, open: (seals: KeySeals) => Promise<TamperedStore>): void {
  describe(`records of keys that were tampered with: ${name}`, () => {
    let at: TamperedStore;
    let unfit: string[] = [];
    const seals = createLateKeySeals((of) => unfit.push('row' in of ? of.row : of.id));

    beforeEach(async () => {
      unfit = [];
      seals.use(KEY_SEALS);
      at = await open(seals);
    });
    afterEach(() => at.close());

    async function put(change: Partial<KeyRecord> = {}): Promise<KeyRecord> {
      const key = keyRecord(change);
      await at.store.putKey(key, PERSON);
      return key;
    }

    async function alter(id: string, change: Readonly<Record<string, unknown>>): Promise<void> {
      const record: unknown = JSON.parse(await at.text('api_key', id));
      await at.write('api_key', id, JSON.stringify({ ...Object(record), ...change }));
    }

    async function expectNoKey({ id, handle }: Pick<KeyRecord, 'id' | 'handle'>): Promise<void> {
      expect(await at.store.key(handle)).toBeNull();
      expect((await at.store.keys(null)).map((key) => key.id)).not.toContain(id);
      expect(await at.store.endKey(id, { kind: 'revoked' }, PERSON)).toBeNull();
    }

    it('a key that nobody has touched is there, also after its use was noted', async () => {
      const key = await put();
      await at.store.touchKeys([key.id], 1_000_000);
      expect(await at.store.key(key.handle)).toEqual({ ...key, lastUsedAt: 1_000_000 });
      const revoked = await at.store.endKey(key.id, { kind: 'revoked' }, PERSON);
      expect(await at.store.key(key.handle)).toEqual(revoked);
      expect(unfit).toEqual([]);
    });

    it('an administrator that was put there is none', async () => {
      const agent = await put({ kind: 'agent', agentId: 'bot' });
      const planted = { ...keyRecord({ kind: 'administrative', workspace: null, user: null }), hash: agent.hash };
      await at.write('api_key', planted.id, JSON.stringify(planted));
      await at.write('key_handle', planted.handle, planted.id);
      await expectNoKey(planted);
      expect(unfit).toContain(planted.id);
      // With the seal of another record neither.
      const { seal } = Object(JSON.parse(await at.text('api_key', agent.id)));
      await at.write('api_key', planted.id, JSON.stringify({ ...planted, seal }));
      await expectNoKey(planted);
      expect(await at.store.key(agent.handle)).toEqual(agent);
    });

    it.each([
      ['other kind', { kind: 'administrative' }],
      ['further scope', { scopes: ['effects:run', 'governance:write'] }],
      ['other workspace', { workspace: 'other' }],
      ['other user', { user: 'omar' }],
      ['other agent', { agentId: 'another-bot' }],
      ['other tools', { allowedTools: null }],
      ['other profile', { profile: 'mcp_operator' }],
      ['right to write', { readOnly: false }],
      ['later end', { expiresAt: 2 ** 50 }],
      ['earlier beginning', { createdAt: 0 }],
      ['maker of another name', { madeBy: null }],
      ['other secret', { hash: Buffer.alloc(32, 1).toString('base64url') }],
      ['dropped seal', { seal: undefined }],
      ['broken seal', { seal: 'AAAA' }],
      ['seal of an unknown secret', { seal: `other.${Buffer.alloc(32, 1).toString('base64url')}` }],
      ['field too much', { isAdministrator: true }],
    ])('a key that was given the %s is none', async (_, change) => {
      const key = await put({
        kind: 'profile',
        profile: 'mcp_agent',
        scopes: ['effects:run'],
        allowedTools: ['a.b'],
        readOnly: true,
        expiresAt: 2 ** 45,
        madeBy: 'omar',
      });
      expect(await at.store.key(key.handle)).toEqual(key);
      await alter(key.id, change);
      await expectNoKey(key);
      expect(unfit).toContain(key.id);
    });

    it('a key whose revocation was taken away is none', async () => {
      const key = await put();
      await at.store.endKey(key.id, { kind: 'revoked' }, PERSON);
      await alter(key.id, { revokedAt: null });
      await expectNoKey(key);
    });

    it('a key whose replacement was taken away is none', async () => {
      const key = await put();
      await at.store.endKey(key.id, { kind: 'replaced', by: 'key_new', overlapMs: 1 }, PERSON);
      await alter(key.id, { replacedBy: null, expiresAt: null });
      await expectNoKey(key);
    });

    it('a copy of a key, which nobody could revoke, is none', async () => {
      const key = await put();
      await at.write('api_key', 'key_copy', await at.text('api_key', key.id));
      await at.write('key_handle', key.handle, 'key_copy');
      expect(await at.store.key(key.handle)).toBeNull();
      expect(await at.store.keys(null)).toEqual([key]);
      expect(unfit).toContain('key_copy');
      // Nor one that another handle leads to.
      await at.write('key_handle', 'elsewhere000', key.id);
      expect(await at.store.key('elsewhere000')).toBeNull();
    });

    it('a key without a seal is none, and no start gives it one', async () => {
      const key = await put();
      await alter(key.id, { kind: 'administrative', seal: undefined });
      expect(await at.store.bindSecret(['mark'])).toBe(true);
      await expectNoKey(key);
    });

    it('an agent with another owner, or other roles, is none; a user who was there earlier has just come', async () => {
      const agent = {
        id: 'bot',
        workspace: 'demo',
        disabled: false,
        team: null,
        owner: 'olga',
        roles: [],
        attributes: {},
      };
      await at.store.putAgent(agent, PERSON);
      await at.store.seeUsers(new Map([['maria', []]]), PERSON);
      await at.store.seeUsers(
        new Map([
          ['maria', []],
          ['tom', []],
        ]),
        PERSON,
      );
      expect(await at.store.agents()).toEqual([agent]);
      const since = await at.store.userSince('tom');
      expect(since).toBeGreaterThan(0);
      const rowOf = async (kind: string, id: string): Promise<object> => Object(JSON.parse(await at.text(kind, id)));
      await at.write('agent', 'demo\nbot', JSON.stringify({ ...(await rowOf('agent', 'demo\nbot')), roles: ['lead'] }));
      await at.write('user', 'tom', JSON.stringify({ ...(await rowOf('user', 'tom')), since: 0 }));
      expect(await at.store.agents()).toEqual([]);
      expect(await at.store.userSince('tom')).toBeNull();
      expect(unfit).toEqual(['agent demo bot', 'user tom']);
      // What was sealed of one user says nothing of another.
      await at.write('user', 'tom', await at.text('user', 'maria'));
      expect(await at.store.userSince('maria')).toBe(0);
      expect(await at.store.userSince('tom')).toBeNull();
      // Seen again, the user is there from now on.
      await at.store.seeUsers(new Map([['tom', []]]), PERSON);
      expect(await at.store.userSince('tom')).toBeGreaterThanOrEqual(since ?? 0);
    });

    it('a passkey that was put there or changed is none, nor is one that was moved to another user', async () => {
      const one = passkey();
      const answered = { challenge: 'challenge', until: at.store.now() + 60_000 };
      expect(await at.store.addPasskey(one, answered, PERSON)).toBe('added');
      const right = await at.text('passkeys', 'maria');
      for (const change of [{ publicKey: 'mine' }, { counter: -1 }, { user: 'omar' }, { keyId: 'key_admin' }]) {
        const row = Object(JSON.parse(right));
        await at.write('passkeys', 'maria', JSON.stringify({ ...row, passkeys: [{ ...one, ...change }] }));
        expect(await at.store.passkeys('maria')).toEqual([]);
        expect(await at.store.passkey(one.id)).toBeNull();
        const signed = { counter: 0, isBackedUp: false };
        expect(await at.store.usePasskey(one, signed, { ...answered, challenge: 'another' })).toBe(false);
      }
      await at.write('passkeys', 'maria', JSON.stringify({ ...Object(JSON.parse(right)), answered: [] }));
      expect(await at.store.passkeys('maria')).toEqual([]);
      await at.write('passkeys', 'omar', right);
      expect(await at.store.passkeys('omar')).toEqual([]);
      await at.write('passkeys', 'maria', right);
      expect(await at.store.passkeys('maria')).toEqual([one]);
      expect(new Set(unfit)).toEqual(new Set(['passkeys maria', 'passkeys omar']));
    });

    it('keys that are none still count as keys: nobody is handed a first one', async () => {
      const key = await put();
      await alter(key.id, { seal: undefined });
      expect(await at.store.hasKeys()).toBe(true);
      expect(await at.store.putFirstKey(keyRecord(), PERSON)).toBe(false);
    });
  });
}
