import { SALT_BYTES, SALTED_FIELDS, type SealedParams } from '../effects/ports.ts';
import { randomPooled } from '../effects/run/ids.ts';
import { readOwnJson } from '../json/read.ts';

/** The content of a seal without member names: of most calls they would be half of the text. */
type SealedTuple = readonly [
  params: SealedParams['params'],
  /** In base64url. */
  salts: string,
  stateCheck: SealedParams['stateCheck'],
  claimId: SealedParams['claimId'],
  reservationId: SealedParams['reservationId'],
  requestIp: string | null,
  headers?: SealedParams['headers'] | null,
  files?: SealedParams['files'],
];

/** The text that is sealed. */
export function paramsText({ params, salts, stateCheck, claimId, reservationId, ...more }: SealedParams): string {
  const { requestIp = null, headers, files } = more;
  const always = [params, salts.toString('base64url'), stateCheck, claimId, reservationId, requestIp] as const;
  const tuple: SealedTuple =
    files !== undefined ? [...always, headers ?? null, files] : headers !== undefined ? [...always, headers] : always;
  return JSON.stringify(tuple);
}

/** Reads the text of a seal that was open: its tag has proved that {@link paramsText} wrote it. */
export function paramsOf(text: string): SealedParams {
  const [params, salts, stateCheck, claimId, reservationId, requestIp, headers, files] = readOwnJson<SealedTuple>(text);
  return {
    params,
    salts: Buffer.from(salts, 'base64url'),
    stateCheck,
    claimId,
    reservationId,
    requestIp,
    ...(headers && { headers }),
    ...(files && { files }),
  };
}

/** One salt for each field that a receipt commits to. */
export function newSalts(): Buffer {
  return randomPooled(SALT_BYTES * SALTED_FIELDS.length);
}
