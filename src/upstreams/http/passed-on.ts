import { isUtf8 } from 'node:buffer';
import { createHash } from 'node:crypto';
import type { PassedOnFacts } from '../../effects/model/answer.ts';
import { endOfEvent } from './events.ts';

/** The most bytes of the end of an answer that was passed on which are kept. */
const MOST_TAIL = 4096;

/** Keeps count of an answer that is passed on: its length, its digest, and its end. */
export interface PassedOn {
  take(piece: Buffer): void;
  facts(): PassedOnFacts;
}

/** @param keptBytes the most bytes that may be kept of an answer */
export function createPassedOn(keptBytes: number): PassedOn {
  const most = Math.min(keptBytes, MOST_TAIL);
  const digest = createHash('sha256');
  let bytes = 0;
  let tail = Buffer.alloc(0);
  return {
    take(piece) {
      bytes += piece.byteLength;
      digest.update(piece);
      // A copy: a slice would keep the whole piece, and all that was read with it, in memory.
      const before =
        piece.byteLength < most ? tail.subarray(Math.max(0, tail.byteLength + piece.byteLength - most)) : [];
      tail = Buffer.concat([Buffer.from(before), piece.subarray(Math.max(0, piece.byteLength - most))]);
    },
    facts: () => ({ bytes, sha256: digest.digest('hex'), tail: tailText(tail, bytes > tail.byteLength) }),
  };
}

/** @param isCut whether something came before it */
function tailText(tail: Buffer, isCut: boolean): string | null {
  if (!isCut) return isUtf8(tail) ? tail.toString('utf8') : null;
  // The first event is cut, and perhaps a character.
  const start = endOfEvent(tail);
  for (let from = start; from <= start + 3; from += 1) {
    const end = tail.subarray(from);
    if (isUtf8(end)) return end.toString('utf8');
  }
  return null;
}
