import type { KeyObject } from 'node:crypto';
import { inspect } from 'node:util';
import type { Sodium } from 'sodium-native';
import { type SealedParams, SALT_BYTES, SALTED_FIELDS } from '../effects/ports.ts';
import { quote } from '../json/quote.ts';
import { loadSodium } from '../sodium/load.ts';
import { createKeySeals, type JudgingSeals, type SealingKey } from './key-seals.ts';
import { createPolicySeals, type PolicySeals } from './policy-seals.ts';
import { deriveKey, openMaster, readMaster } from './master.ts';
import { createSeals, type SealKeys } from './seals.ts';
import type { SecretMarks } from '../effects/key-store.ts';
import { randomPooled } from '../effects/run/ids.ts';
import { readOwnJson } from '../json/read.ts';

/**
 * What a seal is bound to; it does not open for anything else. A generation is not needed: the fingerprint covers the
 * params, and all attempts of an effect share the params and the salts of the first one.
 */
interface SealBinding {
  readonly workspace: string;
  readonly effectId: string;
  readonly fingerprint: string;
}

/** What a sealed text is bound to; it does not open for anything else. */
interface TextBinding {
  readonly what: 'approval' | 'vote' | 'result' | 'entity' | 'approver' | 'console';
  readonly workspace: string;
  /** Id of the record that has the text, and which of its texts it is. */
  readonly of: string;
  readonly part: number;
}

/** The secrets of an installation. Printing or serialising the object shows nothing. */
export interface Secrets {
  /** Key of the HMAC under which API keys are stored. */
  readonly keyPepper: KeyObject;
  /** Peppers of master secrets that are being rotated out: keys made under them stay valid. */
  readonly previousPeppers: readonly KeyObject[];
  /** Seals records of keys. Seals made under a master secret that is being rotated out are still accepted. */
  readonly keySeals: JudgingSeals;
  /** Vouches for versions of policies: who can only write to the store puts none in force that no gateway had. */
  readonly policySeals: PolicySeals;
  /** Marks that a store keeps, to remember which master secret it is used with. */
  readonly marks: SecretMarks;
  /**
   * The key for the fingerprints of a workspace. During a rotation it is still derived from the oldest master secret: a
   * repeated call must get the same fingerprint as the first one, or it would be a conflict.
   */
  fingerprintKey(workspace: string): KeyObject;
  /** Encrypts. Each process has its own key, and changes it before its nonces run out. */
  seal(plain: SealedParams, bound: SealBinding): string;
  /** @returns `null` when the seal is broken, is bound to something else, or its master secret is gone */
  open(sealed: string, bound: SealBinding): SealedParams | null;
  /** Encrypts a text in the same way. */
  sealText(text: string, bound: TextBinding): string;
  /** @returns `null` in the same cases as {@link open} */
  openText(sealed: string, bound: TextBinding): string | null;
  /** One salt for each field that a receipt commits to. */
  newSalts(): Buffer;
  toJSON(): string;
  [inspect.custom](): string;
}

const KEY_ID_BYTES = 4;

/** Where the secrets of an installation are. */
export interface SecretFiles {
  /** Made with mode 0600 when it is absent. */
  readonly masterFile: string;
  /**
   * Master secrets that are being rotated out, newest first. They open old seals and verify old keys, and make no new
   * ones.
   */
  readonly previous: readonly string[];
}

/**
 * Opens the secrets of an installation; makes the master secret on first start.
 * @param mayMake called when the master secret is absent: whether one may be made
 * @throws KeyFileFault (see `master.ts`)
 */
export async function openSecrets(files: SecretFiles, mayMake = () => Promise.resolve(true)): Promise<Secrets> {
  const master = await openMaster(files.masterFile, mayMake);
  const previous = await Promise.all(files.previous.map(readMaster));
  return secretsOf(master, previous, await loadSodium());
}

function secretsOf(master: Buffer, previous: readonly Buffer[], sodium: Sodium | null): Secrets {
  const seals = createSeals([sealKeysOf(master), ...previous.map(sealKeysOf)], sodium);
  const oldest = previous.at(-1) ?? master;
  const fingerprintKeys = new Map<string, KeyObject>();
  const hidden = (): string => '[secrets]';

  return {
    keyPepper: deriveKey(master, 'key-pepper', ''),
    previousPeppers: previous.map((one) => deriveKey(one, 'key-pepper', '')),
    keySeals: createKeySeals([sealingKeyOf(master), ...previous.map(sealingKeyOf)]),
    policySeals: createPolicySeals([master, ...previous].map((one) => deriveKey(one, 'policy-bundle', ''))),
    marks: [markOf(master), ...previous.map(markOf)],
    fingerprintKey(workspace) {
      const known = fingerprintKeys.get(workspace);
      if (known !== undefined) return known;
      const made = deriveKey(oldest, 'fingerprint', workspace);
      fingerprintKeys.set(workspace, made);
      return made;
    },
    seal: (plain, bound) => seals.seal(paramsText(plain), paramsBinding(bound)),
    open(sealed, bound) {
      const text = seals.open(sealed, paramsBinding(bound));
      return text === null ? null : paramsOf(text);
    },
    sealText: (text, bound) => seals.seal(text, textBinding(bound)),
    openText: (sealed, bound) => seals.open(sealed, textBinding(bound)),
    newSalts,
    toJSON: hidden,
    [inspect.custom]: hidden,
  };
}

function sealingKeyOf(master: Buffer): SealingKey {
  return {
    id: deriveKey(master, 'key-record-id', '').export().toString('base64url', 0, KEY_ID_BYTES),
    key: deriveKey(master, 'key-record', ''),
  };
}

function markOf(master: Buffer): string {
  return deriveKey(master, 'store-mark-sealed', '').export().toString('base64url');
}

function sealKeysOf(master: Buffer): SealKeys {
  return {
    id: deriveKey(master, 'seal-id', '').export().subarray(0, KEY_ID_BYTES),
    aes: deriveKey(master, 'seal', ''),
    chacha: deriveKey(master, 'seal-chacha20', ''),
  };
}

function paramsBinding({ workspace, effectId, fingerprint }: SealBinding): string {
  // Ids and fingerprints need no escapes.
  return `${quote(workspace)},"${effectId}","${fingerprint}"`;
}

/** Has other members than {@link paramsBinding}, so that a sealed text never opens as params, nor params as a text. */
function textBinding({ what, workspace, of, part }: TextBinding): string {
  return `"text","${what}",${quote(workspace)},${quote(of)},${part}`;
}

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
  files?: SealedParams['files'] | null,
  asked?: SealedParams['asked'],
];

/** The text that is sealed. */
function paramsText(plain: SealedParams): string {
  const { params, stateCheck, claimId, reservationId, requestIp = null, headers, files, asked } = plain;
  const salts = plain.salts.toString('base64url');
  if (asked !== undefined)
    return JSON.stringify([
      params,
      salts,
      stateCheck,
      claimId,
      reservationId,
      requestIp,
      headers ?? null,
      files ?? null,
      asked,
    ] satisfies SealedTuple);
  const tuple: SealedTuple =
    files !== undefined
      ? [params, salts, stateCheck, claimId, reservationId, requestIp, headers ?? null, files]
      : headers !== undefined
        ? [params, salts, stateCheck, claimId, reservationId, requestIp, headers]
        : [params, salts, stateCheck, claimId, reservationId, requestIp];
  return JSON.stringify(tuple);
}

/** Reads the text of a seal that was open: its tag has proved that {@link paramsText} wrote it. */
function paramsOf(text: string): SealedParams {
  const [params, salts, stateCheck, claimId, reservationId, requestIp, headers, files, asked] =
    readOwnJson<SealedTuple>(text);
  return {
    params,
    salts: Buffer.from(salts, 'base64url'),
    stateCheck,
    claimId,
    reservationId,
    requestIp,
    ...(headers && { headers }),
    ...(files && { files }),
    ...(asked && { asked }),
  };
}

/** One salt for each field that a receipt commits to. */
export function newSalts(): Buffer {
  return randomPooled(SALT_BYTES * SALTED_FIELDS.length);
}
