import { actorOf, admitRequest, type Proposal, propose } from './admit-request.ts';
import type { Checked, CheckedCall } from './check-call.ts';
import type { EffectActor, Stage } from '../model/effect.ts';
import type { EffectPorts } from '../ports.ts';
import type { KeyKind } from '../model/principal.ts';
import type { RunRequest } from '../model/run-request.ts';
import type { AdmitRequest } from '../store.ts';
import type { Verdict } from '../model/verdict.ts';
import { turnOfOthers } from './turns.ts';
import type { ProxiedRequest } from '../upstream.ts';

/** How often configuration, policy, pauses or a budget window may move on while one call is admitted. */
export const MAX_EVALUATIONS = 5;

/** A checked call with all that its admission needs. */
export interface GovernedCall {
  readonly checked: CheckedCall;
  readonly actor: EffectActor;
  readonly key: {
    readonly id: string;
    readonly kind: KeyKind;
    readonly profile: string | null;
    readonly user: string | null;
  };
  readonly proposal: Proposal;
  readonly proxied: ProxiedRequest | null;
  readonly requestIp: string | null;
  readonly stages: readonly Stage[];
}

/**
 * The governed call of a request that passed its checks; others have their turn in between.
 * @param since when the checks began: store time, and `ports.elapsed()`
 */
export async function governInTurn(
  ports: EffectPorts,
  request: RunRequest,
  passed: Extract<Checked, { kind: 'call' }>,
  since: { readonly startedAt: number; readonly begun: number },
): Promise<GovernedCall> {
  await turnOfOthers(ports.elapsed, since.begun);
  const begun = ports.elapsed();
  const governed = govern(ports, request, passed, since.startedAt);
  await turnOfOthers(ports.elapsed, begun);
  return governed;
}

function govern(
  ports: EffectPorts,
  request: RunRequest,
  { checked, stages }: Extract<Checked, { kind: 'call' }>,
  startedAt: number,
): GovernedCall {
  const { principal } = request;
  const [fault] = checked.faults;
  return {
    checked,
    actor: actorOf(principal, checked.call.agentId, checked.agent.owner, request.via),
    key: {
      id: principal.keyId,
      kind: principal.kind,
      profile: principal.kind === 'profile' ? principal.profile : null,
      user: principal.user,
    },
    proposal: propose(ports, checked.call.workspace, checked.fingerprint, request),
    proxied: request.proxied,
    requestIp: request.requestIp,
    stages: [
      ...request.stages,
      ...stages,
      {
        stage: 'validate',
        status: fault === undefined ? 'passed' : 'failed',
        startedAt,
        durationMs: ports.store.now() - startedAt,
        detail: fault === undefined ? null : `${fault.path} ${fault.message}`.slice(0, 200),
      },
    ],
  };
}

/** The admission of a call under the verdict of now. */
export function evaluate(ports: EffectPorts, governed: GovernedCall): AdmitRequest {
  const { checked, actor, key, proposal, requestIp, stages } = governed;
  const { call, tool, agent } = checked;
  const now = ports.store.now();
  const begun = ports.elapsed();
  const asked = ports.judge({
    agent,
    key,
    tool,
    workspace: call.workspace,
    target: call.target,
    params: call.params,
    headers: call.headers.sent,
    requestIp,
    now,
  });
  const judged = answeredFor(asked, actor);
  // Faulty params are refused before policy is asked, were it in force.
  const verdict: Verdict =
    checked.faults.length === 0
      ? judged
      : { ...judged, trace: { ...judged.trace, observed: { would: 'invalid_request', rule: null } } };
  const policy: Stage = {
    stage: 'policy',
    status: verdict.kind === 'permit' ? 'passed' : 'refused',
    startedAt: now,
    durationMs: Math.round((ports.elapsed() - begun) * 1000) / 1000,
    detail: verdict.trace.matched[0]?.rule ?? null,
  };
  return admitRequest(ports, checked, actor, verdict, proposal, [...stages, policy]);
}

/**
 * Nobody decides on a request of their own: a request of nobody could be decided by the very person who made it, with
 * another key. Behind an agent's own key stands the agent's owner, where the key names no user.
 */
function answeredFor(verdict: Verdict, actor: EffectActor): Verdict {
  if (verdict.kind !== 'permit' || verdict.mode !== 'enforce') return verdict;
  const [asking] = verdict.approvals;
  const behind = actor.user ?? (actor.keyKind === 'agent' ? actor.agentOwner : null);
  if (asking === undefined || behind !== null) return verdict;
  return {
    kind: 'deny',
    decision: 'denied_policy',
    reason: {
      code: 'key_without_user',
      message:
        'The call needs approval, and its key belongs to no user: it could not be seen that somebody else decides. Use a key with a user, or give the agent an owner.',
      rule: asking.rule,
    },
    trace: verdict.trace,
  };
}
