import { canonicalJson } from '../../json/canonical.ts';
import { type Json, type JsonObject, isJsonArray, isJsonObject } from '../../json/value.ts';

/** The id of a request. */
export type Id = string | number;

/** What the client wrote on one line. */
export type FromClient =
  | { readonly kind: 'request'; readonly id: Id; readonly method: string; readonly params: JsonObject }
  | { readonly kind: 'notification'; readonly method: string; readonly params: JsonObject }
  | { readonly kind: 'response' }
  | { readonly kind: 'refused'; readonly code: number; readonly message: string };

const VERSION_KEY = 'io.modelcontextprotocol/protocolVersion';

/** Reads a line of the client. The server judges the rest: it gets the bytes as they came. */
export function readMessage(bytes: Buffer): FromClient {
  const value = parseJson(bytes.toString('utf8'));
  if (value === undefined) return { kind: 'refused', code: -32_700, message: 'The line is not JSON.' };
  if (!isJsonObject(value)) {
    const message = isJsonArray(value)
      ? 'Batches are not part of MCP any more. Write one message a line.'
      : 'A message is a JSON object.';
    return { kind: 'refused', code: -32_600, message };
  }
  const { id, method } = value;
  const params = isJsonObject(value['params']) ? value['params'] : {};
  if (typeof method !== 'string') {
    if ('result' in value || 'error' in value) return { kind: 'response' };
    return { kind: 'refused', code: -32_600, message: 'The message has no method, and is no answer.' };
  }
  if (id === undefined) return { kind: 'notification', method, params };
  if (typeof id === 'string' || typeof id === 'number') return { kind: 'request', id, method, params };
  return { kind: 'refused', code: -32_600, message: 'The id of a request is a text or a number.' };
}

/** A JSON value; `undefined` where the text is none. */
export function parseJson(text: string): Json | undefined {
  try {
    return JSON.parse(text) as Json;
  } catch {
    return undefined;
  }
}

/** The revision that a message of the stateless era names in itself; `null` for a message of the era of sessions. */
export function statelessVersion(params: JsonObject): string | null {
  const meta = params['_meta'];
  const version = isJsonObject(meta) ? meta[VERSION_KEY] : undefined;
  return typeof version === 'string' ? version : null;
}

/** The member of `params` that the header `Mcp-Name` repeats. */
const NAMED_BY: ReadonlyMap<string, string> = new Map([
  ['tools/call', 'name'],
  ['prompts/get', 'name'],
  ['resources/read', 'uri'],
  ['tasks/get', 'taskId'],
  ['tasks/update', 'taskId'],
  ['tasks/cancel', 'taskId'],
]);

/** The headers that repeat a request of the stateless era, which its servers require. */
export function mirrorHeaders(method: string, params: JsonObject, tools: ToolHeaders): Record<string, string> {
  const headers: Record<string, string> = { 'mcp-method': fieldValue(method) };
  const named = NAMED_BY.get(method);
  const name = named === undefined ? undefined : params[named];
  if (typeof name !== 'string') return headers;
  headers['mcp-name'] = fieldValue(name);
  if (method === 'tools/call') Object.assign(headers, tools.headersFor(name, params['arguments']));
  return headers;
}

/** Tools that are remembered. A server that lists more gets its calls without these headers. */
const MOST_TOOLS = 10_000;
const TOKEN = /^[!#$%&'*+\-.^_`|~0-9A-Za-z]+$/;

interface Declared {
  readonly header: string;
  readonly path: readonly string[];
}

/** Remembers from lists of tools which arguments a call repeats in headers (`x-mcp-header` in the input schema). */
export class ToolHeaders {
  readonly #declared = new Map<string, readonly Declared[]>();

  /** Reads the result of `tools/list`. */
  learn(result: Json | undefined): void {
    const tools = isJsonObject(result) ? result['tools'] : undefined;
    if (!isJsonArray(tools)) return;
    for (const tool of tools) {
      const name = isJsonObject(tool) ? tool['name'] : undefined;
      if (!isJsonObject(tool) || typeof name !== 'string') continue;
      const declared = declaredIn(tool['inputSchema'], []);
      if (declared.length === 0) this.#declared.delete(name);
      else if (this.#declared.size < MOST_TOOLS) this.#declared.set(name, declared);
    }
  }

  headersFor(tool: string, given: Json | undefined): Record<string, string> {
    const headers: Record<string, string> = {};
    for (const { header, path } of this.#declared.get(tool) ?? []) {
      let value = given;
      for (const name of path) value = isJsonObject(value) && Object.hasOwn(value, name) ? value[name] : undefined;
      if (typeof value === 'string') headers[`mcp-param-${header}`] = fieldValue(value);
      else if (typeof value === 'boolean' || typeof value === 'number')
        headers[`mcp-param-${header}`] = canonicalJson(value);
    }
    return headers;
  }
}

/** Levels of a schema that are searched. */
const MOST_LEVELS = 32;

function declaredIn(schema: Json | undefined, path: readonly string[]): readonly Declared[] {
  if (!isJsonObject(schema) || path.length > MOST_LEVELS) return [];
  const header = schema['x-mcp-header'];
  const own = typeof header === 'string' && TOKEN.test(header) && path.length > 0 ? [{ header, path }] : [];
  const properties = isJsonObject(schema['properties']) ? schema['properties'] : {};
  return [...own, ...Object.entries(properties).flatMap(([name, inner]) => declaredIn(inner, [...path, name]))];
}

const PLAIN_FIELD = /^[\x21-\x7e](?:[\t\x20-\x7e]*[\x21-\x7e])?$/;
const ENCODED = /^=\?base64\?.*\?=$/;

/** A text as the value of a header: as it is where headers can carry it, else in base64, as MCP writes it. */
function fieldValue(text: string): string {
  if (PLAIN_FIELD.test(text) && !ENCODED.test(text)) return text;
  return `=?base64?${Buffer.from(text, 'utf8').toString('base64')}?=`;
}
