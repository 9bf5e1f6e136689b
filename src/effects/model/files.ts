import { isJsonObject, type Json, type JsonObject } from '../../json/value.ts';

/** A file of a call as it stands among the params: what policy, fingerprint and receipt see of it. */
export type FileFacts = JsonObject & {
  /** Of parts of a form; the whole of a body has none. */
  readonly filename?: string;
  /** Absent where a body has none. */
  readonly content_type?: string;
  readonly bytes: number;
  /** Of its bytes, in hex. */
  readonly sha256: string;
};

/** The bytes of the files of a call: params hold their digests only. */
export interface CallFiles {
  /** Of all of them. */
  readonly bytes: number;
  /**
   * A file in pieces.
   * @throws Error where it is not there
   */
  read(sha256: string): AsyncIterable<Buffer>;
}

export const NO_FILES: CallFiles = { bytes: 0, read: () => absent() };

// eslint-disable-next-line require-yield -- there is nothing to give
async function* absent(): AsyncGenerator<Buffer> {
  throw new Error('the bytes of a file of the call are not there');
}

const MEMBERS: readonly string[] = ['filename', 'content_type', 'bytes', 'sha256'];

/** Whether a value of a param stands for a file. */
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

/** Files as they are sealed with the params of a call that waits: base64 by SHA-256. */
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

/** What {@link keptFiles} made, as files again. */
export function filesKept(kept: Readonly<Record<string, string>> | undefined): CallFiles {
  if (kept === undefined) return NO_FILES;
  return filesOf(new Map(Object.entries(kept).map(([sha256, text]) => [sha256, Buffer.from(text, 'base64')])));
}

/** All files among params. */
export function filesIn(value: Json | undefined): readonly FileFacts[] {
  if (typeof value !== 'object' || value === null) return [];
  if (isFile(value)) return [value];
  return Object.values(value).flatMap((member: Json) => filesIn(member));
}
