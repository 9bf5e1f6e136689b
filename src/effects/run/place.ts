import type { Exceeded } from '../model/verdict.ts';
import type { Call } from './call.ts';
import { evaluateKnown, MAX_EVALUATIONS } from './evaluate.ts';
import type { EffectPorts } from '../ports.ts';

/** Lets a call wait for a place, unless policy refuses it. A refused call is never sent, so it needs no place. */
export async function waitForPlace(
  ports: EffectPorts,
  call: Call,
  coming: Extract<ReturnType<EffectPorts['place']>, Promise<unknown>>,
): Promise<Awaited<ReturnType<EffectPorts['place']>>> {
  let isWanted = false;
  try {
    isWanted = (await evaluateKnown(ports, call)).verdict.kind !== 'deny';
    return isWanted ? await coming : null;
  } finally {
    if (!isWanted) void coming.then((giveBack) => giveBack?.());
  }
}

/**
 * Whether a call would be sent now. Writes nothing. A call that would not be sent (a duplicate, a refusal, a request
 * for approval) is answered without a place. If that changes before admission, the call is sent in time or not at all.
 */
export async function wouldDispatch(ports: EffectPorts, call: Call, known: Exceeded): Promise<boolean> {
  let exceeded = known;
  for (let evaluations = 0; evaluations < MAX_EVALUATIONS; evaluations += 1) {
    const request = await evaluateKnown(ports, call, exceeded);
    if (request.verdict.kind === 'deny') return false;
    const seen = await ports.store.preview(request);
    if (seen.kind === 'exceeds') {
      exceeded = new Set(seen.limits);
      continue;
    }
    if (seen.kind !== 'stale') return seen.kind === 'dispatch';
    await ports.refresh(request.workspace, request.verdict.trace.entities, seen.versions.policy);
  }
  return true;
}
