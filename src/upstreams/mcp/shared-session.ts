import type { McpCall } from '../../effects/model/tool.ts';
import type { ProxiedMessage } from '../../effects/upstream.ts';
import { isJsonObject, type Json, type JsonObject } from '../../json/value.ts';
import { encodeHeader } from '../../mcp-protocol/mirror-headers.ts';
import { paramHeadersIn, paramHeadersOf } from '../../mcp-protocol/param-headers.ts';
import type { Entered } from './own-session.ts';

/** Questions of one call that are being answered at a time. Whoever asks faster than it hears gets no answer. */
const MOST_ANSWERS = 16;

const NO_ANSWERER = { code: -32_601, message: 'The client of this session answers no questions.' };

/**
 * A call in a session that other clients of the agent use, too. It gets an id and a progress token that nothing else has
 * in that session; what the server says comes back under those of the client. Of events only progress goes on: what
 * else the server says is about the session. Some servers ask although they were told that nobody answers; they hear so
 * at once.
 * @param answer sends an answer to the server; resolves when nothing of that is open any more
 */
export function inSharedSession(
  proxied: ProxiedMessage,
  { id, rest: own, headers }: OwnCall,
  answer: (message: JsonObject) => Promise<void>,
): ProxiedMessage {
  const { rest, hears } = proxied;
  const { _meta: meta } = rest;
  const token = isJsonObject(meta) ? meta['progressToken'] : undefined;
  let answering = 0;
  const ownMeta = {
    ...(isJsonObject(meta) ? meta : {}),
    ...(token === undefined ? {} : { progressToken: id }),
    // What the gateway says of itself to the server is not for the client to say.
    ...(isJsonObject(own['_meta']) ? own['_meta'] : {}),
  };
  return {
    ...proxied,
    id,
    rest: { ...rest, ...(Object.keys(ownMeta).length === 0 ? {} : { _meta: ownMeta }) },
    headers: { ...proxied.headers, ...headers },
    hears: {
      began: (head) => hears.began(head),
      passed(_event, message) {
        // A comment keeps the client's connection from being taken for dead.
        if (message === null) return hears.passed(Buffer.from(':\n\n'), null);
        const { method, id: question } = message;
        if (method !== undefined && question !== undefined) {
          if (answering >= MOST_ANSWERS) return undefined;
          answering += 1;
          const said = method === 'ping' ? { result: {} } : { error: NO_ANSWERER };
          void answer({ id: question, ...said }).finally(() => (answering -= 1));
          return undefined;
        }
        const shown = token === undefined ? null : progressOf(message, id, token);
        return shown === null ? undefined : hears.passed(Buffer.from(`data: ${JSON.stringify(shown)}\n\n`), shown);
      },
      ended: (message) => hears.ended({ ...message, id: proxied.id }, ''),
      refused: (answer) => hears.refused(answer),
    },
  };
}

/** A message as the client's progress; `null` if it is no progress of this call. */
function progressOf(message: JsonObject, id: number, token: Json): JsonObject | null {
  const { method, params } = message;
  if (method !== 'notifications/progress' || message['id'] !== undefined) return null;
  if (!isJsonObject(params) || params['progressToken'] !== id) return null;
  return { ...message, params: { ...params, progressToken: token } };
}

interface OwnCall {
  readonly id: number;
  /** Members of the message's params beside the name and the arguments. */
  readonly rest: JsonObject;
  readonly headers: Readonly<Record<string, string>>;
}

/** A call of a tool as the server wants it: in the stateless era, headers repeat what its body says. */
export function ownCall({ id, begun }: Entered, { name, pinned }: McpCall, params: JsonObject): OwnCall {
  switch (begun.kind) {
    case 'session':
      return { id, rest: {}, headers: begun.headers };
    case 'stateless':
      return {
        id,
        rest: { _meta: begun.meta },
        headers: {
          ...begun.headers,
          'mcp-method': 'tools/call',
          'mcp-name': encodeHeader(name),
          ...paramHeadersOf(paramHeadersIn(pinned['inputSchema']), params),
        },
      };
  }
}
