import type { HttpTool, Tool } from '../effects/model/tool.ts';

/** What distinguishes one stand-in from another. */
type StandIn<Call> = Pick<Tool, 'name' | 'title' | 'upstream' | 'actionType'> & { readonly call: Call };

/**
 * A tool that nobody declared and that policy judges all the same. Declared tools cannot have its name, `UPSTREAM.(…)`.
 * Globs in rules, keys and pauses match it like every other tool of the upstream. No request is ever built from it.
 */
function standInTool<Call extends Tool['call']>(own: StandIn<Call>): Tool & { readonly call: Call } {
  return {
    ...own,
    declared: false,
    kind: 'read',
    tags: [],
    risk: null,
    env: null,
    paramsSchema: null,
    target: null,
    timeoutMs: 0,
    maxProcessingMs: 0,
    idempotent: { kind: 'none' },
    digest: '',
  };
}

/** The tool that stands for all undeclared reads of a route that lets them pass. */
export function undeclaredRead(upstream: string): HttpTool {
  return standInTool({
    name: `${upstream}.(undeclared)`,
    title: 'A read that no tool declares',
    upstream,
    actionType: 'http.request',
    call: {
      kind: 'http',
      request: { method: 'GET', path: '/', query: [], headers: {}, body: [] },
      outcomes: { committed: [], failed: [], unknown: [], body: [] },
      state: null,
    },
  });
}

/** Methods of MCP clients, besides calls of tools, that pass where policy permits it. */
export const JUDGED_METHODS = [
  'completion/complete',
  'prompts/get',
  'resources/read',
  'resources/subscribe',
  'resources/unsubscribe',
  'subscriptions/listen',
] as const;

/** The tool as which policy judges a method of an MCP server that is no call of a tool: `crm.(resources/read)`. */
export function passingTool(upstream: string, method: string): Tool {
  return standInTool({
    name: `${upstream}.(${method})`,
    title: method,
    upstream,
    actionType: 'mcp.request',
    call: { kind: 'mcp', name: method, pinned: {}, isError: 'unknown', onClientClose: 'finish' },
  });
}
