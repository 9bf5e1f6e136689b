import { type Json, type JsonObject, isJsonArray, isJsonObject } from '../../../src/json/value.ts';
import { parseJson } from '../../../src/json/text.ts';
import { encodeHeader, namedIn } from '../../../src/mcp-protocol/mirror-headers.ts';
import {
  type ParamHeader,
  paramHeaderFault,
  paramHeadersIn,
  paramHeadersOf,
} from '../../../src/mcp-protocol/param-headers.ts';

export type Id = string | number;

export type FromClient =
  | { readonly kind: 'request'; readonly id: Id; readonly method: string; readonly params: JsonObject }
  | { readonly kind: 'notification'; readonly method: string; readonly params: JsonObject }
  | { readonly kind: 'response' }
  | { readonly kind: 'refused'; readonly code: number; readonly message: string };

export type Request = Extract<FromClient, { kind: 'request' }>;

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
  if (typeof id === 'string' || (typeof id === 'number' && isExact(id))) return { kind: 'request', id, method, params };
  return { kind: 'refused', code: -32_600, message: 'The id of a request is a text, or a number that all read alike.' };
}

/** Larger integers are rounded, each by its reader: the answer would be that to another request. */
function isExact(id: number): boolean {
  return Number.isSafeInteger(id) || (Number.isFinite(id) && !Number.isInteger(id));
}

/** Whether clients can read it as an answer. One that they cannot read they would wait for. */
export function isAnswer({ jsonrpc, result, error }: JsonObject): boolean {
  if (jsonrpc !== '2.0') return false;
  return error === undefined ? isJsonObject(result) : result === undefined && isError(error);
}

export function isError(error: Json | undefined): error is JsonObject {
  return isJsonObject(error) && Number.isInteger(error['code']) && typeof error['message'] === 'string';
}

/** The revision that a message names, if a header can carry it. */
export function headerVersion(version: Json | undefined): string | null {
  return typeof version === 'string' && /^[\x21-\x7e]{1,64}$/.test(version) ? version : null;
}

/** The headers that repeat a request of the stateless era, which its servers require. */
export function mirrorHeaders(method: string, params: JsonObject, tools: ToolHeaders): Record<string, string> {
  const headers: Record<string, string> = { 'mcp-method': encodeHeader(method) };
  const name = namedIn(method, params);
  if (name === null) return headers;
  headers['mcp-name'] = encodeHeader(name);
  if (method === 'tools/call') Object.assign(headers, tools.headersFor(name, params['arguments']));
  return headers;
}

/** Tools that are remembered. A server that lists more gets its calls without these headers. */
const MOST_TOOLS = 10_000;

/** Remembers from lists of tools which arguments a call repeats in headers (`x-mcp-header` in the input schema). */
export class ToolHeaders {
  readonly #declared = new Map<string, readonly ParamHeader[]>();

  /** Reads the result of `tools/list`. */
  learn(result: Json | undefined): void {
    const tools = isJsonObject(result) ? result['tools'] : undefined;
    if (!isJsonArray(tools)) return;
    for (const tool of tools) {
      const name = isJsonObject(tool) ? tool['name'] : undefined;
      if (!isJsonObject(tool) || typeof name !== 'string') continue;
      const declared = paramHeadersIn(tool['inputSchema']);
      if (declared.length === 0) this.#declared.delete(name);
      else if (this.#declared.size < MOST_TOOLS) this.#declared.set(name, declared);
    }
  }

  headersFor(tool: string, given: Json | undefined): Record<string, string> {
    return paramHeadersOf(this.#declared.get(tool) ?? [], given);
  }
}

/**
 * The answer to `tools/list` without tools whose headers cannot be sent, which clients of the stateless era leave out;
 * `null` where there are none.
 */
export function withoutUnsendable(answer: JsonObject, log: (line: string) => void): string | null {
  const { result } = answer;
  if (!isJsonObject(result) || !isJsonArray(result['tools'])) return null;
  const { tools } = result;
  const sendable = tools.filter((tool) => {
    const why = isJsonObject(tool) ? paramHeaderFault(tool['inputSchema']) : null;
    if (why !== null && isJsonObject(tool)) log(`the tool ${JSON.stringify(tool['name'])} was left out: ${why}`);
    return why === null;
  });
  return sendable.length === tools.length
    ? null
    : JSON.stringify({ ...answer, result: { ...result, tools: sendable } });
}

const SAFE: ReadonlySet<string> = new Set([
  'initialize',
  'ping',
  'server/discover',
  'tools/list',
  'prompts/list',
  'prompts/get',
  'resources/list',
  'resources/templates/list',
  'resources/read',
  'completion/complete',
  'subscriptions/listen',
  'tasks/get',
  'tasks/list',
]);

/**
 * What became of the action of a request that was not carried out: an equal request may have run before, and may have
 * lost its answer.
 */
export function earlierOf(method: string): { readonly happened: 'no' | 'maybe'; readonly sentence: string } {
  return changesNothing(method)
    ? { happened: 'no', sentence: '' }
    : { happened: 'maybe', sentence: ' An earlier request for the same action may have run.' };
}

/** Whether a request may be sent again when a connection broke. */
export function changesNothing(method: string): boolean {
  return SAFE.has(method);
}
