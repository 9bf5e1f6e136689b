import { createHash } from 'node:crypto';
import { ArchiveUnavailable, StoreUnavailable } from '../../effects/store.ts';
import { isJsonArray, isJsonObject, type Json } from '../../json/value.ts';
import { parseJson } from '../../json/text.ts';
import type { ArchiveMark, SegmentStore, ArchivedRow, Segment } from '../open-rows.ts';
import type { ArchivePlace } from './place.ts';

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

/** Which segment a text has to be. */
interface SegmentName {
  /** Id of the store that it was written for. */
  readonly installId: string;
  readonly workspace: string;
  /** Counts from 1 in the workspace. */
  readonly n: number;
}

/** Makes and checks the seals of segments. `of`: which one it is. */
interface SegmentSeals {
  sealRow(of: string, text: string): string;
  fitsRow(of: string, text: string, seal: string | undefined): boolean;
}

/** Version of the format. */
const VERSION = 1;

/**
 * A segment as the text of its file: a line that says which one it is and what stands before it, a line for each row,
 * and a line with the SHA-256 of all of them, sealed.
 */
export function segmentText(
  name: SegmentName,
  { before, rows }: Pick<Segment, 'before' | 'rows'>,
  seals: SegmentSeals,
): { readonly text: string; readonly sha256: string } {
  const { installId, workspace, n } = name;
  const head = JSON.stringify({ v: VERSION, install: installId, workspace, n, before, rows: rows.length });
  const content = [head, ...rows.map(({ id, text }) => JSON.stringify([id, text])), ''].join('\n');
  const sha256 = digestOf(content);
  return { text: `${content}${endLine(sha256, seals.sealRow(nameOf(name), sha256))}`, sha256 };
}

/** Reads the file of a segment. @returns the segment, or what is wrong with it, as the end of a sentence */
export function readSegment(
  bytes: Buffer,
  name: SegmentName,
  seals: SegmentSeals,
): Segment | { readonly wrong: string } {
  // Bytes, not text: what is no UTF-8 would be read as if it was.
  const end = bytes.lastIndexOf('\n', bytes.length - 2) + 1;
  const content = bytes.subarray(0, end);
  const lastLine = bytes.toString('utf8', end);
  const last = parseJson(lastLine);
  if (end === 0 || !isJsonObject(last)) return { wrong: 'it breaks off' };
  const { sha256, seal } = last;
  if (typeof sha256 !== 'string' || sha256 !== digestOf(content)) return { wrong: 'it was altered or breaks off' };
  // A seal has only one spelling, and the line that has it as well.
  if (typeof seal !== 'string' || lastLine !== endLine(sha256, seal) || !isCanonical(seal))
    return { wrong: 'its last line was altered' };
  if (!seals.fitsRow(nameOf(name), sha256, seal))
    return { wrong: 'no gateway of this store sealed it as this segment, or its master secret is gone' };
  // Nothing else than `segmentText` is sealed.
  const [head, ...lines] = content
    .toString('utf8', 0, end - 1)
    .split('\n')
    .map(parseJson);
  if (!isJsonObject(head) || head['v'] !== VERSION) return { wrong: 'another version of the gateway wrote it' };
  const { before } = head;
  return { n: name.n, sha256, before: typeof before === 'string' ? before : null, rows: lines.map(rowOf) };
}

/** A seal is made for one place: a segment of another store, workspace or number does not fit. */
function nameOf({ installId, workspace, n }: SegmentName): string {
  return `archive ${installId} ${workspace} ${n}`;
}

function endLine(sha256: string, seal: string): string {
  return `${JSON.stringify({ sha256, seal })}\n`;
}

function digestOf(content: string | Buffer): string {
  return createHash('sha256').update(content).digest('base64url');
}

/** Whether a seal, `<id>.<MAC>`, is spelled as it is made: a decoder of base64url forgives other spellings. */
function isCanonical(seal: string): boolean {
  const [, mac = '', ...more] = seal.split('.');
  return more.length === 0 && Buffer.from(mac, 'base64url').toString('base64url') === mac;
}

function rowOf(line: Json | undefined): ArchivedRow {
  const [id, text] = isJsonArray(line) ? line : [];
  if (typeof id !== 'string' || typeof text !== 'string') throw new TypeError('a sealed line of a segment is no row');
  return { id, text };
}
