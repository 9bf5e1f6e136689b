import type { Reason } from '../effects/model/decision.ts';
import type { McpCall, Tool } from '../effects/model/tool.ts';
import type { PinState } from '../pins/observed.ts';
import type { Upstreams } from '../upstreams/upstreams.ts';

/** Whether the tools of MCP servers are as they were approved. */
export interface PinView {
  /** How a tool stands to its pin; `null` where it has none. */
  stateOf(tool: Tool): PinState | null;
  /** What is to be waited for before a call is judged; `null` where enough is known. */
  known(tool: Tool): Promise<void> | null;
  /** Why a call of the tool is refused whatever policy says; `null` where its pin refuses nothing. */
  refusal(tool: Tool): Reason | null;
}

/** The pin of a tool; `null` of tools that have none, also of what stands for the other methods of a server. */
function pinned(tool: Tool): McpCall | null {
  return tool.call.kind === 'mcp' && tool.declared !== false ? tool.call : null;
}

/** Looks at tools beside what their servers say of them now. */
export function createPinView(upstreams: Pick<Upstreams, 'server'>): PinView {
  const stateOf: PinView['stateOf'] = (tool) => {
    const call = pinned(tool);
    const server = call === null ? null : upstreams.server(tool.upstream);
    // Without a server nothing can be sent either.
    return call === null || server === null ? null : server.pins.stateOf(server.settings.mcp.words, call);
  };
  return {
    stateOf,
    known(tool) {
      const call = pinned(tool);
      const server = call === null ? null : upstreams.server(tool.upstream);
      return call === null || server === null ? null : server.pins.known(server, call);
    },
    refusal(tool) {
      const state = stateOf(tool);
      switch (state) {
        case null:
        case 'pinned':
          return null;
        case 'changed':
          return {
            code: 'tool_quarantined',
            message: `The server says something else of ${tool.name} than what was approved. Somebody has to look at what changed and approve it (svc tools diff, svc tools approve).`,
          };
        case 'gone':
          return {
            code: 'tool_quarantined',
            message: `The server does not list ${tool.name} any more. Somebody has to look at what changed (svc tools diff).`,
          };
        case 'unseen': {
          const why = upstreams.server(tool.upstream)?.pins.failure ?? 'it was not looked at yet';
          return {
            code: 'tool_unseen',
            message: `Whether ${tool.name} is as it was approved cannot be seen: the server does not say what its tools are (${why.slice(0, 200)}). Call again in a moment.`,
          };
        }
      }
    },
  };
}

/**
 * Tells, once for each, that a tool is quarantined or that a server lists tools nobody has approved, and that a tool is
 * as approved again. What has not been seen is no news.
 * @param tools those that are declared now
 */
export function createPinAlarm(parts: {
  readonly upstreams: Pick<Upstreams, 'server'>;
  readonly tools: () => readonly Tool[];
  readonly quarantined: (tool: string, state: 'changed' | 'gone') => void;
  readonly released: (tool: string) => void;
  readonly unapproved: (upstream: string, names: readonly string[]) => void;
}): (upstream: string) => void {
  const told = new Map<string, 'changed' | 'gone'>();
  const listed = new Map<string, string>();
  return (upstream) => {
    const server = parts.upstreams.server(upstream);
    if (server === null) return;
    const known = new Set<string>();
    for (const tool of parts.tools()) {
      const call = tool.upstream === upstream ? pinned(tool) : null;
      if (call === null) continue;
      known.add(call.name);
      const state = server.pins.stateOf(server.settings.mcp.words, call);
      if (state === 'unseen' || state === (told.get(tool.name) ?? 'pinned')) continue;
      if (state === 'pinned') {
        told.delete(tool.name);
        parts.released(tool.name);
      } else {
        told.set(tool.name, state);
        parts.quarantined(tool.name, state);
      }
    }
    const names = server.pins.names().filter((name) => !known.has(name));
    const text = JSON.stringify(names);
    if (text === (listed.get(upstream) ?? '[]')) return;
    listed.set(upstream, text);
    if (names.length > 0) parts.unapproved(upstream, names);
  };
}
