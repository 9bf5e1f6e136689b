import { open, readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { StoreUnavailable } from '../../effects/store.ts';
import type { ArchiveFolder, ArchiveMark } from '../open-rows.ts';
import { makePrivateFolder, replaceFile } from '../private-folder.ts';
import { readSegment, type SegmentSeals, segmentText } from './segment.ts';

/** A segment has at most 100 rows without params and answers, so a larger file is none. */
const MOST_BYTES = 8 * 1024 * 1024;

/**
 * Segments as files: `<folder>/<workspace>/<number>.jsonl`, and `head.json`, the mark.
 * @param installId of the store; the archive of another one is refused
 */
export function openArchiveFolder(folder: string, installId: string, seals: SegmentSeals): ArchiveFolder {
  const placeOf = (workspace: string, name: string): string => join(folder, workspace, name);
  const segmentFile = (workspace: string, n: number): string =>
    placeOf(workspace, `${String(n).padStart(9, '0')}.jsonl`);
  const markFile = (workspace: string): string => placeOf(workspace, 'head.json');

  async function write(workspace: string, path: string, text: string): Promise<void> {
    await told(path, 'written', () =>
      replaceFile(path, text).catch((error: unknown) => {
        if (!isAbsent(error)) throw error;
        makePrivateFolder(join(folder, workspace));
        return replaceFile(path, text);
      }),
    );
  }

  return {
    markFile,
    async write(workspace, n, segment) {
      const { text, sha256 } = segmentText({ installId, workspace, n }, segment, seals);
      await write(workspace, segmentFile(workspace, n), text);
      return { n, sha256 };
    },
    async read(workspace, n) {
      const path = segmentFile(workspace, n);
      const bytes = await told(path, 'read', () => bytesOf(path));
      if (bytes === null) return null;
      const segment = readSegment(bytes, { installId, workspace, n }, seals);
      if ('wrong' in segment)
        throw new StoreUnavailable(
          `The segment ${path} of the archive is not used: ${segment.wrong}. Put the file back from a copy.`,
        );
      return segment;
    },
    async newest(workspace) {
      const names = await told(join(folder, workspace), 'read', () =>
        readdir(join(folder, workspace)).catch((error: unknown) => {
          if (isAbsent(error)) return [];
          throw error;
        }),
      );
      return names.reduce((most, name) => Math.max(most, Number(/^(\d{9})\.jsonl$/.exec(name)?.[1] ?? 0)), 0);
    },
    async mark(workspace) {
      const path = markFile(workspace);
      const bytes = await told(path, 'read', () => bytesOf(path));
      return bytes === null ? null : markOf(bytes.toString('utf8'), path, installId);
    },
    setMark: (workspace, { n, sha256 }) =>
      write(workspace, markFile(workspace), `${JSON.stringify({ install_id: installId, n, sha256 })}\n`),
  };
}

function markOf(text: string, path: string, installId: string): ArchiveMark {
  const found = /^\{"install_id":"([^"]+)","n":(\d{1,9}),"sha256":"([\w-]{43})"\}\n$/.exec(text);
  const [, install = '', n = '', sha256 = ''] = found ?? [];
  if (found === null)
    throw new StoreUnavailable(
      `${path} is damaged, so it cannot be told whether the store is as new as its archive. Put it back from a copy, or delete it to take in what the archive has.`,
    );
  if (install !== installId)
    throw new StoreUnavailable(
      `${path} is of the archive of another store. Bring the store back that it belongs to, or name another folder in store.archive.`,
    );
  return { n: Number(n), sha256 };
}

/** The content of a file; `null`: there is none. */
async function bytesOf(path: string): Promise<Buffer | null> {
  try {
    const file = await open(path, 'r');
    try {
      const { size } = await file.stat();
      if (size > MOST_BYTES) throw new Error(`it has ${size} bytes, and a segment never has more than ${MOST_BYTES}`);
      return await file.readFile();
    } finally {
      await file.close();
    }
  } catch (error) {
    if (isAbsent(error)) return null;
    throw error;
  }
}

function isAbsent(error: unknown): boolean {
  return error instanceof Error && 'code' in error && error.code === 'ENOENT';
}

async function told<T>(path: string, what: 'read' | 'written', work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    const why = error instanceof Error ? error.message : String(error);
    throw new StoreUnavailable(`${path} of the archive cannot be ${what}: ${why}.`);
  }
}
