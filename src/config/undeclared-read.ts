import type { HttpTool } from '../effects/model/tool.ts';

/**
 * The tool that stands for all undeclared reads of a route that lets them pass. Declared tools cannot have its name.
 * Globs in rules, keys and pauses match it like every other tool of the upstream. No request is ever built from it.
 */
export function undeclaredRead(upstream: string): HttpTool {
  return {
    name: `${upstream}.(undeclared)`,
    title: 'A read that no tool declares',
    declared: false,
    upstream,
    kind: 'read',
    actionType: 'http.request',
    tags: [],
    risk: null,
    env: null,
    call: {
      kind: 'http',
      request: { method: 'GET', path: '/', query: [], headers: {}, body: [] },
      outcomes: { committed: [], failed: [], unknown: [], body: [] },
      state: null,
    },
    paramsSchema: null,
    target: null,
    timeoutMs: 0,
    maxProcessingMs: 0,
    idempotent: { kind: 'none' },
    digest: '',
  };
}
