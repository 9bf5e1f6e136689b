import type { DeniedDecision, Reason } from './decision.ts';
import { type ApprovalRequirement, type Obligation, windowId } from './verdict.ts';

/** One person's vote. `requirements` are the indices of the requirements that the voter's roles or name qualify for. */
export interface Vote {
  readonly user: string;
  readonly keyId: string;
  readonly verdict: 'approve' | 'reject';
  readonly at: number;
  readonly comment: string | null;
  readonly requirements: readonly number[];
}

/** Why a call whose approval is granted was not sent when it was last tried. */
export interface Stopped {
  readonly at: number;
  readonly decision: DeniedDecision;
  readonly reason: Reason;
}

/** What the call takes of a budget, as it was when approval was asked for. */
export interface ApprovalCost {
  readonly budget: string;
  readonly unit: string;
  readonly bucket: string;
  readonly window: string;
  readonly amount: number | null;
  readonly limit: number;
}

/** A request for approval. Bound to a digest over the action and the rules that ask. */
export interface ApprovalRecord {
  readonly id: string;
  readonly workspace: string;
  readonly effectId: string;
  /** What a vote is for: the action, and the rules that ask with all that the approver is shown of them. */
  readonly digest: string;
  readonly tool: string;
  readonly target: string;
  readonly requester: {
    readonly agentId: string;
    readonly agentOwner: string | null;
    readonly user: string | null;
    readonly keyId: string;
    readonly keyMadeBy: string | null;
  };
  readonly requirements: readonly ApprovalRequirement[];
  readonly costs: readonly ApprovalCost[];
  readonly votes: readonly Vote[];
  readonly status: 'pending' | 'granted' | 'rejected' | 'expired' | 'used';
  readonly createdAt: number;
  readonly expiresAt: number;
  readonly decidedAt: number | null;
  /** What stops the call although it is granted: it is tried again until `expiresAt`. Also why it was given up. */
  readonly stopped: Stopped | null;
}

/** Whether every requirement has its quorum of different people. */
export function isQuorate(requirements: readonly ApprovalRequirement[], votes: readonly Vote[]): boolean {
  return requirements.every((requirement, index) => {
    const voters = new Set<string>();
    for (const vote of votes)
      if (vote.verdict === 'approve' && vote.requirements.includes(index)) voters.add(vote.user);
    return voters.size >= requirement.quorum;
  });
}

/** What a call takes of budgets, for those who are asked about it. */
export function costsOf(obligations: readonly Obligation[]): readonly ApprovalCost[] {
  return obligations.flatMap((obligation) => {
    if (obligation.kind !== 'budget') return [];
    const { budget, unit, bucket, window, amount, limit } = obligation;
    return [{ budget, unit, bucket, window: windowId(window), amount, limit }];
  });
}
