import { NO_HEADERS } from '../model/action-call.ts';
import type { ApprovalRecord } from '../model/approval.ts';
import type { Code } from '../model/codes.ts';
import type { DeniedDecision, Reason } from '../model/decision.ts';
import type { EffectRecord } from '../model/effect.ts';
import { filesKept } from '../model/files.ts';
import type { Agent } from '../model/principal.ts';
import type { Tool } from '../model/tool.ts';
import type { EffectPorts, SealedParams } from '../ports.ts';
import { canonicalJson } from '../../json/text.ts';
import type { JsonObject } from '../../json/value.ts';
import type { Call } from './call.ts';
import { fingerprint } from './fingerprint.ts';

/** Looks up users, agents and keys, for votes and for calls that are sent after approval. */
export interface People {
  rolesOf(user: string): readonly string[];
  /** Since when the user exists; `null` where that is not on record yet. */
  since(user: string): Promise<number | null>;
  agent(workspace: string, id: string): Agent | null;
  /** What policy may know about the key that made the request; `null` when the key is no longer valid. */
  key(keyId: string): Promise<{ readonly profile: string | null } | null>;
}

/** Everything that is needed to send a call that was requested earlier, or what of it is missing now. */
export type Recalled =
  | {
      readonly kind: 'there';
      readonly agent: Agent;
      readonly tool: Tool;
      readonly key: { readonly profile: string | null };
      readonly sealed: string;
      readonly sealedParams: SealedParams;
    }
  | { readonly kind: 'gone'; readonly decision: DeniedDecision; readonly reason: Reason };

/**
 * Looks up what a call needs that was requested earlier.
 * @param sealed of its params: those of the effect, or those that an approver made of them
 */
export async function recall(
  ports: EffectPorts,
  people: People,
  effect: EffectRecord,
  sealed: string | null,
): Promise<Recalled> {
  const { workspace, actor } = effect;
  const gone = (decision: DeniedDecision, code: Code, message: string): Recalled => ({
    kind: 'gone',
    decision,
    reason: { code, message: `${message} It was approved and is not sent.` },
  });
  const key = await people.key(actor.keyId);
  if (key === null)
    return gone('denied_permission', 'key_ended', 'The key that asked was revoked, rotated out or has expired.');
  const agent = people.agent(workspace, actor.agentId);
  if (agent === null) return gone('denied_identity', 'unknown_agent', `${actor.agentId} is not registered any more.`);
  if (agent.disabled) return gone('denied_identity', 'agent_disabled', `${actor.agentId} is disabled.`);
  const tool = ports.catalog().tool(effect.action.tool);
  if (tool === null)
    return gone('denied_policy', 'tool_not_declared', `The tool ${effect.action.tool} is not declared any more.`);
  const bound = { workspace, effectId: effect.id, fingerprint: effect.fingerprint };
  const sealedParams = sealed === null ? null : ports.secrets.open(sealed, bound);
  if (sealed === null || sealedParams === null)
    return gone('denied_policy', 'params_unreadable', 'The params kept for the call cannot be read.');
  return { kind: 'there', agent, tool, key, sealed, sealedParams };
}

/** The fingerprint that a recalled call would have with these params. */
export function fingerprintOf(
  ports: EffectPorts,
  effect: EffectRecord,
  { tool, sealedParams }: Extract<Recalled, { kind: 'there' }>,
  params: JsonObject,
): string {
  const { workspace, actor, action } = effect;
  const headers = sealedParams.headers?.bound ?? {};
  const { target } = action;
  return fingerprint(ports.secrets.fingerprintKey(workspace), {
    workspace,
    agentId: actor.agentId,
    actionType: tool.actionType,
    tool: tool.name,
    target,
    params,
    headers,
  });
}

/** The call of a granted request for approval, as the gateway itself sends it. */
export function grantedCall(
  ports: EffectPorts,
  approval: ApprovalRecord,
  effect: EffectRecord,
  given: Extract<Recalled, { kind: 'there' }>,
): Call {
  const { agent, tool, key, sealed, sealedParams } = given;
  const { params, headers = NO_HEADERS, stateCheck, claimId, reservationId, requestIp = null } = sealedParams;
  const { workspace, actor } = effect;
  const { changed } = approval;
  const approvalId = ports.newId('apr');
  return {
    workspace,
    agent,
    tool,
    target: effect.action.target,
    params,
    paramsText: canonicalJson(params),
    headers,
    idempotencyKey: effect.idempotencyKey,
    generationMs: null,
    fingerprint: effect.fingerprint,
    stateCheck,
    claimId,
    reservationId,
    metadata: effect.metadata,
    actor,
    key: { id: actor.keyId, kind: actor.keyKind, profile: key.profile, user: actor.user },
    proposal: {
      effectId: effect.id,
      nonce: ports.newNonce(),
      dispatches: approval.id,
      changed:
        changed === undefined
          ? null
          : { askedDigest: changed.askedDigest, fingerprint: fingerprintOf(ports, effect, given, params) },
      approvalId: () => approvalId,
      sealedParams: () => sealedParams,
      sealed: () => sealed,
      sealedWithFiles: () => sealed,
      keepFiles: () => undefined,
    },
    proxied: null,
    files: filesKept(sealedParams.files),
    // Whoever asked has got an answer already.
    listen: null,
    requestIp,
    faults: [],
    checkedMs: 0,
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
  };
}
