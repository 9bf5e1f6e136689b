import type { Tool } from '../effects/model/tool.ts';

/**
 * What reads that no rule of a route names are judged as, on a route that lets them pass. No declared tool can have the
 * name; globs of rules, keys and pauses meet it like any other of the upstream. Nothing is ever rendered from it.
 */
export function undeclaredRead(upstream: string): Tool {
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
    request: { method: 'GET', path: '/', query: [], headers: {}, body: [] },
    paramsSchema: null,
    target: null,
    timeoutMs: 0,
    maxProcessingMs: 0,
    idempotent: { kind: 'none' },
    outcomes: { committed: [], failed: [], unknown: [], body: [] },
    state: null,
    digest: '',
  };
}
