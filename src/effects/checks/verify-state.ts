import type { Mismatch, StateCheck } from '../model/action-call.ts';
import { judgeCondition, newConditionJudge } from './conditions.ts';
import type { Json, JsonObject } from '../../json/value.ts';
import { shownMismatches } from './mismatches.ts';
import { type Effort, EffortSpent, jsonEquals, newEffort, readField } from './state-fields.ts';

/** A request to verify a state (interface specification, 2.5). */
export interface VerifyStateRequest extends StateCheck {
  readonly currentState: JsonObject;
}

/**
 * Compares the state an agent assumed with the live state before a write. Pure.
 * @returns `null` where it would take more steps than one request may take
 */
export function verifyState(request: VerifyStateRequest):
  | (
      | { readonly status: 'verified'; readonly decision: 'proceed'; readonly mismatches: readonly [] }
      | {
          readonly status: 'mismatch_detected';
          readonly decision: 'replan' | 'block';
          readonly mismatches: readonly Mismatch[];
        }
    )
  | null {
  const mismatches = compareState({
    requiredFields: request.requiredFields,
    assumed: request.assumedState,
    current: request.currentState,
    conditions: request.conditions,
  });
  if (mismatches === null) return null;
  return mismatches.length === 0
    ? { status: 'verified', decision: 'proceed', mismatches: [] }
    : { status: 'mismatch_detected', decision: request.onMismatch, mismatches };
}

/**
 * Lists first every required field that differs or is absent on one side (shown as `null`), then every condition that
 * does not hold in the live state, with the condition as `assumed`. An empty list means that nothing has drifted. A
 * condition that cannot be judged does not hold. Values are cut to what is shown. Pure, never throws.
 * @returns `null` where it would take more steps than one request may take
 */
export function compareState(input: ComparedStates): readonly Mismatch[] | null {
  try {
    return shownMismatches(compare(input, newEffort()));
  } catch (error) {
    if (error instanceof EffortSpent) return null;
    throw error;
  }
}

interface ComparedStates {
  readonly requiredFields: readonly string[];
  readonly assumed: JsonObject;
  readonly current: JsonObject;
  readonly conditions: JsonObject;
}

function compare(input: ComparedStates, effort: Effort): readonly Mismatch[] {
  const mismatches: Mismatch[] = [];
  for (const field of new Set(input.requiredFields)) {
    const assumed = readField(input.assumed, field, effort);
    const current = readField(input.current, field, effort);
    if (assumed !== undefined && current !== undefined && jsonEquals(assumed, current, effort)) continue;
    mismatches.push({ field, assumed: assumed ?? null, current: current ?? null });
  }
  const matcher = newConditionJudge(effort);
  const compared = new Map(mismatches.map((mismatch) => [mismatch.field, mismatch]));
  for (const [field, condition] of Object.entries(input.conditions)) {
    if (judgeCondition(input.current, field, condition, matcher) === 'holds') continue;
    const current: Json = readField(input.current, field, effort) ?? null;
    const known = compared.get(field);
    if (known === undefined || !jsonEquals(known.assumed, condition, effort))
      mismatches.push({ field, assumed: condition, current });
  }
  return mismatches;
}
