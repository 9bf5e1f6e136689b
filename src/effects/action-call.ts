import type { Json, JsonObject } from './json.ts';

/** The door a call came through. */
export type Via = 'effects_api' | 'proxy' | 'mcp';

/** State verification asked for with the call (specification 2.5 without `current_state`). */
export interface StateCheck {
  readonly intent: string;
  readonly requiredFields: readonly string[];
  readonly assumedState: JsonObject;
  readonly conditions: JsonObject;
  readonly onMismatch: 'replan' | 'block';
}

/**
 * What an agent wants done: parsed, its tool known, its params valid against the tool's schema, its target computed.
 * Nothing is filled in or coerced: what is evaluated is what is sent.
 */
export interface ActionCall {
  readonly workspace: string;
  readonly agentId: string;
  readonly actionType: string;
  readonly tool: string;
  readonly target: string;
  readonly params: JsonObject;
  readonly idempotencyKey: string;
  readonly stateCheck: StateCheck | null;
  readonly claimId: string | null;
  readonly reservationId: string | null;
  readonly metadata: JsonObject | null;
  readonly via: Via;
}

/** One field that differs between the state assumed and the live state. */
export interface Mismatch {
  readonly field: string;
  readonly assumed: Json;
  readonly current: Json;
  /** A value is not shown whole. */
  readonly truncated?: true;
}

/** A mismatch as answers carry it. */
export function mismatchToWire({ field, assumed, current, truncated }: Mismatch): JsonObject {
  return { field, assumed, current, ...(truncated === undefined ? null : { truncated }) };
}
