import { createHash } from 'node:crypto';
import type { Tool } from '../effects/model/tool.ts';
import { holds } from './compiled-condition.ts';
import type { PolicyInput } from './input.ts';
import type { CompiledRule } from './compiled-rule.ts';
import { indexRules, type ToolIndex } from './tool-index.ts';

/**
 * The rules of each declared tool: those whose conditions on the tool itself can hold. Tools with the same rules share
 * one index.
 */
export function rulesByTool(rules: readonly CompiledRule[], tools: readonly Tool[]): ReadonlyMap<string, ToolIndex> {
  const indices = new Map<string, ToolIndex>();
  const byTool = new Map<string, ToolIndex>();
  for (const tool of tools) {
    const input = inputOfTool(tool);
    const applying = rules.filter((rule) => holds(rule.perTool, input, undefined, rule.unknownIs));
    const same = createHash('sha256')
      .update(Uint32Array.from(applying.map((rule) => rule.rank)))
      .digest('base64');
    const index = indices.get(same) ?? indexRules(applying);
    indices.set(same, index);
    byTool.set(tool.name, index);
  }
  return byTool;
}

/** An input for conditions that read only the tool. */
export function inputOfTool(tool: Tool): PolicyInput {
  return {
    agent: { id: '', workspace: '', disabled: false, team: null, owner: null, roles: [], attributes: {} },
    key: { id: '', kind: 'agent', profile: null, user: null },
    tool,
    env: '',
    workspace: '',
    target: '',
    params: {},
    headers: {},
    requestIp: null,
    now: 0,
    mode: 'enforce',
  };
}
