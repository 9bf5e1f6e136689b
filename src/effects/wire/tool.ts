import { readsState, type Tool } from '../model/tool.ts';

/** A tool as lists show it. Leaves out the upstream's address and the request that a call becomes. */
export function toolToWire(tool: Tool) {
  return {
    name: tool.name,
    title: tool.title,
    upstream: tool.upstream,
    kind: tool.kind,
    action_type: tool.actionType,
    tags: tool.tags,
    risk: tool.risk,
    target: tool.target,
    params_schema: tool.paramsSchema,
    idempotent: tool.idempotent.kind === 'header',
    state_check: readsState(tool),
  };
}
