import type { ApprovalRecord } from '../effects/model/approval.ts';
import type { KeptResult, SettledBy } from '../effects/model/effect.ts';
import { canonicalJson } from '../json/canonical.ts';
import { isoTime } from '../effects/model/iso-time.ts';
import type { Json, JsonObject } from '../json/value.ts';
import type { ReceiptFacts } from '../effects/ports.ts';
import type { VerdictTrace } from '../effects/model/verdict.ts';
import { commit, commitText } from './commitment.ts';
import { requestText, responseContent } from './disclosure.ts';

/** The fields that are salted commitments; `secrets/vault.ts` makes a salt for each. */
type SaltedField = 'target' | 'params' | 'idem' | 'request' | 'response' | 'comment' | 'evidence';

/** The members about the issuer. They are the same in every receipt of a gateway. */
export interface Issuer {
  readonly iss: string;
  /** Version of the gateway. */
  readonly version: string;
  /** Version of Node it runs on. */
  readonly node: string;
  /** What the store guarantees when it says that something is written: `fsync` on the embedded store. */
  readonly durability: () => string;
}

/**
 * The payload of a receipt as the text that is signed: the canonical form (RFC 8785) of its JSON. What could be private
 * is a salted commitment. `log` is reserved for the head of a transparency log.
 */
export function receiptPayload(input: ReceiptFacts, issuer: Issuer): string {
  const { effect, approval, evidence, response, sealed } = input;
  const { action, actor, trace } = effect;
  const committed: Committed = (field, value) => {
    const salt = sealed?.salts[field];
    return salt === undefined || value === null ? null : commit(salt, value);
  };
  const committedText = (field: SaltedField, text: string): string | null => {
    const salt = sealed?.salts[field];
    return salt === undefined ? null : commitText(salt, text);
  };
  const target = committed('target', action.target);
  const paramsText = sealed === null ? null : canonicalJson(sealed.params);
  const params = paramsText === null ? null : committedText('params', paramsText);
  // Members are written in the order of RFC 8785, here and in the functions below. So JSON.stringify gives the
  // canonical form, in a third of the time that sorting takes. A test compares the two.
  const payload: JsonObject = {
    action: {
      idem: committed('idem', effect.idempotencyKey),
      params,
      target,
      tool: action.tool,
      tool_pin: action.toolDigest,
      type: action.type,
    },
    actor: {
      agent_id: actor.agentId,
      key_id: actor.keyId,
      key_kind: actor.keyKind,
      user: actor.user,
      via: actor.via,
    },
    approval: approval === null ? [] : approvalToWire(approval, params, committed),
    budget: effect.holds.map(({ budget, unit, amount }) => ({ id: budget, posted: amount, unit })),
    // Under the salt of the target: a claim on the target itself is seen to be one, and no other target is shown.
    claims: effect.claims.map((claim) => (claim === action.target ? target : committed('target', claim))),
    durability: issuer.durability(),
    effect: {
      attempt: effect.attempt,
      decision: 'committed',
      id: effect.id,
      settled_by: settledByToWire(input.settledBy, committed),
    },
    iat: time(input.issuedAt),
    id: input.id,
    iss: issuer.iss,
    ledger: { epoch: input.ledger.epoch, seq: input.ledger.seq },
    log: null,
    policy: policyToWire(trace),
    reservations: effect.uses.map(({ pool, units }) => ({ pool, units })),
    svc: { node: issuer.node, version: issuer.version },
    upstream: {
      ended: time(evidence.endedAt),
      name: action.upstream,
      request:
        sealed === null || paramsText === null
          ? null
          : committedText('request', requestText(effect, sealed, paramsText, evidence.sent)),
      response: response === null ? null : responseCommitment(response.kept, committed),
      started: time(evidence.startedAt),
      status: evidence.status,
    },
    v: 1,
    ws: effect.workspace,
  };
  return JSON.stringify(payload);
}

function policyToWire({ matched, observed, policyVersion }: VerdictTrace): JsonObject {
  const policy = {
    matched: matched.map(({ rule, effect: ruled }) => ({ effect: ruled, rule })),
    outcome: observed === null ? 'permit' : 'observe',
    unknown: matched.filter((rule) => rule.unknown.length > 0).map(({ rule, unknown }) => ({ paths: unknown, rule })),
    version: policyVersion,
  };
  return observed === null ? policy : { ...policy, would: observed.would, would_rule: observed.rule };
}

/**
 * Covers the members `upstream_status` and `result` that answers show. An answer that has no canonical form (half a
 * surrogate pair) is left out: the action happened, and the receipt must not fail because of how the answer is written.
 */
function responseCommitment(response: KeptResult, committed: Committed): string | null {
  try {
    return committed('response', responseContent(response));
  } catch {
    return null;
  }
}

type Committed = (field: SaltedField, value: Json) => string | null;

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
        comment: committed('comment', settledBy.comment),
        evidence: committed('evidence', settledBy.evidence),
        forced: settledBy.forced,
        key_id: settledBy.keyId,
        user: settledBy.user,
      };
  }
}

/** One item per approving vote; `params` is the commitment of what was approved, the same as the action's. */
function approvalToWire(approval: ApprovalRecord, params: string | null, committed: Committed): Json[] {
  return approval.votes
    .filter((vote) => vote.verdict === 'approve')
    .map((vote) => ({
      at: time(vote.at),
      by: vote.user,
      ...(vote.comment === null ? {} : { comment: committed('comment', vote.comment) }),
      id: approval.id,
      params,
    }));
}

function time(at: number): string;
function time(at: number | null): string | null;
function time(at: number | null): string | null {
  return at === null ? null : isoTime(at);
}
