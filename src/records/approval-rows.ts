import { type ApprovalRecord, dueAt } from '../effects/model/approval.ts';
import { type Draft, MOSTLY_ABSENT } from './draft.ts';
import { jsonKind, repository } from './kind.ts';

export const APPROVALS = 'approvals';
/** Pending and granted requests, ordered by when they end or others are to be asked. */
export const AWAITED = 'approvals:awaited';
export const approvalsIn = (status: 'pending' | 'granted'): string => `approvals:${status}`;
export const approvalsOfEffect = (effectId: string): string => `approvals_of:${effectId}`;

export const approvalRows = repository(
  jsonKind<ApprovalRecord>('approval', (approval) => {
    const { status, createdAt, effectId } = approval;
    return [
      { list: APPROVALS, at: createdAt },
      { list: approvalsOfEffect(effectId), at: createdAt },
      ...(status === 'pending' || status === 'granted'
        ? [
            { list: AWAITED, at: dueAt(approval) },
            { list: approvalsIn(status), at: createdAt },
          ]
        : []),
    ];
  }),
);

/** Ids of an agent's pending requests. */
const pendingRows = repository(jsonKind<readonly string[]>('pending_of_agent', () => []));

export function pendingOf(draft: Draft, agentId: string): number {
  return pendingRows.get(draft, agentId, MOSTLY_ABSENT)?.length ?? 0;
}

export function putApproval(draft: Draft, approval: ApprovalRecord): void {
  const { id, requester, status } = approval;
  const there = approvalRows.get(draft, id, MOSTLY_ABSENT);
  if ((there?.status === 'pending') !== (status === 'pending')) {
    const others = (pendingRows.get(draft, requester.agentId, MOSTLY_ABSENT) ?? []).filter((other) => other !== id);
    const pending = status === 'pending' ? [...others, id] : others;
    pendingRows.put(draft, requester.agentId, pending.length === 0 ? null : pending);
  }
  approvalRows.put(draft, id, approval);
}

/** Rejected fingerprints, ordered by when they end. */
export const REJECTIONS = 'rejections';
export const rejectionRows = repository(
  jsonKind<{
    readonly effectId: string;
    readonly until: number;
  }>('rejection', ({ until }) => [{ list: REJECTIONS, at: until }]),
);

/** Sessions of approvers who have left, ordered by when they would have ended. */
export const LEFT = 'left';
export const leftRows = repository(
  jsonKind<{ readonly until: number }>('left', ({ until }) => [{ list: LEFT, at: until }]),
);
