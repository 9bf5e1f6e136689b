import type { ApprovalRecord } from '../effects/approval.ts';
import type { EffectRecord, KeptResult, SettledBy } from '../effects/effect.ts';
import type { Json, JsonObject } from '../effects/json.ts';
import { commit } from './commitment.ts';

/** The salts of an effect, base64url, one per committed field (`secrets/vault.ts` makes and keeps them). */
export type ReceiptSalts = Readonly<
  Record<'target' | 'params' | 'idem' | 'request' | 'response' | 'comment' | 'evidence', string>
>;

/** What a receipt is made of. Nothing here is assigned by settle. Times are ms since the epoch, the store's. */
export interface ReceiptInput {
  /** `rcp_…` */
  readonly id: string;
  /** Admission's store time plus the time elapsed since. */
  readonly issuedAt: number;
  /** The effect as admitted, with the attempt that happened. */
  readonly effect: EffectRecord;
  readonly settledBy: SettledBy;
  /** What was under seal; `null` once erased: the receipt then commits to nothing that it does not have. */
  readonly sealed: { readonly params: JsonObject; readonly salts: ReceiptSalts } | null;
  /** The approval that this attempt used up. */
  readonly approval: ApprovalRecord | null;
  /** What the budgets are charged. */
  readonly posted: readonly { readonly budget: string; readonly unit: string; readonly amount: number }[];
  readonly upstream: {
    /** HTTP status of the answer; `null` where none is known. */
    readonly status: number | null;
    /** What was sent, as JSON; `null` where the params are all of it. */
    readonly request: Json;
    /** What came back, as it is kept. */
    readonly response: KeptResult | null;
    readonly startedAt: number | null;
    readonly endedAt: number | null;
  };
  /** Place of `effect.admitted` in the ledger. */
  readonly ledger: { readonly epoch: number; readonly seq: number };
  /** In force when the effect was admitted: `fsync` on the embedded store. */
  readonly durability: string;
}

/** Who issues: the same in every receipt of a gateway. */
export interface Issuer {
  readonly iss: string;
  /** Version of the gateway. */
  readonly version: string;
  /** Version of Node it runs on. */
  readonly node: string;
}

/**
 * The payload of a receipt, in its wire form. What could be private is a salted commitment. `log` is where the
 * transparency log's head stands once there is one.
 */
export function receiptPayload(input: ReceiptInput, issuer: Issuer): JsonObject {
  const { effect, approval, upstream, sealed } = input;
  const { action, actor, trace } = effect;
  const salts = sealed?.salts ?? null;
  const committed = (field: keyof ReceiptSalts, value: Json): string | null =>
    salts === null || value === null ? null : commit(salts[field], value);
  const target = committed('target', action.target);
  const params = sealed === null ? null : committed('params', sealed.params);
  return {
    v: 1,
    id: input.id,
    iss: issuer.iss,
    ws: effect.workspace,
    iat: time(input.issuedAt),
    effect: {
      id: effect.id,
      decision: 'committed',
      attempt: effect.attempt,
      settled_by: settledByToWire(input.settledBy, committed),
    },
    action: {
      type: action.type,
      tool: action.tool,
      target,
      tool_pin: action.toolDigest,
      params,
      idem: committed('idem', effect.idempotencyKey),
    },
    actor: {
      agent_id: actor.agentId,
      key_id: actor.keyId,
      key_kind: actor.keyKind,
      user: actor.user,
      via: actor.via,
    },
    policy: {
      version: trace.policyVersion,
      matched: trace.matched.map(({ rule, effect: ruled }) => ({ rule, effect: ruled })),
      outcome: trace.observed === null ? 'permit' : 'observe',
      unknown: trace.matched.filter((rule) => rule.unknown.length > 0).map(({ rule, unknown }) => ({ rule, unknown })),
      ...(trace.observed === null ? {} : { would: trace.observed.would, would_rule: trace.observed.rule }),
    },
    approval: approval === null ? [] : approvalToWire(approval, params, committed),
    budget: input.posted.map(({ budget, unit, amount }) => ({ id: budget, unit, posted: amount })),
    // Under the salt of the target: a claim on the target itself is seen to be one, and no other target is shown.
    claims: effect.claims.map((claim) => committed('target', claim)),
    reservations: effect.uses.map(({ pool, units }) => ({ pool, units })),
    upstream: {
      name: action.upstream,
      status: upstream.status,
      request: committed('request', upstream.request),
      response: upstream.response === null ? null : committed('response', responseContent(upstream.response)),
      started: time(upstream.startedAt),
      ended: time(upstream.endedAt),
    },
    ledger: { epoch: input.ledger.epoch, seq: input.ledger.seq },
    log: null,
    durability: input.durability,
    svc: { version: issuer.version, node: issuer.node },
  };
}

/** What the commitment to an answer covers: the members `upstream_status` and `result` that answers show. */
function responseContent(response: KeptResult): JsonObject {
  return { upstream_status: response.status, result: response.body.value };
}

type Committed = (field: keyof ReceiptSalts, value: Json) => string | null;

function settledByToWire(settledBy: SettledBy, committed: Committed): JsonObject {
  switch (settledBy.by) {
    case 'owner':
    case 'late_answer':
      return { by: settledBy.by };
    case 'probe':
      return { by: 'probe', evidence: committed('evidence', settledBy.evidence) };
    case 'resolve':
      return {
        by: 'resolve',
        key_id: settledBy.keyId,
        user: settledBy.user,
        forced: settledBy.forced,
        comment: committed('comment', settledBy.comment),
        evidence: committed('evidence', settledBy.evidence),
      };
  }
}

/** One item per approving vote; `params` is the commitment of what was approved, the same as the action's. */
function approvalToWire(approval: ApprovalRecord, params: string | null, committed: Committed): Json[] {
  return approval.votes
    .filter((vote) => vote.verdict === 'approve')
    .map((vote) => ({
      id: approval.id,
      by: vote.user,
      at: time(vote.at),
      params,
      ...(vote.comment === null ? {} : { comment: committed('comment', vote.comment) }),
    }));
}

function time(at: number): string;
function time(at: number | null): string | null;
function time(at: number | null): string | null {
  return at === null ? null : new Date(at).toISOString();
}
