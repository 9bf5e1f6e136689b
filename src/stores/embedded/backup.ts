import { createHash } from 'node:crypto';
import {
  closeSync,
  copyFileSync,
  existsSync,
  linkSync,
  openSync,
  readdirSync,
  readFileSync,
  readSync,
  realpathSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { basename, dirname, join } from 'node:path';
import { readOwnJson } from '../../json/text.ts';
import { makePrivateFolder, syncPath } from '../private-folder.ts';
import { openUnjudged, STORE_FILE } from './boot.ts';
import { loadDriver, type OpenDatabase } from './driver.ts';
import { codeOf } from './failure-text.ts';
import { acquireLock, isLocked } from './lock.ts';
import { BackupFault, layered, writeChanges, writeImage } from './image.ts';
import { FORMAT_NUMBER, formatOf } from './tables/schema.ts';
import { copyJournalAnd, copyLive } from './live-copy.ts';
import { type FileMeta, openMetaTable } from './tables/meta-table.ts';

/** What a backup consists of: the store, settlements that it did not take, and what they are. */
const BACKUP_FILE = 'backup.db';
/** The same in a backup that goes on from it: who knows nothing of changes finds no backup then. */
const BASE_FILE = 'base.db';
const CHANGES = 'changes-';
/** What it does not have in its file yet, of a backup with changes. */
const JOURNAL_FILE = 'journal';
const CONTENT_FILE = 'backup.json';
const DRAFT_FILE = `${CONTENT_FILE}.new`;
export const SPILL_FOLDER = 'spill';

const CHUNK_BYTES = 1024 * 1024;

/**
 * A store is written whole, and its pages are checked, where that was done longer ago. So damage is not carried on for
 * longer, and no file is shared for longer.
 */
const WHOLE_EVERY_MS = 600_000;

export interface BackupContent {
  readonly store_format: number;
  readonly install_id: string;
  readonly epoch: number;
  /** At least so many: those that came while it was begun may be in it. */
  readonly transactions: number;
  /** When it was begun, and the store's time of the last transaction in it: ms. */
  readonly made_at: number;
  readonly store_time: number;
  /** When what it is based on was written whole, ms. */
  readonly whole_at: number;
  /** SHA-256 (hex) of each file, by its name in the folder. */
  readonly files: Readonly<Record<string, string>>;
}

/** The folder in the store's in which a restored store is made. */
export const RESTORING = 'restoring';

/**
 * Writes a backup of a store, also while a gateway works on it: what that writes meanwhile is not in it. The calling thread
 * waits for it. Of a store of which there is a whole backup that is younger than {@link WHOLE_EVERY_MS}, only the pages are
 * written that changed since the one before; what is left of that one is shared by links, and stays when that is deleted.
 * @param to a folder, which is created; if it is there it has to be empty
 * @param previous the folder of the backup before, which may be gone; `null`: the store is written whole
 * @throws BackupFault, and what the system or the driver says
 */
export async function writeBackup(path: string, to: string, previous: string | null): Promise<BackupContent> {
  if (!existsSync(join(path, STORE_FILE))) throw new BackupFault(`There is no store in ${path}.`);
  refuseWork(path, to);
  const open = await loadDriver();
  makePrivateFolder(to);
  claim(to);
  return writeInto(path, to, previous, open).catch((error: unknown) => {
    // A part is no backup, and may take the room of a store on the same disk.
    for (const name of readdirSync(to)) rmSync(join(to, name), { recursive: true, force: true });
    throw error;
  });
}

/** Makes the draft, which only one can, and then looks at what stands beside it: another backup may have ended meanwhile. */
function claim(to: string): void {
  const draft = join(to, DRAFT_FILE);
  try {
    closeSync(openSync(draft, 'wx', 0o600));
  } catch (error) {
    if (codeOf(error) !== 'EEXIST') throw error;
    throw new BackupFault(
      `${to} has a part of a backup, which is being written or was interrupted. Name another one, or delete it where no svc backup runs.`,
    );
  }
  if (readdirSync(to).length > 1) {
    rmSync(draft);
    throw new BackupFault(`${to} is not empty: a backup has a folder of its own. Name another one.`);
  }
}

/** @throws BackupFault for a folder that the next restore removes */
export function refuseWork(path: string, folder: string): void {
  const work = join(realOf(path), RESTORING);
  if (`${realOf(folder)}/`.startsWith(`${work}/`))
    throw new BackupFault(
      `${folder} is where svc restore makes a store, and removes what is there. Name another folder.`,
    );
}

/** Where a path leads, by links too, as far as it is there. */
function realOf(path: string): string {
  return existsSync(path) ? realpathSync(path) : join(realOf(dirname(path)), basename(path));
}

async function writeInto(
  path: string,
  to: string,
  previous: string | null,
  open: OpenDatabase,
): Promise<BackupContent> {
  const madeAt = Date.now();
  // Settlements come first: one that the store takes meanwhile is in both, and it is taken once.
  const names = copySpill(join(path, SPILL_FOLDER), join(to, SPILL_FOLDER));
  const { meta, wholeAt, files } = await copyStore(path, to, previous, madeAt, open);
  const content: BackupContent = {
    store_format: FORMAT_NUMBER,
    install_id: meta.installId,
    epoch: meta.epoch,
    transactions: meta.commits,
    made_at: madeAt,
    whole_at: wholeAt,
    store_time: meta.clock,
    files: { ...files, ...digestsOf(to, names) },
  };
  // It is written last: a folder without it is no backup.
  const draft = join(to, DRAFT_FILE);
  writeFileSync(draft, `${JSON.stringify(content, null, 2)}\n`, { mode: 0o600 });
  syncPath(draft);
  renameSync(draft, join(to, CONTENT_FILE));
  syncPath(to);
  return content;
}

/** Copies the store of a folder. If no gateway has it, it is opened as a start does, so that no journal is lost. */
async function copyStore(path: string, to: string, previous: string | null, madeAt: number, open: OpenDatabase) {
  const from = join(path, STORE_FILE);
  const inUse = isLocked(path, open);
  const lock = inUse ? null : await acquireLock(path, open, 0);
  try {
    const database = inUse ? open(from) : openUnjudged(path, open, new Set(), false).database;
    const taken = previous === null ? null : takeOver(previous, to, madeAt);
    if (taken === null) {
      const file = join(to, BACKUP_FILE);
      copyLive(database, from, file);
      const meta = markAsBackup(file, open);
      return { meta, wholeAt: madeAt, files: digestsOf(to, [BACKUP_FILE]) };
    }
    const { wholeAt, files } = taken;
    const journal = join(to, JOURNAL_FILE);
    const changes = `${CHANGES}${Object.keys(files).length}`;
    const meta = withLayers(to, files, (image) =>
      copyJournalAnd(database, from, journal, (source) => {
        writeChanges(source, image, join(to, changes));
        return openMetaTable(database).get();
      }),
    );
    const written = existsSync(journal) ? [changes, JOURNAL_FILE] : [changes];
    return { meta, wholeAt, files: { ...files, ...digestsOf(to, written) } };
  } finally {
    lock?.release();
  }
}

/**
 * Brings the copied journal into the copy. One that was put where a store belongs would pass for one: its format says that
 * it is a backup. @throws BackupFault where the store is damaged
 */
function markAsBackup(file: string, open: OpenDatabase): FileMeta {
  const database = open(file);
  try {
    database.prepare('PRAGMA journal_mode = DELETE').all();
    const found = database.prepare('PRAGMA quick_check(1)').get()?.['quick_check'];
    if (found !== 'ok') throw new BackupFault(`The store is damaged, and so is its copy: ${String(found)}.`);
    const meta = openMetaTable(database).get();
    database.exec(`PRAGMA user_version = -${formatOf(database)}`);
    return meta;
  } finally {
    database.close();
    syncPath(file);
  }
}

/**
 * Takes over the files of an earlier backup, by links, where a new one may go on from it: what it is based on is young, and
 * larger than all that changed since.
 * @returns their digests by their names here; `null`: a whole one is to be written
 */
function takeOver(previous: string, to: string, now: number) {
  const linked: string[] = [];
  try {
    const { files, whole_at: wholeAt } = readContent(previous);
    const layers = layersOf(files);
    const [base = 0, ...changes] = layers.map((name) => statSync(join(previous, name)).size);
    const isYoung = wholeAt <= now && now - wholeAt < WHOLE_EVERY_MS;
    if (!isYoung || changes.reduce((sum, size) => sum + size, 0) >= base) return null;
    const taken: Record<string, string> = {};
    for (const name of layers) {
      const here = name === BACKUP_FILE ? BASE_FILE : name;
      linkSync(join(previous, name), join(to, here));
      linked.push(here);
      taken[here] = files[name] ?? '';
    }
    return withLayers(to, taken, () => ({ wholeAt, files: taken }));
  } catch {
    // It is gone, or in another file system, or no backup that can be laid out.
    for (const name of linked) rmSync(join(to, name));
    return null;
  }
}

/** The files of a store in a backup, in their order: what it is based on, and the changes since. */
function layersOf(files: BackupContent['files']): readonly string[] {
  const isLayer = (name: string): boolean => [BACKUP_FILE, BASE_FILE].includes(name) || name.startsWith(CHANGES);
  return Object.keys(files).filter(isLayer);
}

/** Runs `use` on what the files of a backup make up. */
function withLayers<T>(
  folder: string,
  files: BackupContent['files'],
  use: (image: ReturnType<typeof layered>) => T,
): T {
  const opened: number[] = [];
  try {
    for (const name of layersOf(files)) opened.push(openSync(join(folder, name), 'r'));
    const [base = -1, ...changes] = opened;
    return use(layered(base, changes));
  } finally {
    for (const descriptor of opened) closeSync(descriptor);
  }
}

/**
 * Copies settlements that the store has not taken yet. They come and go meanwhile: one that is gone is in the store.
 * @returns their names in a backup
 */
export function copySpill(from: string, to: string): readonly string[] {
  const names = spilled(from);
  if (names.length > 0) makePrivateFolder(to);
  return names.flatMap((name) => {
    try {
      copyFileSync(join(from, name), join(to, name));
    } catch (error) {
      if (codeOf(error) === 'ENOENT') return [];
      throw error;
    }
    syncPath(join(to, name));
    return [`${SPILL_FOLDER}/${name}`];
  });
}

function spilled(folder: string): readonly string[] {
  return existsSync(folder) ? readdirSync(folder).filter((name) => name.endsWith('.json')) : [];
}

/**
 * Reads what a backup says of itself, and compares its files with that.
 * @throws BackupFault for what is no backup, or not as it was written
 */
export function checkBackup(from: string): BackupContent {
  const content = readContent(from);
  if (content.store_format !== FORMAT_NUMBER)
    throw new BackupFault(
      `The backup in ${from} has the store format ${content.store_format}, this program works with ${FORMAT_NUMBER}.`,
    );
  for (const [name, digest] of Object.entries(content.files)) {
    const file = join(from, name);
    if (!existsSync(file)) throw new BackupFault(`The backup in ${from} is not whole: ${name} is missing.`);
    if (digestOf(file) !== digest)
      throw new BackupFault(`The backup in ${from} was changed, or is damaged: ${name} is not as it was written.`);
  }
  const stranger = spilled(join(from, SPILL_FOLDER)).find((name) => !(`${SPILL_FOLDER}/${name}` in content.files));
  if (stranger !== undefined)
    throw new BackupFault(
      `The backup in ${from} was changed: ${SPILL_FOLDER}/${stranger} is none of its files, and would be taken for a settlement. Move it away.`,
    );
  return content;
}

function readContent(from: string): BackupContent {
  try {
    const content = readOwnJson<BackupContent>(readFileSync(join(from, CONTENT_FILE), 'utf8'));
    const isWhole = [BACKUP_FILE, BASE_FILE].some((name) => typeof content.files?.[name] === 'string');
    if (isWhole && typeof content.store_format === 'number') return content;
  } catch {
    // It is told below.
  }
  throw new BackupFault(`There is no whole backup in ${from}: ${CONTENT_FILE}, which is written last, is not there.`);
}

/**
 * Makes the store of a backup again, in a folder of its own, and checks its pages.
 * @returns how many transactions it has @throws BackupFault
 */
export async function unpackBackup(from: string, to: string): Promise<number> {
  rmSync(to, { recursive: true, force: true });
  makePrivateFolder(to);
  const file = join(to, STORE_FILE);
  const { files } = readContent(from);
  withLayers(from, files, (image) => writeImage(image, file));
  if (JOURNAL_FILE in files) copyFileSync(join(from, JOURNAL_FILE), `${file}-wal`);
  const database = (await loadDriver())(file);
  try {
    database.prepare('PRAGMA journal_mode = DELETE').all();
    const found = database.prepare('PRAGMA quick_check(1)').get()?.['quick_check'];
    if (found !== 'ok') throw new BackupFault(`The store in the backup ${from} is damaged: ${String(found)}.`);
    if (database.prepare('PRAGMA auto_vacuum').get()?.['auto_vacuum'] === 0) {
      // One that keeps its empty pages is written anew, so that it gives them back. Of one that does that would be waste.
      database.prepare('PRAGMA auto_vacuum = INCREMENTAL').all();
      database.exec('VACUUM');
    }
    database.exec(`PRAGMA user_version = ${FORMAT_NUMBER}`);
    return openMetaTable(database).get().commits;
  } finally {
    database.close();
    syncPath(file);
  }
}

function digestsOf(folder: string, names: readonly string[]): BackupContent['files'] {
  return Object.fromEntries(names.map((name) => [name, digestOf(join(folder, name))]));
}

function digestOf(file: string): string {
  const digest = createHash('sha256');
  const chunk = Buffer.alloc(CHUNK_BYTES);
  const descriptor = openSync(file, 'r');
  try {
    for (;;) {
      const length = readSync(descriptor, chunk);
      if (length === 0) return digest.digest('hex');
      digest.update(chunk.subarray(0, length));
    }
  } finally {
    closeSync(descriptor);
  }
}
