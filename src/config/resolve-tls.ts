import { createPrivateKey, X509Certificate } from 'node:crypto';
import { isIP } from 'node:net';
import { createSecureContext } from 'node:tls';
import type { FileReading } from '../diagnostics/file-reading.ts';
import type { TlsPair } from './configuration.ts';
import { at, type Judge, type Place } from './judge.ts';
import type { GatewayFile } from './schema.ts';
import type { UpstreamTls } from '../effects/upstream.ts';

/** Most bytes of a PEM file. No chain of certificates is longer. */
const MAX_FILE = 256 * 1024;
/** Most CAs of an upstream. Each takes up to a millisecond when they are taken on, and calls wait meanwhile. */
const MAX_CAS = 32;

const CERTIFICATE = /-----BEGIN (?:X509 |TRUSTED )?CERTIFICATE-----[^]*?-----END (?:X509 |TRUSTED )?CERTIFICATE-----/g;

/**
 * Reads a certificate and its key, and checks that they belong together. A fault in them is a fault of the
 * configuration, so a running gateway keeps its present pair.
 */
export async function resolveTlsPair(
  written: { readonly cert: string; readonly key: string },
  judge: Judge,
  reading: FileReading,
): Promise<TlsPair> {
  const cert = await readPem(written.cert, at(written, 'cert'), judge, reading);
  const key = await readPem(written.key, at(written, 'key'), judge, reading);
  const pair = { cert: cert ?? '', key: key ?? '' };
  if (cert === null || key === null) return pair;
  const fault = (code: string, of: 'cert' | 'key', message: string, hint: string): TlsPair => {
    judge.error(code, at(written, of), [message, hint]);
    return pair;
  };
  const leaf = certificateIn(cert);
  if (leaf === null)
    return fault('bad_certificate', 'cert', `${written.cert} holds no certificate that can be used`, 'PEM');
  const isOther = `${written.key} is not the key of the certificate in ${written.cert}`;
  try {
    // OpenSSL takes a key of another kind beside the certificate, and then no handshake succeeds.
    if (leaf.checkPrivateKey(createPrivateKey(key))) createSecureContext(pair);
    else fault('key_differs', 'key', isOther, 'replace both files; until then the pair before stays in force');
  } catch {
    fault(
      'bad_private_key',
      'key',
      `${written.cert} and ${written.key} cannot be used for TLS`,
      'PEM, without a password',
    );
  }
  warnOfDates(leaf, `The certificate in ${written.cert}`, at(written, 'cert'), judge);
  return pair;
}

type WrittenTls = NonNullable<GatewayFile['upstreams'][number]['tls']>;

/** Files that `tls` of an upstream names. */
export function filesOfTls({ ca = [], cert, key }: WrittenTls): readonly string[] {
  return [...(typeof ca === 'string' ? [ca] : ca), cert, key].filter((file) => file !== undefined);
}

/** Reads and checks what TLS towards an upstream needs. @param isHttps whether the upstream is spoken to over TLS */
export async function resolveUpstreamTls(
  written: WrittenTls,
  isHttps: boolean,
  judge: Judge,
  reading: FileReading,
): Promise<UpstreamTls> {
  const { ca, server_name: serverName = null, min_version: minVersion } = written;
  if (!isHttps)
    judge.error('tls_without_https', at(written), ['tls of an upstream needs an https URL', 'url: https://…']);
  if (serverName !== null && isIP(serverName) !== 0)
    judge.error('bad_server_name', at(written, 'server_name'), ['An address cannot be a server_name', 'a host name']);
  const [present, absent] = written.cert === undefined ? (['key', 'cert'] as const) : (['cert', 'key'] as const);
  if (written[present] !== undefined && written[absent] === undefined)
    judge.error('missing_field', at(written, present), [
      `tls has '${present}' and no '${absent}'`,
      'a client certificate needs both',
    ]);
  return {
    ca: ca === undefined ? null : await resolveCas(ca, written, judge, reading),
    client: hasPair(written) ? await resolveTlsPair(written, judge, reading) : null,
    serverName: serverName?.toLowerCase() ?? null,
    minVersion,
  };
}

function hasPair(written: WrittenTls): written is WrittenTls & { readonly cert: string; readonly key: string } {
  return written.cert !== undefined && written.key !== undefined;
}

/** The CAs of one or several files, as one text. */
async function resolveCas(
  ca: string | readonly string[],
  written: WrittenTls,
  judge: Judge,
  reading: FileReading,
): Promise<string> {
  const found: string[] = [];
  const files =
    typeof ca === 'string'
      ? [{ file: ca, place: at(written, 'ca') }]
      : ca.map((file, index) => ({ file, place: at(written, 'ca', index) }));
  for (const { file, place } of files) {
    const text = await readPem(file, place, judge, reading);
    if (text === null) continue;
    const blocks = text.match(CERTIFICATE) ?? [];
    if (blocks.length === 0)
      judge.error('bad_certificate', place, [`${file} holds no certificate`, '-----BEGIN CERTIFICATE-----']);
    // OpenSSL would leave out the first one that is broken, and all after it, without an error.
    for (const [index, block] of blocks.slice(0, MAX_CAS).entries()) {
      const what = blocks.length === 1 ? `The certificate in ${file}` : `Certificate ${index + 1} in ${file}`;
      const certificate = certificateIn(block);
      if (certificate === null) judge.error('bad_certificate', place, [`${what} cannot be used`, 'PEM']);
      else warnOfDates(certificate, what, place, judge);
    }
    found.push(...blocks);
  }
  if (found.length > MAX_CAS)
    judge.error('too_many_cas', at(written, 'ca'), [
      `tls.ca names ${found.length} certificates; ${MAX_CAS} is the most`,
      'name the CAs of this upstream; without ca, those that Node trusts are trusted',
    ]);
  return found.join('\n');
}

function warnOfDates(certificate: X509Certificate, what: string, place: Place, judge: Judge): void {
  if (Date.parse(certificate.validTo) < Date.now()) judge.warn('certificate_expired', place, `${what} has expired`);
  if (Date.parse(certificate.validFrom) > Date.now())
    judge.warn('certificate_not_yet_valid', place, [`${what} is not valid yet`, 'or the clock is wrong']);
}

/** The text of a PEM file; `null` where it cannot be read (reported). */
async function readPem(file: string, place: Place, judge: Judge, reading: FileReading): Promise<string | null> {
  const fault = (message: string, hint: string | null): null => {
    judge.error('file_missing', place, [message, hint]);
    return null;
  };
  try {
    if ((await reading.size(file)) > MAX_FILE) return fault(`${file} is too long for TLS`, 'PEM, at most 256 KiB');
    const text = (await reading.bytes(file)).toString('latin1');
    return text.includes('-----BEGIN ') ? text : fault(`${file} holds no PEM`, 'it begins with -----BEGIN');
  } catch (error) {
    switch (error instanceof Error && 'code' in error ? error.code : null) {
      case 'ENOENT':
        return fault(`There is no file ${file}`, 'paths are relative to the working directory');
      case 'EACCES':
      case 'EPERM':
        return fault(`${file} may not be read by this user`, null);
      case 'EISDIR':
        return fault(`${file} is a folder`, 'name the file in it');
      default:
        return fault(`${file} cannot be read`, 'paths are relative to the working directory');
    }
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
