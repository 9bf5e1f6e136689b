import type { CallHeaders, StateCheck, Via } from './action-call.ts';
import type { Code } from './codes.ts';
import type { Stage } from './effect.ts';
import type { CallFiles } from './files.ts';
import type { JsonObject } from '../../json/value.ts';
import type { Principal } from './principal.ts';
import type { AnswerListener, ProxiedMessage, ProxiedRequest } from '../upstream.ts';

/** A run or preview request after a door has parsed it. Its shape is right; nothing else is checked yet. */
export interface RunRequest {
  readonly principal: Principal;
  readonly via: Via;
  /** The workspace in the path. At doors without one in the path: the workspace of the key. */
  readonly workspace: string;
  /** The agent that the request names; `null` when it names none. */
  readonly agentId: string | null;
  /** `null` means the action type of the tool. */
  readonly actionType: string | null;
  readonly tool: string;
  /** `null` means the computed target, or else the tool's name. */
  readonly target: string | null;
  readonly params: JsonObject;
  /** The bytes of the files in the params. They are available until the run ends. */
  readonly files: CallFiles;
  readonly headers: CallHeaders;
  readonly idempotencyKey: GivenKey;
  readonly stateCheck: StateCheck | null;
  readonly claimId: string | null;
  readonly reservationId: string | null;
  readonly metadata: JsonObject | null;
  /** Only for proxied calls: the bytes to send on. */
  readonly proxied: ProxiedRequest | ProxiedMessage | null;
  /** Asked when the call is sent. Absent where the door takes answers only as a whole. */
  readonly listen?: Listen;
  readonly requestIp: string | null;
  /** Stages that the door has completed (`authenticate`). */
  readonly stages: readonly Stage[];
}

/** Who hears the answer of an effect while it comes. */
export type Listen = (effect: { readonly id: string; readonly workspace: string }) => AnswerListener;

/**
 * The idempotency key. If the caller sends none: the window (ms) in which equal actions count as one call, or how long
 * (ms) after an action was settled an equal one still is the same.
 */
export type GivenKey = string | { readonly deriveWindowMs: number } | { readonly generationMs: number };

/** One fault of a request; `path` is a JSON Pointer into the body (`/params/amount`). */
export interface RequestFault {
  readonly path: string;
  readonly message: string;
}

/** The request was not accepted: nothing ran, no decision was made. */
export interface Problem {
  readonly code: Code;
  readonly detail: string;
  readonly errors: readonly RequestFault[];
  readonly retryAfterMs: number | null;
}

/** The answer that a request was not accepted. */
export function problem(
  code: Code,
  detail: string,
  retryAfterMs: number | null = null,
  errors: readonly RequestFault[] = [],
): { readonly kind: 'problem'; readonly problem: Problem } {
  return { kind: 'problem', problem: { code, detail, errors, retryAfterMs } };
}
