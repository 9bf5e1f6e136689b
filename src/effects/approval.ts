import type { ApprovalRequirement } from './verdict.ts';

/** One person's vote. `requirements` are the indices of the requirements that the voter's roles or name qualify for. */
export interface Vote {
  readonly user: string;
  readonly keyId: string;
  readonly verdict: 'approve' | 'reject';
  readonly at: number;
  readonly comment: string | null;
  readonly requirements: readonly number[];
}

/** A request for approval. Bound to a digest over the action and the rules that ask. */
export interface ApprovalRecord {
  readonly id: string;
  readonly workspace: string;
  readonly effectId: string;
  /** SHA-256 over fingerprint, tool digest and the rules that ask for approval with their obligations. */
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
  readonly votes: readonly Vote[];
  readonly status: 'pending' | 'granted' | 'rejected' | 'expired' | 'used';
  readonly createdAt: number;
  readonly expiresAt: number;
  readonly decidedAt: number | null;
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
