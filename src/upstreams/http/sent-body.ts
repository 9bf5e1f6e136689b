import { createHash } from 'node:crypto';
import type { CallFiles } from '../../effects/model/files.ts';
import type { ComposedBody } from '../../effects/upstream.ts';

export type SentBody = ReturnType<typeof sentBody>;

/**
 * A composed body with the bytes of its files. The last piece of a file is held back until all its bytes have been
 * compared with those that policy saw. If the disk returns other bytes, the request ends before it is complete.
 * @param digest takes the bytes as they are sent
 * @param ended called once the whole body was given
 */
export function sentBody(body: ComposedBody, files: CallFiles, digest: (bytes: Buffer) => void, ended: () => void) {
  /** Its pieces; may be called only once. */
  async function* pieces(): AsyncGenerator<Buffer> {
    for (const piece of body.pieces) {
      // Nothing is kept of an empty file.
      if (!Buffer.isBuffer(piece) && piece.bytes === 0) continue;
      for await (const bytes of Buffer.isBuffer(piece) ? [piece] : verified(piece, files)) {
        if (bytes.byteLength === 0) continue;
        digest(bytes);
        yield bytes;
      }
    }
    ended();
  }
  return { contentType: body.contentType, length: body.length, pieces };
}

async function* verified(
  { sha256, bytes }: { readonly sha256: string; readonly bytes: number },
  files: CallFiles,
): AsyncGenerator<Buffer> {
  const hash = createHash('sha256');
  let length = 0;
  let held: Buffer | null = null;
  for await (const piece of files.read(sha256)) {
    hash.update(piece);
    length += piece.byteLength;
    if (length > bytes) break;
    if (held !== null) yield held;
    held = piece;
  }
  if (length !== bytes || hash.digest('hex') !== sha256) throw new Error('a file of the call is not what it was');
  if (held !== null) yield held;
}
