import type { JsonObject } from '../../json/value.ts';
import type { LedgerActor } from './ledger.ts';

/** A person who stands behind what is proposed: who proposed it, or confirmed it. */
export interface StandsBehind {
  readonly user: string;
  readonly keyId: string;
  /** Users who made the key, or could have made it: those who made keys of these, and so on. */
  readonly makers: readonly string[];
}

/** Policies that one person wants in force, and that somebody else has to confirm. */
export interface PolicyProposal {
  readonly id: string;
  readonly version: string;
  /** What was in force when it was made. When something else comes in force, it is over. */
  readonly from: string;
  /** `files`: a gateway found it in its files, and nobody knows who wrote them. */
  readonly how: 'files' | 'activate' | 'rollback';
  readonly by: LedgerActor;
  readonly why?: string;
  /** With `files`: those that were new or had changed; the first of them. */
  readonly files?: readonly string[];
  readonly people: readonly StandsBehind[];
  /** ms by the store's clock, as are all times of it. */
  readonly at: number;
  readonly expiresAt: number;
  /** Of all above: who can only write to the store makes no proposal, and confirms none. */
  readonly seal: string;
  readonly ended?: { readonly at: number; readonly as: ProposalEnd; readonly by: LedgerActor };
}

type ProposalEnd = 'confirmed' | 'withdrawn' | 'superseded';

/** So many people have to stand behind policies. */
export const PEOPLE_BEHIND = 2;

/** A proposal is over after this long, ms. */
export const PROPOSAL_LASTS_MS = 24 * 3_600_000;

/** @param inForce the version that is in force now */
export function proposalStatus(
  { ended, expiresAt, from }: Pick<PolicyProposal, 'ended' | 'expiresAt' | 'from'>,
  now: number,
  inForce: string | null,
): 'open' | 'expired' | ProposalEnd {
  if (ended !== undefined) return ended.as;
  if (now >= expiresAt) return 'expired';
  return from === inForce ? 'open' : 'superseded';
}

export function proposalTerms(proposal: Omit<PolicyProposal, 'seal' | 'ended'>): string {
  const { id, version, from, how, by, why, files, people, at, expiresAt } = proposal;
  const behind = people.map(({ user, keyId, makers }) => [user, keyId, makers]);
  return JSON.stringify([id, version, from, how, by.type, by.id, why ?? null, files ?? null, behind, at, expiresAt]);
}

export function proposalEventData({ id, version, from, how, by, why, files, expiresAt }: PolicyProposal): JsonObject {
  return {
    proposal: id,
    version,
    instead_of: from,
    how,
    proposed_by: by.id,
    ...(why === undefined ? {} : { why }),
    ...(files === undefined ? {} : { files }),
    expires_at: new Date(expiresAt).toISOString(),
  };
}
