import { denialRequest } from './admit-request.ts';
import { outcomeOfAdmission, settledBudgets, shownBudgets } from './answer.ts';
import { checkCall } from './check-call.ts';
import { executeAttempt } from './execute.ts';
import { evaluate, govern, type GovernedCall } from './governed-call.ts';
import type { RunOutcome, RunResult } from './outcome.ts';
import type { EffectPorts } from './ports.ts';
import type { RunRequest } from './run-request.ts';
import { type Admission, type AdmitRequest, StoreUnavailable } from './store.ts';

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
    const governed = govern(ports, request, checked.checked, startedAt);
    return { kind: 'outcome', outcome: await admitAndExecute(ports, governed) };
  } catch (error) {
    if (!(error instanceof StoreUnavailable)) throw error;
    const detail = 'The store cannot be reached, so nothing was sent. Send the same call with the same key again.';
    return { kind: 'problem', problem: { code: 'store_unavailable', detail, errors: [], retryAfterMs: 1000 } };
  }
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
  const budgets = settledBudgets(admission.budgets, admission.effect.holds, outcome.decision);
  return { ...outcome, budgets: shownBudgets(budgets, request.verdict), observed: admission.observed };
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
