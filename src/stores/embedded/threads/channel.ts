import type { StoreHealth } from '../../../effects/store.ts';
import type { Watched } from '../../port.ts';
import type { Boot } from '../ended.ts';
import type { Message } from './tape.ts';

/** The messages between the thread of the gateway and a thread of the store. */
export type ToStore =
  /** Requests: number, operation, what is asked. */
  | { readonly kind: 'requests'; readonly message: Message }
  /** For the thread that reads: close the file until the next request. */
  | { readonly kind: 'let_go' }
  | { readonly kind: 'close' };

export type ToGateway =
  | { readonly kind: 'open'; readonly installId: string; readonly now: number; readonly health: StoreHealth }
  | { readonly kind: 'refused'; readonly message: string }
  /** Replies with the store's time: number of the request, status, and the answer or what went wrong. */
  | { readonly kind: 'replies'; readonly now: number; readonly message: Message }
  | { readonly kind: 'boot'; readonly boot: Boot }
  | { readonly kind: 'health'; readonly health: StoreHealth }
  | { readonly kind: 'told'; readonly told: readonly Watched[] | null }
  | { readonly kind: 'closed' };

/** The status of a reply. */
export const DONE = 0;
/** The store is unavailable. */
export const UNAVAILABLE = 1;
/** The program has a fault. */
export const FAULT = 2;

/** What the thread that writes is started with. */
export interface WriterData {
  readonly path: string;
  readonly lockWaitMs: number;
  readonly maxClockJumpMs: number;
}

/** What the thread that reads is started with. */
export interface ReaderData {
  readonly path: string;
}
