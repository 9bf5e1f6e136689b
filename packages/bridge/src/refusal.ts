import type { IncomingHttpHeaders } from 'node:http';
import { parseObject } from '../../../src/json/text.ts';
import type { JsonObject } from '../../../src/json/value.ts';
import { headerText } from '../../../src/cli/mcp/http.ts';
import { earlierOf, isError } from './message.ts';

/** Codes of the bridge's own errors, from the range that JSON-RPC leaves to implementations. */
export const CODE = { refused: -32_001, unreachable: -32_002, broken: -32_003, busy: -32_004, http: -32_005 } as const;

/** An answer with a status that is no success. */
interface Refused {
  readonly where: string;
  readonly status: number;
  readonly headers: IncomingHttpHeaders;
  readonly text: string;
}

/**
 * The JSON-RPC error for such an answer: the server's own, unless it is about the key; then what a person has to do.
 * @param key it stands in none
 */
export function refusalOf(
  { where, status, headers, text }: Refused,
  method: string,
  key: string,
  keyHint: string,
): JsonObject {
  const problem = parseObject(text) ?? {};
  const error = isError(problem['error']) ? problem['error'] : null;
  const isAuth = status === 401 || status === 403;
  if (error !== null && !isAuth) return error;
  const detail = [error?.['message'], problem['detail'], problem['title']].find((one) => typeof one === 'string');
  // Some servers repeat the key that they refuse.
  const reason = typeof detail === 'string' ? `: ${detail.replaceAll(key, '…').slice(0, 1_000)}` : '.';
  const retryAfter = headerText(headers['retry-after']);
  const data: JsonObject = {
    http_status: status,
    ...(typeof problem['code'] === 'string' && { code: problem['code'] }),
    ...(retryAfter !== null && { retry_after: retryAfter }),
  };
  if (!isAuth) return { code: CODE.http, message: `${where} answered with status ${status}${reason}`, data };
  const hint =
    status === 401
      ? keyHint
      : 'The key is known, and may not do this. Ask an administrator for a key with the scopes that it takes.';
  const { happened, sentence } = earlierOf(method);
  const message = `${where} refused the key (status ${status})${reason}`;
  return { code: CODE.refused, message, data: { ...data, did_it_happen: happened, hint: hint + sentence } };
}
