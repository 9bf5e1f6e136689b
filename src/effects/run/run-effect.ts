import { denialRequest } from './admit-request.ts';
import { outcomeOfAdmission, settledBudgets, shownBudgets } from './to-outcome.ts';
import { checkCall, type DeniedCall } from './check-call.ts';
import type { Code } from '../model/codes.ts';
import { executeAttempt } from './execute.ts';
import type { Call } from './call.ts';
import { evaluateKnown, MAX_EVALUATIONS, sealInTurn } from './evaluate.ts';
import type { RunOutcome, RunResult } from '../model/outcome.ts';
import { waitForPlace, wouldDispatch } from './place.ts';
import type { EffectPorts } from '../ports.ts';
import type { RunRequest } from '../model/run-request.ts';
import { type Admission, type AdmitRequest, NoPlace, StoreUnavailable } from '../store.ts';

/**
 * Runs one governed call: checks, verdict, one atomic admission, dispatch, receipt, one atomic settlement. Only this
 * function fixes the order, and every door uses it.
 *
 * If the store cannot be reached before admission, the answer is a problem (`store_unavailable`), and nothing was sent.
 * After admission the answer is always a decision.
 */
export async function runEffect(ports: EffectPorts, request: RunRequest): Promise<RunResult> {
  try {
    for (let checks = 0; checks < MAX_EVALUATIONS; checks += 1) {
      const begun = ports.elapsed();
      const checked = checkCall(ports, request, 'effects.run');
      if (checked.kind === 'problem') return checked;
      const sealing = checked.kind === 'call' ? sealInTurn(ports, checked.call, begun) : null;
      if (sealing !== null) await sealing;
      const outcome =
        checked.kind === 'denied'
          ? await recordRefusal(ports, request, checked.denied)
          : await admitAndExecute(ports, checked.call);
      if (outcome !== null) return { kind: 'outcome', outcome };
      // A proxied request was mapped with the old routes. The new ones might map it differently, so it is not tried
      // again.
      if (request.proxied !== null) break;
    }
    return problem('not_ready', 'The configuration changed in between, so nothing was sent. Send the same call again.');
  } catch (error) {
    if (!(error instanceof StoreUnavailable)) throw error;
    if (error instanceof NoPlace) return problem('busy', error.message);
    const detail = 'The store cannot be reached, so nothing was sent. Send the same call with the same key again.';
    return problem('store_unavailable', detail);
  }
}

/** @returns `null` when policy or pauses changed meanwhile and the call must be checked again */
async function recordRefusal(ports: EffectPorts, request: RunRequest, denied: DeniedCall): Promise<RunOutcome | null> {
  const refusal = denialRequest(ports, request, denied);
  const admission = await ports.store.admit(refusal);
  if (admission.kind === 'dispatch') throw new TypeError('a refusal before policy dispatches nothing');
  if (admission.kind !== 'stale') return outcomeOfAdmission(refusal, admission);
  await ports.refresh(refusal.workspace);
  return null;
}

/**
 * Gets the verdict and the admission, and makes the attempt where it is admitted.
 * @returns `null` when the configuration that the call was checked with is no longer in force
 * @throws StoreUnavailable, NoPlace only before admission
 */
export async function admitAndExecute(ports: EffectPorts, call: Call): Promise<RunOutcome | null> {
  const taken = ports.place(call.tool.upstream, call.workspace, call.actor.agentId);
  const giveBack = taken instanceof Promise ? await waitForPlace(ports, call, taken) : taken;
  try {
    if (giveBack === null && (await wouldDispatch(ports, call)))
      throw new NoPlace('Too many calls to this upstream are under way. Nothing was sent; send the call again.');
    return await admitInPlace(ports, call);
  } finally {
    giveBack?.();
  }
}

async function admitInPlace(ports: EffectPorts, call: Call): Promise<RunOutcome | null> {
  const admitted = await admitInForce(ports, call);
  if (admitted === null) return null;
  const { request, admission, sentAt } = admitted;
  if (admission.kind === 'refused' && admission.foreign) ports.alert('foreign_key_reuse', admission.effectId);
  if (admission.kind !== 'dispatch') return outcomeOfAdmission(request, admission);
  const outcome = await executeAttempt(ports, call, admission, sentAt);
  const budgets = settledBudgets(admission.budgets, admission.effect.holds, outcome);
  return { ...outcome, budgets: shownBudgets(budgets, request.verdict), observed: admission.observed };
}

type Settled = Exclude<Admission, { kind: 'stale' }>;

/** Evaluates and admits a call under the policy and pauses that are in force at the time of the admission. */
async function admitInForce(
  ports: EffectPorts,
  call: Call,
): Promise<{ readonly request: AdmitRequest; readonly admission: Settled; readonly sentAt: number } | null> {
  const { tool } = call;
  for (let evaluations = 0; evaluations < MAX_EVALUATIONS; evaluations += 1) {
    // A tool of an old configuration must not be judged by the new policy.
    if (ports.catalog().tool(tool.name) !== tool) return null;
    const evaluated = evaluateKnown(ports, call);
    const request = evaluated instanceof Promise ? await evaluated : evaluated;
    // What was waited for before is no part of the time to send: nothing was admitted then.
    const sentAt = ports.elapsed();
    const admission = await ports.store.admit(request);
    if (admission.kind !== 'stale') return { request, admission, sentAt };
    await ports.refresh(call.workspace, request.verdict.trace.entities);
  }
  throw new StoreUnavailable('policy or pauses changed faster than the call could be evaluated');
}

function problem(code: Code, detail: string): RunResult {
  return { kind: 'problem', problem: { code, detail, errors: [], retryAfterMs: 1000 } };
}
