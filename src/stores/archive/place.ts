import { open, readdir } from 'node:fs/promises';
import { join, resolve } from 'node:path';
import { makePrivateFolder, replaceFile } from '../private-folder.ts';

/** A segment has at most 100 rows without params and answers, so a larger object is none. */
export const MOST_BYTES = 8 * 1024 * 1024;

/** Where the objects of an archive are. Errors say what went wrong, as the end of a sentence. */
export interface ArchivePlace {
  /** How people find an object, or all of a workspace. */
  at(workspace: string, name: string): string;
  /**
   * Puts an object, whole or not at all; once it is answered, it survives a power cut.
   * @param how `new`: never in the place of another one
   */
  put(workspace: string, name: string, text: string, how: 'new' | 'replace'): Promise<void>;
  /** `null`: there is none. */
  get(workspace: string, name: string): Promise<Buffer | null>;
  /** Whether a workspace has an object of this kind whose name comes after this one. */
  hasAfter(workspace: string, name: string, isOfKind: (name: string) => boolean): Promise<boolean>;
}

/** A folder of this machine. The gateway that has the store has the folder as well: nobody else writes to it. */
export function inFolder(folder: string): ArchivePlace {
  const at = (workspace: string, name: string): string => resolve(folder, workspace, name);
  return {
    at,
    put: (workspace, name, text) =>
      replaceFile(at(workspace, name), text).catch((error: unknown) => {
        if (!isAbsent(error)) throw error;
        makePrivateFolder(join(folder, workspace));
        return replaceFile(at(workspace, name), text);
      }),
    async get(workspace, name) {
      try {
        const file = await open(at(workspace, name), 'r');
        try {
          const { size } = await file.stat();
          if (size > MOST_BYTES)
            throw new Error(`it has ${size} bytes, and a segment never has more than ${MOST_BYTES}`);
          return await file.readFile();
        } finally {
          await file.close();
        }
      } catch (error) {
        if (isAbsent(error)) return null;
        throw error;
      }
    },
    async hasAfter(workspace, name, isOfKind) {
      try {
        return (await readdir(join(folder, workspace))).some((other) => isOfKind(other) && other > name);
      } catch (error) {
        if (isAbsent(error)) return false;
        throw error;
      }
    },
  };
}

function isAbsent(error: unknown): boolean {
  return error instanceof Error && 'code' in error && error.code === 'ENOENT';
}
