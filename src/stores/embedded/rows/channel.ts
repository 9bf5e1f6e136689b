import type { StoreHealth } from '../../../effects/store.ts';
import type { Watched } from '../../port.ts';
import type { Boot } from './ended.ts';
import type { Message } from './wire.ts';

/** The messages between the thread of the gateway and that of the store. */
export type ToStore =
  /** Requests, each after its number. */
  { readonly kind: 'requests'; readonly message: Message } | { readonly kind: 'close' };

export type ToGateway =
  | { readonly kind: 'open'; readonly installId: string; readonly now: number; readonly health: StoreHealth }
  | { readonly kind: 'refused'; readonly message: string }
  /** Replies, each after the number of its request. */
  | { readonly kind: 'replies'; readonly now: number; readonly message: Message }
  | { readonly kind: 'boot'; readonly boot: Boot }
  | { readonly kind: 'health'; readonly health: StoreHealth }
  | { readonly kind: 'told'; readonly told: readonly Watched[] | null }
  | { readonly kind: 'closed' };

export interface ThreadData {
  readonly path: string;
  readonly lockWaitMs: number;
  readonly maxClockJumpMs: number;
}
