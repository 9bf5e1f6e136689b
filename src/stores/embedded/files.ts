import { chmodSync, closeSync, existsSync, mkdirSync, openSync } from 'node:fs';

/** Makes the store's folder, for this user only. One that is there is left as it is: it may be anybody's. */
export function makePrivateFolder(path: string): void {
  mkdirSync(path, { recursive: true, mode: 0o700 });
}

/**
 * Makes a file for this user only, and narrows one that is there. An existing file is not opened: closing it again
 * would end the locks that this process holds on it.
 */
export function makePrivateFile(file: string): void {
  if (existsSync(file)) chmodSync(file, 0o600);
  else closeSync(openSync(file, 'a', 0o600));
}
