import { type KeyObject, timingSafeEqual } from 'node:crypto';
import { hmacSha256 } from '../../effects/run/fingerprint.ts';
import type { Json } from '../../json/value.ts';

/** Longest id of a server that gets a mark, characters. */
export const MAX_ID = 1_024;
const MARK_LENGTH = 43;

/**
 * An id of a server with a mark behind a dot that only the gateways of this installation can make. Nothing has to be
 * kept: any of them knows the id again, also after a restart.
 * @param of whose and what it is: the mark holds for nothing else
 */
export function withMark(key: KeyObject, of: readonly Json[], id: string): string {
  return `${id}.${markOf(key, of, id)}`;
}

/** The server's own id; `null` if the mark is not that of this owner. */
export function withoutMark(key: KeyObject, of: readonly Json[], marked: string, most: number = MAX_ID): string | null {
  const id = marked.slice(0, -(MARK_LENGTH + 1));
  if (id === '' || id.length > most || marked[id.length] !== '.') return null;
  const mark = Buffer.from(marked.slice(id.length + 1), 'latin1');
  const expected = Buffer.from(markOf(key, of, id), 'latin1');
  return mark.length === expected.length && timingSafeEqual(mark, expected) ? id : null;
}

function markOf(key: KeyObject, of: readonly Json[], id: string): string {
  return hmacSha256(key, JSON.stringify([...of, id]));
}
