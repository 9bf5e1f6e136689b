import { join } from 'node:path';
import type { FileReading } from './file-reading.ts';
import type { Finding } from './finding.ts';

/** Changes in deeper folders would not be noticed (`gateway/watch-files.ts`). */
const MAX_FOLDERS_DEEP = 8;

/** An error without a place in a file. */
export function unplaced(code: string, message: string, hint: string | null = null): Finding {
  return { code, severity: 'error', message, hint, at: null };
}

/**
 * Adds the files at a path, which is a file or a folder with folders. Names that begin with a dot are skipped: mounted
 * folders keep older versions under such names.
 */
export async function findFiles(
  path: string,
  wanted: {
    /** What one is, and what many hold, in messages: 'policy file', 'policies'. */
    readonly one: string;
    readonly many: string;
    /** By its path. A file that is named itself is taken whatever its name is. */
    readonly isOne: (path: string) => boolean;
  },
  reading: FileReading,
  found: string[],
  findings: Finding[],
  depth = 0,
): Promise<void> {
  const { one, many, isOne } = wanted;
  let names: readonly string[] | null;
  try {
    names = await reading.names(path);
  } catch {
    // Editors create and remove files with other names.
    if (depth === 0) findings.push(unplaced('unreadable_file', `There is no ${one} or folder ${path}`));
    else if (isOne(path)) findings.push(unplaced('unreadable_file', `Cannot read ${path}`));
    return;
  }
  if (names === null) {
    if (depth === 0 || isOne(path)) found.push(path);
    return;
  }
  if (depth === MAX_FOLDERS_DEEP) {
    findings.push(
      unplaced('too_deep', `${path} is too deep: ${many} may stand in folders of ${MAX_FOLDERS_DEEP - 1} levels`),
    );
    return;
  }
  for (const name of names)
    if (!name.startsWith('.')) await findFiles(join(path, name), wanted, reading, found, findings, depth + 1);
}
