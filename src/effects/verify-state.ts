import type { Mismatch } from './action-call.ts';
import { judgeCondition } from './conditions.ts';
import type { Json, JsonObject } from './json.ts';
import { jsonEquals, readField } from './state-fields.ts';

/** A state verification as asked for (interface specification, 2.5). */
export interface VerifyStateRequest {
  readonly intent: string;
  readonly requiredFields: readonly string[];
  readonly assumedState: JsonObject;
  readonly currentState: JsonObject;
  readonly conditions: JsonObject;
  readonly onMismatch: 'replan' | 'block';
}

/** Its answer (interface specification, 2.6). */
export type VerifyStateResult =
  | { readonly status: 'verified'; readonly decision: 'proceed'; readonly mismatches: readonly [] }
  | {
      readonly status: 'mismatch_detected';
      readonly decision: 'replan' | 'block';
      readonly mismatches: readonly Mismatch[];
    };

/** Compares the state an agent assumed with the live state before a write. Pure. */
export function verifyState(request: VerifyStateRequest): VerifyStateResult {
  const mismatches = compareState({
    requiredFields: request.requiredFields,
    assumed: request.assumedState,
    current: request.currentState,
    conditions: request.conditions,
  });
  return mismatches.length === 0
    ? { status: 'verified', decision: 'proceed', mismatches: [] }
    : { status: 'mismatch_detected', decision: request.onMismatch, mismatches };
}

/**
 * Every required field that differs or is absent on either side (`null` stands for the absent side), then every
 * condition that does not hold in the live state, with what was expected as `assumed`. Empty: nothing has drifted.
 * A condition that cannot be judged does not hold. Pure, never throws.
 */
export function compareState(input: {
  readonly requiredFields: readonly string[];
  readonly assumed: JsonObject;
  readonly current: JsonObject;
  readonly conditions: JsonObject;
}): readonly Mismatch[] {
  const mismatches: Mismatch[] = [];
  for (const field of new Set(input.requiredFields)) {
    const assumed = readField(input.assumed, field);
    const current = readField(input.current, field);
    if (assumed !== undefined && current !== undefined && jsonEquals(assumed, current)) continue;
    mismatches.push({ field, assumed: assumed ?? null, current: current ?? null });
  }
  const compared = new Map(mismatches.map((mismatch) => [mismatch.field, mismatch]));
  for (const [field, condition] of Object.entries(input.conditions)) {
    if (judgeCondition(input.current, field, condition) === 'holds') continue;
    const current: Json = readField(input.current, field) ?? null;
    const known = compared.get(field);
    if (known === undefined || !jsonEquals(known.assumed, condition))
      mismatches.push({ field, assumed: condition, current });
  }
  return mismatches;
}
