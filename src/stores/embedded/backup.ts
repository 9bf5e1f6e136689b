import { createHash } from 'node:crypto';
import {
  closeSync,
  copyFileSync,
  existsSync,
  fsyncSync,
  openSync,
  readdirSync,
  readFileSync,
  readSync,
  renameSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { readOwnJson } from '../../json/read.ts';
import { makePrivateFolder, syncFolder } from '../private-folder.ts';
import { openUnjudged, STORE_FILE } from './boot.ts';
import { loadDriver, type OpenDatabase } from './driver.ts';
import { acquireLock, isLocked } from './lock.ts';
import { FORMAT_NUMBER, formatOf } from './tables/schema.ts';
import { copyLive } from './live-copy.ts';
import { openMetaTable } from './tables/meta-table.ts';

/** What a backup consists of: the store, settlements that it did not take, and what they are. */
const BACKUP_FILE = 'backup.db';
const CONTENT_FILE = 'backup.json';
export const SPILL_FOLDER = 'spill';

const CHUNK_BYTES = 1024 * 1024;

export interface BackupContent {
  readonly store_format: number;
  readonly install_id: string;
  readonly epoch: number;
  readonly transactions: number;
  /** When it was begun, and the store's time of the last transaction in it: ms. */
  readonly made_at: number;
  readonly store_time: number;
  /** SHA-256 (hex) of each file, by its name in the folder. */
  readonly files: Readonly<Record<string, string>>;
}

/** The folder in the store's in which a restored store is made. */
export const RESTORING = 'restoring';

/** A backup that cannot be made or used, in words for people. */
export class BackupFault extends Error {}

/**
 * Writes a backup of a store, also while a gateway works on it: what that writes meanwhile is not in it. It takes as long
 * as writing the whole store does, and the calling thread waits for it.
 * @param to a folder, which is created; if it is there it has to be empty
 * @throws BackupFault, and what the system or the driver says
 */
export async function writeBackup(path: string, to: string): Promise<BackupContent> {
  if (!existsSync(join(path, STORE_FILE))) throw new BackupFault(`There is no store in ${path}.`);
  const open = await loadDriver();
  makePrivateFolder(to);
  if (readdirSync(to).length > 0)
    throw new BackupFault(`${to} is not empty: a backup has a folder of its own. Name another one.`);
  return writeInto(path, to, open).catch((error: unknown) => {
    // A part is no backup, and may take the room of a store on the same disk.
    for (const name of readdirSync(to)) rmSync(join(to, name), { recursive: true, force: true });
    throw error;
  });
}

async function writeInto(path: string, to: string, open: OpenDatabase): Promise<BackupContent> {
  const madeAt = Date.now();
  // Settlements come first: one that the store takes meanwhile is in both, and it is taken once.
  const names = copySpill(join(path, SPILL_FOLDER), join(to, SPILL_FOLDER));
  const file = join(to, BACKUP_FILE);
  await copyStore(path, file, open);
  const meta = markAsBackup(file, open);
  const files = Object.fromEntries([BACKUP_FILE, ...names].map((name) => [name, digestOf(join(to, name))]));
  const content: BackupContent = {
    store_format: FORMAT_NUMBER,
    install_id: meta.installId,
    epoch: meta.epoch,
    transactions: meta.commits,
    made_at: madeAt,
    store_time: meta.clock,
    files,
  };
  // It is written last: a folder without it is no backup.
  const draft = join(to, `${CONTENT_FILE}.new`);
  writeFileSync(draft, `${JSON.stringify(content, null, 2)}\n`, { mode: 0o600 });
  syncFile(draft);
  renameSync(draft, join(to, CONTENT_FILE));
  syncFolder(to);
  return content;
}

/** Copies the store of a folder. If no gateway has it, it is opened as a start does, so that no journal is lost. */
async function copyStore(path: string, to: string, open: OpenDatabase): Promise<void> {
  const from = join(path, STORE_FILE);
  const inUse = isLocked(path, open);
  const lock = inUse ? null : await acquireLock(path, open, 0);
  try {
    copyLive(inUse ? open(from) : openUnjudged(path, open, new Set(), false).database, from, to);
  } finally {
    lock?.release();
  }
}

/**
 * Copies settlements that the store has not taken yet. They come and go meanwhile: one that is gone is in the store.
 * @returns their names in a backup
 */
export function copySpill(from: string, to: string): readonly string[] {
  if (!existsSync(from)) return [];
  const names = readdirSync(from).filter((name) => name.endsWith('.json'));
  if (names.length > 0) makePrivateFolder(to);
  return names.flatMap((name) => {
    try {
      copyFileSync(join(from, name), join(to, name));
    } catch (error) {
      if (error instanceof Error && 'code' in error && error.code === 'ENOENT') return [];
      throw error;
    }
    syncFile(join(to, name));
    return [`${SPILL_FOLDER}/${name}`];
  });
}

/**
 * Brings the copied journal into the copy. One that was put where a store belongs would pass for one: its format says that
 * it is a backup. @throws BackupFault where the store is damaged
 */
function markAsBackup(file: string, open: OpenDatabase) {
  const database = open(file);
  try {
    database.prepare('PRAGMA journal_mode = DELETE').all();
    if (database.prepare('PRAGMA auto_vacuum').get()?.['auto_vacuum'] === 0) {
      // One that keeps its empty pages is written anew, so that it gives them back. Of one that does that would be waste.
      database.prepare('PRAGMA auto_vacuum = INCREMENTAL').all();
      database.exec('VACUUM');
    }
    const found = database.prepare('PRAGMA quick_check(1)').get()?.['quick_check'];
    if (found !== 'ok') throw new BackupFault(`The store is damaged, and so is its copy: ${String(found)}.`);
    const meta = openMetaTable(database).get();
    database.exec(`PRAGMA user_version = -${formatOf(database)}`);
    return meta;
  } finally {
    database.close();
    syncFile(file);
  }
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
  return content;
}

function readContent(from: string): BackupContent {
  try {
    const content = readOwnJson<BackupContent>(readFileSync(join(from, CONTENT_FILE), 'utf8'));
    if (typeof content.files?.[BACKUP_FILE] === 'string' && typeof content.store_format === 'number') return content;
  } catch {
    // It is told below.
  }
  throw new BackupFault(`There is no whole backup in ${from}: ${CONTENT_FILE}, which is written last, is not there.`);
}

/** Makes the store of a backup again, in a folder of its own, and checks its pages. @throws BackupFault */
export async function unpackBackup(from: string, to: string): Promise<void> {
  rmSync(to, { recursive: true, force: true });
  makePrivateFolder(to);
  const file = join(to, STORE_FILE);
  copyFileSync(join(from, BACKUP_FILE), file);
  const database = (await loadDriver())(file);
  try {
    const found = database.prepare('PRAGMA quick_check(1)').get()?.['quick_check'];
    if (found !== 'ok') throw new BackupFault(`The store in the backup ${from} is damaged: ${String(found)}.`);
    database.exec(`PRAGMA user_version = ${FORMAT_NUMBER}`);
  } finally {
    database.close();
  }
  syncFile(file);
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

function syncFile(file: string): void {
  const descriptor = openSync(file, 'r+');
  try {
    fsyncSync(descriptor);
  } finally {
    closeSync(descriptor);
  }
}
