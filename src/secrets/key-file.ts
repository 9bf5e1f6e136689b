import { randomBytes } from 'node:crypto';
import { link, mkdir, open, readFile, stat, unlink, writeFile } from 'node:fs/promises';
import { dirname, join, resolve } from 'node:path';

/** A file with a secret in it cannot be used. The message names the file and the remedy, never the secret. */
export class KeyFileFault extends Error {
  override readonly name = 'KeyFileFault';
}

/**
 * Reads a file that only its owner may read.
 * @returns its text, or `null` when there is no such file
 * @throws KeyFileFault when others may read it, or it is not a plain file
 */
export async function readKeyFile(file: string): Promise<string | null> {
  try {
    const found = await stat(file);
    if (!found.isFile()) throw new KeyFileFault(`${file} is not a file.`);
    if ((found.mode & 0o077) !== 0) {
      const mode = (found.mode & 0o777).toString(8).padStart(4, '0');
      throw new KeyFileFault(
        `${file} holds a secret, and others than its owner may use it (mode ${mode}). Run: chmod 600 ${file}`,
      );
    }
    return await readFile(file, 'utf8');
  } catch (error) {
    if (error instanceof KeyFileFault) throw error;
    const code = errorCode(error);
    if (code === 'ENOENT') return null;
    throw new KeyFileFault(`${file} cannot be read (${code}).`);
  }
}

/**
 * Makes a file with mode 0600. It appears whole or not at all, also after a power cut, and never replaces another.
 * @returns `true` when this call made it, `false` when another process was first
 * @throws KeyFileFault when the folder or the file cannot be written
 */
export async function makeKeyFile(file: string, text: string): Promise<boolean> {
  const folder = dirname(file);
  const temporary = join(folder, `.${randomBytes(9).toString('hex')}.tmp`);
  try {
    await makeFolder(folder);
    await writeFile(temporary, text, { flag: 'wx', mode: 0o600, flush: true });
    try {
      // `link` fails when the name is taken. A rename would replace the secret of the process that was first.
      await link(temporary, file);
    } catch (error) {
      if (errorCode(error) === 'EEXIST') return false;
      throw error;
    } finally {
      await unlink(temporary);
    }
    await syncFolder(folder);
    return true;
  } catch (error) {
    throw new KeyFileFault(`${file} cannot be made (${errorCode(error)}). The gateway needs to write in ${folder}.`);
  }
}

/** Makes a folder that survives a power cut. Leaves an existing one unchanged. */
async function makeFolder(folder: string): Promise<void> {
  const first = await mkdir(folder, { recursive: true, mode: 0o700 });
  if (first === undefined) return;
  for (let parent = dirname(resolve(folder)); ; parent = dirname(parent)) {
    await syncFolder(parent);
    if (parent === dirname(resolve(first))) return;
  }
}

/** Makes changes to the names in a folder survive a power cut. */
async function syncFolder(folder: string): Promise<void> {
  const handle = await open(folder, 'r');
  try {
    await handle.sync();
  } finally {
    await handle.close();
  }
}

function errorCode(error: unknown): string {
  return error instanceof Error && 'code' in error && typeof error.code === 'string' ? error.code : 'unknown error';
}
