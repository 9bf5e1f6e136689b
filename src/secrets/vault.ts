import { createCipheriv, createDecipheriv, createHmac, createSecretKey, type KeyObject } from 'node:crypto';
import { inspect } from 'node:util';
import type { SealedParams } from '../effects/ports.ts';
import { randomPooled } from '../effects/run/ids.ts';
import type { SecretMarks } from '../effects/store.ts';
import { createKeySeals, type JudgingSeals, type SealingKey } from './key-seals.ts';
import { createPolicySeals, type PolicySeals } from './policy-seals.ts';
import { deriveKey, openMaster, readMaster } from './master.ts';
import { newSalts, paramsOf, paramsText } from './sealed-params.ts';

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
  readonly what: 'summary' | 'result' | 'entity' | 'approver';
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
  /** Encrypts with AES-256-GCM. Each process has its own key, and changes it before its nonces run out. */
  seal(plain: SealedParams, bound: SealBinding): string;
  /** @returns `null` when the seal is broken, is bound to something else, or its master secret is gone */
  open(sealed: string, bound: SealBinding): SealedParams | null;
  /** Encrypts a text in the same way. */
  sealText(text: string, bound: TextBinding): string;
  /** @returns `null` in the same cases as {@link open} */
  openText(sealed: string, bound: TextBinding): string | null;
  /** One salt for each field that a receipt commits to: 16 random bytes, base64url. */
  newSalts(): Readonly<Record<string, string>>;
  toJSON(): string;
  [inspect.custom](): string;
}

const FORMAT = 1;
const KEY_ID_BYTES = 4;
const SUBKEY_NONCE_BYTES = 12;
const IV_BYTES = 12;
const TAG_BYTES = 16;
const HEAD_BYTES = 1 + KEY_ID_BYTES + SUBKEY_NONCE_BYTES + IV_BYTES;

interface SealKey {
  readonly id: Buffer;
  readonly key: KeyObject;
}

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
  return secretsOf(master, previous);
}

function secretsOf(master: Buffer, previous: readonly Buffer[]): Secrets {
  const current = sealKeyOf(master);
  const seal = createSealer(current);
  const sealKeys = [current, ...previous.map(sealKeyOf)];
  const oldest = previous.at(-1) ?? master;
  const fingerprintKeys = new Map<string, KeyObject>();
  const hidden = (): string => '[secrets]';

  return {
    keyPepper: deriveKey(master, 'key-pepper', ''),
    previousPeppers: previous.map((one) => deriveKey(one, 'key-pepper', '')),
    keySeals: createKeySeals([sealingKeyOf(master), ...previous.map(sealingKeyOf)]),
    policySeals: createPolicySeals([master, ...previous].map((one) => deriveKey(one, 'policy-bundle', ''))),
    marks: { current: [markOf(master), ...previous.map(markOf)], unsealed: [master, ...previous].map(oldMarkOf) },
    fingerprintKey(workspace) {
      const known = fingerprintKeys.get(workspace);
      if (known !== undefined) return known;
      const made = deriveKey(oldest, 'fingerprint', workspace);
      fingerprintKeys.set(workspace, made);
      return made;
    },
    seal: (plain, bound) => seal(paramsText(plain), associated(bound)),
    open(sealed, bound) {
      const text = open(sealKeys, sealed, associated(bound));
      return text === null ? null : paramsOf(text);
    },
    sealText: (text, bound) => seal(text, associatedText(bound)),
    openText: (sealed, bound) => open(sealKeys, sealed, associatedText(bound)),
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

/** The mark in stores whose keys were written before there were seals. */
function oldMarkOf(master: Buffer): string {
  return deriveKey(master, 'store-mark', '').export().toString('base64url');
}

function sealKeyOf(master: Buffer): SealKey {
  return {
    id: deriveKey(master, 'seal-id', '').export().subarray(0, KEY_ID_BYTES),
    key: deriveKey(master, 'seal', ''),
  };
}

/** Seals made under one subkey. Their nonces are counted: none repeats, and 32 bits are enough. */
const SEALS_PER_SUBKEY = 2 ** 31;

/**
 * A key for the seals of one process, or of a part of its run time. Each seal carries the nonce that it is derived
 * from.
 */
function subkey(key: KeyObject, nonce: Buffer): KeyObject {
  return createSecretKey(createHmac('sha256', key).update(nonce).digest());
}

function associated(bound: SealBinding): Buffer {
  return Buffer.from(JSON.stringify([FORMAT, bound.workspace, bound.effectId, bound.fingerprint]));
}

/** Has other members than {@link associated}, so that a sealed text never opens as params, nor params as a text. */
function associatedText({ what, workspace, of, part }: TextBinding): Buffer {
  return Buffer.from(JSON.stringify([FORMAT, 'text', what, workspace, of, part]));
}

/**
 * Random 96-bit nonces allow 2^32 messages under one key, and a busy gateway reaches that within weeks. So each process
 * derives its own key from a random nonce, and counts the seals under it.
 */
function createSealer(current: SealKey): (plain: string, bound: Buffer) => string {
  const head = Buffer.alloc(HEAD_BYTES);
  head[0] = FORMAT;
  current.id.copy(head, 1);
  const nonce = head.subarray(1 + KEY_ID_BYTES, HEAD_BYTES - IV_BYTES);
  const iv = head.subarray(HEAD_BYTES - IV_BYTES);
  let key = current.key;
  let seals = SEALS_PER_SUBKEY;
  return (plain, bound) => {
    if (seals === SEALS_PER_SUBKEY) {
      randomPooled(SUBKEY_NONCE_BYTES).copy(nonce);
      key = subkey(current.key, nonce);
      seals = 0;
    }
    iv.writeUInt32BE(seals, IV_BYTES - 4);
    seals += 1;
    const cipher = createCipheriv('aes-256-gcm', key, iv);
    cipher.setAAD(bound);
    const text = cipher.update(plain, 'utf8');
    const rest = cipher.final();
    return Buffer.concat([head, text, rest, cipher.getAuthTag()]).toString('base64url');
  };
}

function open(keys: readonly SealKey[], sealed: string, bound: Buffer): string | null {
  const bytes = Buffer.from(sealed, 'base64url');
  if (bytes.length < HEAD_BYTES + TAG_BYTES || bytes[0] !== FORMAT) return null;
  const keyId = bytes.subarray(1, 1 + KEY_ID_BYTES);
  const key = keys.find((one) => one.id.equals(keyId));
  if (key === undefined) return null;
  const ivAt = 1 + KEY_ID_BYTES + SUBKEY_NONCE_BYTES;
  const decipher = createDecipheriv(
    'aes-256-gcm',
    subkey(key.key, bytes.subarray(1 + KEY_ID_BYTES, ivAt)),
    bytes.subarray(ivAt, HEAD_BYTES),
    { authTagLength: TAG_BYTES },
  );
  decipher.setAAD(bound);
  decipher.setAuthTag(bytes.subarray(-TAG_BYTES));
  try {
    const text = Buffer.concat([decipher.update(bytes.subarray(HEAD_BYTES, -TAG_BYTES)), decipher.final()]);
    return text.toString('utf8');
  } catch {
    return null;
  }
}
