import { chmodSync, closeSync, existsSync, openSync } from 'node:fs';

/**
 * Makes a file for this user only, and narrows one that is there. An existing file is not opened: closing it again
 * would end the locks that this process holds on it.
 */
export function makePrivateFile(file: string): void {
  if (existsSync(file)) chmodSync(file, 0o600);
  else closeSync(openSync(file, 'a', 0o600));
}
