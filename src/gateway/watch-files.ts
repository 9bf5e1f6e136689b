import { lstatSync, readdirSync, realpathSync, statSync, watch, type FSWatcher } from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import { isFollowed } from '../diagnostics/file-reading.ts';
import { atOnce } from '../policy/operators.ts';
import { inSlices } from './slices.ts';

/** A change is reported after this long without further changes, because some programs write in pieces. */
const SETTLE_MS = 100;
/** Where changes never pause, the files are compared after this long anyway. */
const LONGEST_MS = 1_000;
/** Some file systems send no notices (network mounts, some container mounts). So files are also compared this often. */
const CHECK_MS = 10_000;
/** Depth to which folders are searched. Policies in deeper folders are refused (`policy/load.ts`). */
const MAX_DEPTH = 8;

export type FileWatch = ReturnType<typeof watchFiles>;

/**
 * Calls `onChange` after files were written, replaced by a rename, added or removed in watched folders, or after a
 * symbolic link above them was swapped (as a mounted ConfigMap does). The caller must find out whether the content is
 * new. The state at the time of the call counts as known.
 * @param paths files and folders; called again after each change, because a new configuration can name others
 * @param read stamp of the files when they were read, if that was earlier: changes since then are reported
 */
export function watchFiles(paths: () => readonly string[], onChange: () => void, read?: string) {
  const watched = new Map<string, { readonly inode: number; readonly watcher: FSWatcher }>();
  let settling: { readonly timer: NodeJS.Timeout; readonly since: number } | null = null;
  let isLooking = false;
  let isClosed = false;

  const wait = (): void => {
    const now = performance.now();
    const since = settling?.since ?? now;
    if (settling !== null) clearTimeout(settling.timer);
    const left = Math.max(0, since + LONGEST_MS - now);
    settling = { timer: setTimeout(() => void check(), Math.min(SETTLE_MS, left)).unref(), since };
  };
  const check = async (): Promise<void> => {
    settling = null;
    // What changed since it was looked at is found by the look after this one.
    if (isLooking) return wait();
    isLooking = true;
    const found = await inSlices(stamping(paths()));
    if (isClosed) return;
    const isChanged = found !== known;
    known = found;
    if (isChanged) onChange();
    const folders = await inSlices(foldersOf(paths()));
    isLooking = false;
    // In a new folder, something may have changed before it was watched, so the files are compared again.
    if (!isClosed && follow(folders)) wait();
  };
  /** Watches the folders that matter now, and no others. One that was deleted and made again counts as a new one. */
  const follow = (folders: ReadonlyMap<string, number>): boolean => {
    for (const [folder, { inode, watcher }] of watched) {
      if (folders.get(folder) === inode) continue;
      watcher.close();
      watched.delete(folder);
    }
    let isNew = false;
    for (const [folder, inode] of folders) {
      if (watched.has(folder)) continue;
      const watcher = attempt(() => watch(folder, { persistent: false }, wait));
      // A folder that cannot be watched (already gone, or no watches left) is only compared from time to time.
      if (watcher === null) continue;
      watcher.on('error', wait);
      watched.set(folder, { inode, watcher });
      isNew = true;
    }
    return isNew;
  };

  follow(atOnce(foldersOf(paths())));
  let known = read ?? stampOf(paths());
  if (read !== undefined) wait();
  const looking = setInterval(() => void (settling ?? check()), CHECK_MS).unref();

  return {
    /** Sets the stamp of the files as they were last read; others may be named now. Another stamp reports a change. */
    adopted(stamp: string): void {
      known = stamp;
      wait();
    },
    /** Stops all reports. */
    close: async (): Promise<void> => {
      isClosed = true;
      clearInterval(looking);
      if (settling !== null) clearTimeout(settling.timer);
      for (const { watcher } of watched.values()) watcher.close();
      watched.clear();
    },
  };
}

/** The folders (with inode) in which a change of the paths can be noticed: their own, and those that links lead to. */
function* foldersOf(paths: readonly string[]): Generator<void, Map<string, number>> {
  const folders = new Map<string, number>();
  const seen = new Set<string>();
  for (const path of paths) {
    yield;
    const folder = dirname(resolve(path));
    // Of thousands of files in one folder, each that is no link leads to what the first has led to.
    const isPlain = attempt(() => lstatSync(path).isFile()) === true;
    if (isPlain && seen.has(folder)) continue;
    if (isPlain) seen.add(folder);
    addFolder(folder, folders);
    const real = attempt(() => realpathSync(path));
    if (real === null) continue;
    addFolder(dirname(real), folders);
    if (attempt(() => statSync(real).isDirectory()) === true) addTree(real, folders, 0);
  }
  return folders;
}

function addFolder(folder: string, folders: Map<string, number>): void {
  const inode = attempt(() => statSync(folder).ino);
  if (inode !== null) folders.set(folder, inode);
}

function addTree(folder: string, folders: Map<string, number>, depth: number): void {
  addFolder(folder, folders);
  if (depth >= MAX_DEPTH) return;
  for (const entry of attempt(() => readdirSync(folder, { withFileTypes: true })) ?? [])
    if (entry.isDirectory()) addTree(join(folder, entry.name), folders, depth + 1);
}

/**
 * A text that changes when files change: identity, size and time of each file, and which files that matter are in folders. It
 * reads no content, because it runs often; on the thread that answers calls it is made in slices.
 */
export function stampOf(paths: readonly string[]): string {
  return atOnce(stamping(paths));
}

function* stamping(paths: readonly string[]): Generator<void, string> {
  const lines: string[] = [];
  const seen = new Set<string>();
  for (const path of paths) yield* addStamp(lines, path, 0, seen);
  return lines.join('\n');
}

/** @param seen files that stand in the lines: most are named themselves, and in a folder that is named, too */
function* addStamp(lines: string[], path: string, depth: number, seen: Set<string>): Generator<void> {
  if (seen.has(path)) return;
  yield;
  const found = attempt(() => statSync(path, { bigint: true }));
  if (found === null) {
    lines.push(`missing ${path}`);
  } else if (found.isDirectory() && depth < MAX_DEPTH) {
    lines.push(`folder ${path}`);
    const names = attempt(() => readdirSync(path)) ?? [];
    for (const name of names.toSorted())
      if (!name.startsWith('.')) yield* addStamp(lines, join(path, name), depth + 1, seen);
  } else if (depth === 0 || isFollowed(path)) {
    seen.add(path);
    lines.push(`file ${path} ${found.dev} ${found.ino} ${found.size} ${found.mtimeNs} ${found.ctimeNs}`);
  }
}

/** Files can appear and disappear during the look-up. A failure means that the file is not there. */
function attempt<Value>(read: () => Value): Value | null {
  try {
    return read();
  } catch {
    return null;
  }
}
