import { afterEach, beforeEach, it } from 'vitest';
import type { LedgerKind } from '../../src/effects/model/ledger.ts';
import type { EffectStore } from '../../src/effects/store.ts';
import { expectSilentFsck } from '../silent-fsck.ts';
import { WORKSPACE } from './requests.ts';

/** How a store is to be opened for one promise. */
export interface ContractOptions {
  readonly retention: { readonly keysMs: number | null; readonly effectsMs: number; readonly denialsMs: number };
  /** The clock to use, where the store takes one; ms since the epoch. */
  readonly clock: () => number;
}

/** A store that a test has opened, empty. */
export interface StoreUnderTest {
  readonly store: EffectStore;
  /** Closes it and opens it again on the same data, as a restart does. */
  reopen(): Promise<EffectStore>;
  /** Closes it and removes its data. */
  close(): Promise<void>;
}

export type OpenStore = (options: ContractOptions) => Promise<StoreUnderTest>;

/** What not every store can do; each gap with its reason. */
export interface Capabilities {
  /** Why the store does not run by the test's clock, or `null` where it does. */
  readonly noClock: string | null;
}

/** The store and the clock of the promise that is being checked. */
export interface Fixture {
  readonly store: EffectStore;
  now(): number;
  advance(ms: number): void;
  /** Sets the clock, also back. */
  setClock(at: number): void;
  reopen(): Promise<void>;
  /** A promise that depends on time passing. */
  readonly timed: (promise: string, check: () => Promise<void> | void) => void;
  readonly capabilities: Capabilities;
}

export const DAY = 86_400_000;
export const RETENTION = { keysMs: 365 * DAY, effectsMs: 30 * DAY, denialsMs: 7 * DAY };

/** Events that the promises led to so far: what fsck was silent about. */
export const kindsSeen = new Set<LedgerKind>();

/** Opens a fresh store before each promise; afterwards it is as its ledger says, and is closed. To be called within a `describe`. */
export function useStore(open: OpenStore, capabilities: Capabilities, retention = RETENTION): Fixture {
  let time = 1_750_000_000_000;
  let opened: StoreUnderTest | null = null;
  beforeEach(async () => {
    time = 1_750_000_000_000;
    opened = await open({ retention, clock: () => time });
  });
  afterEach(async () => {
    const { store, close } = current();
    opened = null;
    try {
      await expectSilentFsck(store);
      for (const { kind } of await store.ledger(WORKSPACE, 0, 1_000)) kindsSeen.add(kind);
    } finally {
      await close();
    }
  });
  function current(): StoreUnderTest {
    if (opened === null) throw new Error('the store is opened before each promise, not before');
    return opened;
  }
  return {
    get store() {
      return current().store;
    },
    now: () => time,
    advance(ms) {
      time += ms;
    },
    setClock(at) {
      time = at;
    },
    async reopen() {
      await current().reopen();
    },
    // Where the store cannot be given a clock the promise is not asked here; the suite's title says why.
    timed: (promise, check) => {
      if (capabilities.noClock === null) it(promise, check);
    },
    capabilities,
  };
}
