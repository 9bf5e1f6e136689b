import { randomBytes } from 'node:crypto';
import { type ApprovalRecord, decidersAt, escalatesAt, isAmong, limitsOf } from '../model/approval.ts';
import { type DeniedDecision, isDenied, type Reason } from '../model/decision.ts';
import type { EffectRecord } from '../model/effect.ts';
import type { RunOutcome } from '../model/outcome.ts';
import { type EffectPorts, SALT_BYTES } from '../ports.ts';
import type { Principal } from '../model/principal.ts';
import type { JsonObject } from '../../json/value.ts';
import { allowanceOf, type AskedAlike } from './allow-alike.ts';
import type { VoteResult, VoteRequest } from '../approval-store.ts';
import { changeCall } from './change-call.ts';
import { admitAndExecute } from './execute.ts';
import { grantedCall, type People, recall } from './recall.ts';
import { inOneHand } from './key-makers.ts';
import { type Problem, problem } from '../model/run-request.ts';
import { NoPlace, StoreUnavailable } from '../store.ts';
import { standingOf } from './standing.ts';
import { isOwnRequest } from '../steps/voting.ts';
import { FORGED } from './to-outcome.ts';

export interface ApprovalCall extends Pick<VoteRequest, 'workspace' | 'approvalId' | 'verdict' | 'comment'> {
  /** A key that may decide in the workspace. The door has checked that. */
  readonly principal: Principal;
  /** The passkey that the session of the request began with. Else they showed a key. */
  readonly passkey?: string | null | undefined;
  /** Params that the person changes, by name, with an approval; `null`: none. */
  readonly changes: JsonObject | null;
  /** The next calls alike that the person allows with an approval. Absent: none. */
  readonly alike?: AskedAlike | undefined;
  /** The digest of what the person was shown; `null` where the door does not know. A vote counts for nothing else. */
  readonly digest: string | null;
}

/** What happened to the call after a vote. */
export type Became =
  /** More people must agree. */
  | { readonly kind: 'waiting' }
  | { readonly kind: 'rejected' }
  /** This was the last approval that was needed. The call was tried, and this is the outcome. */
  | { readonly kind: 'dispatched'; readonly outcome: RunOutcome }
  /** The approval is granted, but the call cannot be sent now. It is tried again until the request expires. */
  | { readonly kind: 'stopped'; readonly decision: DeniedDecision; readonly reason: Reason }
  /** What would run now is not what was approved. A new request asks people again. */
  | { readonly kind: 'asked_anew'; readonly approvalId: string }
  /** The call can no longer be sent. */
  | { readonly kind: 'ended'; readonly reason: Reason };

export type ApprovalResult =
  | {
      readonly kind: 'decided';
      /** The request after the vote and everything that followed from it. */
      readonly approval: ApprovalRecord;
      readonly effect: EffectRecord;
      readonly became: Became;
      /** The same person had approved before, so this vote changed nothing. */
      readonly votedAlready: boolean;
      /** What was allowed ahead with the vote. Absent: nothing. */
      readonly allowanceId?: string;
    }
  | { readonly kind: 'problem'; readonly problem: Problem };

/** Counts a vote and, when it completes the quorum, dispatches the effect. */
export async function decideApproval(ports: EffectPorts, people: People, call: ApprovalCall): Promise<ApprovalResult> {
  const { principal, workspace } = call;
  const person = personOf(principal);
  if (person.kind === 'problem') return person;
  const { user } = person;
  try {
    const approval = await ports.store.approval(workspace, call.approvalId);
    if (approval === null) return problem('not_found', 'There is no request for approval of this id in the workspace.');
    if (approval.isForged === true) return problem('conflict', FORGED.message);
    // Who does not say what the vote is for can only mean what was asked.
    if (call.digest === null ? approval.changed !== undefined : call.digest !== approval.digest)
      return problem('conflict', call.digest === null ? `${CHANGED} Send the digest of what you saw.` : CHANGED);
    const tooClose = await whyTooClose(ports, people, approval, { user, madeBy: principal.madeBy });
    if (tooClose !== null) return problem('own_request', tooClose);
    const roles = people.rolesOf(user);
    const now = ports.store.now();
    const requirements = approval.requirements.flatMap((one, index) =>
      isAmong(decidersAt(approval, one, now), user, roles) ? [index] : [],
    );
    const escalated = requirements.filter((index) => {
      const named = approval.requirements[index]?.approvers;
      return named === undefined || !isAmong(named, user, roles);
    });
    const userSince = (await people.since(user)) ?? ports.store.now();
    const voterSince = Math.max(principal.keyCreatedAt, userSince);
    // What policy and the tool say of a change is for those who may decide.
    if (
      (call.changes !== null || call.alike !== undefined) &&
      isOwnRequest(approval, { user, keyId: principal.keyId, voterSince })
    )
      return problem('own_request', whyNot(approval, userSince, principal.keyCreatedAt));
    const changing = await changeCall(ports, people, approval, requirements, call.changes);
    if (changing.kind === 'problem') return changing;
    const isChange = changing.change !== null;
    const by = { user, keyId: principal.keyId };
    const allowing =
      call.alike === undefined || approval.status !== 'pending' || requirements.length === 0
        ? null
        : await allowanceOf(ports, people, approval, by, requirements, call.alike, isChange);
    if (allowing?.kind === 'problem') return allowing;
    const voted = await ports.store.vote({
      workspace,
      approvalId: call.approvalId,
      digest: approval.digest,
      change: changing.change,
      ...(allowing === null ? null : { alike: allowing.allowance }),
      verdict: call.verdict,
      user,
      keyId: principal.keyId,
      voterSince,
      comment: call.comment,
      ...(await besideVote(ports, people, approval, call)),
      requirements,
      escalated,
      actor: { type: 'user', id: user },
    });
    const voter = { user, roles, userSince, keyCreatedAt: principal.keyCreatedAt };
    return await followVote(ports, people, voter, voted, allowing === null ? null : allowing.allowance.id);
  } catch (error) {
    if (!(error instanceof StoreUnavailable)) throw error;
    if (error instanceof NoPlace)
      return problem('busy', 'The vote counts. The call is sent as soon as there is a place for it.', 1000);
    return problem(
      'store_unavailable',
      'The store cannot be reached. Look at the request again before you vote again.',
      1000,
    );
  }
}

/** Why somebody is too close to a request to decide it, beside what the store sees of that. @throws StoreUnavailable */
async function whyTooClose(
  { store }: Pick<EffectPorts, 'store'>,
  people: People,
  approval: ApprovalRecord,
  voter: Parameters<typeof inOneHand>[2],
): Promise<string | null> {
  // The person who registered an agent counts as a requester too, whoever owns the agent.
  return people.agent(approval.workspace, approval.requester.agentId)?.registeredBy === voter.user
    ? 'You registered the agent that asks. Somebody else has to decide.'
    : inOneHand(store, approval, voter);
}

/** The passkey that a vote was made with, the salt for the words of a rejection, and whether an approval is void. */
async function besideVote(
  ports: EffectPorts,
  people: People,
  approval: ApprovalRecord,
  { verdict, comment, passkey, changes }: ApprovalCall,
) {
  const mayBeVoid = verdict === 'approve' && changes === null && approval.status === 'pending';
  return {
    isVoid: mayBeVoid && (await standingOf(ports, people, approval)).kind === 'stale',
    ...(passkey == null ? {} : { passkey }),
    ...(verdict === 'reject' && comment !== null ? { salt: randomBytes(SALT_BYTES).toString('base64url') } : {}),
  };
}

/** What comes of a vote: why it does not count, or what the request became by it. */
async function followVote(
  ports: EffectPorts,
  people: People,
  voter: Readonly<{ user: string; roles: readonly string[]; userSince: number; keyCreatedAt: number }>,
  voted: VoteResult,
  allowanceId: string | null,
): Promise<ApprovalResult> {
  const { user, roles, userSince, keyCreatedAt } = voter;
  switch (voted.kind) {
    case 'absent':
      return problem('not_found', 'There is no request for approval of this id in the workspace.');
    case 'own_request':
      return problem('own_request', whyNot(voted.approval, userSince, keyCreatedAt));
    case 'not_an_approver':
      return problem('not_an_approver', notAsked(voted.approval, user, roles, ports.store.now()));
    case 'question_changed':
      return problem('conflict', CHANGED);
    case 'alike_refused':
      return problem('allowance_refused', 'The next calls cannot be allowed with this vote. Nothing was decided.');
    case 'reason_required':
      return problem('reason_required', MUTE);
    case 'already_decided':
      return problem('conflict', decidedAlready(voted.approval));
    case 'voted_already':
      return { ...voted, kind: 'decided', became: { kind: 'waiting' }, votedAlready: true };
    case 'counted':
      break;
  }
  if (voted.approval.isForged === true) return problem('conflict', FORGED.message);
  if (voted.approval.status !== 'granted') {
    const kind = voted.approval.status === 'rejected' ? 'rejected' : 'waiting';
    return { ...voted, kind: 'decided', became: { kind }, votedAlready: false };
  }
  const decided = await dispatched(ports, people, voted.approval, voted.effect);
  return decided.kind === 'problem' || allowanceId === null ? decided : { ...decided, allowanceId };
}

const CHANGED = 'What is asked has changed since it was shown. The vote does not count: look again.';
const MUTE = 'The policy wants a rejection to say why, with its comment. Nothing was decided.';

/** The person whom a key belongs to. Only people decide. */
export function personOf(
  principal: Principal,
): { readonly kind: 'person'; readonly user: string } | Extract<ApprovalResult, { kind: 'problem' }> {
  const { user } = principal;
  if (principal.kind === 'agent' || (principal.kind === 'profile' && principal.agentId !== null))
    return problem('wrong_key_kind', 'This key acts as an agent, and only people decide. Use a key of your own.');
  return user === null
    ? problem('not_an_approver', 'This key belongs to no user, and only people decide. Use a key of your own.')
    : { kind: 'person', user };
}

/** The answer to the last vote that was needed. The vote counts, whatever happens to the call. */
async function dispatched(
  ports: EffectPorts,
  people: People,
  approval: ApprovalRecord,
  effect: EffectRecord,
): Promise<ApprovalResult> {
  const became = await dispatchGranted(ports, people, approval, effect);
  const { workspace } = approval;
  try {
    const [now, then] = await Promise.all([
      ports.store.approval(workspace, approval.id),
      ports.store.effect(workspace, effect.id),
    ]);
    return { kind: 'decided', approval: now ?? approval, effect: then ?? effect, became, votedAlready: false };
  } catch (error) {
    if (!(error instanceof StoreUnavailable)) throw error;
    return { kind: 'decided', approval, effect, became, votedAlready: false };
  }
}

/**
 * Sends an effect whose approval is granted, from its stored request. Policy, pauses, obligations and state check apply
 * as they are now. A call that can no longer be made is ended.
 * @throws StoreUnavailable before admission
 */
export async function dispatchGranted(
  ports: EffectPorts,
  people: People,
  approval: ApprovalRecord,
  effect: EffectRecord,
): Promise<Became> {
  const { workspace } = effect;
  const given =
    approval.isForged === true
      ? ({ kind: 'gone', decision: 'denied_policy', reason: FORGED } as const)
      : await recall(ports, people, effect, approval.changed?.sealed ?? effect.sealed);
  if (given.kind === 'gone') {
    await ports.store.giveUp({
      workspace,
      approvalId: approval.id,
      decision: given.decision,
      reason: given.reason,
      actor: { type: 'gateway', id: 'approvals' },
    });
    return { kind: 'ended', reason: given.reason };
  }
  const outcome = await admitAndExecute(ports, grantedCall(ports, approval, effect, given), limitsOf(approval));
  // The configuration changed meanwhile. The one in force now decides.
  return outcome === null ? dispatchGranted(ports, people, approval, effect) : becameOf(outcome, effect.attempt);
}

function becameOf(outcome: RunOutcome, attempts: number): Became {
  if (isDenied(outcome)) {
    const { decision, reason, attempt } = outcome;
    if (reason.code === 'approval_expired') return { kind: 'ended', reason };
    // An attempt that was admitted and then refused before its first byte has used the approval.
    return attempt > attempts ? { kind: 'dispatched', outcome } : { kind: 'stopped', decision, reason };
  }
  switch (outcome.decision) {
    case 'pending_approval':
      return outcome.approval.status === 'granted'
        ? { kind: 'waiting' }
        : { kind: 'asked_anew', approvalId: outcome.approval.id };
    case 'committed':
    case 'duplicate_blocked':
    case 'in_progress':
    case 'failed':
    case 'unknown_effect':
    case 'idempotency_conflict':
      return { kind: 'dispatched', outcome };
  }
}

/** Which rule keeps this person from deciding. */
function whyNot({ createdAt }: ApprovalRecord, userSince: number, keyCreatedAt: number): string {
  if (userSince > createdAt) return 'You became a user after the request was made: somebody who was there decides it.';
  if (keyCreatedAt > createdAt) return 'This key was made after the request. Use one that is older than it.';
  return 'The requester, the agent’s owner and the maker of the key cannot decide the request.';
}

function decidedAlready({ status, stopped, votes }: ApprovalRecord): string {
  const { user, verdict, at } = votes.at(-1) ?? {};
  const who =
    at === undefined
      ? ''
      : ` ${user} ${verdict === 'approve' ? 'approved' : 'rejected'} it at ${new Date(at).toISOString()}.`;
  const was = `The request was ${PAST[status]} already.${who}`;
  if (stopped === null) return was;
  const why = stopped.reason.message;
  return status === 'granted'
    ? `${was} The call waits, and is tried again until the request expires: ${why}`
    : `${was} ${why}`;
}

/** What happened to a request, as a word for people. */
const PAST: Readonly<Record<ApprovalRecord['status'], string>> = {
  pending: 'voted on',
  granted: 'approved',
  used: 'approved and run',
  rejected: 'rejected',
  expired: 'ended',
};

/** Who is asked, and from when on this person would be. */
function notAsked(approval: ApprovalRecord, user: string, roles: readonly string[], now: number): string {
  const names = approval.requirements.flatMap((requirement) => {
    const named = decidersAt(approval, requirement, now);
    return [...named.roles.map((role) => `role ${role}`), ...named.users];
  });
  const later = approval.requirements.filter((one) => isAmong(decidersAt(approval, one, Infinity), user, roles));
  const from = Math.min(...later.map((requirement) => escalatesAt(approval, requirement)));
  const then = Number.isFinite(from)
    ? ` You may from ${new Date(from).toISOString()} on, where nobody has by then.`
    : '';
  return `The policy asks ${[...new Set(names)].join(' or ')} to decide.${then}`;
}
