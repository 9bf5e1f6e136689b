import type { Tool } from '../effects/model/tool.ts';
import { standInTool } from './stand-in-tool.ts';

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
