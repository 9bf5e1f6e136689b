import type { EffectRecord } from '../../effects/effect.ts';
import type { StoreHealth } from '../../effects/store.ts';
import type { CallPart, CallTuple, EffectDocument, LifeTuple, TermsTuple } from './effect-document.ts';
import type { OperationName, Operations } from './operations.ts';

/**
 * What crosses between the thread of the gateway and that of the store. Messages are JSON texts: a batch of operations
 * one way, a batch of answers the other. Both ends are this program, so that what is read needs no check of its shape.
 */
/**
 * `attempt`: the attempt whose call and terms the gateway has, so that the answer may leave them out; 0 for none.
 */
export type CallMessage<Name extends OperationName = OperationName> = {
  [Each in Name]: readonly [id: number, name: Each, request: Operations[Each]['request'], attempt: number];
}[Name];

/** Operations or answers in one message: small enough to be copied cheaply, and the other thread can begin at once. */
export const MESSAGE_CALLS = 16;

/** To the store. `null` asks it to close. */
export type ToStore = readonly CallMessage[] | null;

/**
 * An answer: the operation's; or the operation's with its `effect` apart, as the texts that were just written; or why
 * there is none (`unavailable`: the store; otherwise a fault of the program).
 */
export type ReplyMessage =
  | readonly [id: number, kind: 'reply', reply: unknown]
  | readonly [
      id: number,
      kind: 'effect',
      reply: object,
      call: CallTuple | null,
      terms: TermsTuple | null,
      life: LifeTuple,
    ]
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
}

export function decodeForStore(message: string): ToStore {
  return JSON.parse(message);
}

export function decodeForGateway(message: string): ToGateway {
  return JSON.parse(message);
}

/** Whether an answer speaks of an effect. */
export function hasEffect(reply: unknown): reply is { readonly effect: EffectRecord } {
  return typeof reply === 'object' && reply !== null && 'effect' in reply && reply.effect !== null;
}

/** What of an effect the gateway has already: nothing, its call, or all but what has become of it. */
export type Known = 'nothing' | 'call' | 'attempt';

/** @param document the texts of the reply's effect */
export function encodeEffectReply(
  id: number,
  reply: { readonly effect: EffectRecord },
  { call, terms, life }: EffectDocument,
  known: Known,
): string {
  const { effect: _, ...rest } = reply;
  const parts = [known === 'nothing' ? call : 'null', known === 'attempt' ? 'null' : terms, life];
  return `[${id},"effect",${JSON.stringify(rest)},${parts.join(',')}]`;
}

/** Whether an effect is exactly what this request asks for, so that whoever asked knows its call. */
export function isAskedFor(request: object | null, effect: EffectRecord): boolean {
  if (request === null || !('effectId' in request && 'action' in request && 'actor' in request)) return false;
  if (!('sealed' in request && 'metadata' in request) || request.effectId !== effect.id) return false;
  const { action, actor, sealed, metadata } = request;
  return action === effect.action && actor === effect.actor && sealed === effect.sealed && metadata === effect.metadata;
}

/** The call part of the effect that a request to admit would make. */
export function callAskedFor(request: Operations[OperationName]['request']): CallPart | null {
  if (request === null || !('sealed' in request)) return null;
  const { effectId: id, workspace, idempotencyKey, fingerprint, action, actor, metadata, sealed } = request;
  return { id, workspace, idempotencyKey, fingerprint, action, actor, metadata, sealed };
}
