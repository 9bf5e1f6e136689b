import { createHash, type Hash } from 'node:crypto';
import { readdirSync, readFileSync, realpathSync, statSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import { watch } from 'chokidar';

/** A change is told when nothing has moved for so long: writers that write in pieces are waited for. */
const SETTLE_MS = 100;
/** File systems without notices (network mounts, some container mounts) are looked at this often. */
const LOOK_MS = 10_000;
/** Folders are looked into this deep. */
const MAX_DEPTH = 8;

export interface FileWatch {
  /** Fulfilled when notices of the file system are heard; changes before that are found as well, but later. */
  readonly ready: Promise<void>;
  close(): Promise<void>;
}

/**
 * Calls `onChange` after the content of files changed, not merely their times: writes, renames over them, files that
 * come and go in watched folders, and swaps of a symbolic link above them (as a mounted ConfigMap does it). What is
 * there when it is called counts as known.
 * @param paths files and folders; asked again after each change, because a new configuration may name others
 */
export function watchFiles(paths: () => readonly string[], onChange: () => void): FileWatch {
  let known = contentOf(paths());
  let folders = foldersOf(paths());
  let settling: NodeJS.Timeout | null = null;
  let isClosed = false;

  const watcher = watch([...folders], {
    ignoreInitial: true,
    depth: 0,
    followSymlinks: false,
    ignorePermissionErrors: true,
  });
  const look = (): void => {
    settling = null;
    if (isClosed) return;
    const found = contentOf(paths());
    const isChanged = found !== known;
    known = found;
    if (isChanged) onChange();
    follow();
  };
  const follow = (): void => {
    const wanted = foldersOf(paths());
    watcher.add([...wanted].filter((folder) => !folders.has(folder)));
    const gone = [...folders].filter((folder) => !wanted.has(folder));
    if (gone.length > 0) watcher.unwatch(gone);
    folders = wanted;
  };
  const wait = (): void => {
    if (isClosed) return;
    if (settling !== null) clearTimeout(settling);
    settling = setTimeout(look, SETTLE_MS);
  };
  // `raw` too: what the system says of a swapped link does not always become an event of its own.
  watcher.on('all', wait).on('raw', wait).on('error', wait);
  const looking = setInterval(() => settling ?? wait(), LOOK_MS).unref();
  const ready = new Promise<void>((done) => {
    watcher.once('ready', () => {
      wait();
      done();
    });
  });

  return {
    ready,
    close: async () => {
      isClosed = true;
      clearInterval(looking);
      if (settling !== null) clearTimeout(settling);
      await watcher.close();
    },
  };
}

/** The folders in which a change of the paths would be noticed: their own, and those that links lead to. */
function foldersOf(paths: readonly string[]): Set<string> {
  const folders = new Set<string>();
  for (const path of paths) {
    folders.add(dirname(resolve(path)));
    const real = attempt(() => realpathSync(path));
    if (real === null) continue;
    folders.add(dirname(real));
    if (attempt(() => statSync(real).isDirectory()) === true) addTree(real, folders, 0);
  }
  return folders;
}

function addTree(folder: string, folders: Set<string>, depth: number): void {
  folders.add(folder);
  if (depth >= MAX_DEPTH) return;
  for (const entry of attempt(() => readdirSync(folder, { withFileTypes: true })) ?? [])
    if (entry.isDirectory()) addTree(join(folder, entry.name), folders, depth + 1);
}

/** One digest over names and contents; what cannot be read counts as such. */
function contentOf(paths: readonly string[]): string {
  const hash = createHash('sha256');
  for (const path of paths) addContent(hash, path, 0);
  return hash.digest('base64url');
}

function addContent(hash: Hash, path: string, depth: number): void {
  const names = attempt(() => (statSync(path).isDirectory() ? readdirSync(path).toSorted() : null));
  if (names !== null && depth < MAX_DEPTH) {
    hash.update(`folder ${path} ${names.length}\n`);
    for (const name of names) addContent(hash, join(path, name), depth + 1);
    return;
  }
  const content = attempt(() => readFileSync(path));
  hash.update(content === null ? `missing ${path}\n` : `file ${path} ${content.length}\n`);
  if (content !== null) hash.update(content);
}

/** Files come and go while they are looked at: what fails is not there. */
function attempt<Value>(read: () => Value): Value | null {
  try {
    return read();
  } catch {
    return null;
  }
}
