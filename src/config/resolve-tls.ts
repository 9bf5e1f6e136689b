import { X509Certificate } from 'node:crypto';
import { createSecureContext } from 'node:tls';
import type { FileReading } from '../diagnostics/file-reading.ts';
import type { TlsPair } from './configuration.ts';
import type { Judge } from './judge.ts';

/** Most bytes of a PEM file. No chain of certificates is longer. */
const MAX_FILE = 256 * 1024;

/**
 * Reads a certificate and its key, and checks that they belong together. A fault in them is a fault of the
 * configuration, so a running gateway keeps its present pair.
 */
export async function resolveTlsPair(
  written: { readonly cert: string; readonly key: string },
  judge: Judge,
  reading: FileReading,
): Promise<TlsPair> {
  const cert = await readPem(written, 'cert', judge, reading);
  const key = await readPem(written, 'key', judge, reading);
  const pair = { cert: cert ?? '', key: key ?? '' };
  if (cert === null || key === null) return pair;
  const leaf = certificateIn(cert);
  if (leaf === null) {
    judge.error('bad_certificate', written, ['cert'], `${written.cert} holds no certificate that can be used`, 'PEM');
    return pair;
  }
  try {
    createSecureContext(pair);
  } catch (error) {
    const isOther = error instanceof Error && 'code' in error && error.code === 'ERR_OSSL_X509_KEY_VALUES_MISMATCH';
    judge.error(
      isOther ? 'key_differs' : 'bad_private_key',
      written,
      ['key'],
      isOther
        ? `${written.key} is not the key of the certificate in ${written.cert}`
        : `${written.cert} and ${written.key} cannot be used for TLS`,
      isOther ? 'replace both files; until then the pair before stays in force' : 'PEM, without a password',
    );
  }
  if (Date.parse(leaf.validTo) < Date.now())
    judge.warn('certificate_expired', written, ['cert'], `The certificate in ${written.cert} has expired`, null);
  return pair;
}

/** The text of a PEM file; `null` where it cannot be read (reported). */
async function readPem<Field extends string>(
  written: Readonly<Record<Field, string>>,
  field: Field,
  judge: Judge,
  reading: FileReading,
): Promise<string | null> {
  const file = written[field];
  const fault = (message: string, hint: string): null => {
    judge.error('file_missing', written, [field], message, hint);
    return null;
  };
  try {
    if ((await reading.size(file)) > MAX_FILE) return fault(`${file} is too long for TLS`, 'PEM, at most 256 KiB');
    const text = (await reading.bytes(file)).toString('latin1');
    return text.includes('-----BEGIN ') ? text : fault(`${file} holds no PEM`, 'it begins with -----BEGIN');
  } catch {
    return fault(`${file} cannot be read`, 'paths are relative to the working directory');
  }
}

/** The first certificate of a PEM text; `null` where there is none. */
function certificateIn(pem: string): X509Certificate | null {
  try {
    return new X509Certificate(pem);
  } catch {
    return null;
  }
}
