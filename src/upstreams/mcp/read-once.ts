import { HANDSHAKE_VERSIONS } from '../../mcp-protocol/revisions.ts';
import type { LiveServer } from '../../pins/compare.ts';
import { inspectServer } from './inspect-server.ts';
import type { McpUpstreamSettings } from './settings.ts';
import { Keeper } from './stdio/keeper.ts';
import { PipeServer } from './pipe/pipe-server.ts';
import { openThrough } from './through.ts';

/** How long it may take, ms. A program may have to be fetched before it starts for the first time. */
const TIMEOUT_MS = 60_000;
const [NEWEST] = HANDSHAKE_VERSIONS;

/**
 * Reads what a server says of its tools as a gateway does: on connections like those of calls, or from a process that is
 * started for it. When this resolves, the process and all that it started have ended.
 * @returns why nothing could be read, in its place
 */
export async function readServerOnce(settings: McpUpstreamSettings): Promise<LiveServer | string> {
  const keeper = new Keeper();
  const through = openThrough(settings, keeper);
  try {
    const read = await inspectServer({ settings, through, now: Date.now }, TIMEOUT_MS);
    if (typeof read !== 'string' || !(through instanceof PipeServer)) return read;
    const { lastEnd } = through.report();
    return lastEnd ?? `${read}; with such servers the revisions of MCP that have sessions are spoken, up to ${NEWEST}`;
  } finally {
    await through.close();
    keeper.close();
  }
}
