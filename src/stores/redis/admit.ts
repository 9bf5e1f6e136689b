import { costsOf } from '../../effects/model/approval.ts';
import type { BudgetRow } from '../../effects/model/budget.ts';
import type { Decision, DeniedDecision } from '../../effects/model/decision.ts';
import type { EffectRecord } from '../../effects/model/effect.ts';
import { windowId } from '../../effects/model/verdict.ts';
import type { Admission, AdmitRequest } from '../../effects/store.ts';
import type { Obligation } from '../../effects/model/verdict.ts';
import { fieldsOf } from './connection.ts';
import {
  approvalOf,
  type ApprovalIdentity,
  effectOf,
  holdsOf,
  identityDocument,
  type KnownDocuments,
  observedOf,
  rows,
  runDocument,
  texts,
  tombstoneOf,
  usesOf,
} from './effect-record.ts';
import type { StepReply } from './frame.ts';
import { fromPlainText, plainText } from './names.ts';
import { reasonOf } from './reasons.ts';

/** Arguments of the admission script, after `epoch gateway clock`. `boot`: of this gateway; `quiet`: words that are only counted for now. */
export function admitArguments(
  request: AdmitRequest,
  more: {
    readonly preview: boolean;
    readonly maxFreezeMs: number;
    readonly boot: string;
    readonly quiet: readonly string[];
  },
): readonly string[] {
  const { action, actor, verdict, pausedBy, seen, times } = request;
  const permit = verdict.kind === 'permit' ? verdict : null;
  const deny = verdict.kind === 'deny' ? verdict : null;
  const observed = verdict.trace.observed;
  const matched = verdict.trace.matched.map(({ rule }) => rule);
  const asks = permit?.approvals ?? [];
  const fields: Readonly<Record<string, string>> = {
    preview: flag(more.preview),
    quiet: more.quiet.length === 0 ? '' : `|${more.quiet.join('|')}|`,
    effect: plainText(request.effectId),
    approval: plainText(request.approvalId),
    key: plainText(request.idempotencyKey),
    fp: plainText(request.fingerprint),
    agent: plainText(actor.agentId),
    tool: plainText(action.tool),
    target: plainText(action.target),
    td: plainText(action.toolDigest),
    vk: verdict.kind,
    mode: permit?.mode ?? '',
    vdec: deny?.decision ?? '',
    vcode: deny?.reason.code ?? '',
    vreason: deny === null ? '' : JSON.stringify(deny.reason),
    vrule: plainText(deny?.reason.rule ?? ''),
    ow: observed?.would ?? '',
    orule: plainText(observed?.rule ?? ''),
    policy: plainText(seen.policy),
    pauses: String(seen.pauses),
    paused: plainText(pausedBy?.id ?? ''),
    paused_until: textOf(pausedBy?.until ?? null),
    paused_reason:
      pausedBy === null
        ? ''
        : JSON.stringify({ code: 'paused', message: `Paused: ${pausedBy.reason} (${pausedBy.id}).` }),
    dispatch: String(times.dispatchWindowMs),
    timeout: String(times.timeoutMs),
    processing: String(times.maxProcessingMs),
    freeze: String(more.maxFreezeMs),
    idempotent: textOf(times.idempotentForMs),
    owner: plainText(request.owner),
    boot: more.boot,
    nonce: plainText(request.nonce),
    claim: plainText(request.claimId ?? ''),
    reservation: plainText(request.reservationId ?? ''),
    hasmeta: flag(request.metadata !== null),
    asks: flag(asks.length > 0),
    ask_rule: plainText(asks[0]?.rule ?? ''),
    hold_all: flag(asks.some(({ hold }) => hold === 'all')),
    expires: String(Math.min(...asks.map(({ expiresMs }) => expiresMs), Number.MAX_SAFE_INTEGER)),
    quora: asks.length === 0 ? '' : JSON.stringify(asks.map(({ quorum }) => String(quorum))),
    digest: plainText(request.approvalDigest),
    dispatches: plainText(request.dispatches ?? ''),
    ruser: optional(actor.user),
    rowner: optional(actor.agentOwner),
    rmade: optional(actor.keyMadeBy),
    rkey: plainText(actor.keyId),
    ev_denied: JSON.stringify({ tool: action.tool, policy_version: verdict.trace.policyVersion }),
    ev_conflict: JSON.stringify({ tool: action.tool }),
    ev_admit: JSON.stringify({
      tool: action.tool,
      policy_version: seen.policy,
      rules: matched,
      ...(verdict.trace.shadow.length === 0 ? {} : { shadow: verdict.trace.shadow }),
    }),
    ev_ask: JSON.stringify({ rules: asks.map(({ rule }) => rule), policy_version: seen.policy }),
  };
  const approval: ApprovalIdentity = approvalIdentity(request);
  const known = knownOf(request);
  return [
    JSON.stringify(fields, (_, value: unknown) => (value === '' ? undefined : value)),
    identityDocument(known),
    runDocument(known),
    request.metadata === null ? '' : JSON.stringify(request.metadata),
    request.sealed,
    permit === null || permit.obligations.length === 0 ? '' : JSON.stringify(permit.obligations.map(obligationRow)),
    asks.length === 0 ? 'null' : JSON.stringify(approval),
  ];
}

function flag(value: boolean): string {
  return value ? '1' : '';
}

function textOf(value: number | null): string {
  return value === null ? '' : String(value);
}

/** A string that may be absent: marked where it is there, so that the empty one is not the absent one. */
export function optional(value: string | null): string {
  return value === null ? '' : `=${plainText(value)}`;
}

/** What of the effect the request has in full. */
function knownOf(request: AdmitRequest): KnownDocuments {
  const { effectId: id, workspace, idempotencyKey, fingerprint, actor, action, verdict, stages, metadata } = request;
  const { sealed } = request;
  const { trace } = verdict;
  return { id, workspace, idempotencyKey, fingerprint, actor, action, trace, stages, metadata, sealed };
}

function approvalIdentity({ approvalId, workspace, action, actor, verdict }: AdmitRequest): ApprovalIdentity {
  return {
    id: approvalId,
    workspace,
    tool: action.tool,
    target: action.target,
    requester: {
      agentId: actor.agentId,
      agentOwner: actor.agentOwner,
      user: actor.user,
      keyId: actor.keyId,
      keyMadeBy: actor.keyMadeBy,
    },
    requirements: verdict.kind === 'permit' ? verdict.approvals : [],
    costs: verdict.kind === 'permit' ? costsOf(verdict.obligations) : [],
  };
}

function obligationRow(obligation: Obligation): readonly string[] {
  switch (obligation.kind) {
    case 'budget':
      return [
        'budget',
        plainText(obligation.rule),
        plainText(obligation.budget),
        plainText(obligation.unit),
        plainText(obligation.bucket),
        obligation.sharing,
        windowId(obligation.window),
        String(obligation.limit),
        textOf(obligation.amount),
      ];
    case 'rate_limit':
      return [
        'rate',
        plainText(obligation.rule),
        plainText(obligation.id),
        plainText(obligation.bucket),
        String(obligation.windowMs),
        String(obligation.limit),
      ];
    case 'claim':
      return ['claim', plainText(obligation.rule), plainText(obligation.target), obligation.hold];
    case 'reserve':
      return [
        'reserve',
        plainText(obligation.rule),
        plainText(obligation.pool),
        String(obligation.units),
        String(obligation.capacity),
      ];
  }
}

/** The admission that the script's reply says, and the word under which it is counted where nothing was written. */
export function admissionOf(
  request: AdmitRequest,
  reply: StepReply,
): { readonly admission: Admission; readonly counted: string } {
  const { tag, values } = reply;
  const known = knownOf(request);
  switch (tag) {
    case 'first': {
      const [figures = '', seq = ''] = values;
      const effect = firstAttempt(request, known, reply, values.slice(2));
      return uncounted({
        kind: 'dispatch',
        effect,
        budgets: budgetRows(request, rows(figures)),
        observed: effect.trace.observed,
        ledger: { epoch: reply.epoch, seq: Number(seq) },
        approval: null,
      });
    }
    case 'dispatch': {
      const [figures = '', seq = '', count = '0', ...rest] = values;
      const effect = effectOf(fieldsOf(rest.slice(0, Number(count))), known);
      const approval = rest.slice(Number(count));
      return uncounted({
        kind: 'dispatch',
        effect,
        budgets: budgetRows(request, rows(figures)),
        observed: effect.trace.observed,
        ledger: { epoch: reply.epoch, seq: Number(seq) },
        approval: approval.length === 0 ? null : approvalOf(fieldsOf(approval), approvalIdentity(request)),
      });
    }
    case 'pending': {
      const [created = '', count = '0', ...rest] = values;
      return uncounted({
        kind: 'pending',
        effect: effectOf(fieldsOf(rest.slice(0, Number(count))), known),
        approval: approvalOf(fieldsOf(rest.slice(Number(count))), approvalIdentity(request)),
        created: created === '1',
      });
    }
    case 'existing': {
      const [safe = '', retry = '', counted = '', ...fields] = values;
      const admission: Admission = {
        kind: 'existing',
        effect: effectOf(fieldsOf(fields), known),
        safeToRetry: safe === '1',
        retryAfterMs: retry === '' ? null : Number(retry),
      };
      return { admission, counted };
    }
    case 'expired': {
      const [counted = '', ...fields] = values;
      return { admission: { kind: 'expired', tombstone: tombstoneOf(fieldsOf(fields)) }, counted };
    }
    case 'refused': {
      const [effectId = '', decision = '', why = '', attempt = '0', retry = '', row = '', counted = '', foreign = ''] =
        values;
      const admission: Admission = {
        kind: 'refused',
        effectId: fromPlainText(effectId),
        decision: decision as DeniedDecision | Extract<Decision, 'idempotency_conflict'>,
        reason: reasonOf(texts(why)),
        attempt: Number(attempt),
        budgets: row === '' ? [] : budgetRows(request, [texts(row)]),
        retryAfterMs: retry === '' ? null : Number(retry),
        foreign: foreign === '1',
      };
      return { admission, counted };
    }
    case 'stale': {
      const [policy = '', pauses = '0'] = values;
      return uncounted({ kind: 'stale', versions: { policy, pauses: Number(pauses) }, now: reply.now });
    }
    default:
      throw new TypeError(`the admission script answered ${tag}`);
  }
}

/** The effect of a key that was free, of which the script says only what it decided. */
function firstAttempt(
  request: AdmitRequest,
  known: KnownDocuments,
  { now, epoch }: StepReply,
  decided: readonly string[],
): EffectRecord {
  const [dispatchBy = '', leaseEnd = '', quiesceUntil = '', held = '', claims = '', uses = '', would = '', rule = ''] =
    decided;
  const holds = holdsOf(held);
  return {
    ...known,
    createdAt: now,
    life: {
      state: 'executing',
      lease: {
        fence: { epoch, n: 1, nonce: request.nonce },
        owner: request.owner,
        admittedAt: now,
        dispatchBy: Number(dispatchBy),
        leaseEnd: Number(leaseEnd),
        quiesceUntil: Number(quiesceUntil),
      },
    },
    attempt: 1,
    unsent: 0,
    generation: 1,
    firstDispatchAt: now,
    mayHaveHappened: false,
    closed: false,
    holds,
    holdState: holds.length === 0 ? 'none' : 'held',
    claims: texts(claims).map(fromPlainText),
    uses: usesOf(uses),
    trace: { ...known.trace, observed: observedOf(would, rule) },
  };
}

function uncounted(admission: Admission): { readonly admission: Admission; readonly counted: string } {
  return { admission, counted: '' };
}

/** Budget rows from the obligation's number, what is spent and what is held. */
function budgetRows(request: AdmitRequest, figures: readonly (readonly string[])[]): readonly BudgetRow[] {
  const obligations = request.verdict.kind === 'permit' ? request.verdict.obligations : [];
  return figures.map(([number = '', spent = '', held = '']) => {
    const obligation = obligations[Number(number) - 1];
    if (obligation?.kind !== 'budget') throw new TypeError('the store names a budget that the call does not have');
    const { budget, unit, bucket, window, limit } = obligation;
    return {
      budget,
      unit,
      bucket,
      window: windowId(window),
      limit,
      spent: Number(spent),
      held: Number(held),
      resetsAt: window.kind === 'calendar' ? window.end : null,
    };
  });
}
