import { type Amounts, amountToPost } from '../effects/model/amounts.ts';
import type { ApprovalRecord } from '../effects/model/approval.ts';
import { type KeptResult, statusShown } from '../effects/model/answer.ts';
import type { Hold, SettledBy } from '../effects/model/effect.ts';
import { canonicalJson } from '../json/canonical.ts';
import { isoTime } from '../effects/model/iso-time.ts';
import { quote, quoteOr } from '../json/quote.ts';
import type { Json } from '../json/value.ts';
import type { ReceiptFacts, SaltedField } from '../effects/ports.ts';
import type { VerdictTrace } from '../effects/model/verdict.ts';
import { askedSalt, commentSalt, commit, commitField, requestText } from './commitments.ts';

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

/** The commitment to the value of a field, of which this is the canonical form; as JSON. */
type Committed = (field: SaltedField, text: string) => string;

/**
 * The payload of a receipt, as the text to sign: its JSON in canonical form (RFC 8785). Everything that could be
 * private is a salted commitment. `log` is reserved for the head of a transparency log.
 */
export function receiptPayload(input: ReceiptFacts, issuer: Issuer): string {
  const { effect, approval, evidence, result, sealed } = input;
  const { action, actor, trace } = effect;
  const committed: Committed = (field, text) =>
    sealed === null ? 'null' : `"${commitField(sealed.salts, field, text)}"`;
  const target = committed('target', canonicalJson(action.target));
  const paramsText = sealed === null ? '' : (input.paramsText ?? canonicalJson(sealed.params));
  const params = committed('params', paramsText);
  const idem = committed('idem', canonicalJson(effect.idempotencyKey));
  const request =
    sealed === null ? 'null' : committed('request', requestText(effect, sealed, paramsText, evidence.sent));
  const answer = result === null ? null : responseText(result);
  const response = answer === null ? 'null' : committed('response', answer);
  // Here and in the functions below, members are written in the order of RFC 8785. The text is then already canonical,
  // in a fraction of the time that sorting takes. A test compares it with the sorted form.
  const asked = sealed?.asked === undefined ? '' : `"asked":"${commit(askedSalt(sealed.salts), sealed.asked)}",`;
  const did = `"action":{${asked}"idem":${idem},"params":${params},"target":${target},"tool":${quote(action.tool)},"tool_pin":${quote(action.toolDigest)},"type":${quote(action.type)}}`;
  const who = `"actor":{"agent_id":${quote(actor.agentId)},"key_id":${quote(actor.keyId)},"key_kind":"${actor.keyKind}","user":${quoteOr(actor.user)},"via":"${actor.via}"}`;
  const approved = approval === null ? '[]' : approvalText(approval, params, sealed?.salts ?? null);
  // With the salt of the target: a reader can see that a claim is on the target itself, and learns no other target.
  const claims =
    effect.claims.length === 0
      ? '[]'
      : listText(
          effect.claims.map((claim) => (claim === action.target ? target : committed('target', canonicalJson(claim)))),
        );
  const run = `"effect":{"attempt":${effect.attempt},"decision":"committed","id":${quote(effect.id)},"settled_by":${settledByText(input.settledBy, committed)}}`;
  const issued = `"iat":${timeText(input.issuedAt)},"id":${quote(input.id)},"iss":${quote(issuer.iss)},"ledger":{"epoch":${input.ledger.epoch},"seq":${input.ledger.seq}},"log":null`;
  const uses =
    effect.uses.length === 0
      ? '[]'
      : listText(effect.uses.map(({ pool, units }) => `{"pool":${quote(pool)},"units":${units}}`));
  const upstream = `"upstream":{"ended":${timeText(evidence.endedAt)},"name":${quote(action.upstream)},"request":${request},"response":${response},"started":${timeText(evidence.startedAt)},"status":${statusShown(evidence.answered)}}`;
  return `{${did},${who},"approval":${approved},"budget":${budgetText(effect.holds, input.amounts)},"claims":${claims},"durability":${quote(issuer.durability())},${run},${issued},"policy":${policyText(trace)},"reservations":${uses},${issuedBy(issuer)},${upstream},"v":1,"ws":${quote(effect.workspace)}}`;
}

const issuedByTexts = new WeakMap<Issuer, string>();

/** The software that issues: the same in every receipt of an issuer. */
function issuedBy(issuer: Issuer): string {
  let text = issuedByTexts.get(issuer);
  if (text === undefined) {
    text = `"svc":{"node":${quote(issuer.node)},"version":${quote(issuer.version)}}`;
    issuedByTexts.set(issuer, text);
  }
  return text;
}

function listText(items: readonly string[]): string {
  return items.length === 0 ? '[]' : `[${items.join(',')}]`;
}

function budgetText(holds: readonly Hold[], amounts: Amounts | undefined): string {
  let text = '';
  for (const hold of holds) {
    if (text !== '') text += ',';
    text += `{"id":${quote(hold.budget)},"posted":${amountToPost(hold, amounts)},"unit":${quote(hold.unit)}}`;
  }
  return `[${text}]`;
}

function policyText({ matched, observed, policyVersion }: VerdictTrace): string {
  let rules = '';
  const unknown: { readonly paths: readonly string[]; readonly rule: string }[] = [];
  for (const { rule, effect: ruled, unknown: paths } of matched) {
    if (rules !== '') rules += ',';
    rules += `{"effect":"${ruled}","rule":${quote(rule)}}`;
    if (paths.length > 0) unknown.push({ paths, rule });
  }
  const outcome = observed === null ? 'permit' : 'observe';
  const would = observed === null ? '' : `,"would":${quote(observed.would)},"would_rule":${quoteOr(observed.rule)}`;
  return `{"matched":[${rules}],"outcome":"${outcome}","unknown":${unknown.length === 0 ? '[]' : JSON.stringify(unknown)},"version":${quote(policyVersion)}${would}}`;
}

/**
 * The canonical form of `responseContent`, which shows an answer to callers. An answer without a canonical form (half a
 * surrogate pair) is left out: the action happened, so its receipt must not fail because of the characters of the
 * answer.
 */
function responseText(response: KeptResult): string | null {
  const status = statusShown(response);
  try {
    return `{"result":${canonicalJson(response.body.value)}${status === null ? '' : `,"upstream_status":${status}`}}`;
  } catch {
    return null;
  }
}

function settledByText(settledBy: SettledBy, committed: Committed): string {
  switch (settledBy.by) {
    case 'owner':
    case 'late_answer':
      return `{"by":"${settledBy.by}"}`;
    case 'probe':
      return `{"by":"probe","evidence":${committedOr(committed, 'evidence', settledBy.evidence)}}`;
    case 'resolve': {
      const { comment, evidence, forced, keyId, user } = settledBy;
      return `{"by":"resolve","comment":${committedOr(committed, 'comment', comment)},"evidence":${committedOr(committed, 'evidence', evidence)},"forced":${forced},"key_id":${quote(keyId)},"user":${quoteOr(user)}}`;
    }
  }
}

function committedOr(committed: Committed, field: SaltedField, value: Json): string {
  return value === null ? 'null' : committed(field, canonicalJson(value));
}

/** One item per approving vote. `params` commits to the approved params, which are those of the action. */
function approvalText({ id, votes }: ApprovalRecord, params: string, salts: Buffer | null): string {
  const items = votes
    .filter(({ verdict }) => verdict === 'approve')
    .map(({ at, user, comment }, index) => {
      const commitment = salts === null || comment === null ? null : commit(commentSalt(salts, index), comment);
      const words = comment === null ? '' : `,"comment":${quoteOr(commitment)}`;
      return `{"at":${timeText(at)},"by":${quote(user)}${words},"id":${quote(id)},"params":${params}}`;
    });
  return listText(items);
}

function timeText(at: number | null): string {
  return at === null ? 'null' : `"${isoTime(at)}"`;
}
