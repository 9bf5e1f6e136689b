import type { IncomingHttpHeaders } from 'node:http';
import { brotliDecompressSync, gunzipSync, inflateSync } from 'node:zlib';
import { isJsonArray, isJsonObject, type Json, type JsonObject } from '../../../src/json/value.ts';

/*
 * Reads MCP messages as loosely as any server might: whatever could mean a call is one. What a strict reader before it
 * lets through by mistake is run here.
 */

/** The messages in a request, as the loosest server takes them. */
export function looseMessages(request: {
  readonly url: string;
  readonly headers: IncomingHttpHeaders;
  readonly body: Buffer;
}): readonly JsonObject[] {
  const { headers, body } = request;
  const found = objectsIn(textOf(inflated(body, headers), headers)).map(normalised);
  // A call can stand in the query as well.
  const query = new URL(request.url, 'http://x').searchParams;
  const method = query.get('method');
  const call = {
    jsonrpc: '2.0',
    id: 1,
    method: methodOf(method ?? ''),
    params: { name: toolOf(query.get('name') ?? '') },
  };
  if (method !== null) found.push(call);
  return found.map((message) => byHeaders(message, headers));
}

/** What stands in headers is believed before what stands in the body; of several values the last. */
function byHeaders(message: JsonObject, headers: IncomingHttpHeaders): JsonObject {
  const [method, name] = [headers['mcp-method'], headers['mcp-name']].map((value) =>
    value === undefined ? null : decoded(String(value).split(',').at(-1)?.trim() ?? ''),
  );
  const params = isJsonObject(message['params']) ? message['params'] : {};
  const named = message['method'] === 'resources/read' ? { uri: name ?? '' } : { name: toolOf(name ?? '') };
  return {
    ...message,
    ...(typeof method === 'string' && { method: methodOf(method) }),
    ...(typeof name === 'string' && { params: { ...params, ...named } }),
  };
}

function decoded(value: string): string {
  const coded = /^=\?base64\?(.*)\?=$/i.exec(value)?.[1];
  return coded === undefined ? value : Buffer.from(coded, 'base64').toString();
}

function inflated(body: Buffer, headers: IncomingHttpHeaders): Buffer {
  const encoding = String(headers['content-encoding'] ?? '');
  if (/gzip/i.test(encoding)) return gunzipSync(body);
  if (/deflate/i.test(encoding)) return inflateSync(body);
  return /br/i.test(encoding) ? brotliDecompressSync(body) : body;
}

function textOf(body: Buffer, headers: IncomingHttpHeaders): string {
  const type = String(headers['content-type'] ?? '');
  const [first, second] = body;
  const isBigEndian = (first === 0xfe && second === 0xff) || (first === 0 && second !== 0) || /utf-16be/i.test(type);
  const isLittleEndian = (first === 0xff && second === 0xfe) || second === 0 || /utf-16le/i.test(type);
  if (isBigEndian)
    return Buffer.from(body.subarray(0, body.length & ~1))
      .swap16()
      .toString('utf16le');
  if (isLittleEndian) return body.toString('utf16le');
  // Two bytes for an ASCII character: what strict decoders refuse.
  const bytes = [...body];
  const plain: number[] = [];
  for (let at = 0; at < bytes.length; at += 1) {
    const [lead = 0, next = 0] = bytes.slice(at, at + 2);
    const isOverlong = lead === 0xc0 || lead === 0xc1;
    plain.push(isOverlong ? ((lead & 1) << 6) | (next & 0x3f) : lead);
    if (isOverlong) at += 1;
  }
  const text = Buffer.from(plain).toString();
  const isForm = /urlencoded/i.test(type) || /^[a-z]+=%7b/i.test(text);
  return isForm ? decodeURIComponent(text.replaceAll('+', ' ')) : text;
}

/** Every outermost object of a text, whatever stands around it. */
function objectsIn(text: string): JsonObject[] {
  const found: JsonObject[] = [];
  const add = (value: Json): void => {
    if (isJsonArray(value)) value.forEach(add);
    else if (isJsonObject(value)) found.push(value);
  };
  let depth = 0;
  let from = 0;
  let quote = '';
  for (let at = 0; at < text.length; at += 1) {
    const character = text[at] ?? '';
    if (quote !== '') {
      if (character === '\\') at += 1;
      else if (character === quote) quote = '';
    } else if (character === '"' || (character === "'" && depth > 0)) quote = character;
    else if (character === '{') {
      if (depth === 0) from = at;
      depth += 1;
    } else if (character === '}' && depth > 0) {
      depth -= 1;
      if (depth === 0) add(parsed(text.slice(from, at + 1)));
    }
  }
  return found;
}

function parsed(text: string): Json {
  const repairs = [
    (given: string) => given,
    (given: string) => given.replace(/\/\*.*?\*\//gs, '').replace(/,\s*([}\]])/g, '$1'),
    (given: string) => given.replaceAll("'", '"'),
    (given: string) => given.replace(/\bNaN\b/g, 'null').replace(/\p{Cc}/gu, ' '),
    (given: string) => given.replace(/([{,])\s*([a-z]+)\s*:/g, '$1"$2":'),
  ];
  for (const repair of repairs)
    try {
      return JSON.parse(repair(text)) as Json;
    } catch {
      // The next repair may do it.
    }
  return null;
}

const MEMBERS: readonly string[] = ['jsonrpc', 'id', 'method', 'params', 'name', 'arguments', 'uri'];

/** Members in any case; of several that mean the same, the last. */
function folded(value: JsonObject): JsonObject {
  const members = Object.entries(value).map(([name, of]) => {
    const lower = name.toLowerCase();
    return [MEMBERS.includes(lower) ? lower : name, of] as const;
  });
  return Object.fromEntries(members);
}

function normalised(message: JsonObject): JsonObject {
  const { method, params = {}, ...others } = folded(message);
  const read = typeof params === 'string' ? parsed(params) : params;
  // As an assignment to `__proto__` does: what is inherited counts.
  const inherited = isJsonObject(read) && Object.hasOwn(read, '__proto__') ? read['__proto__'] : {};
  const given = isJsonArray(read)
    ? { name: read[0] ?? null, arguments: read[1] ?? null }
    : { ...(isJsonObject(inherited) ? inherited : {}), ...(isJsonObject(read) ? folded(read) : {}) };
  const named = given['name'] === undefined ? {} : { name: toolOf(given['name']) };
  return {
    ...others,
    ...(typeof method === 'string' && { method: methodOf(method) }),
    params: { ...given, ...named },
  };
}

function plain(text: string): string {
  let read = text;
  try {
    read = decodeURIComponent(text);
  } catch {
    // It is no percent-encoding.
  }
  return read
    .normalize('NFKC')
    .replace(/[\p{Cc}\p{Cf}\s]/gu, '')
    .toLowerCase();
}

function methodOf(method: string): string {
  const read = plain(method)
    .replace(/[./]+/g, '/')
    .replace(/^\/|\/$/g, '');
  return /^(?:notifications\/)?tools?\/?call$|^calltool$|^tools\/call[@?#:]/.test(read) ? 'tools/call' : read;
}

function toolOf(name: Json): string {
  if (isJsonArray(name)) return toolOf(name[0] ?? '');
  if (isJsonObject(name)) return toolOf(name['name'] ?? '');
  return (
    plain(String(name))
      .split(/[./:\\]|__/)
      .findLast((part) => part !== '') ?? ''
  );
}
