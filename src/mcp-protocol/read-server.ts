import { isJsonArray, isJsonObject, type Json, type JsonObject } from '../json/value.ts';
import { HANDSHAKE_VERSIONS, META, STATELESS_VERSIONS } from './revisions.ts';

/** What a server says of itself, and all of its tools. */
export interface ServerSays extends SaidOfItself {
  readonly tools: readonly Json[];
}

interface SaidOfItself {
  /** Its name. */
  readonly server: string | null;
  readonly instructions: string | null;
}

/** What became of a request. */
export interface Answered {
  readonly session: string | null;
  /** `null` where it was answered with anything but a result. */
  readonly result: JsonObject | null;
}

/** Why a server cannot be read: it begins in no era, does not list its tools, or lists them without an end. */
export type Unread = 'not_begun' | 'not_listed' | 'endless';

/** How messages come to a server. `headers`: those that the protocol asks for. */
export interface ServerLine<Answer extends Answered> {
  ask(request: JsonObject & { readonly id: number }, headers: Headers): Promise<Answer>;
  tell(notification: JsonObject, headers: Headers): Promise<void>;
  /** The session is over. */
  end(headers: Headers): Promise<void>;
  /** The error that is thrown. @param answered what shows it */
  unread(why: Unread, answered: Answer): Error;
}

type Headers = Readonly<Record<string, string>>;

/** Pages of one list: a server that always has one more is not listed for ever. */
export const MOST_PAGES = 1_000;
const [SESSIONS] = HANDSHAKE_VERSIONS;
const [STATELESS] = STATELESS_VERSIONS;

/**
 * Reads what an MCP server says of itself now, and all pages of its tools. It is asked in the era of sessions first,
 * which most servers know, and else in the stateless one. Who pins tools and who looks whether they are as pinned have to
 * ask in the same way: some servers list by what their client says of itself.
 * @throws what the line throws
 */
export async function readServer<Answer extends Answered>(
  line: ServerLine<Answer>,
  clientInfo: JsonObject,
): Promise<ServerSays> {
  let lastId = 0;
  const asking =
    (headers: Headers, meta: JsonObject | null) =>
    (method: string, given: JsonObject): Promise<Answer> => {
      lastId += 1;
      const params = meta === null ? given : { ...given, _meta: meta };
      return line.ask({ id: lastId, method, params }, meta === null ? headers : { ...headers, 'mcp-method': method });
    };

  const begun = await asking({}, null)('initialize', { protocolVersion: SESSIONS, capabilities: {}, clientInfo });
  if (begun.result === null) {
    const meta = { [META.protocolVersion]: STATELESS, [META.clientInfo]: clientInfo, [META.clientCapabilities]: {} };
    const ask = asking({ 'mcp-protocol-version': STATELESS }, meta);
    const { result } = await ask('server/discover', {});
    if (result === null) throw line.unread('not_begun', begun);
    return { ...wordsIn(result), tools: await allTools(line, ask) };
  }
  const { protocolVersion: version } = begun.result;
  const headers = {
    ...(typeof version === 'string' && { 'mcp-protocol-version': version }),
    ...(begun.session !== null && { 'mcp-session-id': begun.session }),
  };
  try {
    await line.tell({ method: 'notifications/initialized' }, headers);
    return { ...wordsIn(begun.result), tools: await allTools(line, asking(headers, null)) };
  } finally {
    if (begun.session !== null) await line.end(headers);
  }
}

async function allTools<Answer extends Answered>(
  line: ServerLine<Answer>,
  ask: (method: string, given: JsonObject) => Promise<Answer>,
): Promise<readonly Json[]> {
  const tools: Json[] = [];
  for (let cursor: string | null = null, page = 1; ; page += 1) {
    const answered: Answer = await ask('tools/list', cursor === null ? {} : { cursor });
    const { result } = answered;
    if (result === null || !isJsonArray(result['tools'])) throw line.unread('not_listed', answered);
    tools.push(...result['tools']);
    const next = result['nextCursor'];
    if (typeof next !== 'string') return tools;
    if (page === MOST_PAGES) throw line.unread('endless', answered);
    cursor = next;
  }
}

/** What a server says of itself, in its answer to `initialize` or `server/discover`. */
export function wordsIn(result: JsonObject): SaidOfItself {
  const { instructions, serverInfo, _meta: meta } = result;
  const info = serverInfo ?? (isJsonObject(meta) ? meta[META.serverInfo] : undefined);
  const name = isJsonObject(info) ? info['name'] : undefined;
  return {
    server: typeof name === 'string' ? name : null,
    instructions: typeof instructions === 'string' ? instructions : null,
  };
}
