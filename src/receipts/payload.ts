import { type Amounts, amountToPost } from '../effects/model/amounts.ts';
import type { ApprovalRecord } from '../effects/model/approval.ts';
import { type KeptResult, statusShown } from '../effects/model/answer.ts';
import type { Hold, SettledBy } from '../effects/model/effect.ts';
import { canonicalJson } from '../json/canonical.ts';
import { isoTime } from '../effects/model/iso-time.ts';
import { quote, quoteOr } from '../json/quote.ts';
import type { Json } from '../json/value.ts';
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
  /** What the store guarantees once a write is confirmed: `fsync` on the embedded store. */
  readonly durability: () => string;
}

/**
 * The payload of a receipt, as the text to sign: its JSON in canonical form (RFC 8785). Everything that could be
 * private is a salted commitment. `log` is reserved for the head of a transparency log.
 */
export function receiptPayload(input: ReceiptFacts, issuer: Issuer): string {
  const { effect, approval, evidence, result, sealed } = input;
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
  const idem = committed('idem', effect.idempotencyKey);
  const request =
    sealed === null || paramsText === null
      ? null
      : committedText('request', requestText(effect, sealed, paramsText, evidence.sent));
  const answer = result === null ? null : responseCommitment(result, committed);
  // Here and in the functions below, members are written in the order of RFC 8785. The text is then already canonical,
  // in a fraction of the time that sorting takes. A test compares it with the sorted form.
  const did = `"action":{"idem":${quoteOr(idem)},"params":${quoteOr(params)},"target":${quoteOr(target)},"tool":${quote(action.tool)},"tool_pin":${quote(action.toolDigest)},"type":${quote(action.type)}}`;
  const who = `"actor":{"agent_id":${quote(actor.agentId)},"key_id":${quote(actor.keyId)},"key_kind":"${actor.keyKind}","user":${quoteOr(actor.user)},"via":"${actor.via}"}`;
  const approved = approval === null ? '[]' : JSON.stringify(approvalToWire(approval, params, committed));
  // With the salt of the target: a reader can see that a claim is on the target itself, and learns no other target.
  const claims = effect.claims.map((claim) => (claim === action.target ? target : committed('target', claim)));
  const run = `"effect":{"attempt":${effect.attempt},"decision":"committed","id":${quote(effect.id)},"settled_by":${settledByText(input.settledBy, committed)}}`;
  const issued = `"iat":${timeText(input.issuedAt)},"id":${quote(input.id)},"iss":${quote(issuer.iss)},"ledger":{"epoch":${input.ledger.epoch},"seq":${input.ledger.seq}},"log":null`;
  const uses = effect.uses.map(({ pool, units }) => `{"pool":${quote(pool)},"units":${units}}`);
  const svc = `"svc":{"node":${quote(issuer.node)},"version":${quote(issuer.version)}}`;
  const upstream = `"upstream":{"ended":${timeText(evidence.endedAt)},"name":${quote(action.upstream)},"request":${quoteOr(request)},"response":${quoteOr(answer)},"started":${timeText(evidence.startedAt)},"status":${statusShown(evidence.answered)}}`;
  return `{${did},${who},"approval":${approved},"budget":${budgetText(effect.holds, input.amounts)},"claims":${listText(claims.map(quoteOr))},"durability":${quote(issuer.durability())},${run},${issued},"policy":${policyText(trace)},"reservations":${listText(uses)},${svc},${upstream},"v":1,"ws":${quote(effect.workspace)}}`;
}

function listText(items: readonly string[]): string {
  return items.length === 0 ? '[]' : `[${items.join(',')}]`;
}

function budgetText(holds: readonly Hold[], amounts: Amounts | undefined): string {
  return listText(
    holds.map(
      (hold) => `{"id":${quote(hold.budget)},"posted":${amountToPost(hold, amounts)},"unit":${quote(hold.unit)}}`,
    ),
  );
}

function policyText({ matched, observed, policyVersion }: VerdictTrace): string {
  const rules = listText(matched.map(({ rule, effect: ruled }) => `{"effect":${quote(ruled)},"rule":${quote(rule)}}`));
  const unknown = matched
    .filter((rule) => rule.unknown.length > 0)
    .map(({ rule, unknown: paths }) => ({ paths, rule }));
  const outcome = observed === null ? 'permit' : 'observe';
  const would = observed === null ? '' : `,"would":${quote(observed.would)},"would_rule":${quoteOr(observed.rule)}`;
  return `{"matched":${rules},"outcome":"${outcome}","unknown":${unknown.length === 0 ? '[]' : JSON.stringify(unknown)},"version":${quote(policyVersion)}${would}}`;
}

/**
 * Covers the members `upstream_status` and `result` that answers show. An answer without a canonical form (half a
 * surrogate pair) is left out: the action happened, so its receipt must not fail because of the characters of the
 * answer.
 */
function responseCommitment(response: KeptResult, committed: Committed): string | null {
  try {
    return committed('response', responseContent(response));
  } catch {
    return null;
  }
}

type Committed = (field: SaltedField, value: Json) => string | null;

function settledByText(settledBy: SettledBy, committed: Committed): string {
  switch (settledBy.by) {
    case 'owner':
    case 'late_answer':
      return `{"by":"${settledBy.by}"}`;
    case 'probe':
      return JSON.stringify({ by: 'probe', evidence: committed('evidence', settledBy.evidence) });
    case 'resolve':
      return JSON.stringify({
        by: 'resolve',
        comment: committed('comment', settledBy.comment),
        evidence: committed('evidence', settledBy.evidence),
        forced: settledBy.forced,
        key_id: settledBy.keyId,
        user: settledBy.user,
      });
  }
}

/** One item per approving vote. `params` commits to the approved params, which are those of the action. */
function approvalToWire(approval: ApprovalRecord, params: string | null, committed: Committed): Json[] {
  return approval.votes
    .filter((vote) => vote.verdict === 'approve')
    .map((vote) => ({
      at: isoTime(vote.at),
      by: vote.user,
      ...(vote.comment === null ? {} : { comment: committed('comment', vote.comment) }),
      id: approval.id,
      params,
    }));
}

function timeText(at: number | null): string {
  return at === null ? 'null' : `"${isoTime(at)}"`;
}
