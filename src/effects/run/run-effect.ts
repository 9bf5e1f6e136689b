import { outcomeOfAdmission } from './to-outcome.ts';
import { checkCall, type DeniedCall } from './check-call.ts';
import { admitAndExecute } from './execute.ts';
import { denialRequest, MAX_EVALUATIONS, sealInTurn } from './evaluate.ts';
import type { RunOutcome, RunResult } from '../model/outcome.ts';
import type { EffectPorts } from '../ports.ts';
import { problem, type RunRequest } from '../model/run-request.ts';
import { NoPlace, StoreUnavailable } from '../store.ts';

/**
 * Runs one governed call: checks, verdict, one atomic admission, dispatch, receipt, one atomic settlement. Only this
 * function fixes the order, and every door uses it.
 *
 * If the store cannot be reached before admission, the answer is a problem (`store_unavailable`), and nothing was sent.
 * After admission the answer is always a decision.
 * @param over called with the result before the caller gets it; with `null` where the gateway failed
 */
export function runEffect(
  ports: EffectPorts,
  request: RunRequest,
  over: (result: RunResult | null) => void = ignore,
  checks = 1,
): Promise<RunResult> {
  return decide(ports, request).then(
    (decided) => {
      // A proxied request was mapped with the old routes. The new ones might map it differently, so it is not tried
      // again.
      if (decided === null && request.proxied === null && checks < MAX_EVALUATIONS)
        return runEffect(ports, request, over, checks + 1);
      const result =
        decided === null ? CHANGED : 'kind' in decided ? decided : ({ kind: 'outcome', outcome: decided } as const);
      over(result);
      return result;
    },
    (error: unknown) => {
      const result = error instanceof StoreUnavailable ? problemOf(error) : null;
      over(result);
      if (result === null) throw error;
      return result;
    },
  );
}

const CHANGED = problem(
  'not_ready',
  'The configuration changed in between, so nothing was sent. Send the same call again.',
  1000,
);

function ignore(): void {}

type Refused = Extract<RunResult, { kind: 'problem' }>;

/** @returns `null` when configuration, policy or pauses changed meanwhile and the call must be checked again */
function decide(ports: EffectPorts, request: RunRequest): Promise<RunOutcome | Refused | null> {
  try {
    const checked = checkCall(ports, request, 'effects.run');
    if (checked.kind === 'problem') return Promise.resolve(checked);
    if (checked.kind === 'denied') return recordRefusal(ports, request, checked.denied);
    const { call } = checked;
    const sealing = sealInTurn(ports, call);
    return sealing === null
      ? admitAndExecute(ports, call, null)
      : sealing.then(() => admitAndExecute(ports, call, null));
  } catch (error) {
    return Promise.reject(error);
  }
}

async function recordRefusal(ports: EffectPorts, request: RunRequest, denied: DeniedCall): Promise<RunOutcome | null> {
  const refusal = denialRequest(ports, request, denied);
  const admission = await ports.store.admit(refusal);
  if (admission.kind === 'dispatch' || admission.kind === 'exceeds')
    throw new TypeError('a refusal before policy dispatches nothing, and asks for nothing');
  if (admission.kind !== 'stale') return outcomeOfAdmission(refusal, admission);
  await ports.refresh(refusal.workspace, [], admission.versions.policy);
  return null;
}

function problemOf(error: StoreUnavailable): Refused {
  if (error instanceof NoPlace) return problem('busy', error.message, 1000);
  const detail = 'The store cannot be reached, so nothing was sent. Send the same call with the same key again.';
  return problem('store_unavailable', detail, 1000);
}
