import { describe, expect, it } from 'vitest';
import { MOST_AGENTS_OF_USER } from '../../src/effects/model/principal.ts';
import { type Capabilities, type OpenStore, useStore } from './fixture.ts';
import { keyRecord, PERSON, WORKSPACE } from './requests.ts';

export function describeKeys(open: OpenStore, capabilities: Capabilities): void {
  describe('keys, workspaces and agents', () => {
    const at = useStore(open, capabilities);

    it('finds a key by its handle, with all it was put with', async () => {
      const key = keyRecord({ scopes: ['tools:read', 'effects:run'], allowedTools: ['a.b'], expiresAt: 2 ** 45 });
      await at.store.putKey(key, PERSON);
      expect(await at.store.key(key.handle)).toEqual(key);
      expect(await at.store.key(key.handle.toUpperCase())).toBeNull();
      expect(await at.store.key('')).toBeNull();
      await at.reopen();
      expect(await at.store.key(key.handle)).toEqual(key);
    });

    it('lists the keys of a user, or all', async () => {
      const mine = keyRecord();
      const others = keyRecord({ user: 'omar' });
      const nobodys = keyRecord({ user: null, kind: 'administrative', workspace: null });
      for (const key of [mine, others, nobodys]) await at.store.putKey(key, PERSON);
      expect(await at.store.keys('maria')).toEqual([mine]);
      expect(await at.store.keys(null)).toEqual([mine, others, nobodys]);
    });

    it('puts a first key where there is none, one of several at once', async () => {
      const keys = [1, 2, 3].map(() => keyRecord({ user: null, kind: 'administrative', workspace: null }));
      const put = await Promise.all(keys.map((key) => at.store.putFirstKey(key, PERSON)));
      expect(put.filter(Boolean)).toHaveLength(1);
      expect(await at.store.keys(null)).toEqual([keys[put.indexOf(true)]]);
      expect(await at.store.putFirstKey(keyRecord(), PERSON)).toBe(false);
    });

    it('is bound to one master secret, or to its successor while both are known', async () => {
      expect(await at.store.secretMark()).toBeNull();
      expect(await at.store.bindSecret(['one'])).toBe(true);
      expect(await at.store.bindSecret(['one'])).toBe(true);
      expect(await at.store.bindSecret(['two'])).toBe(false);
      expect(await at.store.bindSecret(['two', 'on'])).toBe(false);
      expect(await at.store.secretMark()).toBe('one');
      await at.reopen();
      expect(await at.store.bindSecret(['two', 'zero', 'one'])).toBe(true);
      expect(await at.store.secretMark()).toBe('two');
      expect(await at.store.bindSecret(['one'])).toBe(false);
    });

    it('revokes a key once, for good', async () => {
      const key = keyRecord();
      await at.store.putKey(key, PERSON);
      const revoked = await at.store.endKey(key.id, { kind: 'revoked' }, PERSON);
      expect(revoked?.revokedAt).toBeGreaterThan(0);
      expect(await at.store.endKey(key.id, { kind: 'replaced', by: 'key_new', overlapMs: 1 }, PERSON)).toEqual(revoked);
      expect(await at.store.key(key.handle)).toEqual(revoked);
      expect(await at.store.endKey('key_none', { kind: 'revoked' }, PERSON)).toBeNull();
    });

    it('has a key replaced once', async () => {
      const key = keyRecord();
      await at.store.putKey(key, PERSON);
      const replaced = await at.store.endKey(key.id, { kind: 'replaced', by: 'key_one', overlapMs: 60_000 }, PERSON);
      expect(replaced).toMatchObject({ replacedBy: 'key_one' });
      expect(await at.store.endKey(key.id, { kind: 'replaced', by: 'key_two', overlapMs: 1 }, PERSON)).toEqual(
        replaced,
      );
      expect(await at.store.endKey(key.id, { kind: 'revoked' }, PERSON)).toMatchObject({ replacedBy: 'key_one' });
    });

    at.timed('lets a replaced key live on for the overlap, and never longer than it would have', async () => {
      const [long, short] = [keyRecord(), keyRecord({ expiresAt: at.now() + 10 })];
      for (const key of [long, short]) {
        await at.store.putKey(key, PERSON);
        await at.store.endKey(key.id, { kind: 'replaced', by: 'key_new', overlapMs: 60_000 }, PERSON);
      }
      expect(await at.store.key(long.handle)).toMatchObject({ expiresAt: at.now() + 60_000, replacedBy: 'key_new' });
      expect(await at.store.key(short.handle)).toMatchObject({ expiresAt: at.now() + 10 });
    });

    it('tells listeners whose key has changed, by the time the change is answered', async () => {
      let heard: string[] = [];
      at.store.onKeysChanged((handles) => heard.push(...(handles ?? ['all'])));
      const key = keyRecord();
      for (const change of [
        () => at.store.putKey(key, PERSON),
        () => at.store.endKey(key.id, { kind: 'revoked' }, PERSON),
      ]) {
        heard = [];
        await change();
        // A look that meets the change while it is answered tells that any key may have changed, perhaps beside it.
        expect([key.handle, 'all']).toEqual(expect.arrayContaining(heard));
        expect(heard).not.toEqual([]);
      }
    });

    it('notes the use of a key at most once a minute', async () => {
      const key = keyRecord();
      await at.store.putKey(key, PERSON);
      await at.store.touchKeys([key.id, 'key_none'], 1_000_000);
      await at.store.touchKeys([key.id], 1_059_999);
      expect(await at.store.key(key.handle)).toMatchObject({ lastUsedAt: 1_000_000 });
      await at.store.touchKeys([key.id], 1_060_000);
      expect(await at.store.key(key.handle)).toMatchObject({ lastUsedAt: 1_060_000 });
    });

    it('has the making and the end of a key in the ledger, without its hash', async () => {
      const key = keyRecord({ hash: 'the-hash-of-it' });
      await at.store.putKey(key, PERSON);
      await at.store.endKey(key.id, { kind: 'revoked' }, PERSON);
      const events = await at.store.ledger(WORKSPACE, 0, 10);
      expect(events.map(({ kind }) => kind)).toEqual(['key.created', 'key.revoked']);
      expect(JSON.stringify(events)).not.toContain('the-hash-of-it');
    });

    it('has in the ledger which key was made, for whom and until when, and by which one it was replaced', async () => {
      const of = { kind: 'profile', profile: 'clerk', agentId: 'bot', user: 'tom', name: 'night' } as const;
      const key = keyRecord({ ...of, expiresAt: Date.UTC(2030, 0, 2) });
      await at.store.putKey(key, PERSON);
      await at.store.endKey(key.id, { kind: 'replaced', by: 'key_next', overlapMs: 0 }, PERSON);
      const events = await at.store.ledger(WORKSPACE, 0, 10);
      const { agentId: agent_id, ...said } = of;
      expect(events.map(({ kind, data }) => [kind, data])).toEqual([
        ['key.created', { ...said, key_id: key.id, agent_id, expires_at: '2030-01-02T00:00:00.000Z' }],
        ['key.rotated', { key_id: key.id, replaced_by: 'key_next' }],
      ]);
    });

    it('knows whether a workspace is new', async () => {
      expect(await at.store.putWorkspace('demo', PERSON)).toBe(true);
      expect(await at.store.putWorkspace('demo', PERSON)).toBe(false);
      expect(await at.store.putWorkspace('Demo', PERSON)).toBe(true);
      expect([...(await at.store.workspaces())].sort()).toEqual(['Demo', 'demo']);
      for (const workspace of ['Demo', 'demo'])
        expect(await at.store.ledger(workspace, 0, 10)).toMatchObject([
          { kind: 'workspace.created', actor: PERSON, data: { workspace } },
        ]);
    });

    const AGENT = {
      id: 'support-bot',
      workspace: WORKSPACE,
      disabled: false,
      team: 'support',
      owner: 'maria',
      roles: ['refunds'],
      attributes: { trust: 2, region: 'eu', beta: true },
    } as const;

    it('keeps an agent as it was first put, and another of this id is not put in its place', async () => {
      expect(await at.store.putAgent(AGENT, PERSON)).toBe('put');
      expect(await at.store.putAgent(AGENT, PERSON)).toBe('put');
      expect(await at.store.putAgent({ ...AGENT, owner: 'tom' }, PERSON)).toBe('taken');
      expect(await at.store.agents()).toEqual([AGENT]);
      const elsewhere = { ...AGENT, workspace: 'other', owner: 'tom' };
      expect(await at.store.putAgent(elsewhere, PERSON)).toBe('put');
      const events = await at.store.ledger(WORKSPACE, 0, 10);
      expect(events.map(({ kind }) => kind)).toEqual(['agent.registered']);
    });

    it('gives the id of an agent to one of two users who register it at once', async () => {
      for (let n = 0; n < 10; n += 1) {
        const id = `race-${n}`;
        const put = await Promise.all(
          ['tom', 'maria'].map((owner) => at.store.putAgent({ ...AGENT, id, owner, registeredBy: owner }, PERSON)),
        );
        expect(put.toSorted()).toEqual(['put', 'taken']);
        const owner = put[0] === 'put' ? 'tom' : 'maria';
        expect((await at.store.agents()).filter((agent) => agent.id === id)).toMatchObject([{ owner }]);
      }
    });

    it('has a bound for the agents that one user registers, in all workspaces, but with administrative keys', async () => {
      const own = (n: number, user: string) => ({
        ...AGENT,
        id: `bot-${n}`,
        workspace: n % 2 === 0 ? WORKSPACE : 'other',
        registeredBy: user,
        isSelfMade: true,
      });
      const asked = [...Array(MOST_AGENTS_OF_USER + 5).keys()].map((n) => at.store.putAgent(own(n, 'tom'), PERSON));
      expect((await Promise.all(asked)).filter((put) => put === 'too_many')).toHaveLength(5);
      expect(await at.store.agents()).toHaveLength(MOST_AGENTS_OF_USER);
      expect(await at.store.putAgent(own(1_000, 'tom'), PERSON)).toBe('too_many');
      expect(await at.store.putAgent(own(1_000, 'maria'), PERSON)).toBe('put');
      expect(await at.store.putAgent({ ...own(1_001, 'tom'), isSelfMade: false }, PERSON)).toBe('put');
    });

    it('keeps a session until somebody takes it: of several at once, one', async () => {
      const session = { text: 'sealed', until: at.store.now() + 60_000, keyId: 'key_a' };
      await at.store.putSession('session_1', session);
      await at.reopen();
      expect(await at.store.session('session_1')).toBe('sealed');
      expect(await at.store.session('session_2')).toBeNull();
      const taken = await Promise.all([1, 2, 3].map(() => at.store.takeSession('session_1')));
      expect(taken.filter((text) => text !== null)).toEqual(['sealed']);
      expect(await at.store.session('session_1')).toBeNull();
    });

    it('keeps the latest twenty sessions of a key', async () => {
      for (let count = 0; count < 22; count += 1)
        await at.store.putSession(`session_${count}`, {
          text: '',
          until: at.store.now() + 60_000 + count,
          keyId: 'key_a',
        });
      await at.store.putSession('session_other', { text: 'other', until: at.store.now() + 60_000, keyId: 'key_b' });
      const kept = await Promise.all([...Array(22).keys()].map((count) => at.store.session(`session_${count}`)));
      expect(kept.map((text) => text !== null)).toEqual([false, false, ...Array(20).fill(true)]);
      expect(await at.store.session('session_other')).toBe('other');
    });

    at.timed('ends a session at its time, and removes it with the next one', async () => {
      await at.store.putSession('session_1', { text: 'one', until: at.now() + 1_000, keyId: 'key_a' });
      at.advance(999);
      expect(await at.store.session('session_1')).toBe('one');
      at.advance(1);
      expect(await at.store.session('session_1')).toBeNull();
      expect(await at.store.takeSession('session_1')).toBeNull();
    });

    it('keeps the id of the installation', async () => {
      const { installId } = at.store;
      expect(installId).not.toBe('');
      await at.reopen();
      expect(at.store.installId).toBe(installId);
      expect(at.store.health()).toMatchObject({ ready: true, problem: null });
    });
  });
}
