import { isJsonArray, isJsonObject, type Json, type JsonObject } from '../json/value.ts';
import { addressed, type Answered, beginWith, type Line } from './begin.ts';
import { META } from './revisions.ts';

/** What a server says of itself, and all of its tools. */
export interface ServerDescription extends SelfDescription {
  readonly tools: readonly Json[];
}

interface SelfDescription {
  /** Its name. */
  readonly server: string | null;
  readonly instructions: string | null;
}

/** Why a server cannot be read: it begins in no era, does not list its tools, lists them without an end, or too many. */
export type Unread = 'not_begun' | 'not_listed' | 'endless' | 'too_many';

/** How messages come to a server that is read. */
export interface ServerLine<Answer extends Answered> extends Line<Answer> {
  /** The error that is thrown. @param answered what shows it */
  unread(why: Unread, answered: Answer): Error;
}

/** Pages of one list: a server that always has one more is not listed for ever. */
export const MOST_PAGES = 1_000;
/** Tools of one server: each takes time wherever all of them are looked at. */
export const MOST_TOOLS = 10_000;

/**
 * Reads what an MCP server says of itself now, and all pages of its tools. Who pins tools and who looks whether they are
 * as pinned have to ask in the same way: some servers list by what their client says of itself.
 * @throws what the line throws
 */
export async function readServer<Answer extends Answered>(
  line: ServerLine<Answer>,
  clientInfo: JsonObject,
): Promise<ServerDescription> {
  const answer = await beginWith(line, clientInfo);
  if (answer.begun === null) throw line.unread('not_begun', answer.answered);
  const { begun, description } = answer;
  let lastId = 0;
  try {
    return {
      ...wordsIn(description),
      tools: await allTools(line, (method, given) => {
        lastId += 1;
        return line.ask(...addressed(begun, lastId, method, given));
      }),
    };
  } finally {
    if (begun.kind === 'session' && begun.isNamed) await line.end(begun.headers);
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
    if (tools.length + result['tools'].length > MOST_TOOLS) throw line.unread('too_many', answered);
    tools.push(...result['tools']);
    const next = result['nextCursor'];
    if (typeof next !== 'string') return tools;
    if (page === MOST_PAGES) throw line.unread('endless', answered);
    cursor = next;
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
