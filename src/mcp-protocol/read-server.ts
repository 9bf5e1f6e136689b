import { isJsonArray, isJsonObject, type Json, type JsonObject } from '../json/value.ts';
import { addressed, type Answered, beginWith, type Line } from './begin.ts';
import { META } from './revisions.ts';

/** What a server says of itself, and all of its tools. */
export interface ServerDescription extends SelfDescription {
  readonly tools: readonly Json[];
}

interface SelfDescription {
  readonly server: string | null;
  readonly instructions: string | null;
}

/** Why a server cannot be read: it begins in no era, does not list its tools, lists them without an end, or too many. */
export type Unread = 'not_begun' | 'not_listed' | 'endless' | 'too_many';

export interface ServerLine<Answer extends Answered> extends Line<Answer> {
  /** The error that is thrown. @param answered what shows it */
  unread(why: Unread, answered: Answer): Error;
}

/** Pages of one list: a server that always has one more is not listed for ever. */
export const MOST_PAGES = 1_000;
/** Tools of one server: each takes time wherever all of them are looked at. */
export const MOST_TOOLS = 10_000;

/** All that a client can do for a server. Some servers list tools that need one of it to such clients alone. */
const CAPABLE: JsonObject = { sampling: { tools: {} }, elicitation: { form: {}, url: {} }, roots: {} };

/**
 * Reads what an MCP server says of itself now, and all pages of its tools: first as a client that can do nothing for it,
 * then as one that can do everything, whose further tools are added. Who pins tools and who looks whether they are as
 * pinned have to ask in the same way: some servers list by what their client says of itself.
 * @param newLine a line for each session
 * @throws what the line throws
 */
export async function readServer<Answer extends Answered>(
  newLine: () => ServerLine<Answer>,
  clientInfo: JsonObject,
): Promise<ServerDescription> {
  const line = newLine();
  const plain = await readAs(line, clientInfo, {});
  if ('why' in plain) throw line.unread(plain.why, plain.answered);
  const capable = await readAs(newLine(), clientInfo, CAPABLE);
  // A server that does not take such a client has no tools for it.
  if ('why' in capable) return plain;
  const known = new Set(plain.tools.map(nameOf));
  return { ...plain, tools: [...plain.tools, ...capable.tools.filter((tool) => !known.has(nameOf(tool)))] };
}

function nameOf(tool: Json): Json | undefined {
  return isJsonObject(tool) ? tool['name'] : undefined;
}

async function readAs<Answer extends Answered>(
  line: Line<Answer>,
  clientInfo: JsonObject,
  capabilities: JsonObject,
): Promise<ServerDescription | { readonly why: Unread; readonly answered: Answer }> {
  const answer = await beginWith(line, clientInfo, capabilities);
  if (answer.begun === null) return { why: 'not_begun', answered: answer.answered };
  const { begun, description } = answer;
  const tools: Json[] = [];
  try {
    for (let cursor: string | null = null, page = 1; ; page += 1) {
      const given = cursor === null ? {} : { cursor };
      const answered: Answer = await line.ask(...addressed(begun, page, 'tools/list', given));
      const { result } = answered;
      if (result === null || !isJsonArray(result['tools'])) return { why: 'not_listed', answered };
      if (tools.length + result['tools'].length > MOST_TOOLS) return { why: 'too_many', answered };
      tools.push(...result['tools']);
      const next = result['nextCursor'];
      if (typeof next !== 'string') return { ...wordsIn(description), tools };
      if (page === MOST_PAGES) return { why: 'endless', answered };
      cursor = next;
    }
  } finally {
    if (begun.kind === 'session' && begun.isNamed) await line.end(begun.headers);
  }
}

/** What a server says of itself, in its answer to `initialize` or `server/discover`. */
export function wordsIn(result: JsonObject): SelfDescription {
  const { instructions, serverInfo, _meta: meta } = result;
  const info = serverInfo ?? (isJsonObject(meta) ? meta[META.serverInfo] : undefined);
  const name = isJsonObject(info) ? info['name'] : undefined;
  return {
    server: typeof name === 'string' ? name : null,
    instructions: typeof instructions === 'string' ? instructions : null,
  };
}
