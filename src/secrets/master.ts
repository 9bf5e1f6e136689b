import { createSecretKey, hkdfSync, type KeyObject, randomBytes } from 'node:crypto';
import { KeyFileFault, makeKeyFile, readKeyFile } from './key-file.ts';

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
export async function openMaster(file: string, mayMake: () => Promise<boolean>): Promise<Buffer> {
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
export async function readMaster(file: string): Promise<Buffer> {
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
export function deriveKey(master: Buffer, purpose: Purpose, context: string): KeyObject {
  return createSecretKey(Buffer.from(hkdfSync('sha256', master, '', `svc-gateway/1/${purpose}/${context}`, 32)));
}
