import { createHash } from 'node:crypto';
import type { JsonObject } from '../json/value.ts';

/*
 * A bundle: what a gateway exports, as one file of JSON lines that proves itself. First `bundle` (what was asked for, and the
 * public keys), then `event`, `receipt`, `effect` and `policy` (the texts of a version), last `seal`: a JWS over the digest of
 * all bytes before it. A receipt follows the event that says that it was issued.
 */

/** Without a type of its own, a seal could pass for a receipt, or a receipt for a seal. */
export const EXPORT_TYP = 'svc-export+jws';

export interface BundleCounts {
  readonly events: number;
  readonly effects: number;
  readonly receipts: number;
  readonly policies: number;
}

export interface ExportSeal extends BundleCounts, BundleDigest {
  readonly workspace: string;
  /** ms */
  readonly at: number;
}

export interface BundleDigest {
  /** SHA-256 (base64url) of all bytes before the seal. */
  readonly sha256: string;
  /** Letters of the digest of all lines so far, after each so many of them: they say where an altered bundle begins to differ. */
  readonly marks: string;
  readonly every: number;
}

/** Most marks of one seal: of more lines each stands for several. */
const MOST_MARKS = 1024;
const MARK_LETTERS = 8;

/** The digest of a bundle that is made, or read, line by line. */
export function createBundleDigest() {
  const digest = createHash('sha256');
  let marks: string[] = [];
  let every = 1;
  let lines = 0;
  return {
    /** @param bytes of whole lines */
    update(bytes: Buffer): void {
      let from = 0;
      for (let end = bytes.indexOf(10); end >= 0; end = bytes.indexOf(10, end + 1)) {
        lines += 1;
        if (lines % every !== 0) continue;
        digest.update(bytes.subarray(from, end + 1));
        from = end + 1;
        marks.push(digest.copy().digest('base64url').slice(0, MARK_LETTERS));
        if (marks.length < MOST_MARKS) continue;
        marks = marks.filter((_, index) => index % 2 === 1);
        every *= 2;
      }
      digest.update(bytes.subarray(from));
    },
    end: (): BundleDigest => ({ sha256: digest.digest('base64url'), marks: marks.join(''), every }),
  };
}

/** That a bundle is not what was sealed, and where it begins to differ, if the seal has marks. @param was what the seal says */
export function alteredText(is: BundleDigest, { marks, every: of }: JsonObject): string {
  const altered = 'The bundle was altered after it was sealed';
  if (typeof marks !== 'string' || typeof of !== 'number' || !Number.isInteger(Math.log2(of))) return `${altered}.`;
  const every = Math.max(is.every, of);
  const mark = (text: string, distance: number, line: number): string =>
    text.slice((line / distance - 1) * MARK_LETTERS, (line / distance) * MARK_LETTERS);
  for (let line = every; ; line += every) {
    const [one, other] = [mark(is.marks, is.every, line), mark(marks, of, line)];
    if (one !== '' && one === other) continue;
    const from = line - every + 1;
    const there = every === 1 ? `line ${line}` : `one of the lines ${from} to ${line}`;
    const first = one === '' || other === '' ? `line ${from} or later` : there;
    return `${altered}: the first line that is not as it was is ${first}.`;
  }
}

/** The last line of a bundle. Its form is fixed to the byte, so that it has one spelling. */
export function sealLine(jws: string): string {
  return `{"type":"seal","jws":"${jws}"}\n`;
}

/** The JWS of such a line without its line end; `null` for any other. */
export function jwsOfSeal(line: string): string | null {
  const jws = /^\{"type":"seal","jws":"([\w.-]+)"\}$/.exec(line)?.[1];
  return jws ?? null;
}
