import type { JsonObject } from '../../json/value.ts';
import { fieldList } from '../checks/mismatches.ts';
import { compareState } from '../checks/verify-state.ts';
import type { Mismatch, StateCheck } from '../model/action-call.ts';
import type { Reason } from '../model/decision.ts';
import type { Stage } from '../model/effect.ts';
import type { Tool } from '../model/tool.ts';
import type { EffectPorts } from '../ports.ts';

interface Checked {
  readonly ports: { readonly upstream: Pick<EffectPorts['upstream'], 'readState'> };
  readonly tool: Tool;
  readonly params: JsonObject;
  begins(stage: 'state_check'): void;
  ends(stage: 'state_check', status: Stage['status'], detail: string | null): void;
}

/** Reads the live state and compares it with what was assumed. @returns `null` if it is the same */
export async function checkState(
  attempt: Checked,
  stateCheck: StateCheck,
): Promise<{ readonly reason: Reason; readonly mismatches: readonly Mismatch[] } | null> {
  attempt.begins('state_check');
  const reading = await attempt.ports.upstream.readState(attempt.tool, attempt.params);
  if (reading.kind === 'unreadable') {
    attempt.ends('state_check', 'refused', reading.message);
    return {
      reason: {
        code: 'state_unreadable',
        message: `The live state could not be read: ${reading.message}`,
        next: stateCheck.onMismatch,
      },
      mismatches: [],
    };
  }
  const mismatches = compareState({
    requiredFields: stateCheck.requiredFields,
    assumed: stateCheck.assumedState,
    current: reading.state,
    conditions: stateCheck.conditions,
  });
  attempt.ends('state_check', mismatches?.length === 0 ? 'passed' : 'refused', null);
  if (mismatches === null) {
    const message = 'The live state could not be compared: the fields and conditions take too many steps on it.';
    return { reason: { code: 'state_unreadable', message, next: stateCheck.onMismatch }, mismatches: [] };
  }
  if (mismatches.length === 0) return null;
  const fields = fieldList(mismatches.map(({ field }) => field));
  return {
    reason: {
      code: 'state_drift',
      message: `The live state is not what was assumed: ${fields}.`,
      next: stateCheck.onMismatch,
    },
    mismatches,
  };
}
