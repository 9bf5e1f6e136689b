import { describe, expect, it } from 'vitest';
import type { Passkey } from '../../src/effects/model/passkey.ts';
import { type Capabilities, type OpenStore, useStore } from './fixture.ts';
import { PERSON, WORKSPACE } from './requests.ts';

let unique = 0;
export function passkey(change: Partial<Passkey> = {}): Passkey {
  unique += 1;
  return {
    id: `psk_${unique}`,
    credential: `credential${unique}`,
    publicKey: 'cose',
    counter: 0,
    transports: ['internal'],
    isSynced: true,
    isBackedUp: false,
    name: 'My phone',
    user: 'maria',
    keyId: 'key_a',
    workspace: WORKSPACE,
    createdAt: 1_000,
    lastUsedAt: null,
    ...change,
  };
}

export function describePasskeys(open: OpenStore, capabilities: Capabilities): void {
  describe('passkeys', () => {
    const at = useStore(open, capabilities);
    const answer = (ms = 60_000) => {
      unique += 1;
      return { challenge: `challenge${unique}`, until: at.store.now() + ms };
    };

    it('are found by their ids, and listed of a user in their order', async () => {
      const [one, two, others] = [passkey(), passkey({ name: 'My key' }), passkey({ user: 'omar' })];
      for (const of of [one, two, others]) expect(await at.store.addPasskey(of, answer(), PERSON)).toBe('added');
      await at.reopen();
      expect(await at.store.passkeys('maria')).toEqual([one, two]);
      expect(await at.store.passkey(others.id)).toEqual(others);
      expect(await at.store.passkey('psk_none')).toBeNull();
      expect(await at.store.passkeys('nobody')).toEqual([]);
    });

    it('belong to one user, and a user has at most ten', async () => {
      const first = passkey();
      const once = answer();
      expect(await at.store.addPasskey(first, once, PERSON)).toBe('added');
      expect(await at.store.addPasskey({ ...first, user: 'omar' }, answer(), PERSON)).toBe('taken');
      expect(await at.store.addPasskey(passkey(), once, PERSON)).toBe('taken');
      const more = Array.from({ length: 12 }, () => at.store.addPasskey(passkey(), answer(), PERSON));
      expect((await Promise.all(more)).filter((is) => is === 'added')).toHaveLength(9);
      expect(await at.store.passkeys('maria')).toHaveLength(10);
    });

    it('answer a challenge once: of several gateways at once, one takes it', async () => {
      const one = passkey();
      const other = passkey();
      for (const of of [one, other]) await at.store.addPasskey(of, answer(), PERSON);
      const once = answer();
      const signed = { counter: 0, isBackedUp: true };
      const used = await Promise.all([one, other, one].map((of) => at.store.usePasskey(of, signed, once)));
      expect(used.filter(Boolean)).toHaveLength(1);
      expect(await at.store.usePasskey(one, signed, answer(-1))).toBe(false);
      expect(await at.store.usePasskey(one, signed, answer())).toBe(true);
      expect(await at.store.passkey(one.id)).toMatchObject({ isBackedUp: true, lastUsedAt: expect.any(Number) });
    });

    it('remember so many answers, and take no more before the first is over', async () => {
      const one = passkey();
      await at.store.addPasskey(one, answer(), PERSON);
      const used: boolean[] = [];
      for (let count = 0; count < 101; count += 1)
        used.push(await at.store.usePasskey(one, { counter: 0, isBackedUp: false }, answer()));
      expect(used.filter(Boolean)).toHaveLength(99);
    });

    at.timed('make room for more as soon as answers are over, and take none at its end', async () => {
      const one = passkey();
      await at.store.addPasskey(one, answer(1_000), PERSON);
      const use = (ms: number) => at.store.usePasskey(one, { counter: 0, isBackedUp: false }, answer(ms));
      expect(await use(0)).toBe(false);
      for (let count = 1; count < 100; count += 1) expect(await use(1_000)).toBe(true);
      at.advance(999);
      expect(await use(1_000)).toBe(false);
      at.advance(1);
      expect(await use(1_000)).toBe(true);
    });

    it('of a user are told apart: the one that is named signs, and is removed', async () => {
      const [first, second] = [passkey({ counter: 9 }), passkey({ counter: 1 })];
      for (const one of [first, second]) await at.store.addPasskey(one, answer(), PERSON);
      expect(await at.store.passkey(second.id)).toEqual(second);
      expect(await at.store.usePasskey(second, { counter: 2, isBackedUp: false }, answer())).toBe(true);
      expect(await at.store.passkeys('maria')).toMatchObject([
        { id: first.id, counter: 9, lastUsedAt: null },
        { id: second.id, counter: 2 },
      ]);
      expect(await at.store.removePasskey('maria', second.id, PERSON)).toMatchObject({ id: second.id });
      expect(await at.store.passkeys('maria')).toEqual([first]);
      expect(await at.store.passkey(first.id)).toEqual(first);
    });

    it('that count only count up', async () => {
      const one = passkey({ counter: 5 });
      await at.store.addPasskey(one, answer(), PERSON);
      const use = (counter: number) => at.store.usePasskey(one, { counter, isBackedUp: false }, answer());
      expect([await use(5), await use(4), await use(0), await use(6), await use(6)]).toEqual([
        false,
        false,
        false,
        true,
        false,
      ]);
      expect(await at.store.passkey(one.id)).toMatchObject({ counter: 6 });
    });

    it('that were removed sign no more, and may be added again; both are in the ledger', async () => {
      const one = passkey();
      await at.store.addPasskey(one, answer(), PERSON);
      expect(await at.store.removePasskey('omar', one.id, PERSON)).toBeNull();
      expect(await at.store.removePasskey('maria', one.id, PERSON)).toEqual(one);
      expect(await at.store.removePasskey('maria', one.id, PERSON)).toBeNull();
      expect(await at.store.passkey(one.id)).toBeNull();
      expect(await at.store.usePasskey(one, { counter: 0, isBackedUp: false }, answer())).toBe(false);
      expect(await at.store.addPasskey(one, answer(), PERSON)).toBe('added');
      const events = await at.store.ledger(WORKSPACE, 0, 10);
      expect(events.map(({ kind, data }) => [kind, data['user']])).toEqual([
        ['passkey.added', 'maria'],
        ['passkey.removed', 'maria'],
        ['passkey.added', 'maria'],
      ]);
      expect(JSON.stringify(events)).not.toContain('cose');
    });
  });
}
