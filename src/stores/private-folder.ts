import { accessSync, closeSync, constants, fsyncSync, mkdirSync, openSync } from 'node:fs';
import { open } from 'node:fs/promises';
import { dirname, resolve } from 'node:path';

/**
 * Makes a folder, for this user only, whose name lasts through a power cut. One that is there is left as it is: it may be
 * anybody's. Its name is synced all the same: whoever made it may not have come to that.
 */
export function makePrivateFolder(path: string): void {
  const folder = resolve(path);
  const first = mkdirSync(folder, { recursive: true, mode: 0o700 });
  const top = dirname(first === undefined ? folder : resolve(first));
  for (let parent = dirname(folder); ; parent = dirname(parent)) {
    if (first !== undefined || mayRead(parent)) syncFolder(parent);
    if (parent === top) return;
  }
}

/** A folder above one that is there may be closed to this user. */
function mayRead(folder: string): boolean {
  try {
    accessSync(folder, constants.R_OK);
    return true;
  } catch {
    return false;
  }
}

/** Makes what happened to the names in a folder survive a power cut. */
export function syncFolder(folder: string): void {
  const descriptor = openSync(folder, 'r');
  try {
    fsyncSync(descriptor);
  } finally {
    closeSync(descriptor);
  }
}

/** The same, in another thread: for what does not wait for it in its own. */
export async function syncFolderAside(folder: string): Promise<void> {
  const handle = await open(folder, 'r');
  try {
    await handle.sync();
  } finally {
    await handle.close();
  }
}
