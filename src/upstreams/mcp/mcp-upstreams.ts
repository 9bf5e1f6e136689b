import type { Tool } from '../../effects/model/tool.ts';
import { sameTls } from '../http/upstream-tls.ts';
import type { UpstreamKind } from '../kind.ts';
import { type McpUpstream, sendCall, AgentSessions } from './mcp-upstream.ts';
import type { NamesGateway } from './own-addresses.ts';
import { OwnSession } from './own-session.ts';
import { type OnSeen, PinWatch } from './pin-watch.ts';
import type { McpUpstreamSettings } from './settings.ts';
import type { Through } from './pipe/exchange.ts';
import { Keeper } from './stdio/keeper.ts';
import { openThrough } from './through.ts';

interface McpUpstreams extends UpstreamKind {
  /** The server with this id; `null` if no upstream of this kind has it. */
  readonly server: (id: string) => McpUpstream | null;
  /** Switches to another configuration. Running calls finish on their connections. */
  update(configured: readonly McpUpstreamSettings[], limits: McpUpstream['limits']): void;
}

interface Kept extends McpUpstream {
  readonly through: Through;
}

/**
 * Makes the MCP servers of a configuration. Connections are opened as needed.
 * @param now ms since the epoch
 * @param onSeen called with the id of a server after something was seen of its tools (see {@link OnSeen})
 * @param namesGateway what no server may have the users of clients visit
 */
export function createMcpUpstreams(
  configured: readonly McpUpstreamSettings[],
  limits: McpUpstream['limits'],
  now: () => number,
  onSeen: (id: string, ...seen: Parameters<OnSeen>) => void,
  namesGateway: NamesGateway,
): McpUpstreams {
  let current = new Map<string, Kept>();
  const closing = new Set<Promise<void>>();
  const keeper = new Keeper();
  const elapsed = performance.now.bind(performance);
  const retire = (through: Through): void => {
    const done = through.close().finally(() => closing.delete(done));
    closing.add(done);
  };
  const update: McpUpstreams['update'] = (next, nextLimits) => {
    const made = new Map<string, Kept>();
    for (const settings of next) {
      const before = current.get(settings.id);
      const isKept = before !== undefined && isSameServer(before.settings, settings);
      const through = isKept ? before.through : openThrough(settings, keeper);
      const session = isKept ? before.session : new OwnSession();
      const agentSessions = isKept ? before.agentSessions : new AgentSessions(elapsed);
      const pins = isKept ? before.pins : new PinWatch(elapsed, (names) => onSeen(settings.id, names));
      const server = { settings, through, session, agentSessions, pins, limits: nextLimits, namesGateway, now };
      made.set(settings.id, server);
      // A program is not started before somebody calls it.
      if (!isKept && (settings.mcp.child ?? null) === null) void pins.inspect(server);
    }
    for (const [id, { through }] of current) if (made.get(id)?.through !== through) retire(through);
    current = made;
    for (const id of made.keys()) onSeen(id, null);
  };
  update(configured, limits);
  return {
    send({ tool, ...dispatch }) {
      const upstream = current.get(tool.upstream);
      return upstream === undefined || tool.call.kind !== 'mcp'
        ? null
        : sendCall(upstream, { tool, ...dispatch }, tool.call);
    },
    // Tools of MCP servers declare no state; a call with a state check is refused before.
    readState: (tool: Tool) =>
      current.has(tool.upstream)
        ? Promise.resolve({ kind: 'unreadable', message: 'tools of MCP servers declare no request for their state' })
        : null,
    server: (id) => current.get(id) ?? null,
    update,
    async close() {
      for (const { through } of current.values()) closing.add(through.destroy());
      current = new Map();
      await Promise.all(closing);
      keeper.close();
    },
  };
}

function isSameServer(left: McpUpstreamSettings, right: McpUpstreamSettings): boolean {
  return (
    left.url === right.url &&
    left.mcp.path === right.mcp.path &&
    JSON.stringify(left.mcp.sse ?? null) === JSON.stringify(right.mcp.sse ?? null) &&
    JSON.stringify(left.mcp.child ?? null) === JSON.stringify(right.mcp.child ?? null) &&
    left.network === right.network &&
    left.credentials?.value === right.credentials?.value &&
    sameTls(left.tls ?? null, right.tls ?? null)
  );
}
