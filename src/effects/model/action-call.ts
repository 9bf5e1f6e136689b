import type { Json, JsonObject } from '../../json/value.ts';

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

/** Headers that go on with a call beside those that are params; names in lower case. */
export interface CallHeaders {
  /** All of them: what is sent, and what policy may look at (`request.headers.…`). */
  readonly sent: Readonly<Record<string, string>>;
  /** Those of them that make it another action where they differ: all that are not volatile. */
  readonly bound: Readonly<Record<string, string>>;
}

/** The headers of a call that has none. */
export const NO_HEADERS: CallHeaders = { sent: {}, bound: {} };

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
