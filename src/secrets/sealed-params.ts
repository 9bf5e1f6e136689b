import type { SealedParams } from '../effects/ports.ts';
import { randomPooled } from '../effects/run/ids.ts';
import { readOwnJson } from '../json/read.ts';

/** The content of a seal without member names: of most calls they would be half of the text. */
type SealedTuple = readonly [
  params: SealedParams['params'],
  /** Those of all salted fields, one after the other, or by name where they are others. */
  salts: string | SealedParams['salts'],
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
  const always = [params, packed(salts), stateCheck, claimId, reservationId, requestIp] as const;
  const tuple: SealedTuple =
    files !== undefined ? [...always, headers ?? null, files] : headers !== undefined ? [...always, headers] : always;
  return JSON.stringify(tuple);
}

/** Reads the text of a seal that was open: its tag has proved that {@link paramsText} wrote it. */
export function paramsOf(text: string): SealedParams {
  const content = readOwnJson<SealedTuple | SealedParams>(text);
  // Until there were tuples, the params were sealed as they are.
  if (!isTuple(content)) return content;
  const [params, salts, stateCheck, claimId, reservationId, requestIp, headers, files] = content;
  return {
    params,
    salts: typeof salts === 'string' ? unpacked(salts) : salts,
    stateCheck,
    claimId,
    reservationId,
    requestIp,
    ...(headers && { headers }),
    ...(files && { files }),
  };
}

function isTuple(content: SealedTuple | SealedParams): content is SealedTuple {
  return Array.isArray(content);
}

const SALT_BYTES = 16;
/** Characters of a salt in base64url. */
const SALT_LENGTH = 22;
/** The fields that a receipt commits to. */
const SALTED_FIELDS = 7;

/** One salt for each field that a receipt commits to: 16 random bytes, base64url. */
export function newSalts(): SealedParams['salts'] {
  const bytes = randomPooled(SALT_BYTES * SALTED_FIELDS);
  return saltsOf((index) => bytes.toString('base64url', index * SALT_BYTES, (index + 1) * SALT_BYTES));
}

/** The order is that of packed salts. */
function saltsOf(salt: (index: number) => string): SealedParams['salts'] {
  return {
    target: salt(0),
    params: salt(1),
    idem: salt(2),
    request: salt(3),
    response: salt(4),
    comment: salt(5),
    evidence: salt(6),
  };
}

function packed(salts: SealedParams['salts']): SealedTuple[1] {
  const { target, params, idem, request, response, comment, evidence, ...others } = salts;
  const all = [target, params, idem, request, response, comment, evidence];
  for (const _ in others) return salts;
  return all.every((salt) => salt?.length === SALT_LENGTH) ? all.join('') : salts;
}

function unpacked(all: string): SealedParams['salts'] {
  return saltsOf((index) => all.slice(index * SALT_LENGTH, (index + 1) * SALT_LENGTH));
}
