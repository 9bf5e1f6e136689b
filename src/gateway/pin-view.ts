import type { ApiPorts } from '../api/ports.ts';
import type { Reason } from '../effects/model/decision.ts';
import type { Note } from '../effects/model/note.ts';
import { pinnedCall, type Tool } from '../effects/model/tool.ts';
import { comparisonInSteps, type LiveServer, type PinComparison, type ServerWords } from '../pins/compare.ts';
import type { PinnedTool } from '../pins/lock-file.ts';
import { type Catalog, type PinnedAt, pinnedAt } from '../upstreams/catalog.ts';
import type { McpUpstream } from '../upstreams/mcp/mcp-upstream.ts';
import { type OnSeen, pinOf } from '../upstreams/mcp/pin-watch.ts';
import type { Upstreams } from '../upstreams/upstreams.ts';
import { inSlices } from './slices.ts';

type Shown = ApiPorts['pins'];

/** Whether the tools of MCP servers are as they were approved. */
export interface PinView extends Shown {
  /** What is to be waited for before a call is judged; `null` where enough is known. */
  known(tool: Tool): Promise<void> | null;
  /** Why a call of the tool is refused whatever policy says; `null` where its pin refuses nothing. */
  refusal(tool: Tool): Reason | null;
}

interface Declared {
  readonly configuration: { readonly upstreams: readonly { readonly id: string }[] };
  readonly catalog: Pick<Catalog, 'tools' | 'tool'>;
}

/** Characters of a tool that is compared here. A look takes longer ones, and what compares them takes its time. */
const MOST_COMPARED = 64 * 1024;

/** Looks at tools beside what their servers say of them now. @param declared what is declared now */
export function createPinView(upstreams: Pick<Upstreams, 'server'>, declared: () => Declared): PinView {
  const stateOf: PinView['stateOf'] = (tool) => {
    const call = pinnedCall(tool);
    const server = call === null ? null : upstreams.server(tool.upstream);
    // Without a server nothing can be sent either.
    return call === null || server === null ? null : server.pins.stateOf(server.settings.mcp.words, call);
  };
  return {
    stateOf,
    known(tool) {
      const call = pinnedCall(tool);
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
    seen: () =>
      declared().configuration.upstreams.flatMap(({ id: upstream }) => {
        const pins = upstreams.server(upstream)?.pins;
        if (pins === undefined) return [];
        const { catalog } = declared();
        const unapproved = pins.names().filter((name) => pinnedAt(catalog, upstream, name) === null);
        return [{ upstream, failure: pins.failure, unapproved }];
      }),
    async compare(upstream) {
      const server = upstreams.server(upstream);
      if (server === null) return null;
      const live = await server.pins.read(server);
      return typeof live === 'string'
        ? live
        : inSlices(comparing(upstream, server.settings.mcp.words, declared().catalog, live));
    },
  };
}

/** Yields wherever it may be interrupted. */
function* comparing(
  upstream: string,
  words: ServerWords | undefined,
  catalog: Pick<Catalog, 'tools'>,
  live: LiveServer,
): Generator<void, PinComparison> {
  const tools: PinnedTool[] = [];
  for (const tool of catalog.tools()) {
    const call = tool.upstream === upstream ? pinnedCall(tool) : null;
    if (call === null) continue;
    tools.push({ name: call.name, sha256: pinOf(call), tool: call.pinned });
    yield;
  }
  const lock = { upstream, server: null, instructions: null, ...words, tools };
  return yield* comparisonInSteps(upstream, lock, live, MOST_COMPARED);
}

/**
 * Tells, once for each, that a tool is quarantined or that a server lists tools nobody has approved, and that a tool is
 * as approved again. What has not been seen is no news.
 * @param declared what is declared now
 */
export function createPinAlarm(parts: {
  readonly upstreams: Pick<Upstreams, 'server'>;
  readonly declared: () => Declared;
  readonly quarantined: (tool: string, state: 'changed' | 'gone') => void;
  readonly released: (tool: string) => void;
  readonly unapproved: (upstream: string, names: readonly string[]) => void;
}): { readonly heed: (upstream: string, ...seen: Parameters<OnSeen>) => void; readonly notes: () => readonly Note[] } {
  const reported = new Map<string, { readonly state: 'changed' | 'gone'; readonly since: number }>();
  const listed = new Map<string, string>();
  const judge = ({ pins, settings }: McpUpstream, { tool, call }: PinnedAt): void => {
    const state = pins.stateOf(settings.mcp.words, call);
    if (state === 'unseen' || state === (reported.get(tool.name)?.state ?? 'pinned')) return;
    if (state === 'pinned') {
      reported.delete(tool.name);
      parts.released(tool.name);
    } else {
      reported.set(tool.name, { state, since: Date.now() });
      parts.quarantined(tool.name, state);
    }
  };
  const heed = (upstream: string, ...[seen]: Parameters<OnSeen>): void => {
    const server = parts.upstreams.server(upstream);
    if (server === null) return;
    const { catalog } = parts.declared();
    if (seen !== null) {
      // A list that passes costs what is in it, however many tools are declared.
      for (const name of seen) {
        const pinned = pinnedAt(catalog, upstream, name);
        if (pinned !== null) judge(server, pinned);
      }
      return;
    }
    for (const tool of catalog.tools()) {
      const call = tool.upstream === upstream ? pinnedCall(tool) : null;
      if (call !== null) judge(server, { tool, call });
    }
    const names = server.pins.names().filter((name) => pinnedAt(catalog, upstream, name) === null);
    const text = JSON.stringify(names);
    if (text === (listed.get(upstream) ?? '[]')) return;
    listed.set(upstream, text);
    if (names.length > 0) parts.unapproved(upstream, names);
  };
  const notes = (): readonly Note[] =>
    parts.declared().configuration.upstreams.flatMap(({ id }) => {
      const { catalog } = parts.declared();
      const held = [...reported].flatMap(([name, one]) => (catalog.tool(name)?.upstream === id ? one.since : []));
      if (held.length === 0) return [];
      const message = `Tools of the MCP server ${id} that are not called, because it says something else of them than was approved: ${held.length}. svc tools diff --config gateway.yaml --upstream ${id} shows it, svc tools approve approves it.`;
      return [{ part: 'tools', message, since: Math.min(...held) }];
    });
  return { heed, notes };
}
