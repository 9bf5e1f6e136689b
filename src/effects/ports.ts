import type { EntityRef } from './model/entity.ts';
import type { KeyObject } from 'node:crypto';
import type { Amounts, KeptResult } from './model/answer.ts';
import type { CallHeaders, StateCheck } from './model/action-call.ts';
import type { ApprovalRecord } from './model/approval.ts';
import type { Reason } from './model/decision.ts';
import type { EffectRecord, Evidence, SettledBy, SignedReceipt } from './model/effect.ts';
import type { JsonObject } from '../json/value.ts';
import type { Agent, KeyFacts, Principal } from './model/principal.ts';
import type { RequestFault } from './model/run-request.ts';
import type { Running } from './run/running.ts';
import type { EffectStore, SettleRequest } from './store.ts';
import type { Tool } from './model/tool.ts';
import type { UpstreamPort } from './upstream.ts';
import type { ApprovalRequirement, Verdict, Exceeded } from './model/verdict.ts';

export interface JudgeInput {
  readonly agent: Agent;
  readonly key: KeyFacts;
  readonly tool: Tool;
  readonly workspace: string;
  readonly target: string;
  readonly params: JsonObject;
  /** Headers that are sent on with the call, by name in lower case. */
  readonly headers: Readonly<Record<string, string>>;
  readonly requestIp: string | null;
  readonly now: number;
}

/** Whether a key may let an agent act: the agent, a denial with its decision, or a request that names no agent. */
export type Authorized =
  | { readonly kind: 'agent'; readonly agent: Agent }
  | { readonly kind: 'denied'; readonly decision: 'denied_permission' | 'denied_identity'; readonly reason: Reason }
  | { readonly kind: 'invalid'; readonly fault: RequestFault };

export interface AuthorizeRequest {
  readonly endpoint: 'effects.run' | 'effects.preview' | 'proxy.read';
  readonly workspace: string;
  readonly tool: string;
  readonly agentId: string | null;
}

/** The fields that a receipt commits to, in the order of their salts. */
export const SALTED_FIELDS = ['target', 'params', 'idem', 'request', 'response', 'comment', 'evidence'] as const;

export type SaltedField = (typeof SALTED_FIELDS)[number];

export const SALT_BYTES = 16;

/** The content of a seal: the params, the salts of the receipt's commitments, and what a later dispatch needs. */
export interface SealedParams {
  readonly params: JsonObject;
  /** One salt after the other. */
  readonly salts: Buffer;
  /** From here on: what an approved call also needs when it is sent later. */
  readonly stateCheck: StateCheck | null;
  readonly claimId: string | null;
  readonly reservationId: string | null;
  /** Where the call came from. Policy is asked again before the call is sent. Absent in old seals. */
  readonly requestIp?: string | null;
  /** Absent where the call has no headers. */
  readonly headers?: CallHeaders;
  /** Only for a call that waits for approval: its files, base64 by SHA-256. */
  readonly files?: Readonly<Record<string, string>>;
  /** The params as the agent asked them, where approvers changed them. */
  readonly asked?: JsonObject;
}

/**
 * What a seal is bound to; it does not open for anything else. A generation is not needed: the fingerprint covers the
 * params, and all attempts of an effect share the params and the salts of the first one.
 */
export interface SealBinding {
  readonly workspace: string;
  readonly effectId: string;
  readonly fingerprint: string;
}

/** Everything that a receipt is made from. It must not contain anything that settlement assigns. */
export interface ReceiptFacts {
  readonly id: string;
  readonly effect: EffectRecord;
  /** `null` where the seal no longer opens. The receipt then has no commitments to that content. */
  readonly sealed: SealedParams | null;
  /** The canonical form of the sealed params, where it is known. */
  readonly paramsText?: string;
  readonly settledBy: SettledBy;
  readonly evidence: Evidence;
  /** The kept part of the answer; `null` where there was no answer. */
  readonly result: KeptResult | null;
  /** What was really spent. Absent: what was held. */
  readonly amounts?: Amounts | undefined;
  readonly approval: ApprovalRecord | null;
  /** Place of the event `effect.admitted`. */
  readonly ledger: { readonly epoch: number; readonly seq: number };
  /** By the store's clock, ms. */
  readonly issuedAt: number;
}

export interface PauseMatch {
  readonly id: string;
  readonly reason: string;
  readonly until: number | null;
}

export interface PauseSubject {
  readonly tool: string;
  readonly agentId: string;
  readonly upstream: string;
  readonly keyId: string;
}

export interface PauseView {
  version(workspace: string): number;
  match(workspace: string, subject: PauseSubject, now: number): PauseMatch | null;
}

/** Everything that the core needs from the rest of the gateway. `main.ts` builds it by hand. */
export interface EffectPorts {
  readonly store: EffectStore;
  readonly upstream: UpstreamPort;
  /**
   * Takes a place for a call to an upstream. The result is a function that gives the place back, or `null` where none
   * came free in time. Places limit admissions to what can be sent in time, and no agent gets all of them.
   */
  readonly place: (upstream: string, workspace: string, agentId: string) => (() => void) | Promise<(() => void) | null>;
  /** The declared tools, with their checks compiled. */
  readonly catalog: () => {
    tool(name: string): Tool | null;
    /**
     * Faults of params by the tool's schema and request template; empty when there are none. Paths are JSON Pointers
     * below `/params`.
     */
    check(tool: Tool, params: JsonObject): readonly RequestFault[];
    /** The target that the params name; `null` where the tool has no template. */
    target(tool: Tool, params: JsonObject): string | null;
  };
  readonly authorize: (principal: Principal, request: AuthorizeRequest) => Authorized;
  /**
   * The verdict of the active policy set; its version is `trace.policyVersion`.
   * @param exceeded limits that the call would go beyond: those of them that ask do so
   */
  readonly judge: (input: JudgeInput, exceeded?: Exceeded) => Verdict;
  /** What rules that ask for approval say of a call in words for people; `null` for a rule that is not in force. */
  readonly summarize: (
    input: JudgeInput,
    asking: readonly Pick<ApprovalRequirement, 'rule' | 'beyond'>[],
  ) => readonly (string | null)[];
  /**
   * What is to be waited for before a call of a tool can be judged: what its server says of it. `null`, or absent, where
   * enough is known.
   */
  readonly seeTool?: (tool: Tool) => Promise<void> | null;
  /** Why a tool is not called whatever policy says; `null`, or absent, where nothing is in the way. */
  readonly mayRead?: (tool: Tool) => Reason | null;
  readonly policyVersion: () => string;
  /** Whether policy is in force or only observes. */
  readonly policyMode: () => 'enforce' | 'observe';
  readonly pauses: PauseView;
  /**
   * Loads the policy and the pauses that the store has in force, and what it says of entities that policy looked at.
   * @param policy the version in force, as a stale admission names it
   */
  readonly refresh: (workspace: string, entities?: readonly EntityRef[], policy?: string | null) => Promise<void>;
  readonly secrets: {
    fingerprintKey(workspace: string): KeyObject;
    newSalts(): Buffer;
    seal(content: SealedParams, bound: SealBinding): string;
    open(sealed: string, bound: SealBinding): SealedParams | null;
  };
  readonly issueReceipt: (facts: ReceiptFacts) => SignedReceipt;
  /** Keeps a settlement that the store did not take in a durable place beside it. It is applied to the store later. */
  readonly spill: (request: SettleRequest) => Promise<void>;
  readonly newId: (prefix: 'eff' | 'apr' | 'alw' | 'rcp') => string;
  readonly newNonce: () => string;
  /** Monotonic ms that keep counting while the process is frozen or the machine sleeps. */
  readonly elapsed: () => number;
  /** Boot id of this process. */
  readonly owner: string;
  readonly running: Running;
  readonly settings: () => CoreSettings;
  /** Upstreams that did not answer lately, by id; told of each call without an answer, and of those that end a silence. */
  readonly silent: {
    readonly known: ReadonlyMap<string, unknown>;
    readonly called: (upstream: string, evidence: Evidence) => void;
    /** Something else than a call was sent. @param code why there was no answer; `null`: there was one */
    heard(upstream: string, code: string | null): void;
  };
  /**
   * Reports something that people must look at. `attempt_fault`: the gateway failed in the middle of an attempt.
   * `settlement_spilled`: the journal took a settlement, because the store did not. `settlement_lost`: neither took it,
   * so the effect will become unknown.
   */
  readonly alert: (
    what: 'contradiction' | 'foreign_key_reuse' | 'attempt_fault' | 'settlement_spilled' | 'settlement_lost',
    effectId: string,
    cause?: unknown,
  ) => void;
}

export interface CoreSettings {
  readonly dispatchWindowMs: number;
  /** Whether a second user may force `not_happened` before the quiet time of an effect is over. */
  readonly allowForce: boolean;
  /** Most bytes of files that are kept with a call that waits for approval. */
  readonly filesKeptBytes: number;
}
