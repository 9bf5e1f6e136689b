import { actorOf, admitRequest, denialRequest, type Proposal, propose } from './admit-request.ts';
import { outcomeOfAdmission, shownBudgets } from './answer.ts';
import { type CheckedCall, checkCall } from './check-call.ts';
import type { EffectActor, Stage } from './effect.ts';
import { executeAttempt } from './execute.ts';
import type { RunOutcome, RunResult } from './outcome.ts';
import type { EffectPorts } from './ports.ts';
import type { KeyKind } from './principal.ts';
import type { RunRequest } from './run-request.ts';
import { type Admission, type AdmitRequest, StoreUnavailable } from './store.ts';
import type { ProxiedRequest } from './upstream.ts';

/** How often policy, pauses or a budget window may move on while one call is admitted. */
const MAX_EVALUATIONS = 5;

/**
 * Runs one governed call: checks, verdict, one atomic admission, dispatch, receipt, one atomic settlement. This is the
 * only place with the order of things; every front door comes through here.
 *
 * Before admission a store that cannot be reached is a problem (`store_unavailable`): nothing was sent. After it there
 * is always a decision.
 */
export async function runEffect(ports: EffectPorts, request: RunRequest): Promise<RunResult> {
  const startedAt = ports.store.now();
  const checked = checkCall(ports, request, 'effects.run');
  if (checked.kind === 'problem') return checked;
  try {
    if (checked.kind === 'denied') {
      const refusal = denialRequest(ports, request, checked.denied);
      const admission = await ports.store.admit(refusal);
      if (admission.kind !== 'refused') throw new TypeError('a refusal before policy is admitted as a refusal');
      return { kind: 'outcome', outcome: outcomeOfAdmission(refusal, admission) };
    }
    const { call } = checked.checked;
    const governed: GovernedCall = {
      checked: checked.checked,
      actor: actorOf(request.principal, call.agentId, checked.checked.agent.owner, request.via),
      key: keyFacts(request),
      proposal: propose(ports, call.workspace, checked.checked.fingerprint, request),
      proxied: request.proxied,
      requestIp: request.requestIp,
      stages: [
        ...request.stages,
        { stage: 'validate', status: 'passed', startedAt, durationMs: ports.store.now() - startedAt, detail: null },
      ],
    };
    return { kind: 'outcome', outcome: await admitAndExecute(ports, governed) };
  } catch (error) {
    if (!(error instanceof StoreUnavailable)) throw error;
    const detail = 'The store cannot be reached, so nothing was sent. Send the same call with the same key again.';
    return { kind: 'problem', problem: { code: 'store_unavailable', detail, errors: [], retryAfterMs: 1000 } };
  }
}

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
 * Verdict, admission and, where it is admitted, the attempt.
 * @throws StoreUnavailable only before admission
 */
export async function admitAndExecute(ports: EffectPorts, governed: GovernedCall): Promise<RunOutcome> {
  const sentAt = ports.elapsed();
  const { request, admission } = await admitInForce(ports, governed);
  if (admission.kind === 'refused' && admission.decision === 'idempotency_conflict')
    ports.alert('foreign_key_reuse', admission.effectId);
  if (admission.kind !== 'dispatch') return outcomeOfAdmission(request, admission);
  const outcome = await executeAttempt(ports, governed, admission, sentAt);
  return { ...outcome, budgets: shownBudgets(admission.budgets, request.verdict), observed: admission.observed };
}

type Settled = Exclude<Admission, { kind: 'stale' }>;

/** Evaluates and admits under the policy and the pauses that are in force when the admission is made. */
async function admitInForce(
  ports: EffectPorts,
  governed: GovernedCall,
): Promise<{ readonly request: AdmitRequest; readonly admission: Settled }> {
  const { workspace } = governed.checked.call;
  for (let evaluations = 0; evaluations < MAX_EVALUATIONS; evaluations += 1) {
    const request = evaluate(ports, governed);
    const admission = await ports.store.admit(request);
    if (admission.kind !== 'stale') return { request, admission };
    await ports.refresh(workspace);
  }
  throw new StoreUnavailable('policy or pauses changed faster than the call could be evaluated');
}

/** The admission of a call under the verdict of now. */
export function evaluate(ports: EffectPorts, governed: GovernedCall): AdmitRequest {
  const { checked, actor, key, proposal, requestIp, stages } = governed;
  const { call, tool, agent } = checked;
  const now = ports.store.now();
  const begun = ports.elapsed();
  const verdict = ports.judge({
    agent,
    key,
    tool,
    workspace: call.workspace,
    target: call.target,
    params: call.params,
    requestIp,
    now,
  });
  const policy: Stage = {
    stage: 'policy',
    status: verdict.kind === 'permit' ? 'passed' : 'refused',
    startedAt: now,
    durationMs: ports.elapsed() - begun,
    detail: verdict.trace.matched[0]?.rule ?? null,
  };
  return admitRequest(ports, checked, actor, verdict, proposal, [...stages, policy]);
}

/** What policy may know of the key that asks. */
export function keyFacts({ principal }: Pick<RunRequest, 'principal'>): GovernedCall['key'] {
  return {
    id: principal.keyId,
    kind: principal.kind,
    profile: principal.kind === 'profile' ? principal.profile : null,
    user: principal.user,
  };
}
