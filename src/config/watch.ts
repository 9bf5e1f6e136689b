import { readdirSync, realpathSync, statSync, watch, type FSWatcher } from 'node:fs';
import { dirname, join, resolve } from 'node:path';

/** A change is told when nothing has moved for so long: writers that write in pieces are waited for. */
const SETTLE_MS = 100;
/** In a folder that never rests they are looked at after this long all the same. */
const LONGEST_MS = 1_000;
/** File systems without notices (network mounts, some container mounts) are looked at this often. */
const LOOK_MS = 10_000;
/** Folders are looked into this deep; policies in deeper ones are refused (`policy/load.ts`). */
const MAX_DEPTH = 8;

export interface FileWatch {
  /** How the files looked when they were read last; a look that finds anything else tells of a change. */
  adopted(stamp: string): void;
  /** Nothing is told from here on. */
  close(): Promise<void>;
}

/**
 * Calls `onChange` after files were written, renamed over, came or went in watched folders, or a symbolic link above
 * them was swapped (as a mounted ConfigMap does it). Whether they say anything new is for the caller to see. What is
 * there when it is called counts as known.
 * @param paths files and folders; asked again after each change, because a new configuration may name others
 * @param read how they looked when they were read, if that was earlier: what has changed since is told
 */
export function watchFiles(paths: () => readonly string[], onChange: () => void, read?: string): FileWatch {
  const watched = new Map<string, { readonly inode: number; readonly watcher: FSWatcher }>();
  let settling: { readonly timer: NodeJS.Timeout; readonly since: number } | null = null;

  const wait = (): void => {
    const now = performance.now();
    const since = settling?.since ?? now;
    if (settling !== null) clearTimeout(settling.timer);
    const left = Math.max(0, since + LONGEST_MS - now);
    settling = { timer: setTimeout(look, Math.min(SETTLE_MS, left)).unref(), since };
  };
  const look = (): void => {
    settling = null;
    const found = stampOf(paths());
    const isChanged = found !== known;
    known = found;
    if (isChanged) onChange();
    // What happened in a new folder before it was watched has to be looked for.
    if (follow()) wait();
  };
  /** Watches the folders that matter now, and no others; a folder that was made anew is another one. */
  const follow = (): boolean => {
    const folders = foldersOf(paths());
    for (const [folder, { inode, watcher }] of watched) {
      if (folders.get(folder) === inode) continue;
      watcher.close();
      watched.delete(folder);
    }
    let isNew = false;
    for (const [folder, inode] of folders) {
      if (watched.has(folder)) continue;
      const watcher = attempt(() => watch(folder, { persistent: false }, wait));
      // A folder that cannot be watched (gone again, no watches left) is looked at from time to time.
      if (watcher === null) continue;
      watcher.on('error', wait);
      watched.set(folder, { inode, watcher });
      isNew = true;
    }
    return isNew;
  };

  follow();
  let known = read ?? stampOf(paths());
  if (read !== undefined) wait();
  const looking = setInterval(() => {
    if (settling === null) look();
  }, LOOK_MS).unref();

  return {
    adopted(stamp) {
      known = stamp;
    },
    close: async () => {
      clearInterval(looking);
      if (settling !== null) clearTimeout(settling.timer);
      for (const { watcher } of watched.values()) watcher.close();
      watched.clear();
    },
  };
}

/** The folders (with inode) in which a change of the paths would be noticed: their own, and those that links lead to. */
function foldersOf(paths: readonly string[]): Map<string, number> {
  const folders = new Map<string, number>();
  for (const path of paths) {
    addFolder(dirname(resolve(path)), folders);
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
 * How files look: which they are, how large, when they were written; and which YAML files stand in folders. Nothing is
 * read: this is asked often, on the thread that answers calls.
 */
export function stampOf(paths: readonly string[]): string {
  const lines: string[] = [];
  for (const path of paths) addStamp(lines, path, 0);
  return lines.join('\n');
}

function addStamp(lines: string[], path: string, depth: number): void {
  const found = attempt(() => statSync(path, { bigint: true }));
  if (found === null) {
    lines.push(`missing ${path}`);
  } else if (found.isDirectory() && depth < MAX_DEPTH) {
    lines.push(`folder ${path}`);
    const names = attempt(() => readdirSync(path)) ?? [];
    for (const name of names.toSorted()) if (!name.startsWith('.')) addStamp(lines, join(path, name), depth + 1);
  } else if (depth === 0 || /\.ya?ml$/.test(path)) {
    lines.push(`file ${path} ${found.dev} ${found.ino} ${found.size} ${found.mtimeNs} ${found.ctimeNs}`);
  }
}

/** Files come and go while they are looked at: what fails is not there. */
function attempt<Value>(read: () => Value): Value | null {
  try {
    return read();
  } catch {
    return null;
  }
}
