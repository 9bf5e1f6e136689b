import type { CallHeaders, StateCheck, Via } from './action-call.ts';
import type { Code } from './codes.ts';
import type { Stage } from './effect.ts';
import type { CallFiles } from './files.ts';
import type { JsonObject } from '../../json/value.ts';
import type { Principal } from './principal.ts';
import type { ProxiedRequest } from '../upstream.ts';

/** A run or preview request as a front door parsed it: the shape is right, nothing else is checked yet. */
export interface RunRequest {
  readonly principal: Principal;
  readonly via: Via;
  /** The workspace in the path, or, at doors without one, the key's. */
  readonly workspace: string;
  /** The agent that the request names; `null` when it names none. */
  readonly agentId: string | null;
  /** `null` takes the tool's own action type. */
  readonly actionType: string | null;
  readonly tool: string;
  /** `null` takes the computed target, else the tool's name. */
  readonly target: string | null;
  readonly params: JsonObject;
  /** The bytes of files among the params; there until the run is over. */
  readonly files: CallFiles;
  readonly headers: CallHeaders;
  /** The key, or the window (ms) in which equal actions are one call where the caller sends none. */
  readonly idempotencyKey: string | { readonly deriveWindowMs: number };
  readonly stateCheck: StateCheck | null;
  readonly claimId: string | null;
  readonly reservationId: string | null;
  readonly metadata: JsonObject | null;
  /** Present on proxied calls: the bytes that go on. */
  readonly proxied: ProxiedRequest | null;
  readonly requestIp: string | null;
  /** Stages that the door has behind it (`authenticate`). */
  readonly stages: readonly Stage[];
}

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
