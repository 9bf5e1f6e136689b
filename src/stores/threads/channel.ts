import type { KeyObject } from 'node:crypto';
import type { StoreCommits, StoreHealth } from '../../effects/store.ts';
import type { Watched } from '../port.ts';
import type { Boot } from '../embedded/ended.ts';
import type { StorePlace } from '../embedded/marks.ts';
import type { InForceDigests } from '../redis/announcements.ts';
import type { RedisRowsOptions } from '../redis/rows/open.ts';
import type { Message } from './operations.ts';

/** The messages between the thread of the gateway and a thread of the store. */
export type ToStore =
  /** Requests: number, operation, what is asked. */
  | Message
  | { readonly kind: 'key'; readonly name: string; readonly key: KeyObject }
  /** For the thread that reads: close the file until the next request. */
  | { readonly kind: 'let_go' }
  | { readonly kind: 'close' };

/** What the side that writes tells without being asked. */
export type News =
  | { readonly kind: 'boot'; readonly boot: Boot }
  | { readonly kind: 'health'; readonly health: StoreHealth }
  /** What transactions have changed that listeners are told; `null`: anything may have changed. */
  | { readonly kind: 'changed'; readonly changed: readonly Watched[] | null };

export interface FleetState {
  readonly installId: string;
  readonly health: StoreHealth;
  /** Why no call may start, or `null`. */
  readonly impediment: string | null;
  /** What the other gateways have in force, by name. */
  readonly others: readonly (readonly [string, InForceDigests])[];
  /** How the store has answered the steps that ran beside it. */
  readonly commits: StoreCommits;
}

/** What the thread of a store on Redis tells without being asked. */
export type FleetNews =
  | { readonly kind: 'fleet'; readonly state: FleetState }
  /** The boots of gateways that have ended in a workspace, and how many that are. */
  | { readonly kind: 'ended'; readonly workspace: string; readonly count: string; readonly boots: readonly string[] }
  | Extract<News, { readonly kind: 'changed' }>;

export type ToGateway =
  | { readonly kind: 'open'; readonly installId: string; readonly now: number }
  /** `isUnfit`: the settings cannot be used. Otherwise the store is unavailable. */
  | { readonly kind: 'refused'; readonly message: string; readonly isUnfit: boolean }
  /** The store's time, and replies: number of the request, status, and the answer or what went wrong. */
  | Message
  | News
  | FleetNews
  /** `mayEnd`: whether the thread ends now. */
  | { readonly kind: 'closed'; readonly mayEnd: boolean };

export const DONE = 0;
export const UNAVAILABLE = 1;
export const FAULT = 2;

export type ThreadData =
  | (StorePlace & {
      readonly kind: 'write';
      readonly lockWaitMs: number;
      readonly maxClockJumpMs: number;
      /** Address of the module that exports `loadProgram`. */
      readonly program: string | null;
    })
  | RedisThread
  /** Address of the module that exports `readProgram`. */
  | { readonly kind: 'read'; readonly path: string; readonly program: string | null };

export interface RedisThread {
  readonly kind: 'redis';
  readonly rows: Omit<RedisRowsOptions, 'clock' | 'operatorEvent' | 'onEnded'>;
  /** `max_freeze` (effects.md, A1), ms. */
  readonly maxFreezeMs: number;
  /** Address of the module that exports `loadFleetProgram`. */
  readonly program: string;
}
