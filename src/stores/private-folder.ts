import { accessSync, chmodSync, closeSync, constants, existsSync, fsyncSync, mkdirSync, openSync } from 'node:fs';
import { open, rename, unlink, writeFile } from 'node:fs/promises';
import { dirname, resolve } from 'node:path';

/**
 * Creates a folder for this user only. Its name survives a power cut. An existing folder is left unchanged, because it
 * may belong to anybody. Its name is still synced, because its creator may not have done so.
 */
export function makePrivateFolder(path: string): void {
  const folder = resolve(path);
  const first = mkdirSync(folder, { recursive: true, mode: 0o700 });
  const top = dirname(first === undefined ? folder : resolve(first));
  for (let parent = dirname(folder); ; parent = dirname(parent)) {
    if (first !== undefined || mayRead(parent)) syncPath(parent);
    if (parent === top) return;
  }
}

/** A folder above an existing one may not be readable for this user. */
function mayRead(folder: string): boolean {
  try {
    accessSync(folder, constants.R_OK);
    return true;
  } catch {
    return false;
  }
}

/**
 * Creates a file for this user only, and restricts an existing one. An existing file is not opened, because closing it
 * would release the locks that this process has on it.
 */
export function makePrivateFile(file: string): void {
  if (existsSync(file)) chmodSync(file, 0o600);
  else closeSync(openSync(file, 'a', 0o600));
}

/** Makes the bytes of a file, or changes to the names in a folder, survive a power cut. */
export function syncPath(path: string): void {
  const descriptor = openSync(path, 'r');
  try {
    fsyncSync(descriptor);
  } finally {
    closeSync(descriptor);
  }
}

/** The same of a folder in another thread, for callers that must not block. */
export async function syncFolderAside(folder: string): Promise<void> {
  const handle = await open(folder, 'r');
  try {
    await handle.sync();
  } finally {
    await handle.close();
  }
}

/** Writes a private file completely or not at all, even if the power fails. Does not block. */
export async function replaceFile(path: string, text: string): Promise<void> {
  const draft = `${path}.new`;
  try {
    await writeFile(draft, text, { mode: 0o600, flush: true });
    await rename(draft, path);
  } catch (error) {
    // The disk may be full; an unfinished file would only take more of it.
    await unlink(draft).catch(() => undefined);
    throw error;
  }
  await syncFolderAside(dirname(path));
}
