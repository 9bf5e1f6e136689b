import type { ServerResponse } from 'node:http';

/** Of more bytes a copy costs more than a write. */
const MOST_COPIED = 16_384;

/** Ends an answer. With a head that has not gone, few bytes are one text, and one write without a list of buffers. */
export function endWith(response: ServerResponse, body: Buffer | string): void {
  if (typeof body === 'string' || body.length > MOST_COPIED) response.end(body);
  else response.end(body.toString('latin1'), 'latin1');
}
