/*
 * A bundle: what a gateway exports, as one file of JSON lines that proves itself. First `bundle` (what was asked for, and the
 * public keys), then `event`, `receipt`, `effect` and `policy` (the texts of a version), last `seal`: a JWS over the digest of
 * all bytes before it. A receipt follows the event that says that it was issued.
 */

/** Without a type of its own, a seal could pass for a receipt, or a receipt for a seal. */
export const EXPORT_TYP = 'svc-export+jws';

/** How many lines of each kind a bundle has. */
export interface BundleCounts {
  readonly events: number;
  readonly effects: number;
  readonly receipts: number;
  readonly policies: number;
}

/** What the seal of a bundle says. */
export interface ExportSeal extends BundleCounts {
  readonly workspace: string;
  /** ms */
  readonly at: number;
  /** SHA-256 (base64url) of all bytes before the seal. */
  readonly sha256: string;
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
