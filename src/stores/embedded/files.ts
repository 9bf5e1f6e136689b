import { chmodSync, closeSync, existsSync, openSync } from 'node:fs';

/**
 * Creates a file for this user only, and restricts an existing one. An existing file is not opened, because closing it
 * would release the locks that this process has on it.
 */
export function makePrivateFile(file: string): void {
  if (existsSync(file)) chmodSync(file, 0o600);
  else closeSync(openSync(file, 'a', 0o600));
}
