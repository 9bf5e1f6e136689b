import type { IncomingMessage } from 'node:http';

/** A body that was read completely. */
export type ReadBody =
  | { readonly kind: 'body'; readonly bytes: Buffer }
  | { readonly kind: 'too_large' }
  /** The caller went away in the middle: there is nobody to answer and nothing to run. */
  | { readonly kind: 'gone' };

/** Reads a request's body up to `limit` bytes. */
export function readBody(message: IncomingMessage, limit: number): Promise<ReadBody> {
  if (Number(message.headers['content-length'] ?? 0) > limit) return Promise.resolve({ kind: 'too_large' });
  return new Promise((resolve) => {
    const chunks: Buffer[] = [];
    let length = 0;
    message.on('data', (chunk: Buffer) => {
      length += chunk.byteLength;
      if (length > limit) {
        message.pause();
        resolve({ kind: 'too_large' });
      } else chunks.push(chunk);
    });
    message.on('end', () => {
      const [only] = chunks;
      resolve({
        kind: 'body',
        bytes: chunks.length === 1 && only !== undefined ? only : Buffer.concat(chunks, length),
      });
    });
    message.on('error', () => resolve({ kind: 'gone' }));
    message.on('close', () => resolve({ kind: 'gone' }));
  });
}
