import type { FileReading } from '../diagnostics/file-reading.ts';
import type { UpstreamSettings } from './configuration.ts';
import { at, type Judge } from './judge.ts';
import type { GatewayFile } from './schema.ts';

type Written = Exclude<NonNullable<GatewayFile['upstreams'][number]['credentials']>, string>;

/** Headers that belong to the connection, not to a credential. */
const NO_CREDENTIAL =
  /^(host|content-length|content-type|transfer-encoding|connection|keep-alive|te|trailer|upgrade|expect|svc-.*)$/;
/** Longer files cannot be headers: no server accepts such a header. Bytes. */
const MAX_FILE = 16 * 1024;

/** The header with credentials that the gateway sends to an upstream. Its value is secret, so no finding shows it. */
export async function resolveCredentials(
  credentials: Written,
  judge: Judge,
  reading: FileReading,
): Promise<NonNullable<UpstreamSettings['credentials']>> {
  if (NO_CREDENTIAL.test(credentials.header.toLowerCase()))
    judge.error(
      'forbidden_header',
      at(credentials, 'header'),
      `Credentials cannot be sent as the header '${credentials.header}'`,
    );
  const place = credentials.value === undefined && credentials.file !== undefined ? 'file' : 'value';
  const value = await valueOf(credentials, judge, reading);
  if (value !== null && (!/^[\u0020-\u007e\u0080-\u00ff]*$/.test(value) || value.trim() !== value))
    judge.error('bad_header_value', at(credentials, place), [
      'The value cannot stand in a header',
      'it has a line break, a space at an end, or another character that headers do not carry',
    ]);
  return { header: credentials.header.toLowerCase(), value: value ?? '' };
}

async function valueOf(credentials: Written, judge: Judge, reading: FileReading): Promise<string | null> {
  const { value, file } = credentials;
  if ((value === undefined) === (file === undefined)) {
    judge.error('missing_field', at(credentials), [
      "Credentials need either 'value' or 'file'",
      'write one of the two',
    ]);
    return null;
  }
  return file === undefined ? (value ?? null) : readValue(file, credentials, judge, reading);
}

/** Reads the one line of a file. A line break at its end is not part of the value. */
async function readValue(
  file: string,
  credentials: Written,
  judge: Judge,
  reading: FileReading,
): Promise<string | null> {
  const fault = (code: string, message: string, hint: string): null => {
    judge.error(code, at(credentials, 'file'), [message, hint]);
    return null;
  };
  let text: string;
  try {
    if ((await reading.size(file)) > MAX_FILE)
      return fault('bad_header_value', `${file} is too long for a header`, 'it has to hold the value alone');
    text = new TextDecoder('utf-8', { fatal: true }).decode(await reading.bytes(file));
  } catch {
    return fault('file_missing', `${file} cannot be read`, 'paths are relative to the working directory');
  }
  const value = text.replace(/\r?\n$/, '');
  // A program that rewrites a file in place empties it first.
  return value === '' ? fault('bad_header_value', `${file} is empty`, 'write it whole, then rename it') : value;
}
