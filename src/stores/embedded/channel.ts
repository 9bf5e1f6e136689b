import type { StoreHealth } from '../../effects/store.ts';
import type { OperationName, Operations } from './operations.ts';

/**
 * What crosses between the thread of the gateway and that of the store. Messages are JSON texts: a batch of operations
 * one way, a batch of answers the other. Both ends are this program, so that what is read needs no check of its shape.
 */
export type CallMessage<Name extends OperationName = OperationName> = {
  [Each in Name]: readonly [id: number, name: Each, request: Operations[Each]['request']];
}[Name];

/** To the store. `null` asks it to close. */
export type ToStore = readonly CallMessage[] | null;

/** An answer: the operation's, or why there is none (`unavailable`: the store; otherwise a fault of the program). */
export type ReplyMessage =
  | readonly [id: number, reply: unknown]
  | readonly [id: number, failure: null, kind: 'unavailable' | 'fault', message: string];

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

/** @param documentOf the JSON of a record, where it is known already */
export function encodeReply(id: number, reply: unknown, documentOf: (record: object) => string | undefined): string {
  if (typeof reply === 'object' && reply !== null && 'effect' in reply) {
    const { effect, ...rest } = reply;
    const document = typeof effect === 'object' && effect !== null ? documentOf(effect) : undefined;
    // The effect is most of the answer, and its text was just written.
    if (document !== undefined) return `[${id},{"effect":${document},${JSON.stringify(rest).slice(1)}]`;
  }
  return `[${id},${JSON.stringify(reply)}]`;
}
