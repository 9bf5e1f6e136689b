import { createHash } from 'node:crypto';
import type { ArchivedRow, Segment } from '../open-rows.ts';
import { isJsonArray, isJsonObject, type Json } from '../../json/value.ts';

/** Which segment a text has to be. */
export interface SegmentName {
  /** Id of the store that it was written for. */
  readonly installId: string;
  readonly workspace: string;
  /** Counts from 1 in the workspace. */
  readonly n: number;
}

/** Makes and checks the seals of segments. `of`: which one it is. */
export interface SegmentSeals {
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
  const last = parsed(lastLine);
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
    .map(parsed);
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

function parsed(line: string): Json | undefined {
  try {
    const value: Json = JSON.parse(line);
    return value;
  } catch {
    return undefined;
  }
}
