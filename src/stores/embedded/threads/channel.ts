import type { KeyObject } from 'node:crypto';
import type { StoreHealth } from '../../../effects/store.ts';
import type { Watched } from '../../port.ts';
import type { Boot } from '../ended.ts';
import type { StorePlace } from '../marks.ts';
import type { Message } from './operations.ts';

/** The messages between the thread of the gateway and a thread of the store. */
export type ToStore =
  /** Requests: number, operation, what is asked. */
  | Message
  /** A key for the program. */
  | { readonly kind: 'key'; readonly name: string; readonly key: KeyObject }
  /** For the thread that reads: close the file until the next request. */
  | { readonly kind: 'let_go' }
  | { readonly kind: 'close' };

/** What the side that writes tells without being asked. */
export type News =
  /** A gateway has begun to use the file. */
  | { readonly kind: 'boot'; readonly boot: Boot }
  | { readonly kind: 'health'; readonly health: StoreHealth }
  /** What transactions have changed that listeners are told; `null`: anything may have changed. */
  | { readonly kind: 'changed'; readonly changed: readonly Watched[] | null };

export type ToGateway =
  | { readonly kind: 'open'; readonly installId: string; readonly now: number }
  | { readonly kind: 'refused'; readonly message: string }
  /** The store's time, and replies: number of the request, status, and the answer or what went wrong. */
  | Message
  | News
  /** `mayEnd`: whether the thread ends now. */
  | { readonly kind: 'closed'; readonly mayEnd: boolean };

/** The status of a reply. */
export const DONE = 0;
/** The store is unavailable. */
export const UNAVAILABLE = 1;
/** The program has a fault. */
export const FAULT = 2;

/** What a thread is started with. */
export type ThreadData =
  | (StorePlace & {
      readonly kind: 'write';
      readonly lockWaitMs: number;
      readonly maxClockJumpMs: number;
      /** Address of the module that exports `loadProgram`. */
      readonly program: string | null;
    })
  /** Address of the module that exports `readProgram`. */
  | { readonly kind: 'read'; readonly path: string; readonly program: string | null };
