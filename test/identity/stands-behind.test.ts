import { expect, test } from 'vitest';
import type { StandsBehind } from '../../src/effects/model/policy-proposal.ts';
import type { KeysOfUsers } from '../../src/effects/run/key-makers.ts';
import { anotherPerson } from '../../src/identity/stands-behind.ts';
import { administrator } from '../gateway/administrator.ts';

const MADE_AT = 1_000;
const MARIA: StandsBehind = { user: 'maria', keyId: 'key_of_maria', makers: [] };

const none: KeysOfUsers['keys'] = async () => [];

/** What a confirmation comes to, by since when the other one is a user, and has the key. */
const confirmed = (
  userSince: number | null,
  keyCreatedAt: number,
  madeBy: string | null = null,
  proposer = MARIA,
  keys = none,
) =>
  anotherPerson(
    { isUser: (user) => user === 'omar', since: async () => userSince, keys },
    administrator('omar', { keyCreatedAt, madeBy }),
    { people: [proposer], at: MADE_AT },
  );

test('whoever was there when it was proposed may confirm, with a key that was', async () => {
  expect(await confirmed(MADE_AT, MADE_AT)).toMatchObject({ user: 'omar' });
});

test.each([
  ['a user', MADE_AT + 1, 0],
  ['a key', 0, MADE_AT + 1],
  ['a user of whom nobody knows since when', null, 0],
])('%s that came after the proposal confirms nothing', async (_who, userSince, keyCreatedAt) => {
  expect(await confirmed(userSince, keyCreatedAt)).toContain('came after the proposal');
});

test('whoever made the key of the other one may hold it, and is no second person', async () => {
  expect(await confirmed(0, 0, 'maria')).toContain('Your key was made by maria');
  expect(await confirmed(0, 0, null, { ...MARIA, makers: ['omar'] })).toContain('You made the key of maria');
  expect(await confirmed(0, 0, 'root', { ...MARIA, makers: ['root'] })).toMatchObject({ user: 'omar' });
});

test('whoever made the key with which the key of the other one was made may hold that too', async () => {
  const madeBy = (makers: Readonly<Record<string, string>>): KeysOfUsers['keys'] => {
    return async (user) => [{ kind: 'administrative', madeBy: makers[user] ?? null }];
  };
  expect(await confirmed(0, 0, 'adam', MARIA, madeBy({ adam: 'maria' }))).toContain('Your key was made by maria');
  expect(await confirmed(0, 0, 'zoe', MARIA, madeBy({ zoe: 'adam' }))).toMatchObject({ makers: ['adam', 'zoe'] });
  // Who made it cannot be told of a key that more than a hundred have had a hand in.
  const without: KeysOfUsers['keys'] = async (user) => [{ kind: 'administrative', madeBy: `${user}+` }];
  expect(await confirmed(0, 0, 'root', MARIA, without)).toContain('could not be seen that you are another person');
});
