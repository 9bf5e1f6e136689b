import type { KeyObject } from 'node:crypto';
import type { CallHeaders, StateCheck } from './model/action-call.ts';
import type { ApprovalRecord } from './model/approval.ts';
import type { Reason } from './model/decision.ts';
import type { EffectRecord, Evidence, KeptResult, SettledBy, SignedReceipt } from './model/effect.ts';
import type { JsonObject } from '../json/value.ts';
import type { Agent, KeyKind, Principal } from './model/principal.ts';
import type { RequestFault } from './model/run-request.ts';
import type { Running } from './run/running.ts';
import type { EffectStore, SettleRequest } from './store.ts';
import type { Tool } from './model/tool.ts';
import type { UpstreamPort } from './upstream.ts';
import type { Verdict } from './model/verdict.ts';

/** What a decision by policy rests on. */
export interface JudgeInput {
  readonly agent: Agent;
  readonly key: {
    readonly id: string;
    readonly kind: KeyKind;
    readonly profile: string | null;
    readonly user: string | null;
  };
  readonly tool: Tool;
  readonly workspace: string;
  readonly target: string;
  readonly params: JsonObject;
  /** Headers that go on with the call, by name in lower case. */
  readonly headers: Readonly<Record<string, string>>;
  readonly requestIp: string | null;
  readonly now: number;
}

/** The declared tools, with their checks compiled. */
export interface ToolCatalog {
  tool(name: string): Tool | null;
  /** Faults of params by the tool's schema and request template; empty when they hold. Paths are JSON Pointers below `/params`. */
  check(tool: Tool, params: JsonObject): readonly RequestFault[];
  /** The target that the params name; `null` where the tool has no template. */
  target(tool: Tool, params: JsonObject): string | null;
}

/** Whether a key may have an agent act. */
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

/** Params at rest and the salts of the receipt's commitments. */
export interface SealedParams {
  readonly params: JsonObject;
  readonly salts: Readonly<Record<string, string>>;
  /** What else an approved call needs when it is dispatched later. */
  readonly stateCheck: StateCheck | null;
  readonly claimId: string | null;
  readonly reservationId: string | null;
  /** Where the call came from: policy is asked again with it. Absent in seals of before. */
  readonly requestIp?: string | null;
  /** Absent where the call has none. */
  readonly headers?: CallHeaders;
  /** Of a call that waits for approval: its files, base64 by SHA-256. */
  readonly files?: Readonly<Record<string, string>>;
}

interface SealBinding {
  readonly workspace: string;
  readonly effectId: string;
  readonly fingerprint: string;
}

/** Everything a receipt is made from. Nothing in it is assigned by settlement. */
export interface ReceiptFacts {
  readonly id: string;
  readonly effect: EffectRecord;
  /** `null` where the seal no longer opens: the receipt then commits to nothing that it does not have. */
  readonly sealed: SealedParams | null;
  readonly settledBy: SettledBy;
  readonly evidence: Evidence;
  /** What is kept of the answer; `null` where none came. */
  readonly result: KeptResult | null;
  readonly approval: ApprovalRecord | null;
  /** Place of `effect.admitted`. */
  readonly ledger: { readonly epoch: number; readonly seq: number };
  /** Admission's store time plus monotonic time elapsed, ms. */
  readonly issuedAt: number;
}

export interface PauseMatch {
  readonly id: string;
  readonly reason: string;
  readonly until: number | null;
}

/** What a pause is matched against. */
export interface PauseSubject {
  readonly tool: string;
  readonly agentId: string;
  readonly upstream: string;
  readonly keyId: string;
}

/** The gateway's view of pauses. */
export interface PauseView {
  version(workspace: string): number;
  match(workspace: string, subject: PauseSubject, now: number): PauseMatch | null;
}

/** What the core needs of the rest of the gateway. Built by hand in `main.ts`. */
export interface EffectPorts {
  readonly store: EffectStore;
  readonly upstream: UpstreamPort;
  /**
   * Takes a place for a call on an upstream; what it gives, gives the place back. No more calls are admitted than can be
   * sent in time, and no agent takes all places. `null` where none came in time.
   */
  readonly place: (upstream: string, workspace: string, agentId: string) => (() => void) | Promise<(() => void) | null>;
  readonly catalog: () => ToolCatalog;
  readonly authorize: (principal: Principal, request: AuthorizeRequest) => Authorized;
  /** The active policy set's word; its version is `trace.policyVersion`. */
  readonly judge: (input: JudgeInput) => Verdict;
  readonly policyVersion: () => string;
  /** Whether policy is in force or only observes. */
  readonly policyMode: () => 'enforce' | 'observe';
  readonly pauses: PauseView;
  /** Brings policy and pauses up to what the store has in force. */
  readonly refresh: (workspace: string) => Promise<void>;
  readonly secrets: {
    fingerprintKey(workspace: string): KeyObject;
    newSalts(): Readonly<Record<string, string>>;
    seal(content: SealedParams, bound: SealBinding): string;
    open(sealed: string, bound: SealBinding): SealedParams | null;
  };
  readonly issueReceipt: (facts: ReceiptFacts) => SignedReceipt;
  /** Makes a settlement that the store did not take durable beside it; it is driven in later. */
  readonly spill: (request: SettleRequest) => Promise<void>;
  /** The tools' action types and the two of the specification. */
  readonly newId: (prefix: 'eff' | 'apr' | 'rcp') => string;
  readonly newNonce: () => string;
  /** ms that never stand still while the process is frozen or the machine sleeps. */
  readonly elapsed: () => number;
  /** Boot id of this process. */
  readonly owner: string;
  /** What this process runs now. */
  readonly running: Running;
  readonly settings: () => CoreSettings;
  /** Told of what people have to look at. */
  readonly alert: (what: Alert, effectId: string, cause?: unknown) => void;
}

/**
 * What people have to look at. `attempt_fault`: a fault of ours in the middle of an attempt; `settlement_spilled`: the
 * store did not take a settlement, the journal did; `settlement_lost`: neither did, the effect will be unknown.
 */
export type Alert = 'contradiction' | 'foreign_key_reuse' | 'attempt_fault' | 'settlement_spilled' | 'settlement_lost';

export interface CoreSettings {
  readonly dispatchWindowMs: number;
  /** Whether a second user may force `not_happened` before an effect is quiet. */
  readonly allowForce: boolean;
  /** Bytes of files that are kept with a call that waits for approval. */
  readonly filesKeptBytes: number;
}
