import { stat } from 'node:fs/promises';

/** What is at a path. What cannot be read counts as missing. */
export async function kindOfFile(path: string): Promise<'file' | 'folder' | 'missing'> {
  try {
    return (await stat(path)).isDirectory() ? 'folder' : 'file';
  } catch {
    return 'missing';
  }
}
