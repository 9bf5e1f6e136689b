import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { Note } from '../effects/model/note.ts';
import { replaceFile } from '../stores/private-folder.ts';

/** What people do now and then for a store, with commands of their own. */
export type Upkeep = 'backup' | 'fsck' | 'restore';

/** When it was done last, and whether it found or left everything in order. */
export interface UpkeepDone {
  readonly at: number;
  readonly clean: boolean;
  /** Of a backup: where it is, or was. */
  readonly folder?: string;
}

/** When each was done last; `null`: not on record. */
export type UpkeepTimes = Readonly<Record<Upkeep, UpkeepDone | null>>;

const REFRESH_MS = 10_000;

const ALERTS = { backup: 'backup_overdue', fsck: 'store_differs', restore: 'restore_lost_calls' } as const;

/** Notes beside the store that a command has come to its end, for the gateway that runs there. */
export async function noteUpkeep(folder: string, what: Upkeep, done: UpkeepDone): Promise<void> {
  await replaceFile(fileOf(folder, what), `${JSON.stringify(done)}\n`);
}

/** What is on record of each command; what cannot be read counts as not done. */
export async function readUpkeep(folder: string): Promise<UpkeepTimes> {
  const of = (what: Upkeep): Promise<UpkeepDone | null> => readDone(folder, what);
  const [backup, fsck, restore] = await Promise.all([of('backup'), of('fsck'), of('restore')]);
  return { backup, fsck, restore };
}

async function readDone(folder: string, what: Upkeep): Promise<UpkeepDone | null> {
  try {
    const done: unknown = JSON.parse(await readFile(fileOf(folder, what), 'utf8'));
    if (typeof done !== 'object' || done === null || !('at' in done && 'clean' in done)) return null;
    const { at, clean } = done;
    if (typeof at !== 'number' || typeof clean !== 'boolean') return null;
    return { at, clean, ...('folder' in done && typeof done.folder === 'string' ? { folder: done.folder } : {}) };
  } catch {
    return null;
  }
}

function fileOf(folder: string, what: Upkeep): string {
  return join(folder, `last-${what}.json`);
}

/** What people have to know of backups and checks. `everyMs`: how old a backup may be; `null`: as old as it likes. */
export function upkeepNotes({ backup, fsck, restore }: UpkeepTimes, everyMs: number | null, now: number) {
  const notes: (Note & { readonly part: Upkeep })[] = [];
  const day = (time: number): string => new Date(time).toISOString();
  if (everyMs !== null && (backup === null || now - backup.at > everyMs)) {
    const last = backup === null ? 'There is none on record' : `The last one was made at ${day(backup.at)}`;
    notes.push({
      part: 'backup',
      message: `The store has no backup as young as store.backup_every asks. ${last}: svc backup.`,
    });
  }
  if (fsck?.clean === false)
    notes.push({
      part: 'fsck',
      message: `svc fsck of ${day(fsck.at)} found that the store differs from its ledger.`,
      since: fsck.at,
    });
  if (restore?.clean === false)
    notes.push({
      part: 'restore',
      message:
        'A backup was put back, and what ran after it could not all be read: such calls look new, and would be sent again. Compare the upstreams, then: svc store accept-loss.',
      since: restore.at,
    });
  return notes;
}

/** Looks every ten seconds at what is on record, and tells once when something is wanting. */
export function watchUpkeep(
  folder: string,
  everyMs: () => number | null,
  alert: (what: string, message: string) => void,
) {
  let times: UpkeepTimes = { backup: null, fsck: null, restore: null };
  let noted: ReadonlySet<string> = new Set();
  const notes = () => upkeepNotes(times, everyMs(), Date.now());
  const refresh = async (): Promise<void> => {
    times = await readUpkeep(folder);
    const found = notes();
    for (const { part, message } of found) if (!noted.has(part)) alert(ALERTS[part], message);
    noted = new Set(found.map(({ part }) => part));
  };
  const timer = setInterval(() => void refresh(), REFRESH_MS).unref();
  return {
    /** For metrics, ms. */
    figures: () => ({ backup: times.backup?.at ?? null, cleanFsck: times.fsck?.clean === true ? times.fsck.at : null }),
    notes,
    /** Resolves after the first look. */
    begun: refresh(),
    stop: () => clearInterval(timer),
  };
}
