import type { EffectRecord, Evidence, Life } from '../../effects/model/effect.ts';
import { isoTime } from '../../effects/model/iso-time.ts';
import { NOT_DISPATCHED } from '../../effects/steps/lifecycle.ts';
import type {
  Resolution,
  ResolveRequest,
  Settlement,
  SettleOutcome,
  SettleRequest,
  GiveUpRequest,
  GiveUpResult,
  VoteRequest,
  VoteResult,
} from '../../effects/store.ts';
import { REJECTION_COOLDOWN_MS } from '../../effects/steps/voting.ts';
import { fieldsOf } from './connection.ts';
import { approvalOf, effectOf } from './effect-record.ts';
import type { StepReply } from './frame.ts';
import { plainText } from './names.ts';

/**
 * Arguments of the settlement script, after `epoch gateway clock`: with the documents of the states that the outcome can
 * come to.
 * @param held whether the caller has the documents of the attempt, so that the answer need not have them
 */
export function settleArguments(request: SettleRequest, held = false): readonly string[] {
  const { outcome, evidence, settledBy, fence } = request;
  const receipt = outcome.kind === 'committed' ? outcome.receipt : null;
  const result = outcome.kind === 'failed' ? outcome.result : null;
  const mayFail = outcome.kind === 'failed' || outcome.kind === 'denied';
  return [
    JSON.stringify({
      effect: plainText(request.effectId),
      epoch: String(fence.epoch),
      n: String(fence.n),
      nonce: plainText(fence.nonce),
      outcome: outcome.kind,
      unsent: mayFail && evidence.code === NOT_DISPATCHED ? '1' : '',
      rcp: plainText(receipt?.id ?? ''),
      held: held ? '1' : '',
      decision: outcome.kind === 'denied' ? outcome.decision : '',
      message: plainText(evidence.message),
    }),
    outcome.kind === 'committed'
      ? JSON.stringify({
          settledBy,
          evidence,
          result: outcome.result,
          accepted: outcome.accepted,
          responseTruncated: outcome.responseTruncated,
        })
      : '',
    mayFail ? JSON.stringify({ settledBy, evidence, result }) : '',
    outcome.kind === 'denied' ? JSON.stringify({ reason: outcome.reason, mismatches: outcome.mismatches }) : '',
    mayFail || outcome.kind === 'unknown' ? JSON.stringify(evidence) : '',
    request.stages.length === 0 ? '' : JSON.stringify(request.stages),
    JSON.stringify(executionEvents(request, outcome, evidence)),
    plainText(receipt?.jws ?? ''),
  ];
}

/** The events of an execution: kind, data, and what the script adds. */
function executionEvents(
  request: SettleRequest,
  outcome: SettleOutcome,
  evidence: Evidence,
): readonly (readonly [string, string])[] {
  const attempt = request.fence.n;
  const draft = (kind: string, data: object): readonly [string, string] => [kind, JSON.stringify(data)];
  const seen = { attempt, code: evidence.code, status: evidence.status };
  const before = [
    ...(request.stages.some(({ stage, status }) => stage === 'state_check' && status === 'passed')
      ? [draft('state.verified', { attempt })]
      : []),
    ...(evidence.startedAt === null || outcome.kind === 'denied'
      ? []
      : [draft('execution.started', { attempt, at: isoTime(evidence.startedAt) })]),
  ];
  switch (outcome.kind) {
    case 'committed':
      return [
        ...before,
        draft('execution.succeeded', seen),
        draft('receipt.issued', { receipt_id: outcome.receipt.id }),
      ];
    case 'failed':
      return [...before, draft('execution.failed', seen)];
    case 'unknown':
      return [...before, draft('execution.lost', seen)];
    case 'denied':
      return [
        ...before,
        ...(outcome.reason.code === 'state_drift'
          ? [draft('state.drifted', { attempt, fields: outcome.mismatches.map(({ field }) => field) })]
          : []),
        draft('effect.denied', { attempt, decision: outcome.decision, code: outcome.reason.code }),
      ];
  }
}

/**
 * The settlement that the script's reply says.
 * @param args what it was asked with
 * @param known the effect as it was admitted, where the arguments say that it is held
 */
export function settlementOf(
  { tag, values: said }: StepReply,
  request: SettleRequest,
  args: readonly string[],
  known: EffectRecord | null,
): Settlement {
  const values = withDocuments(said, args);
  switch (tag) {
    case 'ended':
      if (known === null) throw new TypeError('the settlement script left out what is not known');
      return { kind: 'settled', effect: endedAttempt(known, request, values) };
    case 'absent':
      return { kind: 'absent' };
    case 'settled':
      return { kind: 'settled', effect: effectOf(fieldsOf(values), known) };
    case 'refused':
      return { kind: 'refused', contradiction: values[0] === '1', effect: effectOf(fieldsOf(values.slice(1)), known) };
    default:
      throw new TypeError(`the settlement script answered ${tag}`);
  }
}

/** An attempt that its owner settled in time, of which the script says only what it decided. */
function endedAttempt(known: EffectRecord, request: SettleRequest, decided: readonly string[]): EffectRecord {
  const [state = '', time = '', holdState = 'none', closed = '', unsent = '0'] = decided;
  const { outcome, settledBy, evidence, stages } = request;
  const at = Number(time);
  const life: Life =
    outcome.kind === 'committed'
      ? {
          state: outcome.kind,
          at,
          settledBy,
          evidence,
          receipt: outcome.receipt,
          result: outcome.result,
          accepted: outcome.accepted,
          responseTruncated: outcome.responseTruncated,
        }
      : { state: 'failed', at, settledBy, evidence, result: outcome.kind === 'failed' ? outcome.result : null };
  if (life.state !== state) throw new TypeError(`the settlement script said ${state} of ${outcome.kind}`);
  return {
    ...known,
    life,
    unsent: Number(unsent),
    closed: closed === '1',
    // One of the script's words.
    holdState: holdState as EffectRecord['holdState'],
    claims: [],
    uses: [],
    stages: [...known.stages, ...stages],
  };
}

/** A reply with the documents that marks stand for: numbers of arguments, where the first three are the frame's. */
function withDocuments(values: readonly string[], args: readonly string[]): readonly string[] {
  return values.map((value) => (value.startsWith('\0') ? (args[Number(value.slice(1)) - 4] ?? '') : value));
}

/** Arguments of the resolution script, after `epoch gateway clock`. */
export function resolveArguments(request: ResolveRequest): readonly string[] {
  const { outcome, settledBy, actor, fence } = request;
  const receipt = outcome.kind === 'happened' ? outcome.receipt : null;
  const evidence: Evidence = {
    code: 'declared',
    message:
      outcome.kind === 'happened'
        ? 'It was established that the action happened.'
        : 'It was established that the action did not happen.',
    status: null,
    startedAt: null,
    endedAt: null,
  };
  const data =
    settledBy.by === 'resolve'
      ? { forced: settledBy.forced, comment: settledBy.comment, evidence: settledBy.evidence }
      : { evidence: settledBy.evidence };
  return [
    JSON.stringify({
      effect: plainText(request.effectId),
      epoch: String(fence.epoch),
      n: String(fence.n),
      nonce: plainText(fence.nonce),
      outcome: outcome.kind,
      by: settledBy.by,
      force: request.force ? '1' : '',
      rcp: plainText(receipt?.id ?? ''),
      jws: plainText(receipt?.jws ?? ''),
      atype: actor.type,
      actor: plainText(actor.id),
      data: JSON.stringify({ outcome: outcome.kind, ...data }),
    }),
    JSON.stringify(
      outcome.kind === 'happened'
        ? { settledBy, evidence, result: null, accepted: false, responseTruncated: false }
        : { settledBy, evidence, result: null },
    ),
  ];
}

/** The resolution that the script's reply to `args` says. */
export function resolutionOf({ tag, values }: StepReply, args: readonly string[]): Resolution {
  if (tag === 'absent') return { kind: 'absent' };
  const [retry = '', ...fields] = withDocuments(values, args);
  const effect = effectOf(fieldsOf(fields));
  switch (tag) {
    case 'too_early':
      return { kind: tag, retryAfterMs: Number(retry), effect };
    case 'resolved':
    case 'unchanged':
    case 'already_resolved':
    case 'not_unknown':
    case 'moved':
      return { kind: tag, effect };
    default:
      throw new TypeError(`the resolution script answered ${tag}`);
  }
}

/** Arguments of the vote script, after `epoch gateway clock`. */
export function voteArguments(request: VoteRequest): readonly string[] {
  const { user, keyId, verdict, comment, requirements, actor } = request;
  return [
    JSON.stringify({
      approval: plainText(request.approvalId),
      user: plainText(user),
      key: plainText(keyId),
      made: String(request.voterSince),
      eligible: requirements.length > 0 ? '1' : '',
      verdict,
      cooldown: String(REJECTION_COOLDOWN_MS),
      atype: actor.type,
      actor: plainText(actor.id),
    }),
    JSON.stringify([
      plainText(user),
      plainText(keyId),
      verdict,
      '',
      JSON.stringify(comment),
      ...requirements.map(String),
    ]),
  ];
}

export function voteResultOf({ tag, values }: StepReply): VoteResult {
  if (tag === 'absent') return { kind: 'absent' };
  const [count = '0', ...fields] = values;
  const approval = approvalOf(fieldsOf(fields.slice(0, Number(count))));
  switch (tag) {
    case 'counted':
    case 'voted_already':
      return { kind: tag, approval, effect: effectOf(fieldsOf(fields.slice(Number(count)))) };
    case 'already_decided':
    case 'own_request':
    case 'not_an_approver':
      return { kind: tag, approval };
    default:
      throw new TypeError(`the vote script answered ${tag}`);
  }
}

/** Arguments of the script that ends a granted request, after `epoch gateway clock`. */
export function giveUpArguments({ approvalId, decision, reason, actor }: GiveUpRequest): readonly string[] {
  return [
    JSON.stringify({
      approval: plainText(approvalId),
      decision,
      code: reason.code,
      reason: JSON.stringify(reason),
      rule: plainText(reason.rule ?? ''),
      atype: actor.type,
      actor: plainText(actor.id),
    }),
  ];
}

export function giveUpResultOf({ tag, values }: StepReply): GiveUpResult {
  if (tag === 'absent') return { kind: 'absent' };
  const [count = '0', ...fields] = values;
  const approval = approvalOf(fieldsOf(fields.slice(0, Number(count))));
  switch (tag) {
    case 'given_up':
      return { kind: tag, approval, effect: effectOf(fieldsOf(fields.slice(Number(count)))) };
    case 'already_decided':
      return { kind: tag, approval };
    default:
      throw new TypeError(`the script that ends a request answered ${tag}`);
  }
}
