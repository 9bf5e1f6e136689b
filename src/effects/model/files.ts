import { isJsonObject, type Json, type JsonObject } from '../../json/value.ts';

/** A file of a call as it appears in the params. Policy, fingerprint and receipt see only this. */
export type FileFacts = JsonObject & {
  /** Only for parts of a form. A file that is the whole body has no name. */
  readonly filename?: string;
  /** Absent where the body has no content type. */
  readonly content_type?: string;
  readonly bytes: number;
  /** SHA-256 of the bytes, in hex. */
  readonly sha256: string;
};

/** The bytes of a call's files. The params hold only their digests. */
export interface CallFiles {
  readonly bytes: number;
  /** Reads a file in pieces. @throws Error when the call has no such file */
  read(sha256: string): AsyncIterable<Buffer>;
}

export const NO_FILES: CallFiles = { bytes: 0, read: () => absent() };

// eslint-disable-next-line require-yield -- there is nothing to give
async function* absent(): AsyncGenerator<Buffer> {
  throw new Error('the bytes of a file of the call are not there');
}

const MEMBERS: readonly string[] = ['filename', 'content_type', 'bytes', 'sha256'];

export function isFile(value: Json | undefined): value is FileFacts {
  if (!isJsonObject(value)) return false;
  const { filename, content_type: type, bytes, sha256 } = value;
  return (
    typeof sha256 === 'string' &&
    /^[0-9a-f]{64}$/.test(sha256) &&
    Number.isSafeInteger(bytes) &&
    (filename === undefined || typeof filename === 'string') &&
    (type === undefined || typeof type === 'string') &&
    Object.keys(value).every((name) => MEMBERS.includes(name))
  );
}

/** Files in memory, by SHA-256 in hex. */
export function filesOf(contents: ReadonlyMap<string, Buffer>): CallFiles {
  let bytes = 0;
  for (const content of contents.values()) bytes += content.byteLength;
  return {
    bytes,
    async *read(sha256) {
      const content = contents.get(sha256);
      if (content === undefined) throw new Error('the bytes of a file of the call are not there');
      yield content;
    },
  };
}

/** Base64 of files by SHA-256. In this form they are sealed with the params of a call that waits. */
export async function keptFiles(files: CallFiles, params: Json): Promise<Readonly<Record<string, string>>> {
  const kept: Record<string, string> = {};
  for (const { sha256 } of filesIn(params)) {
    if (kept[sha256] !== undefined) continue;
    const pieces: Buffer[] = [];
    for await (const piece of files.read(sha256)) pieces.push(piece);
    kept[sha256] = Buffer.concat(pieces).toString('base64');
  }
  return kept;
}

/** The reverse of {@link keptFiles}. */
export function filesKept(kept: Readonly<Record<string, string>> | undefined): CallFiles {
  if (kept === undefined) return NO_FILES;
  return filesOf(new Map(Object.entries(kept).map(([sha256, text]) => [sha256, Buffer.from(text, 'base64')])));
}

export function filesIn(value: Json | undefined): readonly FileFacts[] {
  if (typeof value !== 'object' || value === null) return [];
  if (isFile(value)) return [value];
  return Object.values(value).flatMap((member: Json) => filesIn(member));
}
