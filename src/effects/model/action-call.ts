import type { Json, JsonObject } from '../../json/value.ts';

export type Via = 'effects_api' | 'proxy' | 'mcp';

/** The state check that came with the call (specification 2.5 without `current_state`). */
export interface StateCheck {
  readonly intent: string;
  readonly requiredFields: readonly string[];
  readonly assumedState: JsonObject;
  readonly conditions: JsonObject;
  readonly onMismatch: 'replan' | 'block';
}

/** Headers that are sent on with a call, except those that are params; names in lower case. */
export interface CallHeaders {
  /** All of them. They are sent, and policy can read them (`request.headers.…`). */
  readonly sent: Readonly<Record<string, string>>;
  /**
   * Those that are part of the action, which are all but the volatile ones. With another value it is another action.
   */
  readonly bound: Readonly<Record<string, string>>;
}

/** For a call without headers. */
export const NO_HEADERS: CallHeaders = { sent: {}, bound: {} };

/** One field that differs between the assumed state and the live state. */
export interface Mismatch {
  readonly field: string;
  readonly assumed: Json;
  readonly current: Json;
  /** Present when a value is not shown whole. */
  readonly truncated?: true;
}

export function mismatchToWire({ field, assumed, current, truncated }: Mismatch) {
  return { field, assumed, current, ...(truncated === undefined ? null : { truncated }) };
}
