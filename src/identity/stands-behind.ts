import type { StandsBehind } from '../effects/model/policy-proposal.ts';
import type { Principal } from '../effects/model/principal.ts';
import { type KeysOfUsers, makersOf } from '../effects/run/key-makers.ts';
import { isOwnRequest } from '../effects/steps/voting.ts';

export interface Persons extends KeysOfUsers {
  /** Whether the configuration names the user. */
  isUser(user: string): boolean;
  /** When somebody became a user, ms; `null`: not yet. */
  since(user: string): Promise<number | null>;
}

/**
 * The person behind a key; `null` where it has no user whom the configuration names.
 * @throws StoreUnavailable
 */
export async function standsBehind(persons: Persons, principal: Principal): Promise<StandsBehind | null> {
  const { user, keyId } = principal;
  if (user === null || !persons.isUser(user)) return null;
  const makers = await makersOf(persons, principal);
  return makers === null ? null : { user, keyId, makers: [...makers].toSorted() };
}

/**
 * The person behind a key, if it is another than those who stand behind a proposal; else why not.
 * @param at when it was made, ms
 * @throws StoreUnavailable
 */
export async function anotherPerson(
  persons: Persons,
  principal: Principal,
  { people, at }: { readonly people: readonly StandsBehind[]; readonly at: number },
): Promise<StandsBehind | string> {
  const person = await standsBehind(persons, principal);
  if (person === null)
    return 'Your key belongs to no user whom the configuration names: it could not be seen that you are another person.';
  const userSince = await persons.since(person.user);
  const voterSince = userSince === null ? Infinity : Math.max(principal.keyCreatedAt, userSince);
  if (voterSince > at) return 'You, or your key, came after the proposal: somebody who was there confirms it.';
  const voter = { user: person.user, keyId: person.keyId, voterSince };
  for (const { user, keyId, makers } of people) {
    const requester = { user, keyId, agentOwner: null, keyMadeBy: null };
    if (isOwnRequest({ requester, createdAt: at }, voter))
      return 'You stand behind it already. Somebody else confirms it.';
    if (person.makers.includes(user))
      return `Your key was made by ${user}, who stands behind it already. Use a key that somebody else made, or svc keys create on the machine of the gateway.`;
    if (makers.includes(person.user))
      return `You made the key of ${user}, who stands behind it. Somebody else confirms it.`;
  }
  return person;
}
