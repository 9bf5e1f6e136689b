import type { AskedOf } from '../effects/store.ts';
import {
  createCipheriv,
  createDecipheriv,
  createHmac,
  createSecretKey,
  type DecipherChaCha20Poly1305,
  type DecipherGCM,
  type KeyObject,
  hkdfSync,
  randomBytes,
} from 'node:crypto';
import { inspect } from 'node:util';
import type { Sodium } from 'sodium-native';
import { type SealedParams, SALT_BYTES, SALTED_FIELDS, type SealBinding } from '../effects/ports.ts';
import { randomPooled } from '../effects/run/ids.ts';
import { quote, readOwnJson } from '../json/text.ts';
import { loadSodium } from '../sodium/load.ts';
import { KeyFileFault, makeKeyFile, readKeyFile } from './key-file.ts';
import { createKeySeals, type JudgingSeals, type SealingKey } from './key-seals.ts';
import { createPolicySeals, type PolicySeals } from './policy-seals.ts';

/** What a sealed text is bound to; it does not open for anything else. */
interface TextBinding {
  readonly what: 'approval' | 'vote' | 'allowance' | 'result' | 'entity' | 'approver' | 'console';
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
  readonly marks: AskedOf<'bindSecret'>;
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
 * @throws KeyFileFault (see `key-file.ts`)
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

/** The first byte of a seal names its cipher. Every gateway opens both. */
const AES_256_GCM = 1;
const CHACHA20_POLY1305 = 2;

const SUBKEY_NONCE_BYTES = 12;
const IV_BYTES = 12;
const TAG_BYTES = 16;
const IV_AT = 1 + KEY_ID_BYTES + SUBKEY_NONCE_BYTES;
const HEAD_BYTES = IV_AT + IV_BYTES;

/** Seals made under one subkey. Their nonces are counted: none repeats, and 32 bits are enough. */
const SEALS_PER_SUBKEY = 2 ** 31;

/** The keys of one master secret, and the id that its seals carry. */
interface SealKeys {
  readonly id: Buffer;
  readonly aes: KeyObject;
  readonly chacha: KeyObject;
}

/**
 * What seals. ChaCha20-Poly1305 by the native library where there is one; otherwise AES-256-GCM by `node:crypto`, which
 * makes an object for each seal, at three times the cost. A library that seals what `node:crypto` cannot open is not
 * used.
 * @param keys the ones to seal with, then those whose seals still open
 */
function createSeals(keys: readonly [SealKeys, ...SealKeys[]], sodium: Sodium | null): Seals {
  if (sodium === null) return new Seals(keys, null);
  const native = new Seals(keys, sodium);
  const probe = 'svc-gateway seal';
  return native.open(native.seal(probe, '"probe"'), '"probe"') === probe ? native : new Seals(keys, null);
}

/**
 * Seals texts: authenticated encryption, bound to what a text belongs to.
 *
 * Random 96-bit nonces allow 2^32 messages under one key, and a busy gateway reaches that within weeks. So each process
 * derives its own key from a random nonce, which its seals carry, and counts the seals under it.
 */
class Seals {
  readonly #keys: readonly [SealKeys, ...SealKeys[]];
  readonly #sodium: Sodium | null;
  readonly #head = Buffer.alloc(HEAD_BYTES);
  readonly #iv = this.#head.subarray(IV_AT);
  #seal: (text: string, bound: string) => string = () => '';
  #made = SEALS_PER_SUBKEY;

  constructor(keys: readonly [SealKeys, ...SealKeys[]], sodium: Sodium | null) {
    this.#keys = keys;
    this.#sodium = sodium;
    this.#head[0] = sodium === null ? AES_256_GCM : CHACHA20_POLY1305;
    keys[0].id.copy(this.#head, 1);
  }

  /** @param bound what the text belongs to: members of a JSON array, as text */
  seal(text: string, bound: string): string {
    if (this.#made === SEALS_PER_SUBKEY) this.#changeKey();
    this.#iv.writeUInt32BE(this.#made, IV_BYTES - 4);
    this.#made += 1;
    return this.#seal(text, bound);
  }

  /** @returns `null` when the seal is broken, is bound to something else, or its master secret is gone */
  open(sealed: string, bound: string): string | null {
    const bytes = Buffer.from(sealed, 'base64url');
    const keyId = bytes.subarray(1, 1 + KEY_ID_BYTES);
    const keys = this.#keys.find(({ id }) => id.equals(keyId));
    if (keys === undefined || bytes.length < HEAD_BYTES + TAG_BYTES) return null;
    const decipher = decipherOf(keys, bytes);
    if (decipher === null) return null;
    const content = bytes.subarray(HEAD_BYTES, -TAG_BYTES);
    decipher.setAAD(Buffer.from(`[${bytes[0]},${bound}]`), { plaintextLength: content.length });
    decipher.setAuthTag(bytes.subarray(-TAG_BYTES));
    try {
      const text = decipher.update(content);
      return Buffer.concat([text, decipher.final()]).toString('utf8');
    } catch {
      return null;
    }
  }

  #changeKey(): void {
    randomPooled(SUBKEY_NONCE_BYTES).copy(this.#head, 1 + KEY_ID_BYTES);
    this.#made = 0;
    const [keys] = this.#keys;
    this.#seal =
      this.#sodium === null
        ? aesSeal(this.#head, createSecretKey(subkey(keys.aes, this.#head)))
        : chachaSeal(this.#head, subkey(keys.chacha, this.#head), this.#sodium);
  }
}

/** The key of one process, or of a part of its run time, from the nonce in the heads of its seals. */
function subkey(key: KeyObject, head: Buffer): Buffer {
  return createHmac('sha256', key)
    .update(head.subarray(1 + KEY_ID_BYTES, IV_AT))
    .digest();
}

function decipherOf(keys: SealKeys, head: Buffer): DecipherGCM | DecipherChaCha20Poly1305 | null {
  const iv = head.subarray(IV_AT, HEAD_BYTES);
  const ofTag = { authTagLength: TAG_BYTES };
  if (head[0] === AES_256_GCM) return createDecipheriv('aes-256-gcm', subkey(keys.aes, head), iv, ofTag);
  if (head[0] === CHACHA20_POLY1305) return createDecipheriv('chacha20-poly1305', subkey(keys.chacha, head), iv, ofTag);
  return null;
}

function aesSeal(head: Buffer, key: KeyObject) {
  const iv = head.subarray(IV_AT);
  return (text: string, bound: string): string => {
    const cipher = createCipheriv('aes-256-gcm', key, iv);
    cipher.setAAD(Buffer.from(`[${AES_256_GCM},${bound}]`));
    const sealed = cipher.update(text, 'utf8');
    const rest = cipher.final();
    return Buffer.concat([head, sealed, rest, cipher.getAuthTag()]).toString('base64url');
  };
}

/** Most texts fit. A new buffer for each would be a large part of the cost of a seal. */
const SCRATCH_BYTES = 8192;

/** A UTF-16 code unit takes at most this many bytes in UTF-8. */
const MOST_BYTES = 3;

/** In place: head, text, tag, and after them what it is bound to. */
function chachaSeal(head: Buffer, plainKey: Buffer, sodium: Sodium) {
  const key = sodium.sodium_malloc(plainKey.length);
  plainKey.copy(key);
  plainKey.fill(0);
  sodium.sodium_mprotect_readonly(key);
  const iv = head.subarray(IV_AT);
  const scratch = Buffer.alloc(SCRATCH_BYTES);
  return (text: string, bound: string): string => {
    const associated = `[${CHACHA20_POLY1305},${bound}]`;
    const most = HEAD_BYTES + TAG_BYTES + (text.length + associated.length) * MOST_BYTES;
    const bytes = most <= SCRATCH_BYTES ? scratch : Buffer.alloc(most);
    head.copy(bytes);
    const tagAt = HEAD_BYTES + bytes.write(text, HEAD_BYTES, 'utf8');
    const end = tagAt + TAG_BYTES;
    const boundTo = bytes.subarray(end, end + bytes.write(associated, end, 'utf8'));
    const content = bytes.subarray(HEAD_BYTES, tagAt);
    const tag = bytes.subarray(tagAt, end);
    sodium.crypto_aead_chacha20poly1305_ietf_encrypt_detached(content, tag, content, boundTo, null, iv, key);
    return bytes.toString('base64url', 0, end);
  };
}

const MASTER_BYTES = 32;

/** What keys are derived for. The name of a purpose is an input of the derivation: a rename changes its keys. */
type Purpose =
  | 'key-pepper'
  | 'key-record'
  | 'key-record-id'
  | 'policy-bundle'
  | 'fingerprint'
  | 'seal'
  | 'seal-chacha20'
  | 'seal-id'
  | 'store-mark-sealed';

/**
 * The master secret of an installation, made on first start.
 * @param file path; its text is 32 bytes as base64url or base64, its mode 0600
 * @param mayMake called when the file is absent; `true` when nothing exists yet that was made under another secret
 * @throws KeyFileFault when the file is empty, of another length, guessable, or open to others; or when it is absent
 * and must not be made
 */
async function openMaster(file: string, mayMake: () => Promise<boolean>): Promise<Buffer> {
  const found = await readKeyFile(file);
  if (found !== null) return parseMaster(file, found);
  if (!(await mayMake()))
    throw new KeyFileFault(
      `The master secret ${file} is missing, and the store is in use already: with a new one no API key would be valid, and no call that waits for approval could be run. Restore the file from your backup, or copy it from another gateway of this store.`,
    );
  const made = randomBytes(MASTER_BYTES);
  if (await makeKeyFile(file, `${made.toString('base64url')}\n`)) return made;
  return readMaster(file);
}

/**
 * A master secret that must exist already (one that is being rotated out).
 * @throws KeyFileFault as {@link openMaster}, and when the file is absent
 */
async function readMaster(file: string): Promise<Buffer> {
  const found = await readKeyFile(file);
  if (found === null) throw new KeyFileFault(`${file} is named as a master secret, and is not there.`);
  return parseMaster(file, found);
}

function parseMaster(file: string, text: string): Buffer {
  const trimmed = text.trim();
  const remedy = 'It must hold 32 random bytes in base64 (openssl rand -base64 32).';
  if (trimmed === '') throw new KeyFileFault(`${file} is empty. ${remedy} Restore it; a new one would end every key.`);
  if (!/^[A-Za-z0-9_-]{43}$|^[A-Za-z0-9+/]{43}=$/.test(trimmed)) {
    throw new KeyFileFault(`${file} is not a master secret. ${remedy}`);
  }
  const master = Buffer.from(trimmed, 'base64');
  if (new Set(master).size < 8) throw new KeyFileFault(`${file} holds a secret that can be guessed. ${remedy}`);
  return master;
}

/**
 * Derives a key for one purpose (HKDF-SHA-256, 32 bytes). Keys of different purposes or contexts reveal nothing about
 * each other. The result is a key object instead of bytes: printing it shows nothing, and Node 24 uses it five times as
 * fast.
 * @param context what the key belongs to within its purpose, such as a workspace; empty for none
 */
function deriveKey(master: Buffer, purpose: Purpose, context: string): KeyObject {
  return createSecretKey(Buffer.from(hkdfSync('sha256', master, '', `svc-gateway/1/${purpose}/${context}`, 32)));
}
