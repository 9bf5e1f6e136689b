import type { ApprovalRecord } from './approval.ts';
import type { CheckedCall } from './check-call.ts';
import type { Code } from './codes.ts';
import type { EffectRecord } from './effect.ts';
import type { RunOutcome } from './outcome.ts';
import type { EffectPorts } from './ports.ts';
import type { Agent, Principal } from './principal.ts';
import { admitAndExecute } from './run-effect.ts';
import type { Problem } from './run-request.ts';
import { StoreUnavailable } from './store.ts';

/** A vote on a request for approval. */
export interface ApprovalCall {
  /** A key that may decide in the workspace: the door has checked that. */
  readonly principal: Principal;
  readonly workspace: string;
  readonly approvalId: string;
  readonly verdict: 'approve' | 'reject';
  readonly comment: string | null;
}

/** `outcome`: what dispatching came to, where this vote was the last one needed. */
export type ApprovalResult =
  | {
      readonly kind: 'decided';
      readonly approval: ApprovalRecord;
      readonly effect: EffectRecord | null;
      readonly outcome: RunOutcome | null;
    }
  | { readonly kind: 'problem'; readonly problem: Problem };

/** Who is who, for votes and for calls that are dispatched after approval. */
export interface People {
  rolesOf(user: string): readonly string[];
  agent(workspace: string, id: string): Agent | null;
  /** What policy may know of the key that asked; `null` when it was revoked since. */
  key(keyId: string): Promise<{ readonly profile: string | null } | null>;
}

/** Counts a vote and, when it completes the quorum, dispatches the effect. */
export async function decideApproval(ports: EffectPorts, people: People, call: ApprovalCall): Promise<ApprovalResult> {
  const { principal, workspace } = call;
  const { user } = principal;
  if (principal.kind === 'agent' || (principal.kind === 'profile' && principal.agentId !== null))
    return problem('wrong_key_kind', 'This key acts as an agent, and only people decide. Use a key of your own.');
  if (user === null)
    return problem('not_an_approver', 'This key belongs to no user, and only people decide. Use a key of your own.');
  try {
    const approval = await ports.store.approval(workspace, call.approvalId);
    if (approval === null) return problem('not_found', 'There is no request for approval of this id in the workspace.');
    const roles = people.rolesOf(user);
    const requirements = approval.requirements.flatMap(({ approvers }, index) =>
      approvers.users.includes(user) || approvers.roles.some((role) => roles.includes(role)) ? [index] : [],
    );
    const voted = await ports.store.vote({
      workspace,
      approvalId: call.approvalId,
      verdict: call.verdict,
      user,
      keyId: principal.keyId,
      keyCreatedAt: principal.keyCreatedAt,
      comment: call.comment,
      requirements,
      actor: { type: 'user', id: user },
    });
    switch (voted.kind) {
      case 'absent':
        return problem('not_found', 'There is no request for approval of this id in the workspace.');
      case 'own_request':
        return problem(
          'own_request',
          'The requester, the agent’s owner, the maker of the key, and keys younger than the request cannot decide it.',
        );
      case 'not_an_approver':
        return problem('not_an_approver', `The policy asks ${wanted(approval)} to decide.`);
      case 'already_decided':
        return problem('conflict', `The request was ${PAST[voted.approval.status]} already.`);
      case 'counted':
        break;
    }
    if (voted.approval.status !== 'granted')
      return { kind: 'decided', approval: voted.approval, effect: voted.effect, outcome: null };
    const outcome = await dispatchGranted(ports, people, voted.approval, voted.effect);
    return {
      kind: 'decided',
      approval: voted.approval,
      effect: await ports.store.effect(workspace, voted.effect.id),
      outcome,
    };
  } catch (error) {
    if (!(error instanceof StoreUnavailable)) throw error;
    return problem(
      'store_unavailable',
      'The store cannot be reached. Look at the request again before you vote again.',
      1000,
    );
  }
}

/**
 * Dispatches an effect whose approval is granted, from its stored request. Policy, pauses, obligations and state check
 * apply as they are now.
 * @returns `null` when the call cannot be made any more (key revoked, agent or tool gone, params erased)
 * @throws StoreUnavailable before admission
 */
export async function dispatchGranted(
  ports: EffectPorts,
  people: People,
  approval: ApprovalRecord,
  effect: EffectRecord,
): Promise<RunOutcome | null> {
  const { workspace, actor } = effect;
  const bound = { workspace, effectId: effect.id, fingerprint: effect.fingerprint };
  const sealedParams = effect.sealed === null ? null : ports.secrets.open(effect.sealed, bound);
  const key = await people.key(actor.keyId);
  const agent = people.agent(workspace, actor.agentId);
  const tool = ports.catalog().tool(effect.action.tool);
  if (
    sealedParams === null ||
    effect.sealed === null ||
    agent === null ||
    agent.disabled ||
    tool === null ||
    key === null
  )
    return null;
  const { params, stateCheck, claimId, reservationId } = sealedParams;
  const checked: CheckedCall = {
    call: {
      workspace,
      agentId: actor.agentId,
      actionType: tool.actionType,
      tool: tool.name,
      target: effect.action.target,
      params,
      idempotencyKey: effect.idempotencyKey,
      stateCheck,
      claimId,
      reservationId,
      metadata: effect.metadata,
      via: actor.via,
    },
    tool,
    agent,
    fingerprint: effect.fingerprint,
    faults: [],
  };
  const outcome = await admitAndExecute(ports, {
    checked,
    actor,
    key: { id: actor.keyId, kind: actor.keyKind, profile: key.profile, user: actor.user },
    proposal: {
      effectId: effect.id,
      approvalId: ports.newId('apr'),
      nonce: ports.newNonce(),
      sealedParams,
      sealed: effect.sealed,
    },
    proxied: null,
    requestIp: null,
    stages: [
      ...effect.stages,
      {
        stage: 'approval',
        status: 'passed',
        startedAt: approval.createdAt,
        durationMs: (approval.decidedAt ?? ports.store.now()) - approval.createdAt,
        detail: approval.id,
      },
    ],
  });
  // The configuration changed in between: what is in force now decides.
  return outcome ?? dispatchGranted(ports, people, approval, effect);
}

/** What became of a request, for people. */
const PAST: Readonly<Record<ApprovalRecord['status'], string>> = {
  pending: 'voted on',
  granted: 'approved',
  used: 'approved and run',
  rejected: 'rejected',
  expired: 'left to expire',
};

function wanted(approval: ApprovalRecord): string {
  const names = approval.requirements.flatMap(({ approvers }) => [
    ...approvers.roles.map((role) => `role ${role}`),
    ...approvers.users,
  ]);
  return names.join(' or ');
}

function problem(code: Code, detail: string, retryAfterMs: number | null = null): ApprovalResult {
  return { kind: 'problem', problem: { code, detail, errors: [], retryAfterMs } };
}
