import type { AllowanceDraft } from './model/allowance.ts';
import type { ApprovalRecord, Vote } from './model/approval.ts';
import type { DeniedDecision, Reason } from './model/decision.ts';
import type { EffectRecord } from './model/effect.ts';
import type { LedgerActor } from './model/ledger.ts';
import type { Page } from './model/page.ts';
import type { ApprovalRequirement } from './model/verdict.ts';

export interface ApprovalChange {
  /** Of the changed question. */
  readonly digest: string;
  /** Who has to agree, and what they are told of the changed call. */
  readonly requirements: readonly ApprovalRequirement[];
  /** When it was asked: a change gives nobody another time to decide. */
  readonly askedAt: number;
  /** Whose request it is: the seals of the requirements name it. */
  readonly requester: ApprovalRecord['requester'];
  readonly costs: ApprovalRecord['costs'];
  readonly params: readonly string[];
  readonly sealed: string;
}

export interface VoteRequest
  extends Pick<Vote, 'user' | 'keyId' | 'verdict' | 'comment' | 'salt' | 'requirements' | 'seal'> {
  readonly workspace: string;
  readonly approvalId: string;
  /** Of what the person votes on. If the question is another by now, the vote counts for nothing. */
  readonly digest: string;
  /** Params that the person changes with an approval; `null`: what stands is approved. */
  readonly change: ApprovalChange | null;
  /** What the person allows ahead with an approval. Absent: nothing. */
  readonly alike?: AllowanceDraft;
  /** The passkey that the session began with in which they vote. Absent: they showed the key. */
  readonly passkey?: string | undefined;
  /** What was approved is not what would run, as far as that is known before: nothing is sent by the vote. Absent: it counts. */
  readonly isVoid?: boolean;
  /** Since when both the key and the user exist. If that is after the request, the vote is refused. */
  readonly voterSince: number;
  /** Those of them for which they only do once the request has escalated. */
  readonly escalated: readonly number[];
  readonly actor: LedgerActor;
}

export type VoteResult =
  /** If the status is `granted`, the quorum is complete, and the caller sends the call through `admit`. */
  | { readonly kind: 'counted'; readonly approval: ApprovalRecord; readonly effect: EffectRecord }
  /** The same person has approved before. Only the first vote counts. */
  | { readonly kind: 'voted_already'; readonly approval: ApprovalRecord; readonly effect: EffectRecord }
  | { readonly kind: 'already_decided'; readonly approval: ApprovalRecord }
  /** Somebody has changed what is asked since this person saw it. */
  | { readonly kind: 'question_changed'; readonly approval: ApprovalRecord }
  /** The next calls alike cannot be allowed with this vote, and so nothing was decided. */
  | { readonly kind: 'alike_refused'; readonly approval: ApprovalRecord }
  /** A rejection has to say why. */
  | { readonly kind: 'reason_required'; readonly approval: ApprovalRecord }
  /** The key or the user is younger than the request, or the voter belongs to those who made it. */
  | { readonly kind: 'own_request'; readonly approval: ApprovalRecord }
  | { readonly kind: 'not_an_approver'; readonly approval: ApprovalRecord }
  | { readonly kind: 'absent' };

/** Requests for approval: admissions make them, people vote on them. */
export interface ApprovalStore {
  vote(request: VoteRequest): Promise<VoteResult>;
  /** Ends a granted request for approval whose call can no longer be made. */
  giveUp(request: {
    readonly workspace: string;
    readonly approvalId: string;
    readonly decision: DeniedDecision;
    readonly reason: Reason;
    readonly actor: LedgerActor;
  }): Promise<
    | { readonly kind: 'given_up'; readonly approval: ApprovalRecord; readonly effect: EffectRecord }
    /** It is not granted, or no longer. */
    | { readonly kind: 'already_decided'; readonly approval: ApprovalRecord }
    | { readonly kind: 'absent' }
  >;
  /** Approvals with a complete quorum whose call was not sent yet (for example, because a gateway died). */
  grantedApprovals(limit: number): Promise<readonly ApprovalRecord[]>;

  approval(workspace: string, id: string): Promise<ApprovalRecord | null>;
  /** Newest first. A page can have fewer than `limit` items although more follow. */
  approvals(
    workspace: string,
    filter: {
      readonly status: ApprovalRecord['status'] | null;
      readonly agentId: string | null;
      readonly limit: number;
      readonly cursor: string | null;
    },
  ): Promise<Page<ApprovalRecord>>;
  /** Ends a session of an approver at every gateway, until it would have ended by itself. */
  endSession(workspace: string, session: string, until: number): Promise<void>;
  hasEnded(workspace: string, session: string): Promise<boolean>;
}
