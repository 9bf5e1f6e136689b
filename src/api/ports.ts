import type { ApprovalRecord } from '../effects/approval.ts';
import type { BudgetRow, KeyRecord } from '../effects/controls.ts';
import type { Decision, Reason } from '../effects/decision.ts';
import type { EffectRecord } from '../effects/effect.ts';
import type { Json, JsonObject } from '../effects/json.ts';
import type { RunResult, ShownBudget } from '../effects/outcome.ts';
import type { Agent, Principal } from '../effects/principal.ts';
import type { Problem, RunRequest } from '../effects/run-request.ts';
import type { EffectStore } from '../effects/store.ts';
import type { Tool } from '../effects/tool.ts';
import type { ApprovalRequirement, MatchedRule, Obligation, Observed } from '../effects/verdict.ts';
import type { Directory } from '../identity/directory.ts';
import type { KeyRequest, MadeKey } from '../identity/key-record.ts';
import type { KeyProfile } from '../identity/profiles.ts';

/**
 * What the control plane needs of the rest of the gateway. `main.ts` builds it. Whatever a reload can change is a
 * function, asked on each request.
 */
export interface ApiPorts {
  readonly store: EffectStore;
  /** The principal of a key in the clear; a promise only when the key is not in the cache. */
  readonly authenticate: (key: string) => Authenticated | Promise<Authenticated>;
  readonly run: (request: RunRequest) => Promise<RunResult>;
  /** What {@link ApiPorts.run} would answer now. Writes nothing. */
  readonly preview: (request: RunRequest) => Promise<PreviewResult>;
  readonly resolve: (request: ResolveCall) => Promise<ResolveResult>;
  readonly decideApproval: (request: ApprovalCall) => Promise<ApprovalResult>;
  readonly directory: Directory;
  readonly catalog: () => ApiCatalog;
  readonly policies: () => PolicyListing;
  /** Shipped and configured profiles. */
  readonly profiles: () => readonly KeyProfile[];
  readonly keys: {
    /** Makes a key; nothing is stored yet (`createKeyRecord` with its context). */
    readonly create: (request: KeyRequest) => MadeKey;
    /** A successor with the same rights; nothing is stored yet. */
    readonly successor: (of: KeyRecord) => { readonly record: KeyRecord; readonly key: string };
  };
  readonly receipts: {
    /** The JSON view of a signed receipt. */
    readonly view: (jws: string) => JsonObject;
    /** All receipt keys, retired ones too (RFC 7517). */
    readonly jwks: () => JsonObject;
  };
  /** Resource pools and their capacity. */
  readonly pools: () => ReadonlyMap<string, number>;
  /** Whether some rule could let an agent call the tool: claims are taken only on targets of such tools. */
  readonly couldPermit: (tool: string) => boolean;
  /** How an agent may see a budget row: figures of its own, a level of one that it shares, others not at all. */
  readonly budgetView: (row: BudgetRow, agent: Agent) => 'own' | 'shared' | 'hidden';
  readonly settings: () => ApiSettings;
  /** A fresh id: the prefix, `_` and a ULID in lower case. */
  readonly newId: (prefix: 'clm' | 'rsv' | 'pau') => string;
  /** Beyond the store: what keeps the gateway from taking calls (draining, journal, policy). Empty: nothing. */
  readonly impediments: () => readonly { readonly part: string; readonly message: string }[];
  /** Prometheus text of all metrics. */
  readonly metrics: () => Promise<{ readonly contentType: string; readonly text: string }>;
}

export type Authenticated = Principal | { readonly failure: 'invalid_key' };

export interface ApiSettings {
  /** Origin of links, no trailing slash. */
  readonly publicUrl: string;
  /** Names that `Host` may carry beside the bound address; compared without port. */
  readonly allowedHosts: readonly string[];
  readonly queryKey: 'allow' | 'refuse';
  /** Levels of JSON nesting. */
  readonly depthLimit: number;
}

/** The preview of a call: what would be decided, and why. */
export type PreviewResult =
  | {
      readonly kind: 'preview';
      readonly would: Decision;
      /** Status that the run request would get. */
      readonly httpStatus: number;
      readonly reason: Reason;
      readonly tool: string;
      readonly target: string;
      readonly agentId: string;
      readonly obligations: readonly Obligation[];
      readonly approvals: readonly ApprovalRequirement[];
      readonly matched: readonly MatchedRule[];
      readonly policyVersion: string;
      readonly budgets: readonly ShownBudget[];
      readonly observed: Observed | null;
    }
  | { readonly kind: 'problem'; readonly problem: Problem };

export interface ResolveCall {
  readonly principal: Principal;
  readonly workspace: string;
  readonly effectId: string;
  readonly outcome: 'happened' | 'not_happened';
  readonly evidence: Json;
  readonly comment: string | null;
  readonly force: boolean;
}

export type ResolveResult =
  | { readonly kind: 'resolved'; readonly effect: EffectRecord }
  | { readonly kind: 'problem'; readonly problem: Problem };

export interface ApprovalCall {
  readonly principal: Principal;
  readonly workspace: string;
  readonly approvalId: string;
  readonly verdict: 'approve' | 'reject';
  readonly comment: string | null;
}

/** The vote counted. Where it was the last one needed, `effect` is what the effect has become by now. */
export type ApprovalResult =
  | { readonly kind: 'decided'; readonly approval: ApprovalRecord; readonly effect: EffectRecord | null }
  | { readonly kind: 'problem'; readonly problem: Problem };

export interface ApiCatalog {
  tool(name: string): Tool | null;
  tools(): readonly Tool[];
}

/** The active policy set, for reading. */
export interface PolicyListing {
  readonly version: string;
  readonly mode: 'enforce' | 'observe';
  readonly rules: readonly {
    /** Full id, `set/rule`. */
    readonly id: string;
    readonly effect: MatchedRule['effect'];
    readonly description: string | null;
    readonly mode: 'enforce' | 'shadow';
    readonly file: string | null;
    readonly line: number | null;
  }[];
}
