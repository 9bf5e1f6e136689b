import type { ApprovalRecord } from './approval.ts';
import type { Editable } from './editable.ts';
import type { AllowAlike, ApprovalRequirement } from './verdict.ts';
import type { LedgerActor } from './ledger.ts';
import type { Page } from './page.ts';

/**
 * Permission for the next calls alike, given with the vote that granted one. It answers what policy asks people, and
 * nothing else: pauses, rules that deny, claims and budgets apply to each of the calls.
 */
export interface AllowanceRecord {
  readonly id: string;
  readonly workspace: string;
  /** What a call has to be to count as alike; see `likenessOf`. */
  readonly likeness: string;
  /** The request for approval that it was given with, and the call that was asked about. */
  readonly approvalId: string;
  readonly effectId: string;
  readonly agentId: string;
  readonly tool: string;
  readonly target: string;
  readonly rules: readonly string[];
  /** Params that may differ, within these bounds; all others are as they were. */
  readonly varies: Editable;
  readonly by: { readonly user: string; readonly keyId: string };
  readonly times: number;
  readonly used: number;
  readonly givenAt: number;
  /** By the giver's choice, at most as long as the policy allows; exclusive. */
  readonly expiresAt: number;
  /** It counts in the epoch in which it was given: where the store may have lost something, uses may be missing. */
  readonly epoch: number;
  /** Absent: nobody has ended it. */
  readonly ended?: { readonly why: 'revoked' | 'replaced'; readonly at: number; readonly by: string };
  /** As it is stored: what a gateway vouches for of it. */
  readonly seal?: string;
  /** Something else than a gateway wrote it. It lets nothing in. */
  readonly isForged?: boolean;
}

/** An allowance as the gateway proposes it with a vote. `until`: at most until then, ms; the store's clock decides. */
export type AllowanceDraft = Omit<AllowanceRecord, 'used' | 'givenAt' | 'expiresAt' | 'epoch' | 'ended'> & {
  readonly until: number;
};

/** @param now ms, by the store's clock */
export function allowanceStatus(
  { ended, used, times, expiresAt, epoch }: AllowanceRecord,
  now: number,
  present: number,
): 'open' | 'used_up' | 'over' | 'revoked' | 'replaced' {
  if (ended !== undefined) return ended.why;
  if (used >= times) return 'used_up';
  return now < expiresAt && epoch === present ? 'open' : 'over';
}

/** The most that all of these rules let be allowed ahead; `null` where one of them lets nothing. */
export function mostAlike(requirements: readonly ApprovalRequirement[]): AllowAlike | null {
  let most: AllowAlike | null = null;
  for (const { allowAlike, quorum } of requirements) {
    if (allowAlike === undefined || quorum > 1) return null;
    const { times, forMs } = allowAlike;
    most = most === null ? allowAlike : { times: Math.min(most.times, times), forMs: Math.min(most.forMs, forMs) };
  }
  return most;
}

/**
 * Why a vote on this request cannot allow the next calls alike; `null` where it can.
 * @param requirements indices of those that the voter decides on
 * @param changes whether the vote changes the call
 */
export function alikeObstacle(
  approval: ApprovalRecord,
  requirements: readonly number[],
  changes: boolean,
): string | null {
  if (mostAlike(approval.requirements) === null) return 'The policy wants somebody to look at each of these calls.';
  if (!approval.requirements.every((_, index) => requirements.includes(index)))
    return 'Other people have to agree to such calls as well, so you cannot allow them alone.';
  return changes || approval.changed !== undefined
    ? 'A call that was changed is not what the agent asks, so there is no next one like it.'
    : null;
}

/** Whether an allowance may let in a call that these make: nobody allows ahead what they could not approve. */
export function isForOthers(
  { by }: AllowanceRecord,
  asked: {
    readonly user: string | null;
    readonly agentOwner: string | null;
    readonly keyId: string;
    readonly keyMadeBy: string | null;
  },
  registeredBy: string | null,
): boolean {
  const { user, agentOwner, keyId, keyMadeBy } = asked;
  return ![user, agentOwner, keyMadeBy, registeredBy].includes(by.user) && by.keyId !== keyId;
}

/** Allowances are given by votes and used by admissions; here they are listed and ended. */
export interface AllowanceStore {
  /** Newest first, also those that are over, for a day. A page can be short although more follow. */
  allowances(
    workspace: string,
    filter: { readonly agentId: string | null; readonly limit: number; readonly cursor: string | null },
  ): Promise<Page<AllowanceRecord>>;
  allowance(workspace: string, id: string): Promise<AllowanceRecord | null>;
  revokeAllowance(request: {
    readonly workspace: string;
    readonly id: string;
    /** The user who revokes it, or the key where it belongs to none. */
    readonly by: string;
    readonly actor: LedgerActor;
  }): Promise<
    | { readonly kind: 'revoked'; readonly allowance: AllowanceRecord }
    /** It lets nothing in any more: it is used up, its time is over, or somebody ended it. */
    | { readonly kind: 'over'; readonly allowance: AllowanceRecord }
    | { readonly kind: 'absent' }
  >;
}
