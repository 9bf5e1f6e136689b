import type { SettledBy } from '../../effects/effect.ts';
import type { AdmitRequest, SettleOutcome, SettleRequest, StoreHealth } from '../../effects/store.ts';
import {
  decodeCall,
  decodeOutcome,
  encodeCall,
  encodeOutcome,
  type SaidOutcome,
  stageOf,
  type StageTuple,
  stageTuple,
} from './effect-document.ts';
import type { ExpectedText } from './effects-table.ts';
import type { OperationName, Operations } from './operations.ts';
import type { AdmissionSeen } from './repeat.ts';

/**
 * What crosses between the thread of the gateway and that of the store: JSON texts, so that neither side pays for
 * copying objects. Both ends are this program, so that what is read needs no check of its shape.
 */

/**
 * To the store: operations, each a line, some with a second one behind it that goes into the store as it is: the call
 * of an `admit`, the outcome of a `settle`. JSON texts hold no line ends of their own. `null` asks it to close.
 */
export type ToStore = string | null;

/** Operations in one message: small enough to be copied cheaply, and the other thread can begin at once. */
export const MESSAGE_CALLS = 16;

/** Answers in one message. */
export const MESSAGE_REPLIES = 64;

export type AnyRequest = Operations[OperationName]['request'];

/** An operation. `attempt`: the attempt whose record the gateway has; 0 for none. */
export type CallMessage<Name extends OperationName = OperationName> = {
  [Each in Name]: readonly [id: number, name: Each, request: Operations[Each]['request'], attempt: number];
}[Name];

/**
 * An answer: the operation's; what its step saw, so that the gateway's thread can repeat it (`repeat.ts`); or why there
 * is none (`unavailable`: the store; otherwise a fault of the program).
 */
export type ReplyMessage =
  | readonly [id: number, kind: 'reply', reply: unknown]
  | readonly [id: number, kind: 'admitted', ...seen: AdmissionSeen]
  | readonly [id: number, kind: 'settled', at: number]
  | readonly [id: number, kind: 'unavailable' | 'fault', message: string];

export type ToGateway =
  | { readonly kind: 'open'; readonly installId: string; readonly now: number; readonly health: StoreHealth }
  | { readonly kind: 'refused'; readonly message: string }
  | { readonly kind: 'replies'; readonly now: number; readonly replies: readonly ReplyMessage[] }
  | { readonly kind: 'health'; readonly health: StoreHealth }
  | { readonly kind: 'keys'; readonly handles: readonly string[] | null }
  | { readonly kind: 'pauses'; readonly workspace: string }
  | { readonly kind: 'closed' };

export interface StoreThreadData {
  readonly path: string;
  readonly lockWaitMs: number;
  readonly maxClockJumpMs: number;
}

export function decodeForGateway(message: string): ToGateway {
  return JSON.parse(message);
}

/** What of a request to admit is not in the text of its call. */
type AdmitTuple = readonly [
  id: number,
  name: 'admit' | 'preview',
  approvalId: string,
  verdict: AdmitRequest['verdict'],
  approvalDigest: string,
  pausedBy: AdmitRequest['pausedBy'],
  policy: string,
  pauses: number,
  dispatchWindowMs: number,
  timeoutMs: number,
  maxProcessingMs: number,
  idempotentForMs: number | null,
  owner: string,
  nonce: string,
  claimId: string | null,
  reservationId: string | null,
  stages: readonly StageTuple[],
  dispatches: string | null,
];

/** What of a request to settle is not in the text of its outcome. */
type SettleTuple = readonly [
  id: number,
  name: 'settle outcome',
  attempt: number,
  workspace: string,
  effectId: string,
  epoch: number,
  n: number,
  nonce: string,
  settledBy: SettledBy,
  accepted: boolean,
  responseTruncated: boolean,
  stages: readonly StageTuple[],
];

/** The texts of one operation. */
export function encodeCalls(id: number, name: OperationName, request: AnyRequest, attempt: number): readonly string[] {
  if ((name === 'admit' || name === 'preview') && isAdmission(request)) return encodeAdmit(id, name, request);
  if (isSettlement(request)) {
    const texts = encodeSettle(id, request, attempt);
    if (texts !== null) return texts;
  }
  return [JSON.stringify([id, name, request, attempt])];
}

function encodeAdmit(id: number, name: AdmitTuple[1], request: AdmitRequest): readonly string[] {
  const { approvalId, verdict, approvalDigest, pausedBy, seen, times, owner, nonce, claimId, reservationId } = request;
  const tuple: AdmitTuple = [
    id,
    name,
    approvalId,
    verdict,
    approvalDigest,
    pausedBy,
    seen.policy,
    seen.pauses,
    times.dispatchWindowMs,
    times.timeoutMs,
    times.maxProcessingMs,
    times.idempotentForMs,
    owner,
    nonce,
    claimId,
    reservationId,
    request.stages.map(stageTuple),
    request.dispatches,
  ];
  const { effectId, workspace, idempotencyKey, fingerprint, action, actor, metadata, sealed } = request;
  const call = { id: effectId, workspace, idempotencyKey, fingerprint, action, actor, metadata, sealed };
  return [JSON.stringify(tuple), encodeCall(call)];
}

/** @returns `null` for an outcome that says nothing of the upstream's answer */
function encodeSettle(id: number, request: SettleRequest, attempt: number): readonly string[] | null {
  const { workspace, effectId, fence, outcome, settledBy, evidence, stages } = request;
  if (outcome.kind !== 'committed' && outcome.kind !== 'failed') return null;
  const committed = outcome.kind === 'committed' ? outcome : null;
  const tuple: SettleTuple = [
    id,
    'settle outcome',
    attempt,
    workspace,
    effectId,
    fence.epoch,
    fence.n,
    fence.nonce,
    settledBy,
    committed?.accepted ?? false,
    committed?.responseTruncated ?? false,
    stages.map(stageTuple),
  ];
  const said = { evidence, receipt: committed?.receipt ?? null, result: outcome.result };
  return [JSON.stringify(tuple), encodeOutcome(said)];
}

/** Reads the operations of a message, each with the text that came with it. */
export function decodeCalls(message: string, take: (operation: CallMessage, text: ExpectedText | null) => void): void {
  const texts = message.split('\n');
  for (let at = 0; at < texts.length; at += 1) {
    const operation: AdmitTuple | SettleTuple | OtherMessage = JSON.parse(texts[at] ?? '');
    if (isAdmit(operation)) {
      at += 1;
      const text = texts[at] ?? '';
      const request = admitRequest(operation, text);
      take([operation[0], operation[1], request, 0], { kind: 'call', request, text });
    } else if (operation[1] === 'settle outcome') {
      at += 1;
      const text = texts[at] ?? '';
      const said = decodeOutcome(text);
      take([operation[0], 'settle', settleRequest(operation, said), operation[2]], { kind: 'outcome', said, text });
    } else {
      take(operation, null);
    }
  }
}

type OtherMessage = Exclude<CallMessage, readonly [number, AdmitTuple[1], ...unknown[]]>;

function isAdmit(message: AdmitTuple | SettleTuple | OtherMessage): message is AdmitTuple {
  return message[1] === 'admit' || message[1] === 'preview';
}

/** Whether this is what an admission asks for. */
export function isAdmission(request: AnyRequest): request is AdmitRequest {
  return request !== null && 'sealed' in request;
}

/** Whether this is what a settlement asks for. */
export function isSettlement(request: AnyRequest): request is SettleRequest {
  return request !== null && 'evidence' in request;
}

function admitRequest(message: AdmitTuple, text: string): AdmitRequest {
  const { id: effectId, workspace, idempotencyKey, fingerprint, action, actor, metadata, sealed } = decodeCall(text);
  if (sealed === null) throw new TypeError('a call came without its sealed params');
  return {
    workspace,
    effectId,
    approvalId: message[2],
    idempotencyKey,
    fingerprint,
    action,
    actor,
    verdict: message[3],
    approvalDigest: message[4],
    dispatches: message[17],
    pausedBy: message[5],
    seen: { policy: message[6], pauses: message[7] },
    times: {
      dispatchWindowMs: message[8],
      timeoutMs: message[9],
      maxProcessingMs: message[10],
      idempotentForMs: message[11],
    },
    owner: message[12],
    nonce: message[13],
    claimId: message[14],
    reservationId: message[15],
    metadata,
    sealed,
    stages: message[16].map(stageOf),
  };
}

function settleRequest(message: SettleTuple, { evidence, receipt, result }: SaidOutcome): SettleRequest {
  const outcome: SettleOutcome =
    receipt === null
      ? { kind: 'failed', result }
      : { kind: 'committed', receipt, result, accepted: message[9], responseTruncated: message[10] };
  return {
    workspace: message[3],
    effectId: message[4],
    fence: { epoch: message[5], n: message[6], nonce: message[7] },
    outcome,
    settledBy: message[8],
    evidence,
    stages: message[11].map(stageOf),
  };
}
