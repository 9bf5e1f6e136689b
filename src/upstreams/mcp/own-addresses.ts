import { LARGE_TEXT } from '../../json/strict.ts';
import { isJsonArray, isJsonObject, type Json, type JsonObject } from '../../json/value.ts';
import { parseJson } from '../../json/text.ts';
import { jsonInSlices } from '../../json/write.ts';
import { changeElicitations } from '../../mcp-protocol/elicitation.ts';
import { readStrictly } from './whole-answer.ts';

/** Whether an address is, or looks like, one of the gateway itself. */
export type NamesGateway = (address: string) => boolean;

/** To look at an address takes time: what asks for more visits at once than this does not go on. */
const MOST_VISITS = 8;

/**
 * In place of an address that names the gateway. A client shows it, and its user can only decline: so the server gets its
 * answer as ever. (No address ends with `.invalid`: RFC 2606.)
 */
const NOWHERE = 'https://refused.invalid/';
const WHY =
  'The gateway has refused this request: an MCP server asked to open a page of the gateway itself, or an address too long to be looked at. Approvals are never asked for in this way. Decline.';

/** What a server said, as it goes on. */
export interface Guarded {
  readonly bytes: Buffer;
  /** `null` where it is no object that reads in one way only. */
  readonly message: JsonObject | null;
  /** Why it does not read in one way only; `null` where it does. */
  readonly fault: string | null;
}

/**
 * Takes addresses of the gateway out of the elicitations in what a server says: a person who is sent to the approver's
 * page is to come from the gateway, and from nobody who chooses the words around it. What is not touched goes on byte for
 * byte.
 * @returns `null` where it cannot be said what a client would read: it must not go on
 */
export async function guarded(bytes: Buffer, names: NamesGateway): Promise<Guarded | null> {
  const parsed = await readStrictly(bytes);
  if (parsed.ok) {
    const { value } = parsed;
    let visits = 0;
    const made = harmless(value, (address) => {
      visits += 1;
      return visits > MOST_VISITS || names(address);
    });
    if (visits > MOST_VISITS) return null;
    const message = isJsonObject(made) ? made : null;
    return { bytes: made === value ? bytes : await jsonInSlices(made), message, fault: null };
  }
  // Clients are less strict: what they could take for an elicitation does not go on.
  if (bytes.byteLength >= LARGE_TEXT) return null;
  const lenient = parseJson(bytes.toString('utf8').replace(/^\ufeff/, ''));
  const isSafe = lenient === undefined || harmless(lenient, () => true) === lenient;
  return isSafe ? { bytes, message: null, fault: parsed.message } : null;
}

/** Whether the bytes of an answer are packed: then nobody here knows what they say. */
export function isPacked(headers: Readonly<Record<string, string | readonly string[] | undefined>>): boolean {
  return !/^(identity)?$/i.test(String(headers['content-encoding'] ?? ''));
}

function harmless(value: Json, names: NamesGateway): Json {
  if (isJsonObject(value)) return changeElicitations(value, (params) => withoutAddress(params, names));
  if (!isJsonArray(value)) return value;
  const made = value.map((one) => (isJsonObject(one) ? harmless(one, names) : one));
  return made.every((one, index) => one === value[index]) ? value : made;
}

function withoutAddress(params: JsonObject, names: NamesGateway): JsonObject {
  const { url } = params;
  if (url === undefined || (typeof url === 'string' && !names(url))) return params;
  return { ...params, url: NOWHERE, message: WHY };
}
