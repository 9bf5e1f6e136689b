import type { EffectActor } from '../model/effect.ts';
import type { SealedParams } from '../ports.ts';
import type { Agent, KeyFacts } from '../model/principal.ts';
import type { Listen, RequestFault, RunRequest } from '../model/run-request.ts';
import type { Tool } from '../model/tool.ts';

/**
 * A checked call: its tool is known, its params are valid against the tool's schema, its target is computed. It has
 * everything that admission and attempt need. It is made once and never changed. No value is filled in or coerced: what
 * is evaluated is what is sent.
 */
export interface Call
  extends Omit<
    RunRequest,
    'principal' | 'via' | 'agentId' | 'actionType' | 'tool' | 'target' | 'idempotencyKey' | 'listen'
  > {
  readonly agent: Agent;
  readonly tool: Tool;
  readonly target: string;
  /** Their canonical form. It is made once, for the fingerprint and for what a receipt commits to. */
  readonly paramsText: string;
  readonly idempotencyKey: string;
  /** Of a derived key with generations: see `AdmitRequest`. */
  readonly generationMs: number | null;
  readonly fingerprint: string;
  readonly actor: EffectActor;
  readonly key: KeyFacts;
  readonly proposal: Proposal;
  /** `null`: the answer is taken as a whole. */
  readonly listen: Listen | null;
  /** Faults of the params, where policy only observes and the bytes are sent on unchanged. Otherwise empty. */
  readonly faults: readonly RequestFault[];
  /** How long the checks took, ms. */
  readonly checkedMs: number;
}

/**
 * The parts of an admission that stay the same when it is asked for again, after policy or pauses have changed. Parts
 * that not every admission needs are made on first use.
 */
export interface Proposal {
  readonly effectId: string;
  readonly nonce: string;
  /** Where the gateway itself sends an approved call: the id of the granted request for approval. */
  readonly dispatches: string | null;
  /** How approvers changed the call: they vote on this alone. `null`: it is as the agent asked it. */
  readonly changed: {
    readonly askedDigest: string;
    /** Of the call with the changed params. The effect keeps the fingerprint of what was asked. */
    readonly fingerprint: string;
  } | null;
  approvalId(): string;
  sealedParams(): SealedParams;
  sealed(): string;
  /**
   * Like {@link sealed}, with the files of the call, for a call that must wait; `null` where the files are not kept.
   */
  sealedWithFiles(): string | null;
  /** Sets the files to keep if the call must wait. */
  keepFiles(files: NonNullable<SealedParams['files']>): void;
}
