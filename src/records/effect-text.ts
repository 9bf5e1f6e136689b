import type {
  EffectActor,
  EffectRecord,
  Evidence,
  Hold,
  Lease,
  Life,
  PoolUse,
  SettledBy,
  SignedReceipt,
  Stage,
} from '../effects/model/effect.ts';
import type { Answered, KeptHttpResult, KeptMessage, KeptResult } from '../effects/model/answer.ts';
import { quote, quoteOr, readOwnJson } from '../json/text.ts';
import type { JsonObject } from '../json/value.ts';
import type { VerdictTrace } from '../effects/model/verdict.ts';

/*
 * An effect as JSON texts without member names, which were half of a document. There are five: what was asked for, the
 * terms of the admission, what has become of the effect, the outcome as its owner reported it, and the payload of its
 * receipt. A settlement writes only the last three. The texts are put together member by member. This takes half of the
 * time of JSON.stringify on the tuples below and gives the same text; a test compares the two.
 */

export type CallTuple = readonly [
  id: string,
  workspace: string,
  idempotencyKey: string,
  fingerprint: string,
  action: readonly [
    type: string,
    tool: string,
    toolDigest: string,
    upstream: string,
    kind: EffectRecord['action']['kind'],
    target: string,
  ],
  actor: readonly [
    agentId: string,
    agentOwner: string | null,
    keyId: string,
    keyKind: EffectActor['keyKind'],
    user: string | null,
    keyMadeBy: string | null,
    via: EffectActor['via'],
  ],
  metadata: JsonObject | null,
  sealed: string | null,
];
/** The first stage of a text says when it began, each other one how long after the one before, ms. */
export type StageTuple = readonly [
  stage: number,
  status: number,
  startedAt: number,
  durationMs: number | null,
  /** Absent where there is none. */
  detail?: string,
];
type LifeTuple = readonly [
  createdAt: number,
  life:
    | StoredLife
    | readonly [
        state: 'executing',
        epoch: number,
        n: number,
        nonce: string,
        owner: string,
        admittedAt: number,
        dispatchBy: number,
        leaseEnd: number,
        quiesceUntil: number,
      ]
    /** A settled life without its outcome, which has its own text. */
    | readonly [
        state: 'committed' | 'failed',
        at: number,
        settledBy: SettledBy,
        accepted: boolean,
        responseTruncated: boolean,
      ],
  attempt: number,
  generation: number,
  firstDispatchAt: number | null,
  mayHaveHappened: boolean,
  closed: boolean,
  holdState: EffectRecord['holdState'],
  claims: readonly string[],
  uses: readonly PoolUse[],
  /** The stages since the admission. */
  stages: readonly StageTuple[],
  /** Absent while there are none. */
  unsent?: number,
];
type StoredLife =
  | Extract<Life, { readonly state: 'pending_approval' | 'rejected' | 'denied' }>
  | (Omit<Extract<Life, { readonly state: 'unknown' }>, 'evidence'> & { readonly evidence: StoredEvidence });
type OutcomeTuple = readonly [
  code: string,
  message: string,
  status: StoredAnswered,
  startedAt: number | null,
  endedAt: number | null,
  receiptId: string | null,
  /** Head and signature of a receipt whose payload has its own text, or the whole receipt. */
  jws: readonly [head: string, signature: string] | string | null,
  result: StoredResult | null,
  sent?: string | null,
];

/** The terms. They do not change while the attempt runs, but only the admission makes them. */
type TermsTuple = readonly [
  trace: VerdictTrace,
  holds: readonly (readonly [budget: string, unit: string, bucket: string, window: string, amount: number])[],
  /** The stages up to the admission. */
  stages: readonly StageTuple[],
];

/** What an owner reports of an outcome. The receipt is `null` if nothing happened. */
export interface KnownOutcome {
  readonly evidence: Evidence;
  readonly receipt: SignedReceipt | null;
  readonly result: KeptResult | null;
}

export interface OutcomeTexts {
  readonly outcome: string;
  /** Of the receipt. */
  readonly payload: string | null;
}

export type CallPart = Pick<
  EffectRecord,
  'id' | 'workspace' | 'idempotencyKey' | 'fingerprint' | 'action' | 'actor' | 'metadata' | 'sealed'
>;

/** The call and the outcome that were read last, with their texts: what came as a text is stored as it came. */
let lastCall: { readonly call: CallPart; readonly text: string } | null = null;
let lastOutcome: { readonly known: KnownOutcome; readonly texts: OutcomeTexts } | null = null;

export function encodeCall(call: CallPart): string {
  if (lastCall !== null && isCall(lastCall.call, call)) return lastCall.text;
  const { action, actor } = call;
  const { type, tool, toolDigest, upstream, kind, target } = action;
  const { agentId, agentOwner, keyId, keyKind, user, keyMadeBy, via } = actor;
  const what = `[${quote(type)},${quote(tool)},${quote(toolDigest)},${quote(upstream)},"${kind}",${quote(target)}]`;
  const who = `[${quote(agentId)},${quoteOr(agentOwner)},${quote(keyId)},"${keyKind}",${quoteOr(user)},${quoteOr(keyMadeBy)},"${via}"]`;
  const named = `${quote(call.id)},${quote(call.workspace)},${quote(call.idempotencyKey)},${quote(call.fingerprint)}`;
  return `[${named},${what},${who},${call.metadata === null ? 'null' : JSON.stringify(call.metadata)},${quoteOr(call.sealed)}]`;
}

/** The outcome of a settled effect has its own text. @param admittedStages how many stages are in the terms text */
export function encodeLife(record: EffectRecord, admittedStages: number): string {
  const { createdAt, life, attempt, generation, firstDispatchAt, mayHaveHappened, closed, holdState, unsent } = record;
  const claims = record.claims.length === 0 ? '[]' : JSON.stringify(record.claims);
  const uses = record.uses.length === 0 ? '[]' : JSON.stringify(record.uses);
  const stages = encodeStages(record.stages, admittedStages);
  const last = unsent === 0 ? '' : `,${unsent}`;
  return `[${createdAt},${lifeText(life)},${attempt},${generation},${firstDispatchAt},${mayHaveHappened},${closed},"${holdState}",${claims},${uses},${stages}${last}]`;
}

function lifeText(life: Life): string {
  switch (life.state) {
    case 'executing': {
      const { fence, owner, admittedAt, dispatchBy, leaseEnd, quiesceUntil } = life.lease;
      const { epoch, n, nonce } = fence;
      return `["executing",${epoch},${n},${quote(nonce)},${quote(owner)},${admittedAt},${dispatchBy},${leaseEnd},${quiesceUntil}]`;
    }
    case 'committed':
      return `["committed",${life.at},${settledByText(life.settledBy)},${life.accepted},${life.responseTruncated}]`;
    case 'failed':
      return `["failed",${life.at},${settledByText(life.settledBy)},false,false]`;
    case 'unknown':
      return JSON.stringify({ ...life, evidence: storedEvidence(life.evidence) });
    case 'pending_approval':
    case 'rejected':
    case 'denied':
      return JSON.stringify(life);
  }
}

export function settledByText(settledBy: SettledBy): string {
  return settledBy.by === 'owner' ? '{"by":"owner"}' : JSON.stringify(settledBy);
}

/** The numbers are in stores: a new stage gets a new one. */
const STAGE_NUMBERS: Readonly<Record<Stage['stage'], number>> = {
  authenticate: 0,
  validate: 1,
  identity: 2,
  permission: 3,
  policy: 4,
  admission: 5,
  approval: 6,
  state_check: 7,
  execute: 8,
  receipt: 9,
  settle: 10,
};
const STATUS_NUMBERS: Readonly<Record<Stage['status'], number>> = {
  passed: 0,
  refused: 1,
  failed: 2,
  unknown: 3,
  waiting: 4,
  skipped: 5,
};
const STAGES = namesOf(STAGE_NUMBERS);
const STATUSES = namesOf(STATUS_NUMBERS);

function namesOf<Name extends string>(numbers: Readonly<Record<Name, number>>): ReadonlyMap<number, Name> {
  const names = new Map<number, Name>();
  for (const name in numbers) names.set(numbers[name], name);
  return names;
}

/** The stages from this index on. */
export function encodeStages(stages: readonly Stage[], from: number): string {
  let text = '[';
  let before = 0;
  for (let index = from; index < stages.length; index += 1) {
    const each = stages[index];
    if (each === undefined) break;
    const { stage, status, startedAt, durationMs, detail } = each;
    const comma = index === from ? '' : ',';
    const last = detail === null ? '' : `,${quote(detail)}`;
    text += `${comma}[${STAGE_NUMBERS[stage]},${STATUS_NUMBERS[status]},${startedAt - before},${durationMs}${last}]`;
    before = startedAt;
  }
  return `${text}]`;
}

export function stagesOf(tuples: readonly StageTuple[]): readonly Stage[] {
  let before = 0;
  return tuples.map((tuple) => {
    const [stageNumber, statusNumber, after, durationMs, detail = null] = tuple;
    const stage = STAGES.get(stageNumber);
    const status = STATUSES.get(statusNumber);
    if (stage === undefined || status === undefined)
      throw new TypeError(`no stage of an effect has the numbers ${stageNumber} and ${statusNumber}`);
    before += after;
    return { stage, status, startedAt: before, durationMs, detail };
  });
}

function lifeOf(tuple: LifeTuple[1], outcome: KnownOutcome | null): Life {
  if ('state' in tuple) return tuple.state === 'unknown' ? { ...tuple, evidence: evidenceOf(tuple.evidence) } : tuple;
  if (tuple[0] === 'executing') {
    const [, epoch, n, nonce, owner, admittedAt, dispatchBy, leaseEnd, quiesceUntil] = tuple;
    const lease: Lease = { fence: { epoch, n, nonce }, owner, admittedAt, dispatchBy, leaseEnd, quiesceUntil };
    return { state: 'executing', lease };
  }
  if (outcome === null) throw new TypeError('a settled effect has lost its outcome');
  const [state, at, settledBy, accepted, responseTruncated] = tuple;
  const { evidence, receipt, result } = outcome;
  if (state === 'failed') return { state, at, settledBy, evidence, result };
  if (receipt === null) throw new TypeError('a committed effect has lost its receipt');
  return { state, at, settledBy, evidence, receipt, result, accepted, responseTruncated };
}

/** @returns the texts of outcome and payload, which is `null` where there is none, or the receipt is kept whole */
export function encodeOutcome({ evidence, receipt, result }: KnownOutcome): OutcomeTexts {
  const last = lastOutcome?.known;
  if (lastOutcome !== null && last?.evidence === evidence && last.receipt === receipt && last.result === result)
    return lastOutcome.texts;
  const parts = receipt === null ? null : (receipt.parts ?? partsOf(receipt.jws));
  const { before, after } = aroundReceipt({ evidence, receipt, result });
  const signed = parts === null ? quoteOr(receipt?.jws ?? null) : signedText(parts.head, parts.signature);
  return { outcome: `${before}${signed}${after}`, payload: parts?.payload ?? null };
}

/** Head and signature of a receipt in the text of its outcome. */
export function signedText(head: string, signature: string): string {
  return `[${quote(head)},${quote(signature)}]`;
}

/** The text of an outcome before and after what it says of the signature of its receipt. */
export function aroundReceipt({ evidence, receipt, result }: KnownOutcome): {
  readonly before: string;
  readonly after: string;
} {
  const { code, message, answered, startedAt, endedAt, sent = null } = evidence;
  const [status, kept] = answerTexts(answered, result);
  const seen = `${quote(code)},${quote(message)},${status},${startedAt},${endedAt}`;
  return { before: `[${seen},${quoteOr(receipt?.id ?? null)},`, after: `,${kept},${quoteOr(sent)}]` };
}

export function decodeOutcome(texts: OutcomeTexts): KnownOutcome {
  const { outcome, payload } = texts;
  const [code, message, status, startedAt, endedAt, id, signed, kept, sent = null] = readOwnJson<OutcomeTuple>(outcome);
  const seen: Evidence = { code, message, answered: answeredOf(status), startedAt, endedAt };
  const evidence = sent === null ? seen : { ...seen, sent };
  if (payload === null && Array.isArray(signed)) throw new TypeError('a receipt has lost its payload');
  const receipt: SignedReceipt | null =
    id === null || signed === null
      ? null
      : {
          id,
          // Where it is only stored again, it is never put together.
          get jws() {
            return typeof signed === 'string' ? signed : `${signed[0]}.${encodedOf(payload ?? '')}.${signed[1]}`;
          },
        };
  const known: KnownOutcome = { evidence, receipt, result: resultOf(kept) };
  lastOutcome = { known, texts };
  return known;
}

/**
 * The parts of a receipt in compact form (RFC 7515, 7.1), its payload as the text that it is: in base64url it would be a
 * third longer.
 * @returns `null` for one that these parts would not give back byte for byte
 */
function partsOf(jws: string): { readonly head: string; readonly payload: string; readonly signature: string } | null {
  const [head = '', encoded = '', signature = '', ...more] = jws.split('.');
  const payload = Buffer.from(encoded, 'base64url').toString('utf8');
  const isSame = more.length === 0 && `${head}.${encodedOf(payload)}.${signature}` === jws;
  return isSame && payload !== '' && !payload.includes('\n') ? { head, payload, signature } : null;
}

function encodedOf(payload: string): string {
  return Buffer.from(payload, 'utf8').toString('base64url');
}

export function encodeTerms({ trace, holds, stages }: Pick<EffectRecord, 'trace' | 'holds' | 'stages'>): string {
  const held = holds.map(
    ({ budget, unit, bucket, window, amount }) =>
      `[${quote(budget)},${quote(unit)},${quote(bucket)},${quote(window)},${amount}]`,
  );
  return `[${JSON.stringify(trace)},[${held.join(',')}],${encodeStages(stages, 0)}]`;
}

/** Whether two records have the same call, so that one call text serves both. */
export function isCall(a: CallPart, b: CallPart): boolean {
  const isSame = a.action === b.action && a.actor === b.actor && a.metadata === b.metadata && a.sealed === b.sealed;
  return isSame && a.id === b.id && a.idempotencyKey === b.idempotencyKey && a.fingerprint === b.fingerprint;
}

/** @param tuple what the text says, where it was read already */
export function decodeCall(text: string, tuple = readOwnJson<CallTuple>(text)): CallPart {
  const [id, workspace, idempotencyKey, fingerprint, action, actor, metadata, sealed] = tuple;
  const [type, tool, toolDigest, upstream, kind, target] = action;
  const [agentId, agentOwner, keyId, keyKind, user, keyMadeBy, via] = actor;
  const call: CallPart = {
    id,
    workspace,
    idempotencyKey,
    fingerprint,
    action: { type, tool, toolDigest, upstream, kind, target },
    actor: { agentId, agentOwner, keyId, keyKind, user, keyMadeBy, via },
    metadata,
    sealed,
  };
  lastCall = { call, text };
  return call;
}

export function decodeEffect(row: {
  readonly call: string;
  readonly terms: string;
  readonly life: string;
  /** `null` if the life has none. */
  readonly known: OutcomeTexts | null;
}): {
  readonly record: EffectRecord;
  readonly admittedStages: number;
} {
  const call = decodeCall(row.call);
  const [trace, holds, admitted] = readOwnJson<TermsTuple>(row.terms);
  const [createdAt, life, attempt, generation, firstDispatchAt, mayHaveHappened, closed, ...rest] =
    readOwnJson<LifeTuple>(row.life);
  const [holdState, claims, uses, stages, unsent = 0] = rest;
  const record: EffectRecord = {
    id: call.id,
    workspace: call.workspace,
    idempotencyKey: call.idempotencyKey,
    fingerprint: call.fingerprint,
    action: call.action,
    actor: call.actor,
    createdAt,
    life: lifeOf(life, row.known === null ? null : decodeOutcome(row.known)),
    attempt,
    unsent,
    generation,
    firstDispatchAt,
    mayHaveHappened,
    closed,
    holds: holds.map(([budget, unit, bucket, window, amount]): Hold => ({ budget, unit, bucket, window, amount })),
    holdState,
    claims,
    uses,
    trace,
    stages: [...stagesOf(admitted), ...stagesOf(stages)],
    metadata: call.metadata,
    sealed: call.sealed,
  };
  return { record, admittedStages: admitted.length };
}

/*
 * Evidence and kept results in the form that stores and journals have them. Until there were other kinds of upstream,
 * all answers were from HTTP and nothing said so: what does not name its kind is from HTTP, and is still written so.
 */

/** A number is a status of HTTP. */
export type StoredAnswered = number | null | Exclude<Answered, { readonly kind: 'http' }>;

export type StoredResult = Omit<KeptHttpResult, 'kind'> | KeptMessage;

export interface StoredEvidence extends Omit<Evidence, 'answered'> {
  readonly status: StoredAnswered;
}

/** The texts of {@link storedAnswered} and {@link storedResult}. Of a sealed answer from HTTP nothing else is left. */
export function answerTexts(answered: Answered | null, result: KeptResult | null): readonly [string, string] {
  const status = answered?.kind === 'http' ? String(answered.status) : JSON.stringify(storedAnswered(answered));
  if (result?.kind !== 'http' || result.body.kind !== 'sealed' || Object.keys(result.headers).length > 0)
    return [status, JSON.stringify(storedResult(result))];
  const body = `{"kind":"sealed","value":${quote(result.body.value)}}`;
  return [status, `{"status":${result.status},"headers":{},"body":${body},"truncated":${result.truncated}}`];
}

export function storedAnswered(answered: Answered | null): StoredAnswered {
  return answered?.kind === 'http' ? answered.status : answered;
}

export function answeredOf(stored: StoredAnswered): Answered | null {
  return typeof stored === 'number' ? { kind: 'http', status: stored } : stored;
}

export function storedResult(result: KeptResult | null): StoredResult | null {
  if (result === null) return null;
  switch (result.kind) {
    case 'http': {
      const { status, headers, body, truncated } = result;
      return { status, headers, body, truncated };
    }
    case 'message':
      return result;
  }
}

export function resultOf(stored: StoredResult | null): KeptResult | null {
  return stored === null || 'kind' in stored ? stored : { kind: 'http', ...stored };
}

/** Members are in the order in which evidence was always written. */
export function storedEvidence({ sent, code, message, answered, startedAt, endedAt }: Evidence): StoredEvidence {
  const seen = { code, message, status: storedAnswered(answered), startedAt, endedAt };
  return sent === undefined ? seen : { sent, ...seen };
}

export function evidenceOf({ sent, code, message, status, startedAt, endedAt }: StoredEvidence): Evidence {
  const seen = { code, message, answered: answeredOf(status), startedAt, endedAt };
  return sent === undefined ? seen : { sent, ...seen };
}
