import { passingTool } from '../../config/stand-in-tools.ts';
import type { Tool } from '../../effects/model/tool.ts';

const made = new Map<string, Tool>();

/** The tool as which a method is judged: `crm.(resources/read)`. */
export function judgedTool(upstream: string, method: string): Tool {
  const name = `${upstream}\n${method}`;
  let tool = made.get(name);
  if (tool === undefined) {
    tool = passingTool(upstream, method);
    made.set(name, tool);
  }
  return tool;
}
