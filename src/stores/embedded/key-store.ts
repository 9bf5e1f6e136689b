import { existsSync } from 'node:fs';
import { join } from 'node:path';
import type { KeyRecord } from '../../effects/controls.ts';
import { INSTALLATION, type LedgerActor } from '../../effects/ledger.ts';
import { type EffectStore, StoreUnavailable } from '../../effects/store.ts';
import { inTransaction, openStoreFile } from './boot.ts';
import { MAX_CLOCK_JUMP_MS } from '../clock-jump.ts';
import { beginningOf } from './clock.ts';
import { loadDriver, type OpenDatabase } from './driver.ts';
import { describe } from './engine.ts';
import { makePrivateFolder } from '../private-folder.ts';
import { writeInstallMark } from './install.ts';
import { bindSecret, endKey, putKey } from './key-operations.ts';
import { isLocked } from './lock.ts';
import { countFrom } from './machine.ts';

/** Keys of a store, for a process beside the gateway. Each write is one short transaction; the gateway notices it. */
export interface KeyStore {
  readonly installId: string;
  /** See {@link EffectStore.bindSecret}. */
  secretMark(): string | null;
  bindSecret(marks: readonly [string, ...string[]]): boolean;
  putKey(key: KeyRecord, actor: LedgerActor): void;
  keys(user: string | null): readonly KeyRecord[];
  /** See {@link EffectStore.endKey}. */
  endKey(id: string, end: Parameters<EffectStore['endKey']>[1], actor: LedgerActor): KeyRecord | null;
  close(): void;
}

/**
 * Opens a store for its keys only, also while a gateway runs on it. A store that is absent is made.
 * @throws StoreUnavailable for a store that was set back or emptied, or whose file cannot be used
 */
export async function openKeyStore(path: string, maxClockJumpMs = MAX_CLOCK_JUMP_MS): Promise<KeyStore> {
  const open = await loadDriver();
  makePrivateFolder(path);
  const opened = openOrSay(path, open, isLocked(path, open));
  if (opened.kind === 'rolled_back') throw new StoreUnavailable(opened.message);
  const { database, session, mark } = opened;
  if (opened.fresh) writeInstallMark(path, mark);
  const write = <T>(work: () => T): T => {
    session.forget();
    const record = session.meta.get().clock;
    const beginning = beginningOf(record, countFrom(mark.seen), Date.now(), maxClockJumpMs);
    // A key is ended also where the machine's clock is not believed; time stands still then.
    return inTransaction(database, session, beginning.kind === 'believed' ? beginning.time : record, work);
  };
  return {
    installId: mark.installId,
    secretMark: () => session.controls.secretMark(),
    bindSecret: (marks) => write(() => bindSecret(session, { marks })),
    putKey(key, actor) {
      write(() => putKey(session, { key, actor }));
    },
    keys: (user) => session.keys.list(user),
    endKey: (id, end, actor) => write(() => endKey(session, { id, end, actor })),
    close: () => database.close(),
  };
}

/**
 * What a clock may be ahead of the time on record without anything being wrong, ms: a gateway writes down its time with
 * what it writes otherwise, so the record of one that has had little to do is a little old.
 */
const UNREMARKABLE_MS = 60_000;

/**
 * Takes the machine's clock for right, whatever it says, also while a gateway runs on the store: that one goes on from
 * there. It stands in the ledger.
 * @returns the time on record before and the one from now on, ms; `null` where the clock is not ahead by a minute
 * @throws StoreUnavailable
 */
export async function acceptTime(path: string): Promise<{ readonly before: number; readonly time: number } | null> {
  const open = await loadDriver();
  const opened = openOrSay(path, open, isLocked(path, open));
  if (opened.kind === 'rolled_back') throw new StoreUnavailable(opened.message);
  const { database, session, mark } = opened;
  try {
    const before = Math.max(session.meta.get().clock, Math.floor(countFrom(mark.seen) ?? 0));
    const time = Date.now();
    if (time - before < UNREMARKABLE_MS) return null;
    inTransaction(database, session, time, () =>
      session.append(INSTALLATION, [
        {
          kind: 'store.time_accepted',
          effectId: null,
          actor: { type: 'gateway', id: 'svc store accept-time' },
          data: { before: new Date(before).toISOString(), accepted: new Date(time).toISOString() },
        },
      ]),
    );
    return { before, time };
  } finally {
    database.close();
  }
}

function openOrSay(path: string, open: OpenDatabase, inUse: boolean): ReturnType<typeof openStoreFile> {
  try {
    return openStoreFile(path, open, Date.now(), inUse);
  } catch (error) {
    throw new StoreUnavailable(describe(path, error));
  }
}

/** A store as one finds it. */
export type StoreGlance =
  | { readonly state: 'absent' }
  | { readonly state: 'broken'; readonly message: string; readonly inUse: boolean }
  | {
      readonly state: 'ready';
      readonly durability: string;
      /** A gateway holds the lock. */
      readonly inUse: boolean;
      readonly keys: readonly KeyRecord[];
    };

/** Looks at a store without making or changing it, also while a gateway runs on it. */
export async function glanceAtStore(path: string): Promise<StoreGlance> {
  if (!existsSync(join(path, 'store.db')) && !existsSync(join(path, 'install.json'))) return { state: 'absent' };
  const open = await loadDriver();
  const inUse = isLocked(path, open);
  try {
    const opened = openOrSay(path, open, inUse);
    if (opened.kind === 'rolled_back') return { state: 'broken', message: opened.message, inUse };
    const keys = opened.session.keys.list(null);
    opened.database.close();
    return { state: 'ready', durability: 'fsync', inUse, keys };
  } catch (error) {
    return { state: 'broken', message: error instanceof Error ? error.message : String(error), inUse };
  }
}
