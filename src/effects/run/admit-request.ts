import { createHmac, type KeyObject } from 'node:crypto';
import { canonicalJson } from '../../json/canonical.ts';
import type { Call } from './call.ts';
import { actorOf, propose } from './propose.ts';
import type { DeniedCall } from './check-call.ts';
import type { Stage } from '../model/effect.ts';
import type { Json } from '../../json/value.ts';
import type { EffectPorts } from '../ports.ts';
import type { RunRequest } from '../model/run-request.ts';
import type { AdmitRequest } from '../store.ts';
import type { Tool } from '../model/tool.ts';
import type { Obligation, Permit, Verdict } from '../model/verdict.ts';

/** The admission request for a checked call and its verdict. @param now when it was judged, ms */
export function admitRequest(
  ports: EffectPorts,
  call: Call,
  verdict: Verdict,
  stages: readonly Stage[],
  now: number,
): AdmitRequest {
  const { workspace, tool, actor, fingerprint, proposal } = call;
  const waits = verdict.kind === 'permit' && verdict.approvals.length > 0;
  const subject = { tool: tool.name, agentId: actor.agentId, upstream: tool.upstream, keyId: actor.keyId };
  return {
    workspace,
    effectId: proposal.effectId,
    get approvalId() {
      return proposal.approvalId();
    },
    nonce: proposal.nonce,
    // Plain params and salts stay in this process. The store gets them sealed.
    get sealed() {
      return (waits ? proposal.sealedWithFiles() : null) ?? proposal.sealed();
    },
    idempotencyKey: call.idempotencyKey,
    generationMs: call.generationMs,
    fingerprint,
    action: {
      type: tool.actionType,
      tool: tool.name,
      toolDigest: tool.digest,
      upstream: tool.upstream,
      kind: tool.kind,
      target: call.target,
    },
    actor,
    verdict,
    approvalDigest: waits ? approvalDigest(ports.secrets.fingerprintKey(workspace), call, verdict) : '',
    dispatches: proposal.dispatches,
    pausedBy: ports.pauses.match(workspace, subject, now),
    seen: { policy: verdict.trace.policyVersion, pauses: ports.pauses.version(workspace) },
    times: {
      dispatchWindowMs: ports.settings().dispatchWindowMs,
      // The lease lasts as long as the answer may.
      timeoutMs: tool.streams?.totalMs ?? tool.timeoutMs,
      maxProcessingMs: tool.maxProcessingMs,
      idempotentForMs: tool.idempotent.kind === 'header' ? tool.idempotent.forMs : null,
    },
    owner: ports.owner,
    claimId: call.claimId,
    reservationId: call.reservationId,
    metadata: call.metadata,
    stages,
  };
}

/** The admission request that records a refusal before policy. */
export function denialRequest(ports: EffectPorts, request: RunRequest, denied: DeniedCall): AdmitRequest {
  const { workspace, fingerprint } = denied;
  const proposal = propose(ports, workspace, fingerprint, request);
  return {
    workspace,
    effectId: proposal.effectId,
    get approvalId() {
      return proposal.approvalId();
    },
    nonce: proposal.nonce,
    get sealed() {
      return proposal.sealed();
    },
    idempotencyKey: denied.idempotencyKey,
    generationMs: null,
    fingerprint,
    action: {
      type: request.actionType ?? 'mcp.tool_call',
      tool: request.tool,
      toolDigest: '',
      upstream: '',
      kind: 'write',
      target: denied.target,
    },
    actor: actorOf(request.principal, denied.agentId, null, request.via),
    verdict: denied.deny,
    approvalDigest: '',
    dispatches: null,
    pausedBy: null,
    seen: { policy: denied.deny.trace.policyVersion, pauses: ports.pauses.version(workspace) },
    times: { dispatchWindowMs: 0, timeoutMs: 0, maxProcessingMs: 0, idempotentForMs: null },
    owner: ports.owner,
    claimId: null,
    reservationId: null,
    metadata: request.metadata,
    stages: [...request.stages, ...denied.stages],
  };
}

/**
 * The digest that an approver's vote is bound to. It covers the action (the fingerprint covers agent, tool, target and
 * params), the tool, the rules that ask for approval with their conditions, and what the approver is shown. It leaves
 * out windows and snapshots, because the passing of time alone must not void a vote. It is keyed, because a summary
 * could be guessed.
 */
export function approvalDigest(
  key: KeyObject,
  call: Pick<Call, 'fingerprint'> & { readonly tool: Pick<Tool, 'digest'> },
  { approvals, obligations }: Pick<Permit, 'approvals' | 'obligations'>,
): string {
  const asking = new Set(approvals.map((approval) => approval.rule));
  const bound: Json = {
    fingerprint: call.fingerprint,
    tool: call.tool.digest,
    approvals: approvals.map(({ rule, ruleDigest, approvers, quorum, expiresMs, summary, hold }) => ({
      rule,
      ruleDigest,
      approvers: { roles: approvers.roles, users: approvers.users },
      quorum,
      expiresMs,
      summary,
      hold,
    })),
    obligations: obligations.filter((obligation) => asking.has(obligation.rule)).map(obligationTerms),
  };
  return createHmac('sha256', key)
    .update(`approval\n${canonicalJson(bound)}`)
    .digest('base64url');
}

function obligationTerms(obligation: Obligation): Json {
  switch (obligation.kind) {
    case 'budget':
      return {
        kind: obligation.kind,
        budget: obligation.budget,
        unit: obligation.unit,
        bucket: obligation.bucket,
        limit: obligation.limit,
        amount: obligation.amount,
      };
    case 'rate_limit':
      return { kind: obligation.kind, id: obligation.id, bucket: obligation.bucket, limit: obligation.limit };
    case 'claim':
      return { kind: obligation.kind, target: obligation.target, hold: obligation.hold };
    case 'reserve':
      return { kind: obligation.kind, pool: obligation.pool, units: obligation.units };
  }
}
