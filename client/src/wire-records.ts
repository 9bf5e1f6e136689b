/** Made from schemas/openapi.json by `npx vitest run test/api/openapi.test.ts -u`. */
import type { Json, JsonObject } from './json.ts';

/** The 14 decisions. */
export type Decision =
  | 'committed'
  | 'duplicate_blocked'
  | 'pending_approval'
  | 'in_progress'
  | 'denied_permission'
  | 'denied_policy'
  | 'denied_identity'
  | 'denied_budget'
  | 'denied_claim'
  | 'idempotency_conflict'
  | 'denied_reservation'
  | 'denied_paused'
  | 'failed'
  | 'unknown_effect';

export type EffectState = 'pending_approval' | 'executing' | 'committed' | 'failed' | 'unknown' | 'rejected' | 'denied';

export type EffectPage = {
  readonly effects: readonly Effect[];
  /** For the next page; `null`: this is the last one. */
  readonly nextCursor: string | null;
};

export type EffectWithLedger = {
  readonly effect: Effect;
  readonly ledger: readonly LedgerEvent[];
};

export type Probed = {
  readonly probe: {
    /** What this reading shows. */
    readonly said: 'happened' | 'not_happened' | 'unknown';
    /** Whether the effect is settled by it. */
    readonly settled: boolean;
    readonly message: string;
    /** When another reading can tell more. */
    readonly retryAfterMs?: number;
  };
  readonly effect: Effect;
};

export type Run = {
  readonly effectId: string;
  readonly state: EffectState;
  readonly attempt: number;
  readonly stages: readonly {
    readonly stage:
      | 'authenticate'
      | 'validate'
      | 'identity'
      | 'permission'
      | 'policy'
      | 'admission'
      | 'approval'
      | 'state_check'
      | 'execute'
      | 'receipt'
      | 'settle';
    readonly status: 'passed' | 'refused' | 'failed' | 'unknown' | 'waiting' | 'skipped' | 'running';
    /** RFC 3339 time. */
    readonly startedAt: string;
    readonly durationMs: number | null;
    readonly detail: string | null;
  }[];
};

export type Preview = {
  readonly would: Decision;
  readonly httpStatus: number;
  readonly reason: Reason;
  readonly tool: string;
  readonly target: string;
  readonly agentId: string;
  readonly obligations: readonly (
    | {
        readonly kind: 'budget';
        readonly rule: string;
        /** `set/budget`. */
        readonly budget: string;
        /** What the figures count: `EUR-cent`, `tokens`. */
        readonly unit: string;
        readonly amount: number | null;
        readonly limit?: number;
        /** Beyond the limit people are asked. */
        readonly orAsk?: true;
      }
    | {
        readonly kind: 'rate_limit';
        readonly rule: string;
        readonly id: string;
        /** ms. */
        readonly windowMs: number;
        readonly limit: number;
        /** Beyond the limit people are asked. */
        readonly orAsk?: true;
      }
    | {
        readonly kind: 'claim';
        readonly rule: string;
        readonly target: string;
        readonly hold: 'call' | 'existing';
      }
    | {
        readonly kind: 'reserve';
        readonly rule: string;
        readonly pool: string;
        readonly units: number;
      }
    | {
        readonly kind: 'approval';
        readonly rule: string;
        readonly approvers: {
          readonly roles: readonly string[];
          readonly users: readonly string[];
        };
        readonly quorum: number;
        readonly summary: string;
        /** The schedule of the policy in which its times are counted. */
        readonly hours?: string;
        /** The limit that the call would go beyond: `budget:<id>` or `rate:<id>`. */
        readonly beyond?: string;
        /** ms. */
        readonly expiresMs: number;
      }
  )[];
  readonly policies: readonly {
    readonly rule: string;
    readonly effect: 'allow' | 'constrain' | 'require_approval' | 'deny' | 'pause';
    readonly unknown: readonly string[];
  }[];
  readonly policyVersion: string;
  readonly entities?: readonly {
    readonly type: string;
    readonly id: string;
    /** 0: there was none; -1: not known. */
    readonly version: number;
    readonly digest: string;
  }[];
  readonly budgets: readonly Budget[];
  readonly observed?: Observed;
};

export type ApprovalPage = {
  readonly approvals: readonly Approval[];
  /** For the next page; `null`: this is the last one. */
  readonly nextCursor: string | null;
};

export type Voted = {
  readonly id: string;
  readonly status: 'pending' | 'granted' | 'rejected' | 'expired' | 'used';
  /** RFC 3339 time. */
  readonly expiresAt: string;
  readonly quorum: number;
  readonly approvals: number;
  /** The page on which people decide. By itself it shows nothing. */
  readonly url: string;
  readonly workspace: string;
  readonly effectId: string;
  readonly tool: string;
  readonly target: string;
  /** What would happen, in plain words. */
  readonly summary: string | null;
  readonly requestedBy: {
    readonly agentId: string;
    readonly agentOwner: string | null;
    readonly user: string | null;
    readonly keyId: string;
  };
  /** Each has its quorum of people. */
  readonly requirements: readonly {
    readonly rule: string;
    readonly approvers: {
      readonly roles: readonly string[];
      readonly users: readonly string[];
    };
    readonly quorum: number;
    readonly summary: string;
    /** The schedule of the policy in which its times are counted. */
    readonly hours?: string;
    /** The limit that the call would go beyond: `budget:<id>` or `rate:<id>`. */
    readonly beyond?: string;
    readonly approvals: number;
    /** Params that who decides by this rule may change, with their bounds. */
    readonly editable?: Readonly<
      Record<
        string,
        {
          readonly min?: number | 'asked';
          readonly max?: number | 'asked';
          readonly oneOf?: readonly (string | number | boolean)[];
          readonly maxLength?: number;
        }
      >
    >;
    /** From then on these may decide as well. */
    readonly escalates?: {
      /** RFC 3339 time. */
      readonly at: string;
      readonly to: {
        readonly roles: readonly string[];
        readonly users: readonly string[];
      };
    };
    /** A rejection has to say why. */
    readonly requireReason?: true;
  }[];
  /** An approver changed these params: votes are for that, and `asked_params` has what was asked. */
  readonly changed?: {
    readonly by: string;
    /** RFC 3339 time. */
    readonly at: string;
    readonly params: readonly string[];
  };
  readonly votes: readonly {
    readonly user: string;
    /** With which it was made, or for which the passkey stands. */
    readonly keyId: string;
    readonly verdict: 'approve' | 'reject';
    /** RFC 3339 time. */
    readonly at: string;
    readonly comment: string | null;
    /** Of a rejection: with it `approval.rejected` commits to the comment. */
    readonly commentSalt?: string;
  }[];
  readonly decidedAt: string | null;
  /** Why the call was not sent although it is approved. */
  readonly stopped?: {
    /** RFC 3339 time. */
    readonly at: string;
    readonly decision: Decision;
    readonly code: string;
    readonly message: string;
    readonly rule?: string;
  };
  /** RFC 3339 time. */
  readonly createdAt: string;
  readonly effect: {
    readonly effectId: string;
    readonly state: EffectState;
    readonly decision: Decision;
  };
  /** What was allowed ahead with it. */
  readonly allowanceId?: string;
  /** The same person had approved before: this vote changed nothing. */
  readonly votedAlready: boolean;
  readonly became: Became;
};

/** An exclusive right of an agent to act on a target, for a limited time. */
export type Claim = {
  readonly id: string;
  readonly workspace: string;
  readonly target: string;
  /** Id of an agent. */
  readonly agentId: string;
  /** RFC 3339 time. */
  readonly createdAt: string;
  /** RFC 3339 time. */
  readonly expiresAt: string;
  /** Effects that run under it, and extend it while they do. */
  readonly runningEffects: readonly string[];
  readonly extendedUntil: string | null;
};

/** Units of a pool that are set aside for an agent, for a limited time. */
export type Reservation = {
  readonly id: string;
  readonly workspace: string;
  readonly pool: string;
  readonly units: number;
  readonly agentId: string;
  /** RFC 3339 time. */
  readonly createdAt: string;
  /** RFC 3339 time. */
  readonly expiresAt: string;
};

/** A stop switch. */
export type Pause = {
  readonly id: string;
  readonly workspace: string;
  readonly scope: PauseScope;
  readonly reason: string;
  readonly by: {
    readonly keyId: string;
    readonly keyKind: 'account' | 'agent' | 'administrative' | 'profile';
    readonly user: string | null;
  };
  /** RFC 3339 time. */
  readonly createdAt: string;
  readonly until: string | null;
  /** Only when it was just set: nothing known has the name that it stops. */
  readonly warning?: string;
};

/** An API key without its secret. */
export type ApiKey = {
  readonly id: string;
  readonly name: string;
  readonly kind: 'account' | 'agent' | 'administrative' | 'profile';
  readonly profile: string | null;
  readonly workspace: string | null;
  readonly agentId: string | null;
  readonly userId: string | null;
  readonly scopes: readonly (
    | 'tools:read'
    | 'brain:read'
    | 'policy:simulate'
    | 'traces:read'
    | 'params:read'
    | 'ledger:read'
    | 'approvals:read'
    | 'approvals:decide'
    | 'observability:read'
    | 'governance:read'
    | 'governance:write'
    | 'claims:write'
    | 'effects:preview'
    | 'effects:run'
  )[];
  /** `null` is no limit. */
  readonly allowedTools: readonly string[] | null;
  readonly readOnly: boolean;
  readonly madeBy: string | null;
  /** RFC 3339 time. */
  readonly createdAt: string;
  readonly expiresAt: string | null;
  readonly lastUsedAt: string | null;
  readonly revokedAt: string | null;
  readonly replacedBy: string | null;
};

export type MadeKey = {
  readonly id: string;
  readonly name: string;
  readonly kind: 'account' | 'agent' | 'administrative' | 'profile';
  readonly profile: string | null;
  readonly workspace: string | null;
  readonly agentId: string | null;
  readonly userId: string | null;
  readonly scopes: readonly (
    | 'tools:read'
    | 'brain:read'
    | 'policy:simulate'
    | 'traces:read'
    | 'params:read'
    | 'ledger:read'
    | 'approvals:read'
    | 'approvals:decide'
    | 'observability:read'
    | 'governance:read'
    | 'governance:write'
    | 'claims:write'
    | 'effects:preview'
    | 'effects:run'
  )[];
  /** `null` is no limit. */
  readonly allowedTools: readonly string[] | null;
  readonly readOnly: boolean;
  readonly madeBy: string | null;
  /** RFC 3339 time. */
  readonly createdAt: string;
  readonly expiresAt: string | null;
  readonly lastUsedAt: string | null;
  readonly revokedAt: string | null;
  readonly replacedBy: string | null;
  /** The key itself: shown this once. */
  readonly key: string;
  /** The key that this one succeeds. */
  readonly replaces?: string;
};

/** A budget as it stands. An agent sees no bucket of what it shares. */
export type BudgetRow = {
  /** `set/budget`. */
  readonly budget: string;
  /** What the figures count: `EUR-cent`, `tokens`. */
  readonly unit: string;
  readonly limit?: number;
  readonly spent?: number;
  readonly held?: number;
  readonly remaining?: number;
  /** `low` from the percentage on that policy says. */
  readonly level: 'ok' | 'low' | 'exhausted';
  /** `null` for rolling windows. */
  readonly resetsAt: string | null;
  readonly bucket?: string;
  readonly window?: string;
};

export type PolicyHistory = {
  readonly inForce: string | null;
  /** Of the files of this gateway; `null` where they cannot be used. */
  readonly filesVersion: string | null;
  /** Newest first. */
  readonly activations: readonly {
    readonly version: string;
    /** RFC 3339 time. */
    readonly at: string;
    readonly by: {
      readonly type: 'agent' | 'user' | 'key' | 'gateway';
      readonly id: string;
    };
    /** `files`: a gateway found them there. */
    readonly how: 'files' | 'activate' | 'rollback';
    /** What the person said who put it there. */
    readonly why?: string;
    /** Of `files`: those that were new or had changed, the first 20. */
    readonly files?: readonly string[];
    /** Users who confirmed it, where it was proposed. */
    readonly confirmedBy?: readonly string[];
  }[];
};

export type PolicyProposal = {
  readonly id: string;
  /** What is to come in force. */
  readonly version: string;
  /** What was in force when it was made. When that changes, it is over. */
  readonly insteadOf: string;
  readonly status: 'open' | 'confirmed' | 'withdrawn' | 'superseded' | 'expired';
  /** `files`: a gateway found them there. */
  readonly how: 'files' | 'activate' | 'rollback';
  readonly by: {
    readonly type: 'agent' | 'user' | 'key' | 'gateway';
    readonly id: string;
  };
  readonly why?: string;
  /** Of `files`: those that were new or had changed, the first 20. */
  readonly files?: readonly string[];
  /** Who stands behind it: who proposed it, and who confirmed it. */
  readonly people: readonly string[];
  /** How many people still have to confirm it. */
  readonly stillNeeds: number;
  /** RFC 3339 time. */
  readonly at: string;
  /** RFC 3339 time. */
  readonly expiresAt: string;
  readonly ended?: {
    /** RFC 3339 time. */
    readonly at: string;
    readonly by: {
      readonly type: 'agent' | 'user' | 'key' | 'gateway';
      readonly id: string;
    };
  };
};

/** A rule that would let run what people approved each time. Nothing comes of it by itself. */
export type PolicySuggestion = {
  /** The rule that asks now. */
  readonly rule: string;
  readonly tool: string;
  /** Where that rule stands. */
  readonly file: string;
  readonly line: number;
  /** YAML, to be put in the place of that rule. It loads, and lets each of these calls run; calls beyond what was seen are asked about as before. */
  readonly text: string;
  readonly agents: readonly string[];
  /** Who approved. */
  readonly people: readonly string[];
  /** RFC 3339 time. */
  readonly since: string;
  /** RFC 3339 time. */
  readonly until: string;
  /** What it is drawn from, newest first. */
  readonly approvals: readonly {
    readonly approvalId: string;
    readonly effectId: string;
    readonly agentId: string;
    /** RFC 3339 time. */
    readonly at: string;
    readonly by: readonly string[];
  }[];
  /** To be tried. */
  readonly example: {
    readonly agentId: string;
    /** Of the newest call. */
    readonly params: JsonObject;
  };
};

export type EffectBudgets = {
  readonly holdState: 'none' | 'held' | 'posted' | 'voided';
  readonly budgets: readonly {
    readonly budget: string;
    readonly unit: string;
    readonly bucket: string;
    readonly window: string;
    /** What it held. */
    readonly amount: number;
    /** What is spent for it; more than it held where it cost more. */
    readonly spent: number;
    readonly before?: {
      /** RFC 3339 time. */
      readonly at: string;
      readonly spent: number;
      readonly held: number;
    };
    readonly after?: {
      /** RFC 3339 time. */
      readonly at: string;
      readonly spent: number;
      readonly held: number;
    };
    /** Why there is no `before` and `after`. `rolling`: what has left a rolling window is written nowhere. `too_many`: more happened in the window than is read. */
    readonly unknown?: 'rolling' | 'too_many';
    /** `null`: its window is over. */
    readonly now: BudgetRow | null;
  }[];
};

export type PolicyVersion = {
  readonly version: string;
  /** Whether the text was found to be that of the version. `false`: it does not fit the configuration of now, so it could not be held against it, or somebody altered it. */
  readonly proven: boolean;
  readonly files: readonly {
    readonly file: string;
    readonly text: string;
    readonly lists: readonly {
      readonly name: string;
      /** `null`: it could not be read. */
      readonly text: string | null;
    }[];
  }[];
};

export type NotificationPage = {
  readonly notifications: readonly NotificationDelivery[];
  /** For the next page; `null`: this is the last one. */
  readonly nextCursor: string | null;
};

export type PassedReadPage = {
  readonly reads: readonly PassedRead[];
  /** For the next page; `null`: this is the last one. */
  readonly nextCursor: string | null;
};

export type LedgerPage = {
  readonly events: readonly LedgerEvent[];
  /** For the next page; `null`: this is the last one. */
  readonly nextCursor: string | null;
};

/** A passkey of a user, without what it is checked by. */
export type Passkey = {
  readonly id: string;
  readonly name: string;
  readonly userId: string;
  /** Who signs in with it may do what this key, or its successor, may. */
  readonly keyId: string;
  readonly workspace: string | null;
  /** Whether it can be on several devices. */
  readonly synced: boolean;
  readonly backedUp: boolean;
  /** RFC 3339 time. */
  readonly createdAt: string;
  readonly lastUsedAt: string | null;
};

/** Permission for the next calls alike, given with an approval. Nobody is asked about these. */
export type Allowance = {
  readonly id: string;
  readonly workspace: string;
  readonly status: 'open' | 'used_up' | 'over' | 'revoked' | 'replaced' | 'forged';
  /** The user whose vote allowed them. */
  readonly givenBy: string;
  /** The request that was approved with it. */
  readonly approvalId: string;
  /** The call that was asked about: what is let in is like it. */
  readonly effectId: string;
  /** Id of an agent. */
  readonly agentId: string;
  readonly tool: string;
  readonly target: string;
  /** The rules that would ask somebody. */
  readonly rules: readonly string[];
  /** Params in which calls alike may differ, with their bounds. All others are the same. */
  readonly varies: Readonly<
    Record<
      string,
      {
        readonly min?: number | 'asked';
        readonly max?: number | 'asked';
        readonly oneOf?: readonly (string | number | boolean)[];
        readonly maxLength?: number;
      }
    >
  >;
  readonly times: number;
  readonly used: number;
  /** RFC 3339 time. */
  readonly givenAt: string;
  /** RFC 3339 time. */
  readonly expiresAt: string;
  /** Who ended it before its time. */
  readonly ended?: {
    /** RFC 3339 time. */
    readonly at: string;
    readonly by: string;
  };
};

export type AllowancePage = {
  readonly allowances: readonly Allowance[];
  /** For the next page; `null`: this is the last one. */
  readonly nextCursor: string | null;
};

export type StateVerdict = {
  readonly status: 'verified' | 'mismatch_detected';
  readonly decision: 'proceed' | 'replan' | 'block';
  readonly mismatches: readonly Mismatch[];
};

export type ReconcileVerdict = {
  readonly decision: 'do_not_retry' | 'retry_allowed' | 'replan';
  readonly reason: string;
  readonly status: 'reconciled';
};

/** It happened, and this call did it. */
export type Committed = {
  readonly decision: 'committed';
  readonly didItHappen: 'yes';
  readonly effectId: string;
  readonly tool: string;
  readonly target: string;
  readonly agentId: string;
  readonly idempotencyKey: string;
  readonly attempt: number;
  readonly reason: Reason;
  /** Whether the same call with the same key may be sent again. */
  readonly safeToRetry: boolean;
  /** What the caller should do now. */
  readonly next: 'proceed' | 'replan' | 'block' | 'wait' | 'resolve' | 'retry';
  readonly budgets?: readonly Budget[];
  readonly observed?: Observed;
  readonly changed?: Changed;
  /** ms. */
  readonly retryAfterMs?: number;
  /** Where to go on: `docs`, `effect`, `receipt`, `resolve`. */
  readonly links: Readonly<Record<string, string>>;
  readonly receipt: Receipt;
  /** What the upstream answered: JSON, a text, or what `result_encoding` says. */
  readonly result?: Json;
  readonly upstreamStatus?: number;
  /** Absent: the result is JSON or a text. `digest`: the answer was passed on, and only this is kept. */
  readonly resultEncoding?: 'base64' | 'digest';
  /** Too large for a list, or not readable any more. */
  readonly resultOmitted?: true;
  /** The answer was cut, or broke off. */
  readonly responseTruncated?: true;
  /** The upstream has accepted it, and finishes it later. */
  readonly accepted?: true;
  /** True and durable here, but not yet in the store. */
  readonly settlement?: 'pending';
};

/** It happened earlier under this key; nothing ran again. */
export type DuplicateBlocked = {
  readonly decision: 'duplicate_blocked';
  readonly didItHappen: 'yes';
  readonly effectId: string;
  readonly tool: string;
  readonly target: string;
  readonly agentId: string;
  readonly idempotencyKey: string;
  readonly attempt: number;
  readonly reason: Reason;
  /** Whether the same call with the same key may be sent again. */
  readonly safeToRetry: boolean;
  /** What the caller should do now. */
  readonly next: 'proceed' | 'replan' | 'block' | 'wait' | 'resolve' | 'retry';
  readonly budgets?: readonly Budget[];
  readonly observed?: Observed;
  readonly changed?: Changed;
  /** ms. */
  readonly retryAfterMs?: number;
  /** Where to go on: `docs`, `effect`, `receipt`, `resolve`. */
  readonly links: Readonly<Record<string, string>>;
  readonly receipt: Receipt;
  /** What the upstream answered: JSON, a text, or what `result_encoding` says. */
  readonly result?: Json;
  readonly upstreamStatus?: number;
  /** Absent: the result is JSON or a text. `digest`: the answer was passed on, and only this is kept. */
  readonly resultEncoding?: 'base64' | 'digest';
  /** Too large for a list, or not readable any more. */
  readonly resultOmitted?: true;
  /** The answer was cut, or broke off. */
  readonly responseTruncated?: true;
  /** It is kept no longer. */
  readonly resultExpired?: true;
};

/** Not yet: a person decides. */
export type AwaitingApproval = {
  readonly decision: 'pending_approval';
  readonly didItHappen: 'no';
  readonly effectId: string;
  readonly tool: string;
  readonly target: string;
  readonly agentId: string;
  readonly idempotencyKey: string;
  readonly attempt: number;
  readonly reason: Reason;
  /** Whether the same call with the same key may be sent again. */
  readonly safeToRetry: boolean;
  /** What the caller should do now. */
  readonly next: 'proceed' | 'replan' | 'block' | 'wait' | 'resolve' | 'retry';
  readonly budgets?: readonly Budget[];
  readonly observed?: Observed;
  readonly changed?: Changed;
  /** ms. */
  readonly retryAfterMs?: number;
  /** Where to go on: `docs`, `effect`, `receipt`, `resolve`. */
  readonly links: Readonly<Record<string, string>>;
  readonly approval: PendingApproval;
};

/** It is running now under this key. */
export type InProgress = {
  readonly decision: 'in_progress';
  readonly didItHappen: 'maybe';
  readonly effectId: string;
  readonly tool: string;
  readonly target: string;
  readonly agentId: string;
  readonly idempotencyKey: string;
  readonly attempt: number;
  readonly reason: Reason;
  /** Whether the same call with the same key may be sent again. */
  readonly safeToRetry: boolean;
  /** What the caller should do now. */
  readonly next: 'proceed' | 'replan' | 'block' | 'wait' | 'resolve' | 'retry';
  readonly budgets?: readonly Budget[];
  readonly observed?: Observed;
  readonly changed?: Changed;
  /** ms. */
  readonly retryAfterMs?: number;
  /** Where to go on: `docs`, `effect`, `receipt`, `resolve`. */
  readonly links: Readonly<Record<string, string>>;
};

/** A budget does not hold it. */
export type DeniedBudget = {
  readonly decision: 'denied_budget';
  readonly didItHappen: 'no';
  readonly effectId: string;
  readonly tool: string;
  readonly target: string;
  readonly agentId: string;
  readonly idempotencyKey: string;
  readonly attempt: number;
  readonly reason: Reason;
  /** Whether the same call with the same key may be sent again. */
  readonly safeToRetry: boolean;
  /** What the caller should do now. */
  readonly next: 'proceed' | 'replan' | 'block' | 'wait' | 'resolve' | 'retry';
  readonly budgets?: readonly Budget[];
  readonly observed?: Observed;
  readonly changed?: Changed;
  /** ms. */
  readonly retryAfterMs?: number;
  /** Where to go on: `docs`, `effect`, `receipt`, `resolve`. */
  readonly links: Readonly<Record<string, string>>;
  readonly mismatches?: readonly Mismatch[];
};

/** Another agent has the target, or its state is not the assumed one. */
export type DeniedClaim = {
  readonly decision: 'denied_claim';
  readonly didItHappen: 'no';
  readonly effectId: string;
  readonly tool: string;
  readonly target: string;
  readonly agentId: string;
  readonly idempotencyKey: string;
  readonly attempt: number;
  readonly reason: Reason;
  /** Whether the same call with the same key may be sent again. */
  readonly safeToRetry: boolean;
  /** What the caller should do now. */
  readonly next: 'proceed' | 'replan' | 'block' | 'wait' | 'resolve' | 'retry';
  readonly budgets?: readonly Budget[];
  readonly observed?: Observed;
  readonly changed?: Changed;
  /** ms. */
  readonly retryAfterMs?: number;
  /** Where to go on: `docs`, `effect`, `receipt`, `resolve`. */
  readonly links: Readonly<Record<string, string>>;
  readonly mismatches?: readonly Mismatch[];
};

/** People have stopped such calls. */
export type DeniedPaused = {
  readonly decision: 'denied_paused';
  readonly didItHappen: 'no';
  readonly effectId: string;
  readonly tool: string;
  readonly target: string;
  readonly agentId: string;
  readonly idempotencyKey: string;
  readonly attempt: number;
  readonly reason: Reason;
  /** Whether the same call with the same key may be sent again. */
  readonly safeToRetry: boolean;
  /** What the caller should do now. */
  readonly next: 'proceed' | 'replan' | 'block' | 'wait' | 'resolve' | 'retry';
  readonly budgets?: readonly Budget[];
  readonly observed?: Observed;
  readonly changed?: Changed;
  /** ms. */
  readonly retryAfterMs?: number;
  /** Where to go on: `docs`, `effect`, `receipt`, `resolve`. */
  readonly links: Readonly<Record<string, string>>;
  readonly mismatches?: readonly Mismatch[];
};

/** The key names another action. */
export type IdempotencyConflict = {
  readonly decision: 'idempotency_conflict';
  readonly didItHappen: 'no';
  readonly effectId: string;
  readonly tool: string;
  readonly target: string;
  readonly agentId: string;
  readonly idempotencyKey: string;
  readonly attempt: number;
  readonly reason: Reason;
  /** Whether the same call with the same key may be sent again. */
  readonly safeToRetry: boolean;
  /** What the caller should do now. */
  readonly next: 'proceed' | 'replan' | 'block' | 'wait' | 'resolve' | 'retry';
  readonly budgets?: readonly Budget[];
  readonly observed?: Observed;
  readonly changed?: Changed;
  /** ms. */
  readonly retryAfterMs?: number;
  /** Where to go on: `docs`, `effect`, `receipt`, `resolve`. */
  readonly links: Readonly<Record<string, string>>;
};

/** It did not happen. */
export type Failed = {
  readonly decision: 'failed';
  readonly didItHappen: 'no';
  readonly effectId: string;
  readonly tool: string;
  readonly target: string;
  readonly agentId: string;
  readonly idempotencyKey: string;
  readonly attempt: number;
  readonly reason: Reason;
  /** Whether the same call with the same key may be sent again. */
  readonly safeToRetry: boolean;
  /** What the caller should do now. */
  readonly next: 'proceed' | 'replan' | 'block' | 'wait' | 'resolve' | 'retry';
  readonly budgets?: readonly Budget[];
  readonly observed?: Observed;
  readonly changed?: Changed;
  /** ms. */
  readonly retryAfterMs?: number;
  /** Where to go on: `docs`, `effect`, `receipt`, `resolve`. */
  readonly links: Readonly<Record<string, string>>;
  /** What the upstream answered: JSON, a text, or what `result_encoding` says. */
  readonly result?: Json;
  readonly upstreamStatus?: number;
  /** Absent: the result is JSON or a text. `digest`: the answer was passed on, and only this is kept. */
  readonly resultEncoding?: 'base64' | 'digest';
  /** Too large for a list, or not readable any more. */
  readonly resultOmitted?: true;
  /** The answer was cut, or broke off. */
  readonly responseTruncated?: true;
  /** True and durable here, but not yet in the store. */
  readonly settlement?: 'pending';
};

/** Nobody knows whether it happened. */
export type UnknownEffect = {
  readonly decision: 'unknown_effect';
  readonly didItHappen: 'maybe';
  readonly effectId: string;
  readonly tool: string;
  readonly target: string;
  readonly agentId: string;
  readonly idempotencyKey: string;
  readonly attempt: number;
  readonly reason: Reason;
  /** Whether the same call with the same key may be sent again. */
  readonly safeToRetry: boolean;
  /** What the caller should do now. */
  readonly next: 'proceed' | 'replan' | 'block' | 'wait' | 'resolve' | 'retry';
  readonly budgets?: readonly Budget[];
  readonly observed?: Observed;
  readonly changed?: Changed;
  /** ms. */
  readonly retryAfterMs?: number;
  /** Where to go on: `docs`, `effect`, `receipt`, `resolve`. */
  readonly links: Readonly<Record<string, string>>;
  /** True and durable here, but not yet in the store. */
  readonly settlement?: 'pending';
};

export type Effect =
  | PendingEffect
  | ExecutingEffect
  | CommittedEffect
  | FailedEffect
  | UnknownOutcome
  | RejectedEffect
  | DeniedEffect;

/** An event of the append-only ledger. */
export type LedgerEvent = {
  readonly seq: number;
  readonly id: string;
  /** RFC 3339 time. */
  readonly at: string;
  /** RFC 3339 time. */
  readonly recordedAt?: string;
  readonly kind:
    | 'effect.denied'
    | 'effect.admitted'
    | 'effect.duplicate_blocked'
    | 'effect.probed'
    | 'effect.reconciled'
    | 'effect.resolved'
    | 'effect.erased'
    | 'effect.contradiction'
    | 'effect.conflict'
    | 'approval.requested'
    | 'approval.granted'
    | 'approval.rejected'
    | 'approval.expired'
    | 'approval.renewed'
    | 'approval.escalated'
    | 'allowance.given'
    | 'allowance.used'
    | 'allowance.revoked'
    | 'state.verified'
    | 'state.drifted'
    | 'execution.started'
    | 'execution.succeeded'
    | 'execution.failed'
    | 'execution.lost'
    | 'budget.held'
    | 'budget.posted'
    | 'budget.voided'
    | 'budget.overdraft'
    | 'budget.reset'
    | 'receipt.issued'
    | 'read.batch'
    | 'key.created'
    | 'key.revoked'
    | 'key.rotated'
    | 'passkey.added'
    | 'passkey.removed'
    | 'user.added'
    | 'user.removed'
    | 'user.roles_changed'
    | 'workspace.created'
    | 'agent.registered'
    | 'policy.loaded'
    | 'policy.activated'
    | 'policy.rolled_back'
    | 'policy.rejected'
    | 'policy.proposed'
    | 'policy.confirmed'
    | 'policy.withdrawn'
    | 'store.loss_accepted'
    | 'store.restored'
    | 'store.time_accepted'
    | 'archive.segment'
    | 'gateway.declared_lost'
    | 'pause.set'
    | 'pause.lifted'
    | 'claim.taken'
    | 'claim.renewed'
    | 'claim.released'
    | 'reservation.made'
    | 'reservation.released'
    | 'brain.entities_put'
    | 'brain.entities_removed';
  readonly effectId: string | null;
  readonly actor: {
    readonly type: 'agent' | 'user' | 'key' | 'gateway';
    readonly id: string;
  };
  /** What the kind of event says. */
  readonly data: JsonObject;
};

/** Why the decision was made. */
export type Reason = {
  /** Stable; it has a page under `/docs/errors/`. */
  readonly code: string;
  /** For people and models. */
  readonly message: string;
  /** The policy set that decided. */
  readonly policy?: string;
  /** The rule that decided, `set/rule`. */
  readonly rule?: string;
};

/** A budget. Of one that it shares, an agent sees only the level, and no figures. */
export type Budget = {
  /** `set/budget`. */
  readonly budget: string;
  /** What the figures count: `EUR-cent`, `tokens`. */
  readonly unit: string;
  readonly limit?: number;
  readonly spent?: number;
  readonly held?: number;
  readonly remaining?: number;
  /** `low` from the percentage on that policy says. */
  readonly level: 'ok' | 'low' | 'exhausted';
  /** `null` for rolling windows. */
  readonly resetsAt: string | null;
};

/** While policy only observes: what it would have decided. */
export type Observed = {
  readonly would:
    | 'committed'
    | 'duplicate_blocked'
    | 'pending_approval'
    | 'in_progress'
    | 'denied_permission'
    | 'denied_policy'
    | 'denied_identity'
    | 'denied_budget'
    | 'denied_claim'
    | 'idempotency_conflict'
    | 'denied_reservation'
    | 'denied_paused'
    | 'failed'
    | 'unknown_effect'
    | 'invalid_request';
  readonly rule: string | null;
};

/** A request for approval: what is asked, who may decide, who has. `url` is its page for people. */
export type Approval = {
  readonly id: string;
  readonly status: 'pending' | 'granted' | 'rejected' | 'expired' | 'used';
  /** RFC 3339 time. */
  readonly expiresAt: string;
  readonly quorum: number;
  readonly approvals: number;
  /** The page on which people decide. By itself it shows nothing. */
  readonly url: string;
  readonly workspace: string;
  readonly effectId: string;
  readonly tool: string;
  readonly target: string;
  /** What would happen, in plain words. */
  readonly summary: string | null;
  readonly requestedBy: {
    readonly agentId: string;
    readonly agentOwner: string | null;
    readonly user: string | null;
    readonly keyId: string;
  };
  /** Each has its quorum of people. */
  readonly requirements: readonly {
    readonly rule: string;
    readonly approvers: {
      readonly roles: readonly string[];
      readonly users: readonly string[];
    };
    readonly quorum: number;
    readonly summary: string;
    /** The schedule of the policy in which its times are counted. */
    readonly hours?: string;
    /** The limit that the call would go beyond: `budget:<id>` or `rate:<id>`. */
    readonly beyond?: string;
    readonly approvals: number;
    /** Params that who decides by this rule may change, with their bounds. */
    readonly editable?: Readonly<
      Record<
        string,
        {
          readonly min?: number | 'asked';
          readonly max?: number | 'asked';
          readonly oneOf?: readonly (string | number | boolean)[];
          readonly maxLength?: number;
        }
      >
    >;
    /** From then on these may decide as well. */
    readonly escalates?: {
      /** RFC 3339 time. */
      readonly at: string;
      readonly to: {
        readonly roles: readonly string[];
        readonly users: readonly string[];
      };
    };
    /** A rejection has to say why. */
    readonly requireReason?: true;
  }[];
  /** An approver changed these params: votes are for that, and `asked_params` has what was asked. */
  readonly changed?: {
    readonly by: string;
    /** RFC 3339 time. */
    readonly at: string;
    readonly params: readonly string[];
  };
  readonly votes: readonly {
    readonly user: string;
    /** With which it was made, or for which the passkey stands. */
    readonly keyId: string;
    readonly verdict: 'approve' | 'reject';
    /** RFC 3339 time. */
    readonly at: string;
    readonly comment: string | null;
    /** Of a rejection: with it `approval.rejected` commits to the comment. */
    readonly commentSalt?: string;
  }[];
  readonly decidedAt: string | null;
  /** Why the call was not sent although it is approved. */
  readonly stopped?: {
    /** RFC 3339 time. */
    readonly at: string;
    readonly decision: Decision;
    readonly code: string;
    readonly message: string;
    readonly rule?: string;
  };
  /** RFC 3339 time. */
  readonly createdAt: string;
  /** What the call takes from budgets; agents see no more than that. */
  readonly costs: readonly {
    readonly budget: string;
    readonly unit: string;
    readonly amount: number | null;
    readonly limit?: number;
    readonly spent?: number;
    /** Set aside for other calls. */
    readonly held?: number;
    readonly resetsAt?: string | null;
  }[];
  /** What is sent where: method and path, or the name at the MCP server. */
  readonly action?: {
    readonly type: string;
    readonly kind: 'read' | 'write';
    readonly upstream: string;
    readonly target: string;
    readonly title?: string;
    readonly method?: string;
    readonly path?: string;
    readonly name?: string;
    /** The tool has changed since the request. */
    readonly toolChanged?: true;
  };
  /** Those that policy redacts are masked. */
  readonly params?: JsonObject;
  /** What the agent asked, where an approver changed it. */
  readonly askedParams?: JsonObject;
  /** Headers that are part of the action. */
  readonly headers?: Readonly<Record<string, Json>>;
  /** Some are cut. */
  readonly paramsTruncated?: true;
  /** Why there are none. */
  readonly paramsOmitted?: string;
  /** Who decides on all of it may also allow the next calls alike: at most so many, for so long. Alike: same agent, tool, target, headers and params but for those that may differ. */
  readonly allowAlike?: {
    readonly times: number;
    readonly forS: number;
    /** Params in which calls alike may differ, with their bounds. All others are the same. */
    readonly varies: Readonly<
      Record<
        string,
        {
          readonly min?: number | 'asked';
          readonly max?: number | 'asked';
          readonly oneOf?: readonly (string | number | boolean)[];
          readonly maxLength?: number;
        }
      >
    >;
  };
  readonly attempt?: number;
  /** Of what a vote approves. */
  readonly digest: string;
  /** Each rule that asks; not in lists. */
  readonly why?: readonly {
    readonly rule: string;
    readonly summary: string;
    readonly description: string | null;
    /** What the rule could not judge. */
    readonly unknown: readonly string[];
  }[];
  /** Why an approval would send nothing now, or not yet; not in lists. */
  readonly foreseen?: string;
  /** That the agent made the same call shortly before, or waits for more; not in lists. */
  readonly repeat?: string;
};

/** What a vote did to the call. */
export type Became = {
  readonly what: 'waiting' | 'rejected' | 'dispatched' | 'stopped' | 'asked_anew' | 'ended';
  /** For people. */
  readonly message: string;
  readonly decision?: Decision;
  readonly code?: string;
  readonly rule?: string;
  readonly effectId?: string;
  readonly receiptId?: string;
  /** `asked_anew`: what people are asked now. */
  readonly approvalId?: string;
};

export type PauseScope =
  | {
      readonly workspace: true;
    }
  | {
      readonly tool: string;
    }
  | {
      readonly agent: string;
    }
  | {
      readonly upstream: string;
    }
  | {
      readonly key: string;
    };

/** One notification for one receiver. */
export type NotificationDelivery = {
  readonly id: string;
  /** As the receiver gets it; the same at every attempt. */
  readonly webhookId: string;
  readonly event:
    | 'approval.requested'
    | 'approval.escalated'
    | 'approval.granted'
    | 'approval.rejected'
    | 'approval.expired'
    | 'execution.lost'
    | 'pause.set'
    | 'pause.lifted'
    | 'budget.near_limit'
    | 'policy.rejected'
    | 'policy.proposed'
    | 'allowance.given'
    | 'tool.quarantined'
    | 'retention.stalled';
  /** Name of the webhook in the configuration. */
  readonly receiver: string;
  /** `dead`: it is not tried any more. */
  readonly state: 'waiting' | 'delivered' | 'dead';
  readonly attempts: number;
  readonly lastFailure: string | null;
  /** `null`: the installation. */
  readonly workspace: string | null;
  readonly effectId: string | null;
  /** What is told of the event; the body has the summary of the call as well. */
  readonly data: JsonObject;
  /** RFC 3339 time. */
  readonly at: string;
  readonly nextAttemptAt: string | null;
  readonly endedAt: string | null;
};

/** Proxied reads of one second, one agent and one tool that passed. */
export type PassedRead = {
  /** Of the ledger: newer sums have larger ones. */
  readonly seq: number;
  /** RFC 3339 time. */
  readonly firstAt: string;
  /** RFC 3339 time. */
  readonly lastAt: string;
  readonly count: number;
  readonly agentId: string;
  /** `null`: no tool declares it. */
  readonly tool: string | null;
  readonly upstream: string;
  /** How many were answered with each status; `none` without an answer. */
  readonly statuses: Readonly<Record<string, number>>;
  /** What policy would have said, where it only observes and would have stopped them. */
  readonly observed: {
    readonly would: string;
    readonly rule: string | null;
  } | null;
  /** Method and path of one that policy would have stopped. */
  readonly example: string | null;
};

/** A field whose live value is not the assumed one. */
export type Mismatch = {
  readonly field: string;
  /** The assumed value; `null` where there is none. */
  readonly assumed: Json;
  /** The live value; `null` where there is none. */
  readonly current: Json;
  /** A value is too long to be shown: it is a text with its beginning, or null. */
  readonly truncated?: true;
};

/** An approver changed these params before it ran; `params` of the effect has what ran. */
export type Changed = {
  readonly approvalId: string;
  readonly params: readonly string[];
};

/** The signed receipt: its payload, and the signature. */
export type Receipt = {
  readonly v: 1;
  readonly id: string;
  readonly iss: string;
  /** RFC 3339 time. */
  readonly iat: string;
  readonly ws: string;
  /** Tool, its pin, and commitments to target, params and key. */
  readonly action: JsonObject;
  /** Agent, key and user. */
  readonly actor: JsonObject;
  readonly approval: readonly JsonObject[];
  readonly budget: readonly {
    readonly id: string;
    readonly posted: number;
    readonly unit: string;
  }[];
  readonly claims: readonly string[];
  readonly durability: string;
  /** Id, attempt, decision, and who settled it. */
  readonly effect: JsonObject;
  readonly ledger: {
    readonly epoch: number;
    readonly seq: number;
  };
  readonly log: null;
  /** Version, and the rules that matched. */
  readonly policy: JsonObject;
  readonly reservations: readonly {
    readonly pool: string;
    readonly units: number;
  }[];
  readonly svc: {
    readonly node: string;
    readonly version: string;
  };
  /** Name, times, status, and commitments to request and answer. */
  readonly upstream: JsonObject;
  /** Compact JWS (RFC 7515): what is signed. */
  readonly jws: string;
  readonly [more: string]: Json;
};

export type PendingApproval = {
  readonly id: string;
  readonly status: 'pending' | 'granted' | 'rejected' | 'expired' | 'used';
  /** RFC 3339 time. */
  readonly expiresAt: string;
  readonly quorum: number;
  readonly approvals: number;
  /** The page on which people decide. By itself it shows nothing. */
  readonly url: string;
};

export type PendingEffect = {
  readonly state: 'pending_approval';
  readonly changed?: Changed;
  /** Limits that approvers let it go beyond, and by how much. */
  readonly beyond?: readonly {
    readonly limit: string;
    readonly by: number;
  }[];
  readonly allowance?: Allowed;
  readonly id: string;
  readonly effectId: string;
  readonly workspace: string;
  readonly decision: Decision;
  readonly actionType: string;
  readonly tool: string;
  readonly target: string;
  readonly upstream: string;
  readonly agentId: string;
  readonly keyId: string;
  readonly via: 'effects_api' | 'proxy' | 'mcp';
  readonly idempotencyKey: string;
  readonly fingerprint: string;
  readonly attempt: number;
  readonly reason: Reason;
  /** Whether the action happened. */
  readonly didItHappen: 'yes' | 'no' | 'maybe';
  readonly safeToRetry: boolean;
  /** What the caller should do now. */
  readonly next: 'proceed' | 'replan' | 'block' | 'wait' | 'resolve' | 'retry';
  /** RFC 3339 time. */
  readonly createdAt: string;
  readonly firstDispatchAt: string | null;
  readonly settledAt: string | null;
  readonly receiptId: string | null;
  readonly policy: {
    readonly version: string;
    /** The rules that matched, `set/rule`. */
    readonly matched: readonly string[];
    readonly entities?: readonly {
      readonly type: string;
      readonly id: string;
      /** 0: there was none; -1: not known. */
      readonly version: number;
      readonly digest: string;
    }[];
  };
  readonly observed?: Observed;
  readonly holds: readonly {
    /** `set/budget`. */
    readonly budget: string;
    /** What the figures count: `EUR-cent`, `tokens`. */
    readonly unit: string;
    readonly window: string;
    readonly amount: number;
  }[];
  readonly holdState: 'none' | 'held' | 'posted' | 'voided';
  /** As the call gave it. */
  readonly metadata?: JsonObject;
  /** Those that policy redacts are masked. */
  readonly params?: JsonObject;
  /** What the agent asked, where an approver changed it. */
  readonly askedParams?: JsonObject;
  /** Headers that are part of the action. */
  readonly headers?: Readonly<Record<string, Json>>;
  /** Some are cut. */
  readonly paramsTruncated?: true;
  /** Why there are none. */
  readonly paramsOmitted?: string;
  /** `effect`, `run`, `receipt`, `resolve`. */
  readonly links: Readonly<Record<string, string>>;
  readonly approvalId: string;
  readonly approval?: PendingApproval;
};

export type ExecutingEffect = {
  readonly state: 'executing';
  readonly changed?: Changed;
  /** Limits that approvers let it go beyond, and by how much. */
  readonly beyond?: readonly {
    readonly limit: string;
    readonly by: number;
  }[];
  readonly allowance?: Allowed;
  readonly id: string;
  readonly effectId: string;
  readonly workspace: string;
  readonly decision: Decision;
  readonly actionType: string;
  readonly tool: string;
  readonly target: string;
  readonly upstream: string;
  readonly agentId: string;
  readonly keyId: string;
  readonly via: 'effects_api' | 'proxy' | 'mcp';
  readonly idempotencyKey: string;
  readonly fingerprint: string;
  readonly attempt: number;
  readonly reason: Reason;
  /** Whether the action happened. */
  readonly didItHappen: 'yes' | 'no' | 'maybe';
  readonly safeToRetry: boolean;
  /** What the caller should do now. */
  readonly next: 'proceed' | 'replan' | 'block' | 'wait' | 'resolve' | 'retry';
  /** RFC 3339 time. */
  readonly createdAt: string;
  readonly firstDispatchAt: string | null;
  readonly settledAt: string | null;
  readonly receiptId: string | null;
  readonly policy: {
    readonly version: string;
    /** The rules that matched, `set/rule`. */
    readonly matched: readonly string[];
    readonly entities?: readonly {
      readonly type: string;
      readonly id: string;
      /** 0: there was none; -1: not known. */
      readonly version: number;
      readonly digest: string;
    }[];
  };
  readonly observed?: Observed;
  readonly holds: readonly {
    /** `set/budget`. */
    readonly budget: string;
    /** What the figures count: `EUR-cent`, `tokens`. */
    readonly unit: string;
    readonly window: string;
    readonly amount: number;
  }[];
  readonly holdState: 'none' | 'held' | 'posted' | 'voided';
  /** As the call gave it. */
  readonly metadata?: JsonObject;
  /** Those that policy redacts are masked. */
  readonly params?: JsonObject;
  /** What the agent asked, where an approver changed it. */
  readonly askedParams?: JsonObject;
  /** Headers that are part of the action. */
  readonly headers?: Readonly<Record<string, Json>>;
  /** Some are cut. */
  readonly paramsTruncated?: true;
  /** Why there are none. */
  readonly paramsOmitted?: string;
  /** `effect`, `run`, `receipt`, `resolve`. */
  readonly links: Readonly<Record<string, string>>;
  /** RFC 3339 time. */
  readonly leaseEnd: string;
};

export type CommittedEffect = {
  readonly state: 'committed';
  readonly changed?: Changed;
  /** Limits that approvers let it go beyond, and by how much. */
  readonly beyond?: readonly {
    readonly limit: string;
    readonly by: number;
  }[];
  readonly allowance?: Allowed;
  readonly id: string;
  readonly effectId: string;
  readonly workspace: string;
  readonly decision: Decision;
  readonly actionType: string;
  readonly tool: string;
  readonly target: string;
  readonly upstream: string;
  readonly agentId: string;
  readonly keyId: string;
  readonly via: 'effects_api' | 'proxy' | 'mcp';
  readonly idempotencyKey: string;
  readonly fingerprint: string;
  readonly attempt: number;
  readonly reason: Reason;
  /** Whether the action happened. */
  readonly didItHappen: 'yes' | 'no' | 'maybe';
  readonly safeToRetry: boolean;
  /** What the caller should do now. */
  readonly next: 'proceed' | 'replan' | 'block' | 'wait' | 'resolve' | 'retry';
  /** RFC 3339 time. */
  readonly createdAt: string;
  readonly firstDispatchAt: string | null;
  readonly settledAt: string | null;
  readonly receiptId: string | null;
  readonly policy: {
    readonly version: string;
    /** The rules that matched, `set/rule`. */
    readonly matched: readonly string[];
    readonly entities?: readonly {
      readonly type: string;
      readonly id: string;
      /** 0: there was none; -1: not known. */
      readonly version: number;
      readonly digest: string;
    }[];
  };
  readonly observed?: Observed;
  readonly holds: readonly {
    /** `set/budget`. */
    readonly budget: string;
    /** What the figures count: `EUR-cent`, `tokens`. */
    readonly unit: string;
    readonly window: string;
    readonly amount: number;
  }[];
  readonly holdState: 'none' | 'held' | 'posted' | 'voided';
  /** As the call gave it. */
  readonly metadata?: JsonObject;
  /** Those that policy redacts are masked. */
  readonly params?: JsonObject;
  /** What the agent asked, where an approver changed it. */
  readonly askedParams?: JsonObject;
  /** Headers that are part of the action. */
  readonly headers?: Readonly<Record<string, Json>>;
  /** Some are cut. */
  readonly paramsTruncated?: true;
  /** Why there are none. */
  readonly paramsOmitted?: string;
  /** `effect`, `run`, `receipt`, `resolve`. */
  readonly links: Readonly<Record<string, string>>;
  readonly receipt: Receipt;
  /** The upstream has accepted it, and finishes it later. */
  readonly accepted?: true;
  readonly settledBy:
    | {
        readonly by: 'owner' | 'late_answer';
      }
    | {
        readonly by: 'probe';
        /** What the probe found. */
        readonly evidence: JsonObject;
      }
    | {
        readonly by: 'resolve';
        readonly keyId: string;
        readonly user: string | null;
        readonly forced: boolean;
        readonly comment: string | null;
        /** What the outcome rests on. */
        readonly evidence: Json;
      };
  /** What was observed of the upstream. */
  readonly evidence: {
    /** `http_status`, `timeout`, `reset`, `lease_over`, … */
    readonly code: string;
    readonly message: string;
    /** What the upstream answered; `null` where no answer was read. */
    readonly status: number | null;
    readonly startedAt: string | null;
    readonly endedAt: string | null;
  };
  /** What the upstream answered: JSON, a text, or what `result_encoding` says. */
  readonly result?: Json;
  readonly upstreamStatus?: number;
  /** Absent: the result is JSON or a text. `digest`: the answer was passed on, and only this is kept. */
  readonly resultEncoding?: 'base64' | 'digest';
  /** Too large for a list, or not readable any more. */
  readonly resultOmitted?: true;
  /** The answer was cut, or broke off. */
  readonly responseTruncated?: true;
};

export type FailedEffect = {
  readonly state: 'failed';
  readonly changed?: Changed;
  /** Limits that approvers let it go beyond, and by how much. */
  readonly beyond?: readonly {
    readonly limit: string;
    readonly by: number;
  }[];
  readonly allowance?: Allowed;
  readonly id: string;
  readonly effectId: string;
  readonly workspace: string;
  readonly decision: Decision;
  readonly actionType: string;
  readonly tool: string;
  readonly target: string;
  readonly upstream: string;
  readonly agentId: string;
  readonly keyId: string;
  readonly via: 'effects_api' | 'proxy' | 'mcp';
  readonly idempotencyKey: string;
  readonly fingerprint: string;
  readonly attempt: number;
  readonly reason: Reason;
  /** Whether the action happened. */
  readonly didItHappen: 'yes' | 'no' | 'maybe';
  readonly safeToRetry: boolean;
  /** What the caller should do now. */
  readonly next: 'proceed' | 'replan' | 'block' | 'wait' | 'resolve' | 'retry';
  /** RFC 3339 time. */
  readonly createdAt: string;
  readonly firstDispatchAt: string | null;
  readonly settledAt: string | null;
  readonly receiptId: string | null;
  readonly policy: {
    readonly version: string;
    /** The rules that matched, `set/rule`. */
    readonly matched: readonly string[];
    readonly entities?: readonly {
      readonly type: string;
      readonly id: string;
      /** 0: there was none; -1: not known. */
      readonly version: number;
      readonly digest: string;
    }[];
  };
  readonly observed?: Observed;
  readonly holds: readonly {
    /** `set/budget`. */
    readonly budget: string;
    /** What the figures count: `EUR-cent`, `tokens`. */
    readonly unit: string;
    readonly window: string;
    readonly amount: number;
  }[];
  readonly holdState: 'none' | 'held' | 'posted' | 'voided';
  /** As the call gave it. */
  readonly metadata?: JsonObject;
  /** Those that policy redacts are masked. */
  readonly params?: JsonObject;
  /** What the agent asked, where an approver changed it. */
  readonly askedParams?: JsonObject;
  /** Headers that are part of the action. */
  readonly headers?: Readonly<Record<string, Json>>;
  /** Some are cut. */
  readonly paramsTruncated?: true;
  /** Why there are none. */
  readonly paramsOmitted?: string;
  /** `effect`, `run`, `receipt`, `resolve`. */
  readonly links: Readonly<Record<string, string>>;
  readonly settledBy:
    | {
        readonly by: 'owner' | 'late_answer';
      }
    | {
        readonly by: 'probe';
        /** What the probe found. */
        readonly evidence: JsonObject;
      }
    | {
        readonly by: 'resolve';
        readonly keyId: string;
        readonly user: string | null;
        readonly forced: boolean;
        readonly comment: string | null;
        /** What the outcome rests on. */
        readonly evidence: Json;
      };
  /** What was observed of the upstream. */
  readonly evidence: {
    /** `http_status`, `timeout`, `reset`, `lease_over`, … */
    readonly code: string;
    readonly message: string;
    /** What the upstream answered; `null` where no answer was read. */
    readonly status: number | null;
    readonly startedAt: string | null;
    readonly endedAt: string | null;
  };
  /** What the upstream answered: JSON, a text, or what `result_encoding` says. */
  readonly result?: Json;
  readonly upstreamStatus?: number;
  /** Absent: the result is JSON or a text. `digest`: the answer was passed on, and only this is kept. */
  readonly resultEncoding?: 'base64' | 'digest';
  /** Too large for a list, or not readable any more. */
  readonly resultOmitted?: true;
  /** The answer was cut, or broke off. */
  readonly responseTruncated?: true;
};

export type UnknownOutcome = {
  readonly state: 'unknown';
  readonly changed?: Changed;
  /** Limits that approvers let it go beyond, and by how much. */
  readonly beyond?: readonly {
    readonly limit: string;
    readonly by: number;
  }[];
  readonly allowance?: Allowed;
  readonly id: string;
  readonly effectId: string;
  readonly workspace: string;
  readonly decision: Decision;
  readonly actionType: string;
  readonly tool: string;
  readonly target: string;
  readonly upstream: string;
  readonly agentId: string;
  readonly keyId: string;
  readonly via: 'effects_api' | 'proxy' | 'mcp';
  readonly idempotencyKey: string;
  readonly fingerprint: string;
  readonly attempt: number;
  readonly reason: Reason;
  /** Whether the action happened. */
  readonly didItHappen: 'yes' | 'no' | 'maybe';
  readonly safeToRetry: boolean;
  /** What the caller should do now. */
  readonly next: 'proceed' | 'replan' | 'block' | 'wait' | 'resolve' | 'retry';
  /** RFC 3339 time. */
  readonly createdAt: string;
  readonly firstDispatchAt: string | null;
  readonly settledAt: string | null;
  readonly receiptId: string | null;
  readonly policy: {
    readonly version: string;
    /** The rules that matched, `set/rule`. */
    readonly matched: readonly string[];
    readonly entities?: readonly {
      readonly type: string;
      readonly id: string;
      /** 0: there was none; -1: not known. */
      readonly version: number;
      readonly digest: string;
    }[];
  };
  readonly observed?: Observed;
  readonly holds: readonly {
    /** `set/budget`. */
    readonly budget: string;
    /** What the figures count: `EUR-cent`, `tokens`. */
    readonly unit: string;
    readonly window: string;
    readonly amount: number;
  }[];
  readonly holdState: 'none' | 'held' | 'posted' | 'voided';
  /** As the call gave it. */
  readonly metadata?: JsonObject;
  /** Those that policy redacts are masked. */
  readonly params?: JsonObject;
  /** What the agent asked, where an approver changed it. */
  readonly askedParams?: JsonObject;
  /** Headers that are part of the action. */
  readonly headers?: Readonly<Record<string, Json>>;
  /** Some are cut. */
  readonly paramsTruncated?: true;
  /** Why there are none. */
  readonly paramsOmitted?: string;
  /** `effect`, `run`, `receipt`, `resolve`. */
  readonly links: Readonly<Record<string, string>>;
  /** What was observed of the upstream. */
  readonly evidence: {
    /** `http_status`, `timeout`, `reset`, `lease_over`, … */
    readonly code: string;
    readonly message: string;
    /** What the upstream answered; `null` where no answer was read. */
    readonly status: number | null;
    readonly startedAt: string | null;
    readonly endedAt: string | null;
  };
  /** RFC 3339 time. */
  readonly quiesceUntil: string;
};

export type RejectedEffect = {
  readonly state: 'rejected';
  readonly changed?: Changed;
  /** Limits that approvers let it go beyond, and by how much. */
  readonly beyond?: readonly {
    readonly limit: string;
    readonly by: number;
  }[];
  readonly allowance?: Allowed;
  readonly id: string;
  readonly effectId: string;
  readonly workspace: string;
  readonly decision: Decision;
  readonly actionType: string;
  readonly tool: string;
  readonly target: string;
  readonly upstream: string;
  readonly agentId: string;
  readonly keyId: string;
  readonly via: 'effects_api' | 'proxy' | 'mcp';
  readonly idempotencyKey: string;
  readonly fingerprint: string;
  readonly attempt: number;
  readonly reason: Reason;
  /** Whether the action happened. */
  readonly didItHappen: 'yes' | 'no' | 'maybe';
  readonly safeToRetry: boolean;
  /** What the caller should do now. */
  readonly next: 'proceed' | 'replan' | 'block' | 'wait' | 'resolve' | 'retry';
  /** RFC 3339 time. */
  readonly createdAt: string;
  readonly firstDispatchAt: string | null;
  readonly settledAt: string | null;
  readonly receiptId: string | null;
  readonly policy: {
    readonly version: string;
    /** The rules that matched, `set/rule`. */
    readonly matched: readonly string[];
    readonly entities?: readonly {
      readonly type: string;
      readonly id: string;
      /** 0: there was none; -1: not known. */
      readonly version: number;
      readonly digest: string;
    }[];
  };
  readonly observed?: Observed;
  readonly holds: readonly {
    /** `set/budget`. */
    readonly budget: string;
    /** What the figures count: `EUR-cent`, `tokens`. */
    readonly unit: string;
    readonly window: string;
    readonly amount: number;
  }[];
  readonly holdState: 'none' | 'held' | 'posted' | 'voided';
  /** As the call gave it. */
  readonly metadata?: JsonObject;
  /** Those that policy redacts are masked. */
  readonly params?: JsonObject;
  /** What the agent asked, where an approver changed it. */
  readonly askedParams?: JsonObject;
  /** Headers that are part of the action. */
  readonly headers?: Readonly<Record<string, Json>>;
  /** Some are cut. */
  readonly paramsTruncated?: true;
  /** Why there are none. */
  readonly paramsOmitted?: string;
  /** `effect`, `run`, `receipt`, `resolve`. */
  readonly links: Readonly<Record<string, string>>;
  readonly approvalId: string;
  /** RFC 3339 time. */
  readonly refusedUntil: string;
};

export type DeniedEffect = {
  readonly state: 'denied';
  readonly changed?: Changed;
  /** Limits that approvers let it go beyond, and by how much. */
  readonly beyond?: readonly {
    readonly limit: string;
    readonly by: number;
  }[];
  readonly allowance?: Allowed;
  readonly id: string;
  readonly effectId: string;
  readonly workspace: string;
  readonly decision: Decision;
  readonly actionType: string;
  readonly tool: string;
  readonly target: string;
  readonly upstream: string;
  readonly agentId: string;
  readonly keyId: string;
  readonly via: 'effects_api' | 'proxy' | 'mcp';
  readonly idempotencyKey: string;
  readonly fingerprint: string;
  readonly attempt: number;
  readonly reason: Reason;
  /** Whether the action happened. */
  readonly didItHappen: 'yes' | 'no' | 'maybe';
  readonly safeToRetry: boolean;
  /** What the caller should do now. */
  readonly next: 'proceed' | 'replan' | 'block' | 'wait' | 'resolve' | 'retry';
  /** RFC 3339 time. */
  readonly createdAt: string;
  readonly firstDispatchAt: string | null;
  readonly settledAt: string | null;
  readonly receiptId: string | null;
  readonly policy: {
    readonly version: string;
    /** The rules that matched, `set/rule`. */
    readonly matched: readonly string[];
    readonly entities?: readonly {
      readonly type: string;
      readonly id: string;
      /** 0: there was none; -1: not known. */
      readonly version: number;
      readonly digest: string;
    }[];
  };
  readonly observed?: Observed;
  readonly holds: readonly {
    /** `set/budget`. */
    readonly budget: string;
    /** What the figures count: `EUR-cent`, `tokens`. */
    readonly unit: string;
    readonly window: string;
    readonly amount: number;
  }[];
  readonly holdState: 'none' | 'held' | 'posted' | 'voided';
  /** As the call gave it. */
  readonly metadata?: JsonObject;
  /** Those that policy redacts are masked. */
  readonly params?: JsonObject;
  /** What the agent asked, where an approver changed it. */
  readonly askedParams?: JsonObject;
  /** Headers that are part of the action. */
  readonly headers?: Readonly<Record<string, Json>>;
  /** Some are cut. */
  readonly paramsTruncated?: true;
  /** Why there are none. */
  readonly paramsOmitted?: string;
  /** `effect`, `run`, `receipt`, `resolve`. */
  readonly links: Readonly<Record<string, string>>;
  readonly mismatches?: readonly Mismatch[];
};

/** Nobody was asked: this user had allowed calls alike. `use`: how many-th of them it is. */
export type Allowed = {
  readonly id: string;
  readonly approvalId: string;
  readonly givenBy: string;
  readonly use: number;
};
