import type { StoreHealth } from '../../../effects/store.ts';
import type { Watched } from '../../port.ts';
import type { Boot } from '../ended.ts';
import type { Message } from './wire.ts';

/** The messages between the thread of the gateway and a thread of the store. */
export type ToStore =
  /** Requests, each after its number. */
  | { readonly kind: 'requests'; readonly message: Message }
  /** For the thread that reads: close the file until the next request. */
  | { readonly kind: 'let_go' }
  | { readonly kind: 'close' };

export type ToGateway =
  | { readonly kind: 'open'; readonly installId: string; readonly now: number; readonly health: StoreHealth }
  | { readonly kind: 'refused'; readonly message: string }
  /** Replies, each after the number of its request, with the store's time. */
  | { readonly kind: 'replies'; readonly now: number; readonly message: Message }
  | { readonly kind: 'boot'; readonly boot: Boot }
  | { readonly kind: 'health'; readonly health: StoreHealth }
  | { readonly kind: 'told'; readonly told: readonly Watched[] | null }
  | { readonly kind: 'closed' };

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
