import { existsSync, rmSync } from 'node:fs';
import { randomBytes } from 'node:crypto';
import { join } from 'node:path';
import type { KeyRecord, KeySeals } from '../effects/model/key.ts';
import { INSTALLATION, type LedgerDraft } from '../effects/model/ledger.ts';
import { type EffectStore, StoreUnavailable } from '../effects/store.ts';
import { createEffectStore } from '../records/effect-store.ts';
import { createReadingTurns } from '../effects/run/reading-turns.ts';
import { READ_PROGRAM_MODULE } from '../records/export.ts';
import { createInstallation } from '../records/installation.ts';
import { loadProgram, PROGRAM_MODULE } from '../records/program.ts';
import type { Retention } from '../records/retention.ts';
import { createStepRunner } from '../records/runner.ts';
import { appendEvents } from '../records/view.ts';
import { timeAccepted } from './time-accepted.ts';
import { MAX_CLOCK_JUMP_MS } from '../stores/clock-jump.ts';
import { ArchiveBucket } from '../stores/archive/bucket.ts';
import { type ArchivePlace, inFolder } from '../stores/archive/place.ts';
import { openArchive } from '../stores/archive/segments.ts';
import { readOnce } from '../upstreams/http/request-once.ts';
import type { ArchiveSettings } from '../config/configuration.ts';
import { openSharedRows, type SharedRows } from '../stores/embedded/shared-rows.ts';
import { RESTORING } from '../stores/embedded/backup.ts';
import { beginningOf } from '../stores/embedded/clock.ts';
import { type EmbeddedRowsOptions, openEmbeddedRows } from '../stores/embedded/open.ts';
import { loadDriver } from '../stores/embedded/driver.ts';
import { beginEpoch } from '../stores/embedded/new-epoch.ts';
import { isNotAllowed } from '../stores/embedded/failure-text.ts';
import { isLocked } from '../stores/embedded/lock.ts';
import type { StorePlace } from '../stores/embedded/marks.ts';
import { UNJUDGED } from './key-seals.ts';

export interface EmbeddedOptions extends EmbeddedRowsOptions {
  readonly retention: Retention;
  readonly keySeals: KeySeals;
  /** Where effects go that are past their age; absent, `null`: they are removed. */
  readonly archive?: ArchiveSettings | null;
}

/**
 * Opens the store in a folder on this machine, for the gateway.
 * @throws StoreUnavailable when another gateway holds the store, or its file is damaged or of another format
 */
export async function openEmbeddedStore({
  retention,
  keySeals,
  archive: place = null,
  ...options
}: EmbeddedOptions): Promise<EffectStore> {
  // Because of the lock, no other process sends calls. A frozen process finds its lease over when it wakes.
  const program = { load: loadProgram, module: PROGRAM_MODULE };
  const rows = await openEmbeddedRows({ ...options, program, readProgram: READ_PROGRAM_MODULE });
  const archive = place === null ? null : openArchive(placeOfArchive(place), rows.installId, keySeals);
  return createEffectStore(rows, { retention, keySeals, maxFreezeMs: 0, archive });
}

/** How long a bucket may take for one request, ms. */
const BUCKET_TIMEOUT_MS = 15_000;

function placeOfArchive(settings: ArchiveSettings): ArchivePlace {
  switch (settings.kind) {
    case 'folder':
      return inFolder(settings.path);
    case 'bucket': {
      const { network } = settings;
      return new ArchiveBucket(settings, ({ mostBytes, ...request }) =>
        readOnce({ ...request, network, timeoutMs: BUCKET_TIMEOUT_MS }, mostBytes),
      );
    }
  }
}

/** Keys of a store, for another process than the gateway. The gateway notices what is written. */
export type KeyStore = Pick<
  EffectStore,
  'secretMark' | 'bindSecret' | 'hasKeys' | 'putKey' | 'keys' | 'endKey' | 'close'
> & {
  readonly installId: string;
};

/**
 * Opens a store for its keys only, even while a gateway runs on it. Creates the store if it is absent.
 * @throws StoreUnavailable for a store that was set back or emptied, or whose file cannot be used
 */
export async function openKeyStore(
  place: StorePlace,
  keySeals: KeySeals,
  maxClockJumpMs = MAX_CLOCK_JUMP_MS,
): Promise<KeyStore> {
  const rows = await openSharedRows(place, ({ record, counted }) => {
    // Keys can be revoked even if the machine's clock is not trusted; then the time stands still.
    const beginning = beginningOf(record, counted, maxClockJumpMs);
    return beginning.kind === 'believed' ? beginning.time : record;
  });
  return { ...installationOf(rows, keySeals), installId: rows.installId, close: rows.close };
}

function installationOf(rows: SharedRows, keySeals: KeySeals): ReturnType<typeof createInstallation> {
  return createInstallation({ store: rows, turns: createReadingTurns() }, createStepRunner(rows), keySeals, () =>
    randomBytes(16).toString('hex'),
  );
}

/**
 * How far a clock may be ahead of the recorded time without being wrong, ms. A gateway records its time with its other
 * writes, so the record of an idle gateway is a little old.
 */
const UNREMARKABLE_MS = 60_000;

/**
 * Accepts the machine's clock as right, whatever it says, even while a gateway runs on the store; that gateway
 * continues from there. The ledger records it.
 * @returns the recorded time before and the time from now on, ms; `null` if the clock is not ahead by a minute
 * @throws StoreUnavailable
 */
export async function acceptTime(
  place: StorePlace,
): Promise<{ readonly before: number; readonly time: number } | null> {
  const time = Date.now();
  const rows = await openSharedRows(place, () => time);
  try {
    const { record, counted } = rows.known();
    const before = Math.max(record, Math.floor(counted ?? 0));
    if (time - before < UNREMARKABLE_MS) return null;
    await createStepRunner(rows).run(INSTALLATION, (draft) => appendEvents(draft, [timeAccepted({ before, time })]));
    return { before, time };
  } finally {
    await rows.close();
  }
}

const LOSS_ACCEPTED = {
  kind: 'store.loss_accepted',
  effectId: null,
  actor: { type: 'gateway', id: 'svc store accept-loss' },
} as const satisfies Partial<LedgerDraft>;

/**
 * Goes on, in a new epoch, with a store that is older than what is remembered of it. The ledger records it.
 * @returns whether there was a loss to accept
 * @throws StoreUnavailable while a gateway uses it, and for a file that cannot be used
 */
export async function acceptRolledBack(place: StorePlace): Promise<boolean> {
  const accepted = await beginEpoch(place, false, async ({ rows, epoch, commits, knownCommits }) => {
    // A restore that was interrupted is not gone on with: this store goes on.
    rmSync(join(place.path, RESTORING), { recursive: true, force: true });
    const event = { ...LOSS_ACCEPTED, data: { epoch, transactions: commits, transactions_known: knownCommits } };
    await createStepRunner(rows).run(INSTALLATION, (draft) => appendEvents(draft, [event]));
  });
  return accepted !== null;
}

/**
 * Puts on the ledger that somebody knows what a restore could not bring over, also while a gateway runs. A store that was
 * set back since goes on with {@link acceptRolledBack}, which says the same.
 * @param at when it was restored, ms
 * @throws StoreUnavailable
 */
export async function acknowledgeLoss(place: StorePlace, at: number): Promise<boolean> {
  const rows = await openSharedRows(place, ({ record }) => record).catch(() => null);
  if (rows === null) return acceptRolledBack(place);
  try {
    const event = { ...LOSS_ACCEPTED, data: { restored_at: new Date(at).toISOString() } };
    await createStepRunner(rows).run(INSTALLATION, (draft) => appendEvents(draft, [event]));
  } finally {
    await rows.close();
  }
  return true;
}

/** Looks at a store without creating or changing it, even while a gateway runs on it. */
export async function probeStore(place: StorePlace): Promise<
  | { readonly state: 'absent' }
  | {
      readonly state: 'broken';
      readonly message: string;
      /** `null`: it cannot be told. */
      readonly inUse: boolean | null;
      /** This user may not write there, and nothing else is known to be wrong. */
      readonly notAllowed: boolean;
    }
  | {
      readonly state: 'ready';
      readonly durability: string;
      /** A gateway holds the lock. */
      readonly inUse: boolean;
      readonly keys: readonly KeyRecord[];
    }
> {
  const { path } = place;
  if (!existsSync(join(path, 'store.db')) && !existsSync(join(path, 'install.json'))) return { state: 'absent' };
  let inUse: boolean | null = null;
  try {
    inUse = isLocked(path, await loadDriver());
    const rows = await openSharedRows(place, ({ record }) => record);
    try {
      return { state: 'ready', durability: 'fsync', inUse, keys: await installationOf(rows, UNJUDGED).keys(null) };
    } finally {
      await rows.close();
    }
  } catch (error) {
    if (!(error instanceof StoreUnavailable)) throw error;
    return { state: 'broken', message: error.message, inUse, notAllowed: isNotAllowed(error.cause) };
  }
}
