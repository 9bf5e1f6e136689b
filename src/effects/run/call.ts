import type { CallHeaders, StateCheck } from '../model/action-call.ts';
import type { EffectActor, Stage } from '../model/effect.ts';
import type { CallFiles } from '../model/files.ts';
import type { JsonObject } from '../../json/value.ts';
import type { SealedParams } from '../ports.ts';
import type { Agent, KeyKind } from '../model/principal.ts';
import type { RequestFault } from '../model/run-request.ts';
import type { Tool } from '../model/tool.ts';
import type { ProxiedRequest } from '../upstream.ts';

/**
 * What an agent wants done: its tool known, its params valid against the tool's schema, its target computed; with all
 * that its admission and its attempt need. Made once, and handed on as it is. Nothing is filled in or coerced: what is
 * evaluated is what is sent.
 */
export interface Call {
  readonly workspace: string;
  readonly agent: Agent;
  readonly tool: Tool;
  readonly target: string;
  readonly params: JsonObject;
  readonly headers: CallHeaders;
  readonly idempotencyKey: string;
  readonly fingerprint: string;
  readonly stateCheck: StateCheck | null;
  readonly claimId: string | null;
  readonly reservationId: string | null;
  readonly metadata: JsonObject | null;
  readonly actor: EffectActor;
  readonly key: {
    readonly id: string;
    readonly kind: KeyKind;
    readonly profile: string | null;
    readonly user: string | null;
  };
  readonly proposal: Proposal;
  readonly proxied: ProxiedRequest | null;
  /** The bytes of files among the params. */
  readonly files: CallFiles;
  readonly requestIp: string | null;
  /** Faults of the params, where policy only observes and the bytes go on as they came; else none. */
  readonly faults: readonly RequestFault[];
  readonly stages: readonly Stage[];
}

/**
 * The parts of an admission that stay the same when policy or pauses have moved on and it is asked again. What an
 * admission may not need is made when it is first asked for: nothing is sealed of a duplicate.
 */
export interface Proposal {
  readonly effectId: string;
  readonly nonce: string;
  /** The granted request for approval whose call this is, where the gateway sends it by itself. */
  readonly dispatches: string | null;
  approvalId(): string;
  sealedParams(): SealedParams;
  sealed(): string;
  /** The same with the files of the call, for one that has to wait; `null` where they are not kept. */
  sealedWithFiles(): string | null;
  /** Takes the files that are kept should the call have to wait. */
  keepFiles(files: NonNullable<SealedParams['files']>): void;
}
