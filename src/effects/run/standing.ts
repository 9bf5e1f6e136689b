import { type ApprovalRecord, limitsOf } from '../model/approval.ts';
import type { Reason } from '../model/decision.ts';
import type { EffectRecord } from '../model/effect.ts';
import type { EffectPorts } from '../ports.ts';
import type { AdmitRequest } from '../store.ts';
import { evaluateKnown } from './evaluate.ts';
import { grantedCall, type People, recall } from './recall.ts';

/** What an approval of a request would do now, under policy, tool and pauses as they are. */
export interface Standing {
  /** `asked`: the call may be sent. `stale`: policy or tool are no longer as they were, so it is not used. `unasked`: policy asks nobody any more. `gone`: there is no call. */
  readonly kind: 'asked' | 'stale' | 'refused' | 'unasked' | 'gone';
  /** Why it is refused, or gone; else `null`. */
  readonly reason: Reason | null;
  readonly pausedBy: AdmitRequest['pausedBy'];
}

/** Judges the call that people are asked about as it would be now. @throws StoreUnavailable */
export async function judgeAsked(ports: EffectPorts, people: People, approval: ApprovalRecord, effect: EffectRecord) {
  const given = await recall(ports, people, effect, approval.changed?.sealed ?? effect.sealed);
  if (given.kind === 'gone') return given;
  const call = grantedCall(ports, approval, effect, given);
  const request = await evaluateKnown(ports, call, limitsOf(approval));
  const { verdict, approvalDigest, pausedBy } = request;
  const reason = verdict.kind === 'deny' ? verdict.reason : null;
  const isAsked = verdict.kind === 'permit' && verdict.approvals.length > 0;
  const isSame = approvalDigest === approval.digest;
  const kind: Standing['kind'] = reason !== null ? 'refused' : !isAsked ? 'unasked' : isSame ? 'asked' : 'stale';
  return { kind: 'there', standing: { kind, reason, pausedBy }, given, call, request } as const;
}

/** What an approval would do now. @throws StoreUnavailable */
export async function standingOf(ports: EffectPorts, people: People, approval: ApprovalRecord): Promise<Standing> {
  const effect = await ports.store.effect(approval.workspace, approval.effectId);
  if (effect === null) return { kind: 'gone', reason: null, pausedBy: null };
  const now = await judgeAsked(ports, people, approval, effect);
  return now.kind === 'gone' ? { kind: 'gone', reason: now.reason, pausedBy: null } : now.standing;
}

/** What goes on from a vote that is refused because the question is stale. */
export const ASK_ANEW =
  'Approve it as it stands: nothing is sent by that, and people are asked anew, as policy and tool are now.';
