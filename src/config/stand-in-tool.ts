import type { Tool } from '../effects/model/tool.ts';

/** What tells one stand-in from another. */
type StandIn<Call> = Pick<Tool, 'name' | 'title' | 'upstream' | 'actionType'> & { readonly call: Call };

/**
 * A tool that nobody declared and that policy judges all the same. Declared tools cannot have its name, `UPSTREAM.(…)`.
 * Globs in rules, keys and pauses match it like every other tool of the upstream. No request is ever built from it.
 */
export function standInTool<Call extends Tool['call']>(own: StandIn<Call>): Tool & { readonly call: Call } {
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
