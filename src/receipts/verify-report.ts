import { isJsonObject, type JsonObject } from '../json/value.ts';
import { parseStrictJson } from '../json/strict.ts';
import { type Check, type Verification, verifyReceipt } from './verify.ts';

/** What `svc verify` prints, and its exit code: 0 VALID, 1 INVALID, 2 UNDECIDABLE. */
export interface VerifyReport {
  readonly exit: 0 | 1 | 2;
  readonly text: string;
  /** For `--json`. */
  readonly json: JsonObject;
}

const MARKS: Readonly<Record<Check['status'], string>> = { passed: 'ok', failed: 'FAIL', undecided: '?', skipped: '-' };
const EXITS = { VALID: 0, INVALID: 1, UNDECIDABLE: 2 } as const;

const LIMITS_OF_PROOF = [
  'It does not prove that the upstream did what it answered, that this is the only receipt of the effect, nor when a',
  'stolen key would have signed it. The keys are as good as the place they were taken from.',
];

const BUNDLE_LIMITS = [
  'It does not prove that the gateway wrote down all that happened, nor that the upstreams did what they answered. With',
  'a filter other than a time, that nothing is left out is what the gateway says. The keys are as good as the place they',
  'were taken from.',
];

/**
 * Verifies a receipt from the texts of files.
 * @param files.receipt the file given to `svc verify`
 * @param files.trust a JWKS
 * @param files.disclosure salts and values that open commitments; `null` when none was given
 */
export function verifyReport(files: {
  readonly receipt: string;
  readonly trust: string;
  readonly disclosure: string | null;
}): VerifyReport {
  const trust = readObject(files.trust);
  if (trust === null || !Array.isArray(trust['keys'])) return unusable('The file with trusted keys is not a JWKS.');
  const disclosure = files.disclosure === null ? null : readObject(files.disclosure);
  if (files.disclosure !== null && disclosure === null) return unusable('The disclosure is not a JSON object.');
  return report(verifyReceipt({ content: files.receipt, trust, disclosure }));
}

/** Verifies a bundle. @param trust text of a JWKS; `null` when none was given */
export async function bundleReport(
  trust: string | null,
  check: (trust: JsonObject | null) => Promise<Verification>,
): Promise<VerifyReport> {
  const keys = trust === null ? null : readObject(trust);
  if (trust !== null && !Array.isArray(keys?.['keys'])) return unusable('The file with trusted keys is not a JWKS.');
  return report(await check(keys), BUNDLE_LIMITS);
}

function report({ verdict, checks, payload }: Verification, limits = LIMITS_OF_PROOF): VerifyReport {
  const lines = checks.map(({ name, status, detail }) => `${MARKS[status].padEnd(4)} ${name.padEnd(10)} ${detail}`);
  if (verdict === 'VALID') lines.push('', ...limits);
  return {
    exit: EXITS[verdict],
    text: `${[...lines, '', verdict].join('\n')}\n`,
    json: { verdict, checks: checks.map(({ name, status, detail }) => ({ name, status, detail })), payload },
  };
}

function unusable(detail: string): VerifyReport {
  return report({
    verdict: 'UNDECIDABLE',
    checks: [{ name: 'file', status: 'undecided', detail }],
    payload: null,
    keyId: null,
  });
}

function readObject(text: string): JsonObject | null {
  const parsed = parseStrictJson(text.trim(), { depth: 64, values: 1_000_000, name: 1_000_000 });
  return parsed.ok && isJsonObject(parsed.value) ? parsed.value : null;
}
