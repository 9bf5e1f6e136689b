import type { Tool } from '../effects/model/tool.ts';

/** Methods of MCP clients, besides calls of tools, that pass where policy permits it. */
export const JUDGED_METHODS = [
  'completion/complete',
  'prompts/get',
  'resources/read',
  'resources/subscribe',
  'resources/unsubscribe',
  'subscriptions/listen',
] as const;

/**
 * The tool as which policy judges a method of an MCP server that is no call of a tool: `crm.(resources/read)`. Declared
 * tools cannot have its name; globs match it like every other tool of the upstream.
 */
export function passingTool(upstream: string, method: string): Tool {
  return {
    name: `${upstream}.(${method})`,
    title: method,
    declared: false,
    upstream,
    kind: 'read',
    actionType: 'mcp.request',
    tags: [],
    risk: null,
    env: null,
    call: { kind: 'mcp', name: method, pinned: {}, isError: 'unknown', onClientClose: 'finish' },
    paramsSchema: null,
    target: null,
    timeoutMs: 0,
    maxProcessingMs: 0,
    idempotent: { kind: 'none' },
    digest: '',
  };
}
