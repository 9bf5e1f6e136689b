import { join } from 'node:path';
import { makePrivateFolder } from '../private-folder.ts';
import { type InstallMark, readInstallMark, readMark, writeInstallMark, writeMark } from './install.ts';

/** A folder outside the store's, which is not set back when that is. */
export interface Fence {
  readonly folder: string;
  /** Whether the store is not used while the mark cannot be read and written there. */
  readonly isRequired: boolean;
}

/** Where a store is, and what remembers from outside how far it has come. */
export interface StorePlace {
  readonly path: string;
  /** Absent or `null`: only the mark beside the store remembers. */
  readonly fence?: Fence | null;
}

export interface Marks {
  readonly beside: InstallMark | null;
  readonly fenced: InstallMark | null;
}

/**
 * Reads the marks of a store.
 * @param installId which store it is; `null`: only the mark beside it knows, if there is one
 * @throws Error if one exists and cannot be read, unless it is in a fence that is not required
 */
export function readMarks({ path, fence = null }: StorePlace, installId: string | null): Marks {
  const beside = readInstallMark(path);
  const id = installId ?? beside?.installId ?? null;
  return { beside, fenced: id === null ? null : readFence(fence, id) };
}

/**
 * Writes the marks of a store, each completely or not at all.
 * @returns why the mark outside could not be written, in words; `null` if it was, or there is to be none
 * @throws Error if the mark beside the store cannot be written, or that in a fence which is required
 */
export function writeMarks({ path, fence = null }: StorePlace, mark: InstallMark): string | null {
  writeInstallMark(path, mark);
  if (fence === null) return null;
  try {
    makePrivateFolder(fence.folder);
    writeMark(fileIn(fence, mark.installId), mark);
    return null;
  } catch (error) {
    const why = `The mark outside the store cannot be written in ${fence.folder}: ${messageOf(error)}. Until it can be, a store whose whole folder is set back to an earlier state is not noticed. store.fence names another folder.`;
    if (fence.isRequired) throw new Error(why, { cause: error });
    return why;
  }
}

/** The mark of a store in its fence, as {@link readMarks} has it. */
export function readFence(fence: StorePlace['fence'], installId: string): InstallMark | null {
  if (!fence) return null;
  try {
    return readMark(fileIn(fence, installId));
  } catch (error) {
    // One that is damaged would have told whether the store is complete; the system's errors have a code.
    const isDamaged = !(error instanceof Error && 'code' in error);
    if (isDamaged || fence.isRequired) throw error;
    return null;
  }
}

/** One folder serves all stores of a user. */
function fileIn({ folder }: Fence, installId: string): string {
  return join(folder, `${installId}.json`);
}

function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
