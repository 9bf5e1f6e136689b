import { ArchiveUnavailable, StoreUnavailable } from '../../effects/store.ts';
import type { ArchiveMark, SegmentStore } from '../open-rows.ts';
import type { ArchivePlace } from './place.ts';
import { readSegment, type SegmentSeals, segmentText } from './segment.ts';

const MARK = 'head.json';

/**
 * Segments as objects of a folder or bucket: `<workspace>/<number>.jsonl`, and `<workspace>/head.json`, the mark.
 * @param installId of the store; the archive of another one is refused
 */
export function openArchive(place: ArchivePlace, installId: string, seals: SegmentSeals): SegmentStore {
  async function orUnavailable<T>(
    workspace: string,
    name: string,
    what: 'read' | 'written',
    work: Promise<T>,
  ): Promise<T> {
    try {
      return await work;
    } catch (error) {
      const why = error instanceof Error ? error.message : String(error);
      throw new ArchiveUnavailable(`${place.at(workspace, name)} of the archive cannot be ${what}: ${why}.`);
    }
  }

  const markAt = (workspace: string): string => place.at(workspace, MARK);

  return {
    markAt,
    at: (workspace, n) => place.at(workspace, fileOf(n)),
    async write(workspace, n, segment) {
      const { text, sha256 } = segmentText({ installId, workspace, n }, segment, seals);
      const name = fileOf(n);
      await orUnavailable(workspace, name, 'written', place.put(workspace, name, text, 'new'));
      return { n, sha256 };
    },
    async read(workspace, n) {
      const name = fileOf(n);
      const bytes = await orUnavailable(workspace, name, 'read', place.get(workspace, name));
      if (bytes === null) return null;
      const segment = readSegment(bytes, { installId, workspace, n }, seals);
      if ('wrong' in segment)
        throw new ArchiveUnavailable(
          `The segment ${place.at(workspace, name)} of the archive is not used: ${segment.wrong}. Put it back from a copy.`,
        );
      return segment;
    },
    hasAfter: (workspace, n) =>
      orUnavailable(
        workspace,
        '',
        'read',
        place.hasAfter(workspace, fileOf(n), (name) => /^\d{9}\.jsonl$/.test(name)),
      ),
    async mark(workspace) {
      const bytes = await orUnavailable(workspace, MARK, 'read', place.get(workspace, MARK));
      return bytes === null ? null : markOf(bytes.toString('utf8'), markAt(workspace), installId);
    },
    setMark(workspace, { n, sha256 }) {
      const text = `${JSON.stringify({ install_id: installId, n, sha256 })}\n`;
      return orUnavailable(workspace, MARK, 'written', place.put(workspace, MARK, text, 'replace'));
    },
  };
}

function fileOf(n: number): string {
  return `${String(n).padStart(9, '0')}.jsonl`;
}

function markOf(text: string, at: string, installId: string): ArchiveMark {
  const found = /^\{"install_id":"([^"]+)","n":(\d{1,9}),"sha256":"([\w-]{43})"\}\n$/.exec(text);
  const [, install = '', n = '', sha256 = ''] = found ?? [];
  if (found === null)
    throw new StoreUnavailable(
      `${at} is damaged, so it cannot be told whether the store is as new as its archive. Put it back from a copy, or delete it to take in what the archive has.`,
    );
  if (install !== installId)
    throw new StoreUnavailable(
      `${at} is of the archive of another store. Bring the store back that it belongs to, or name another place in store.archive.`,
    );
  return { n: Number(n), sha256 };
}
