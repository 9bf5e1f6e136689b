import { quote } from '../../json/text.ts';
import type { DeniedDecision, Reason } from './decision.ts';
import { type ApprovalRequirement, type Approvers, type Obligation, windowId } from './verdict.ts';
import { shortened } from './shortened.ts';
import type { BudgetRow, EffectActor } from './effect.ts';

/** Longest comment on a vote, characters. */
export const MOST_COMMENT = 1000;

/** One person's vote. `requirements`: indices of the requirements for which the voter's roles or name qualify. */
export interface Vote {
  readonly user: string;
  readonly keyId: string;
  readonly verdict: 'approve' | 'reject';
  readonly at: number;
  readonly comment: string | null;
  /** Of a rejection with words, base64url: the ledger commits to them with it. */
  readonly salt?: string;
  readonly requirements: readonly number[];
  /** As it is stored: what a gateway vouches for of the vote. */
  readonly seal?: string;
}

/** What the call takes from a budget, as computed when approval was asked for. */
export interface ApprovalCost extends Pick<BudgetRow, 'budget' | 'unit' | 'bucket' | 'window' | 'limit'> {
  readonly amount: number | null;
}

/** A request for approval. It is bound to a digest of the action and of the rules that ask for approval. */
export interface ApprovalRecord {
  readonly id: string;
  readonly workspace: string;
  readonly effectId: string;
  /**
   * What a vote approves: the action, and the rules that ask for approval, with everything that the approver is shown.
   */
  readonly digest: string;
  readonly tool: string;
  readonly target: string;
  readonly requester: Pick<EffectActor, 'agentId' | 'agentOwner' | 'user' | 'keyId' | 'keyMadeBy'>;
  readonly requirements: readonly ApprovalRequirement[];
  readonly costs: readonly ApprovalCost[];
  readonly votes: readonly Vote[];
  readonly status: 'pending' | 'granted' | 'rejected' | 'expired' | 'used';
  readonly createdAt: number;
  readonly expiresAt: number;
  readonly decidedAt: number | null;
  /** Why the call is not sent although approval is granted (it is tried until `expiresAt`), or why it was given up. */
  readonly stopped: { readonly at: number; readonly decision: DeniedDecision; readonly reason: Reason } | null;
  /** The rate limits that the call was counted in when it was asked, so that it is not counted in them again. Absent: none. */
  readonly rates?: readonly { readonly id: string; readonly bucket: string }[];
  /** Until when escalations are on record, ms. Absent: none is. */
  readonly escalatedTo?: number;
  /** The call as an approver changed it: from then on votes are for this alone. Absent: it stands as it was asked. */
  readonly changed?: {
    readonly by: string;
    readonly at: number;
    /** Names of the params that are not as they were asked. */
    readonly params: readonly string[];
    /** The params as they would run, sealed with those that were asked; `null` once the request is over. */
    readonly sealed: string | null;
    /** The digest of the question as the agent asked it. */
    readonly askedDigest: string;
  };
  /** Something else than a gateway wrote the request, or a vote on it. Nothing is approved by it. */
  readonly isForged?: boolean;
}

/** A request that is over. The params of a change are no longer kept with it: the effect has what ran. */
export function endedApproval(
  approval: ApprovalRecord,
  status: 'rejected' | 'expired' | 'used',
  decidedAt: number | null = approval.decidedAt,
): ApprovalRecord {
  const { changed } = approval;
  const over = { ...approval, status, decidedAt };
  return changed === undefined ? over : { ...over, changed: { ...changed, sealed: null } };
}

/** From when on others may decide by a requirement as well, ms; never: `Infinity`. */
export function escalatesAt(
  { createdAt }: Pick<ApprovalRecord, 'createdAt'>,
  { escalate, hours }: Pick<ApprovalRequirement, 'escalate' | 'hours'>,
): number {
  return escalate === undefined ? Infinity : (hours?.escalatesAt ?? createdAt + escalate.afterMs);
}

/** Until when a requirement that is asked now is waited for, ms. */
export function expiresAt({ expiresMs, hours }: ApprovalRequirement, now: number): number {
  return hours?.expiresAt ?? now + expiresMs;
}

/** Whether somebody is one of those, by name or by a role. */
export function isAmong({ users, roles }: Approvers, user: string, held: readonly string[]): boolean {
  return users.includes(user) || roles.some((role) => held.includes(role));
}

/** The limits that a request asks to go beyond. */
export function limitsOf({ requirements }: Pick<ApprovalRecord, 'requirements'>): ReadonlySet<string> {
  return new Set(requirements.flatMap(({ beyond }) => (beyond === undefined ? [] : [beyond])));
}

/** Who may decide by a requirement at a time. */
export function decidersAt(
  approval: Pick<ApprovalRecord, 'createdAt'>,
  requirement: ApprovalRequirement,
  now: number,
): Approvers {
  const { approvers, escalate } = requirement;
  if (escalate === undefined || now < escalatesAt(approval, requirement)) return approvers;
  return {
    roles: [...approvers.roles, ...escalate.to.roles],
    users: [...approvers.users, ...escalate.to.users],
  };
}

/** The requirements that others may decide by since a time, and the ledger does not say so. */
export function escalating(approval: ApprovalRecord, now: number): readonly ApprovalRequirement[] {
  if (approval.status !== 'pending') return [];
  return approval.requirements.filter((requirement) => {
    const at = escalatesAt(approval, requirement);
    return at <= now && at > (approval.escalatedTo ?? 0);
  });
}

/** When something is to be done about an open request by itself: others are to be asked, or it ends. */
export function dueAt(approval: ApprovalRecord): number {
  let due = approval.expiresAt;
  if (approval.status !== 'pending') return due;
  for (const requirement of approval.requirements) {
    const at = escalatesAt(approval, requirement);
    if (at > (approval.escalatedTo ?? 0)) due = Math.min(due, at);
  }
  return due;
}

export function isQuorate(requirements: readonly ApprovalRequirement[], votes: readonly Vote[]): boolean {
  return requirements.every((requirement, index) => {
    const voters = new Set<string>();
    for (const vote of votes)
      if (vote.verdict === 'approve' && vote.requirements.includes(index)) voters.add(vote.user);
    return voters.size >= requirement.quorum;
  });
}

/** What a call takes from budgets, to show it to approvers. */
export function costsOf(obligations: readonly Obligation[]): readonly ApprovalCost[] {
  return obligations.flatMap((obligation) => {
    if (obligation.kind !== 'budget') return [];
    const { budget, unit, bucket, window, amount, limit } = obligation;
    return [{ budget, unit, bucket, window: windowId(window), amount, limit }];
  });
}

const REJECTED: Reason = {
  code: 'approval_rejected',
  message: 'An approver rejected this action. Do something else, or talk to the approver.',
};
/** The most characters of an approver's reason in an answer. */
const MOST_REASON = 400;

/** Why a rejected action is refused, in the approver's own words where they are on record. */
export function rejectionReason(approval: Pick<ApprovalRecord, 'votes'> | null): Reason {
  const comment = approval?.votes.find(({ verdict }) => verdict === 'reject')?.comment ?? '';
  if (comment === '') return REJECTED;
  return {
    ...REJECTED,
    message: `${REJECTED.message} The approver's reason: ${quote(shortened(comment, MOST_REASON))}`,
  };
}
