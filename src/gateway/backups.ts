import { copyFileSync, existsSync, readFileSync, renameSync, rmSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { type CliPorts, CommandFailure, type Restored } from '../cli/ports.ts';
import { loadConfiguration, OF_STORE } from '../config/load.ts';
import { INSTALLATION, type LedgerDraft } from '../effects/model/ledger.ts';
import { StoreUnavailable } from '../effects/store.ts';
import { type CarriedOver, carryOver } from '../records/carry-over.ts';
import { createStepRunner } from '../records/runner.ts';
import { appendEvents } from '../records/view.ts';
import {
  type BackupContent,
  checkBackup,
  copySpill,
  refuseWork,
  RESTORING,
  SPILL_FOLDER,
  unpackBackup,
  writeBackup,
} from '../stores/embedded/backup.ts';
import { STORE_FILE } from '../stores/embedded/boot.ts';
import { BackupFault } from '../stores/embedded/image.ts';
import { loadDriver } from '../stores/embedded/driver.ts';
import { acquireLock } from '../stores/embedded/lock.ts';
import { asError, isFull } from '../stores/embedded/failure-text.ts';
import type { StorePlace } from '../stores/embedded/marks.ts';
import { beginEpoch, type Incomplete } from '../stores/embedded/new-epoch.ts';
import { openReads } from '../stores/embedded/read-side.ts';
import { asking } from '../stores/threads/operations.ts';
import { makePrivateFolder, replaceFile, syncPath } from '../stores/private-folder.ts';
import { placeOf } from './store-place.ts';
import { noteUpkeep, readUpkeep } from './upkeep.ts';

/** In {@link RESTORING}, once the store there is whole: which backup it is of. */
const WHOLE = 'whole';
/** What else belongs to the file of a store. */
const STORE_FILES = [STORE_FILE, `${STORE_FILE}-wal`, `${STORE_FILE}-shm`] as const;

/** Writes a backup of the embedded store, also while the gateway runs. */
export const backUpStore: CliPorts['backUpStore'] = async (options, to) => {
  const { path } = await placeFor(options);
  const folder = resolve(to);
  const { backup: previous } = await readUpkeep(path);
  const { made_at: madeAt, transactions } = await inWords(
    writeBackup(path, folder, previous?.folder ?? null),
    `There is no room in ${to} for the backup, and what was written of it was removed. Make room, or name a folder on another disk, and run the command again.`,
  );
  // The backup is whole, whatever becomes of the note.
  const noting = noteUpkeep(path, 'backup', { at: madeAt, clean: true, folder });
  const warning = await noting.then(
    () => null,
    (error: unknown) => asError(error).message,
  );
  return { madeAt, transactions, warning };
};

/** Puts a backup in the place of the embedded store, with what is known to have run since. */
export const restoreStore: CliPorts['restoreStore'] = async (options, from, replace) => {
  const place = await placeFor(options);
  return inWords(
    restore(place, from, replace),
    `There is no room in ${place.path} for the restored store, which is made beside the one that is there. Make room, and run the command again: until then all stays as it is.`,
  );
};

async function placeFor({ configFile, environment }: Parameters<CliPorts['backUpStore']>[0]): Promise<StorePlace> {
  const { configuration } = await loadConfiguration(configFile, { environment, sections: OF_STORE });
  if (configuration.store.kind === 'embedded') return placeOf(configuration.store);
  throw new CommandFailure(
    'The store is on Redis, which makes its own backups. svc backup and svc restore are for the embedded store.',
  );
}

async function inWords<T>(work: Promise<T>, noRoom: string): Promise<T> {
  return work.catch((error: unknown) => {
    if (isFull(error)) throw new CommandFailure(noRoom);
    const isForPeople = error instanceof StoreUnavailable || error instanceof BackupFault;
    const isSystem = error instanceof Error && 'code' in error;
    throw isForPeople || isSystem ? new CommandFailure(error.message) : error;
  });
}

/**
 * The new store is made beside the old one, and put in its place by three renames. A start between any two of them finds
 * a mark that is newer than the store, and refuses it; the command goes on where it was interrupted.
 */
async function restore(place: StorePlace, from: string, replace: boolean): Promise<Restored> {
  const { path } = place;
  refuseWork(path, resolve(from));
  const content = checkBackup(from);
  const open = await loadDriver();
  makePrivateFolder(path);
  const lock = await acquireLock(path, open, 0);
  try {
    const work = join(path, RESTORING);
    const hasStore = existsSync(join(path, STORE_FILE));
    const isUnderWay = hasBegun(work);
    if (isUnderWay && readFileSync(join(work, WHOLE), 'utf8') !== JSON.stringify(content))
      throw new BackupFault(
        `Another backup was being put into ${path} when that was interrupted. Run svc restore with that one first.`,
      );
    if (hasStore && !replace && !isUnderWay)
      throw new BackupFault(
        `There is a store in ${path}. With --replace it is put aside, and what it shows to have run since the backup is brought over: it is not run again.`,
      );
    const restored = isUnderWay ? null : await makeWhole(place, work, from, content);
    const replaced = putInPlace(path, work);
    const hasLoss = (await readUpkeep(path)).restore?.clean === false;
    return {
      madeAt: content.made_at,
      replaced,
      hasLoss,
      transactions: content.transactions,
      ...(restored ?? { transactionsKnown: null, carried: null, warning: null }),
    };
  } finally {
    lock.release();
  }
}

/** Before the first rename the store that is there may have gone on: then what was made is made anew. */
function hasBegun(work: string): boolean {
  const has = (name: string): boolean => existsSync(join(work, name));
  return has(WHOLE) && has(STORE_FILE) && !has('install.json');
}

async function makeWhole(place: StorePlace, work: string, from: string, content: BackupContent) {
  const { path } = place;
  const reads = existsSync(join(path, STORE_FILE)) ? openReads(path, await loadDriver()) : null;
  try {
    const made = { ...content, transactions: await unpackBackup(from, work) };
    // The later ones are those of the store that is replaced.
    for (const folder of [from, path]) copySpill(join(folder, SPILL_FOLDER), join(work, SPILL_FOLDER));
    const mark = join(path, 'install.json');
    if (existsSync(mark)) copyFileSync(mark, join(work, 'install.json'));
    const begun = await beginEpoch({ ...place, path: work }, true, async (store) => {
      const ask = reads === null ? null : asking(reads.handlers);
      const carried =
        ask === null
          ? null
          : await carryOver(store.rows, {
              list: (query) => ask('list', query),
              rows: (workspace, names) => ask('rows', { workspace, names }),
            });
      await record(store, made, carried);
      // One that stands there already stays until somebody has acknowledged it.
      if (carried === null ? store.knownCommits > made.transactions : carried.fault !== null)
        await noteUpkeep(path, 'restore', { at: Date.now(), clean: false });
      return { carried, transactionsKnown: store.knownCommits };
    });
    if (begun === null) throw new TypeError('a restored store always begins an epoch');
    await replaceFile(join(work, WHOLE), JSON.stringify(content));
    return { ...begun.result, transactions: made.transactions, warning: begun.warning };
  } catch (error) {
    rmSync(work, { recursive: true, force: true });
    throw error;
  } finally {
    reads?.close();
  }
}

async function record(store: Incomplete, content: BackupContent, carried: CarriedOver | null): Promise<void> {
  const event: LedgerDraft = {
    kind: 'store.restored',
    effectId: null,
    actor: { type: 'gateway', id: 'svc restore' },
    data: {
      epoch: store.epoch,
      made_at: new Date(content.made_at).toISOString(),
      transactions: content.transactions,
      transactions_known: store.knownCommits,
      unknown: carried?.unknown ?? 0,
      receipts: carried?.receipts ?? 0,
      replaced: carried === null ? 'absent' : carried.fault === null ? 'read' : 'unreadable',
    },
  };
  await createStepRunner(store.rows).run(INSTALLATION, (draft) => appendEvents(draft, [event]));
}

/** @returns the folder to which the store that was there was put aside; `null`: there was none */
function putInPlace(path: string, work: string): string | null {
  // From here on the store that is there is older than its mark.
  if (existsSync(join(work, 'install.json'))) renameSync(join(work, 'install.json'), join(path, 'install.json'));
  syncPath(path);
  let aside: string | null = null;
  const there = STORE_FILES.filter((name) => existsSync(join(path, name)));
  if (there.length > 0 && existsSync(join(work, STORE_FILE))) {
    aside = join(path, `replaced-${new Date().toISOString().replaceAll(':', '')}`);
    makePrivateFolder(aside);
    // The file itself goes last: while it is there, it is what a start would refuse.
    for (const name of [...there].reverse()) renameSync(join(path, name), join(aside, name));
  }
  syncPath(path);
  const spill = join(path, SPILL_FOLDER);
  copySpill(join(work, SPILL_FOLDER), spill);
  if (existsSync(join(work, STORE_FILE))) renameSync(join(work, STORE_FILE), join(path, STORE_FILE));
  syncPath(path);
  rmSync(work, { recursive: true, force: true });
  return aside;
}
