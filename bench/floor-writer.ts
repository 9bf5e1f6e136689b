import { fdatasync, openSync } from 'node:fs';
import { join } from 'node:path';
import { parentPort, workerData } from 'node:worker_threads';
import { loadDriver } from '../src/stores/embedded/driver.ts';

/** One durable write: its number, and a row. */
export type FloorWrite = readonly [number: number, id: string, text: string];

/**
 * The store of `peer-floor.ts`: a thread with SQLite that makes all rows of a message durable with one transaction and
 * one sync, which covers what came while the one before it ran; then it answers with their numbers.
 */
const port = parentPort;
if (port === null || typeof workerData !== 'string') throw new Error('a thread of peer-floor');
const open = await loadDriver();
const database = open(join(workerData, 'floor.db'));
database.exec('PRAGMA page_size = 8192; PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL');
database.exec('CREATE TABLE effects (id TEXT PRIMARY KEY, text TEXT NOT NULL) WITHOUT ROWID');
database.exec('CREATE TABLE ledger (place INTEGER PRIMARY KEY, about TEXT NOT NULL)');
const put = database.prepare('INSERT INTO effects VALUES (?, ?) ON CONFLICT (id) DO UPDATE SET text = excluded.text');
const note = database.prepare('INSERT INTO ledger (about) VALUES (?)');
const journal = openSync(join(workerData, 'floor.db-wal'), 'r+');
let waiting: number[] = [];
let isSyncing = false;

function sync(): void {
  const covered = waiting;
  waiting = [];
  isSyncing = covered.length > 0;
  if (!isSyncing) return;
  fdatasync(journal, (error) => {
    if (error !== null) throw error;
    port?.postMessage(covered);
    sync();
  });
}

port.on('message', (writes: readonly FloorWrite[]) => {
  database.exec('BEGIN IMMEDIATE');
  for (const [, id, text] of writes) {
    put.run(id, text);
    note.run(id);
  }
  database.exec('COMMIT');
  waiting.push(...writes.map(([number]) => number));
  if (!isSyncing) sync();
});
