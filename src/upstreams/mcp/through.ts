import { Pool } from 'undici';
import { guardedConnector } from '../http/connect.ts';
import { CONNECT_TIMEOUT_MS } from '../http/connections.ts';
import type { McpUpstreamSettings } from './settings.ts';
import type { Keeper } from './stdio/keeper.ts';
import { PipeServer } from './pipe/pipe-server.ts';
import { SseServer } from './sse/sse-pipe.ts';
import { type ChildLimits, StdioChild, type StdioCommand } from './stdio/child.ts';

/** Bytes of one message over a pipe, in either direction. */
const MESSAGE_BYTES = 16 * 1024 * 1024;
/** How long a child may take to end by itself, ms. */
const GRACE_MS = 2_000;

/**
 * What carries requests to a server: connections, or a process or a stream for each session. Nothing is opened before it is used.
 * @param keeper ends the processes with this one
 */
export function openThrough(settings: McpUpstreamSettings, keeper: Keeper): Pool | PipeServer {
  const { child = null, sse = null, path } = settings.mcp;
  const elapsed = (): number => performance.now();
  if (sse !== null) {
    const { url } = settings;
    const { sessions: most, idleMs } = sse;
    const address = { url, path, messageBytes: MESSAGE_BYTES, most, idleMs, now: Date.now };
    return new SseServer(address, openPool(settings), elapsed);
  }
  if (child === null) return openPool(settings);
  return new StdioServer(
    {
      command: child,
      most: child.sessions,
      idleMs: child.idleMs,
      limits: { lineBytes: MESSAGE_BYTES, graceMs: GRACE_MS },
    },
    keeper,
    elapsed,
  );
}

/**
 * One connection carries one request at a time. There is no limit here: streams stay open as long as their clients do,
 * whose connections are limited, and calls have places.
 */
function openPool({ url, network, tls = null }: McpUpstreamSettings): Pool {
  return new Pool(url, {
    connect: guardedConnector({ network, timeoutMs: CONNECT_TIMEOUT_MS, tls }, () => undefined),
    connections: null,
    pipelining: 1,
    allowH2: false,
    // Calls measure their own time. Streams may say nothing for hours.
    headersTimeout: 0,
    bodyTimeout: 0,
  });
}

export interface StdioServerSettings {
  readonly command: StdioCommand;
  /** Children that may run at once: one for each session. */
  readonly most: number;
  /** How long a session may be unused, ms. */
  readonly idleMs: number;
  readonly limits: ChildLimits;
}

const MOST_WAIT_MS = 30_000;

/**
 * An MCP server that runs as children of the gateway. The next child is started later each time while they do not come
 * up.
 */
export class StdioServer extends PipeServer {
  /** @param now ms of a clock that never goes back */
  constructor({ command, limits, most, idleMs }: StdioServerSettings, keeper: Keeper, now: () => number) {
    const open = (events: ConstructorParameters<typeof StdioChild>[3]): StdioChild =>
      new StdioChild(command, keeper, limits, events);
    super({ open, most, idleMs, mostWaitMs: MOST_WAIT_MS }, now);
  }
}
