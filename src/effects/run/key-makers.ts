import type { ApprovalRecord } from '../model/approval.ts';
import type { KeyStore } from '../key-store.ts';
import type { KeyRecord } from '../model/key.ts';

export type KeysOfUsers = Readonly<{
  keys(user: string): Promise<readonly Pick<KeyRecord, 'kind' | 'madeBy'>[]>;
}>;

/** So many makers of keys are followed. */
const MOST_MAKERS = 100;

/**
 * Who may hold a key beside its user: who made it, and who made the administrative keys that it may have been made with.
 * @returns `null` where they are too many to tell
 * @throws StoreUnavailable
 */
export async function makersOf(
  store: KeysOfUsers,
  { madeBy }: Pick<KeyRecord, 'madeBy'>,
): Promise<ReadonlySet<string> | null> {
  // Who makes a key for somebody may have kept it, and made the next one with it.
  const makers = new Set(madeBy === null ? [] : [madeBy]);
  for (const maker of makers) {
    if (makers.size > MOST_MAKERS) return null;
    for (const key of await store.keys(maker))
      if (key.kind === 'administrative' && key.madeBy !== null) makers.add(key.madeBy);
  }
  return makers;
}

/**
 * Why one person may hold the key that asked and the key of a vote; `null` where that is not so, or cannot be told from
 * how keys are commonly made: one administrator makes those of agents and all that approvers have.
 * @throws StoreUnavailable
 */
export async function inOneHand(
  store: Pick<KeyStore, 'keys'>,
  asked: Pick<ApprovalRecord, 'requester' | 'workspace' | 'createdAt'>,
  voter: { readonly user: string; readonly madeBy: string | null },
): Promise<string | null> {
  const { user, agentOwner, keyMadeBy } = asked.requester;
  const [asking, voting] = await Promise.all([makersOf(store, { madeBy: keyMadeBy }), makersOf(store, voter)]);
  if (asking === null || voting === null)
    return 'Too many people have made the keys in question to tell who holds them. Use a key that the command line made.';
  if (asking.has(voter.user))
    return 'You made the key that asked, or one that it was made with. Somebody else has to decide.';
  const asker = [user, agentOwner].find((one) => one !== null && one !== voter.user && voting.has(one)) ?? null;
  if (asker !== null)
    return `Your key was made by ${asker}, who is behind the request. Use a key that somebody else made, or svc keys create on the machine of the gateway.`;
  if (![...voting].some((maker) => asking.has(maker))) return null;
  const hasOther = (await store.keys(voter.user)).some(
    (key) => key.madeBy === null && decidesIn(key, asked.workspace) && !hadEnded(key, asked.createdAt),
  );
  return hasOther
    ? 'One person made your key and the key that asked. Use the key that the command line made for you.'
    : null;
}

function decidesIn({ kind, scopes, agentId, workspace: of }: KeyRecord, workspace: string): boolean {
  return of === workspace && agentId === null && (kind === 'account' || scopes.includes('approvals:decide'));
}

function hadEnded({ revokedAt, expiresAt }: KeyRecord, at: number): boolean {
  return Math.min(revokedAt ?? Infinity, expiresAt ?? Infinity) <= at;
}
