import { isUtf8 } from 'node:buffer';
import { parseStrictJsonInSlices } from '../json/strict-in-slices.ts';
import { type JsonLimits, LARGE_TEXT, parseStrictJson, type StrictJson } from '../json/strict.ts';
import { type Json, type JsonObject, isJsonArray, isJsonObject } from '../json/value.ts';

/** The id of a request. JSON-RPC also knows `null` and fractions; MCP does not. */
export type RpcId = string | number;

export interface RpcRequest {
  readonly kind: 'request';
  readonly id: RpcId;
  readonly method: string;
  readonly params: JsonObject;
}

export type RpcMessage =
  | RpcRequest
  | { readonly kind: 'notification'; readonly method: string; readonly params: JsonObject }
  | {
      readonly kind: 'response';
      readonly id: RpcId;
      readonly answer:
        | { readonly kind: 'result'; readonly result: JsonObject }
        | { readonly kind: 'error'; readonly error: JsonObject };
    };

/** Why a message is not taken: an error answer, and the status that it is sent with. */
export interface RpcRefusal {
  readonly kind: 'refused';
  readonly status: number;
  /** `null` where the message has no id that could be read. */
  readonly id: RpcId | null;
  readonly error: RpcError;
}

export interface RpcError {
  readonly code: number;
  readonly message: string;
  readonly data?: JsonObject;
}

/** Codes of JSON-RPC 2.0, and those that MCP defines beside them. */
export const RPC = {
  parseError: -32_700,
  invalidRequest: -32_600,
  methodNotFound: -32_601,
  invalidParams: -32_602,
  internalError: -32_603,
  /** MCP: a header and the body disagree (2026-07-28). */
  headerMismatch: -32_020,
  /** MCP: the request needs a capability that the client has not declared (2026-07-28). */
  missingCapability: -32_021,
  /** MCP: the protocol version is not one that this server speaks (2026-07-28). */
  unsupportedVersion: -32_022,
  /**
   * Ours: the gateway refuses the request. `error.data` is a problem document. (Official clients give -32000 to
   * connections that have ended and -32001 to time-outs, so neither would be understood.)
   */
  refused: -32_010,
} as const;

/** The longest name of a method, and the longest id that is a text, characters. Both are repeated in answers. */
const MAX_METHOD = 128;
const MAX_ID = 256;

const REQUEST_MEMBERS = ['jsonrpc', 'id', 'method', 'params'];
const RESPONSE_MEMBERS = ['jsonrpc', 'id', 'result', 'error'];

/**
 * Reads one JSON-RPC 2.0 message from the bytes of a body, strictly: what two parsers could read in two ways is refused,
 * and so are batches, `id: null`, members that JSON-RPC does not know, and params that are not an object. Nothing is
 * repaired. Large bodies are read in parts, so that other requests get their turn.
 */
export function readMessage(
  bytes: Buffer,
  limits: JsonLimits,
): RpcMessage | RpcRefusal | Promise<RpcMessage | RpcRefusal> {
  if (bytes.length < LARGE_TEXT) return messageOf(parseStrictJson(bytes, limits), bytes);
  return parseStrictJsonInSlices(bytes, limits).then((parsed) => messageOf(parsed, bytes));
}

function messageOf(parsed: StrictJson, bytes: Buffer): RpcMessage | RpcRefusal {
  if (parsed.ok) return messageFrom(parsed.value);
  const at = parsed.at === null ? '' : ` (line ${parsed.at.line}, column ${parsed.at.column})`;
  const hint = bytes.length === 0 ? 'the body is empty' : parsed.message;
  const text = isUtf8(bytes) ? hint : 'the text is not UTF-8';
  return refused(400, null, RPC.parseError, `The body is not strict JSON: ${text}${at}.`);
}

export function messageFrom(value: Json): RpcMessage | RpcRefusal {
  if (isJsonArray(value))
    return refused(400, null, RPC.invalidRequest, 'Batches are not taken: send one message in each request.');
  if (!isJsonObject(value)) return refused(400, null, RPC.invalidRequest, 'A message is a JSON object.');
  const id = readId(value['id']);
  const known = id.kind === 'id' ? id.id : null;
  const wrong = (message: string): RpcRefusal => refused(400, known, RPC.invalidRequest, message);
  if (value['jsonrpc'] !== '2.0') return wrong('The member jsonrpc must be "2.0".');
  if (id.kind === 'wrong') return wrong(id.message);
  return value['method'] === undefined ? responseFrom(value, known, wrong) : callFrom(value, known, wrong);
}

type Wrong = (message: string) => RpcRefusal;

function callFrom(value: JsonObject, id: RpcId | null, wrong: Wrong): RpcMessage | RpcRefusal {
  const { method, params = {} } = value;
  if (typeof method !== 'string' || method === '' || method.length > MAX_METHOD)
    return wrong(`The member method must be a text of 1 to ${MAX_METHOD} characters.`);
  const unknown = stranger(value, REQUEST_MEMBERS);
  if (unknown !== null) return wrong(`JSON-RPC has no member ${unknown} beside jsonrpc, id, method and params.`);
  if (!isJsonObject(params)) return wrong('The member params must be an object.');
  return id === null ? { kind: 'notification', method, params } : { kind: 'request', id, method, params };
}

function responseFrom(value: JsonObject, id: RpcId | null, wrong: Wrong): RpcMessage | RpcRefusal {
  const { result, error } = value;
  if (result === undefined && error === undefined) return wrong('The member method is missing.');
  const unknown = stranger(value, RESPONSE_MEMBERS);
  if (unknown !== null) return wrong(`JSON-RPC has no member ${unknown} beside jsonrpc, id, result and error.`);
  if (id === null) return wrong('An answer has an id.');
  if (result !== undefined && error !== undefined) return wrong('An answer has a result or an error, not both.');
  if (isJsonObject(result)) return { kind: 'response', id, answer: { kind: 'result', result } };
  if (isJsonObject(error)) return { kind: 'response', id, answer: { kind: 'error', error } };
  return wrong('The member result or error must be an object.');
}

function readId(
  id: Json | undefined,
):
  | { readonly kind: 'absent' }
  | { readonly kind: 'id'; readonly id: RpcId }
  | { readonly kind: 'wrong'; readonly message: string } {
  if (id === undefined) return { kind: 'absent' };
  if (typeof id === 'number' && Number.isSafeInteger(id)) return { kind: 'id', id };
  if (typeof id === 'string' && id.length <= MAX_ID) return { kind: 'id', id };
  const kinds = `a whole number, or a text of at most ${MAX_ID} characters`;
  return {
    kind: 'wrong',
    message: id === null ? `The id must not be null: send ${kinds}.` : `The id must be ${kinds}.`,
  };
}

/** The first member that does not belong to the message, quoted and cut; `null` where there is none. */
function stranger(value: JsonObject, members: readonly string[]): string | null {
  for (const name of Object.keys(value)) if (!members.includes(name)) return JSON.stringify(name.slice(0, 100));
  return null;
}

/** Makes a refusal. */
export function refused(
  status: number,
  id: RpcId | null,
  code: number,
  message: string,
  data?: JsonObject,
): RpcRefusal {
  return { kind: 'refused', status, id, error: data === undefined ? { code, message } : { code, message, data } };
}

export function resultMessage(id: RpcId, result: JsonObject): JsonObject {
  return { jsonrpc: '2.0', id, result };
}

/** An error as it is sent. The id is `null` only where the request had none that could be read. */
export function errorMessage(id: RpcId | null, { code, message, data }: RpcError): JsonObject {
  return { jsonrpc: '2.0', id, error: data === undefined ? { code, message } : { code, message, data } };
}
