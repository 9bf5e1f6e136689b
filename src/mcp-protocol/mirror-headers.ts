import type { JsonObject } from '../json/value.ts';

/* Headers that repeat what the body of a request says, so that what stands on the way need not read it. */

/** The member of `params` that the header `Mcp-Name` repeats, by method. */
const NAMED_BY: ReadonlyMap<string, string> = new Map([
  ['tools/call', 'name'],
  ['prompts/get', 'name'],
  ['resources/read', 'uri'],
  ['tasks/get', 'taskId'],
  ['tasks/update', 'taskId'],
  ['tasks/cancel', 'taskId'],
]);

/** The name, URI or task that a request is about; `null` where its method has none. */
export function namedIn(method: string, params: JsonObject): string | null {
  const member = NAMED_BY.get(method);
  const value = member === undefined ? undefined : params[member];
  return typeof value === 'string' ? value : null;
}

const PLAIN_FIELD = /^[\x21-\x7e](?:[\t\x20-\x7e]*[\x21-\x7e])?$/;
const ENCODED = /^=\?base64\?.*\?=$/;

/** A text as the value of a header: as it is where headers can carry it, else in base64, as MCP writes it. */
export function encodeHeader(text: string): string {
  if (PLAIN_FIELD.test(text) && !ENCODED.test(text)) return text;
  return `=?base64?${Buffer.from(text, 'utf8').toString('base64')}?=`;
}

const BASE64_FORM = /^=\?base64\?([A-Za-z0-9+/]*={0,2})\?=$/;

/** The value of an MCP header: as it is, or in the form `=?base64?…?=`; `null` if that cannot be read. */
export function decodeHeader(value: string): string | null {
  if (!value.startsWith('=?base64?') || !value.endsWith('?=')) return value;
  const coded = BASE64_FORM.exec(value)?.[1];
  if (coded === undefined) return null;
  const bytes = Buffer.from(coded, 'base64');
  // Only the one form that encodes the bytes: other servers may read another in another way.
  return bytes.toString('base64') === coded ? bytes.toString('utf8') : null;
}
