import { MOST_PAGES, MOST_TOOLS, readServer, type ServerLine, type Unread } from '../../mcp-protocol/read-server.ts';
import type { LiveServer } from '../../pins/compare.ts';
import { VERSION } from '../../version.ts';
import { type LineAnswered, type Reached, ServerRequests } from './server-requests.ts';

/** How long a whole look may take, ms. */
const TIMEOUT_MS = 10_000;

/** By this servers, and tests, tell looks from calls. Sessions of looks are its. */
export const INSPECTOR = 'svc-gateway (pins)';

/**
 * Reads what a server says of itself and of its tools, all pages, in sessions of its own: one in which calls are made may
 * be told something else.
 * @param timeoutMs for all of it
 * @returns why nothing could be read, in its place
 */
export async function inspectServer(server: Reached, timeoutMs: number = TIMEOUT_MS): Promise<LiveServer | string> {
  try {
    const signal = AbortSignal.timeout(timeoutMs);
    return await readServer(() => new Inspection(server, signal), { name: INSPECTOR, version: VERSION });
  } catch (error) {
    return error instanceof Error ? error.message : 'it cannot be read';
  }
}

class Inspection extends ServerRequests implements ServerLine<LineAnswered> {
  constructor(server: Reached, signal: AbortSignal) {
    super(server, INSPECTOR, signal, INSPECTOR);
  }

  unread(why: Unread, { status, error }: LineAnswered): Error {
    switch (why) {
      case 'not_begun':
      case 'not_listed': {
        const detail = error === null ? '' : `: ${error}`;
        return new Error(`it does not list its tools over MCP (status ${status})${detail}; ${guessBy(status)}`);
      }
      case 'endless':
        return new Error(`its list of tools has more than ${MOST_PAGES} pages`);
      case 'too_many':
        return new Error(`it lists more than ${MOST_TOOLS} tools`);
    }
  }
}

function guessBy(status: number): string {
  if (status === 401 || status === 403) return 'it wants a key, or another one';
  if (status === 404 || status === 405)
    return 'a server of 2024-11-05, whose address often ends in /sse, is declared with `transport: sse` (docs/mcp.md)';
  return 'is this the address of its MCP endpoint?';
}
