import { createHash, type Hash } from 'node:crypto';
import { readdir, readFile, stat } from 'node:fs/promises';
import { join } from 'node:path';

/** No reader takes a longer file. */
const MOST_BYTES = 256 * 1024 * 1024;

/** Reads each file once and remembers it, so that all readers see the same version. */
export type FileReading = ReturnType<typeof createReading>;

export function createReading() {
  const read = new Map<string, Promise<Buffer>>();
  const listed = new Map<string, Promise<readonly string[] | null>>();
  const states = new Map<string, Promise<FileState>>();
  const stateOf = (path: string): Promise<FileState> => remembered(states, path, readState);
  const fresh = async (path: string): Promise<FileState> => {
    const found = await stateOf(path);
    if ('error' in found) throw found.error;
    return found;
  };
  return {
    /**
     * A pipe or a device is read where it is named as such (`/dev/stdin`): in a folder it could keep a reader for ever. A
     * file is read up to 256 MiB.
     * @throws what `readFile` throws, the same on each call
     */
    bytes: (path: string): Promise<Buffer> =>
      remembered(read, path, async () => {
        const found = await stateOf(path);
        if ('kind' in found && found.kind === 'other' && !path.startsWith('/dev/'))
          throw Object.assign(new Error(`${path} is a pipe or a device`), { code: 'EINVAL' });
        if ('size' in found && found.size > MOST_BYTES)
          throw Object.assign(new Error(`${path} is too long`), { code: 'EFBIG' });
        return readFile(path);
      }),
    /** Size in bytes. @throws what `stat` throws */
    async size(path: string): Promise<number> {
      const found = await fresh(path);
      return 'error' in found ? 0 : found.size;
    },
    /** Names in a folder, sorted; `null` where the path is not a folder. @throws what `stat` throws */
    names: (path: string): Promise<readonly string[] | null> =>
      remembered(listed, path, async () => {
        const found = await fresh(path);
        return 'error' in found || found.kind !== 'folder' ? null : (await readdir(path)).sort();
      }),
    /** Whether all files and folders that were read are still unchanged. */
    async isStill(): Promise<boolean> {
      for (const [path, before] of states) {
        const [was, is] = [await before, await readState(path)];
        if (was.stamp !== is.stamp) return false;
      }
      return true;
    },
  };
}

type FileState =
  | { readonly stamp: string; readonly kind: 'file' | 'folder' | 'other'; readonly size: number }
  | { readonly stamp: string; readonly error: unknown };

async function readState(path: string): Promise<FileState> {
  try {
    const found = await stat(path, { bigint: true });
    return {
      stamp: `${found.dev}:${found.ino}:${found.size}:${found.mtimeNs}:${found.ctimeNs}`,
      kind: found.isDirectory() ? 'folder' : found.isFile() ? 'file' : 'other',
      size: Number(found.size),
    };
  } catch (error) {
    return { stamp: 'missing', error };
  }
}

function remembered<Value>(
  known: Map<string, Promise<Value>>,
  path: string,
  make: (path: string) => Promise<Value>,
): Promise<Value> {
  const before = known.get(path);
  if (before !== undefined) return before;
  const made = make(path);
  known.set(path, made);
  return made;
}

/**
 * The text of a file; `null` where it cannot be read, has more bytes than `most`, or is in another encoding than UTF-8.
 * A text that was decoded wrongly would never match a call.
 */
export async function readText(path: string, reading: FileReading, most: number): Promise<string | null> {
  try {
    if ((await reading.size(path)) > most) return null;
    return new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(await reading.bytes(path));
  } catch {
    return null;
  }
}

const MAX_DEPTH = 8;

/** Whether a file within a folder counts: policies and entities stand in such files. Others may change unnoticed. */
export function isFollowed(path: string): boolean {
  return /\.(?:ya?ml|jsonl|ndjson)$/.test(path);
}

/**
 * One digest of the names and contents of files, and of the files in folders that {@link isFollowed}. An unreadable file changes the
 * digest too. In folders, names that begin with a dot are skipped.
 */
export async function digestOf(paths: readonly string[], reading: FileReading): Promise<string> {
  const hash = createHash('sha256');
  for (const path of paths) await addContent(hash, path, 0, reading);
  return hash.digest('base64url');
}

async function addContent(hash: Hash, path: string, depth: number, reading: FileReading): Promise<void> {
  const names = await reading.names(path).catch(() => null);
  if (names !== null && depth < MAX_DEPTH) {
    hash.update(`folder ${path}\n`);
    for (const name of names) if (!name.startsWith('.')) await addContent(hash, join(path, name), depth + 1, reading);
    return;
  }
  if (depth > 0 && !isFollowed(path)) return;
  const content = await reading.bytes(path).catch(() => null);
  hash.update(content === null ? `missing ${path}\n` : `file ${path} ${content.length}\n`);
  if (content !== null) hash.update(content);
}

/** What is at a path. What cannot be read counts as missing. */
export async function kindOfFile(path: string): Promise<'file' | 'folder' | 'missing'> {
  try {
    return (await stat(path)).isDirectory() ? 'folder' : 'file';
  } catch {
    return 'missing';
  }
}
