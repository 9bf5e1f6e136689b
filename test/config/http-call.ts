import { type HttpCall, isHttpTool, type Tool } from '../../src/effects/model/tool.ts';

/** The HTTP request of a tool that has one. */
export function httpCall(tool: Tool | undefined): HttpCall {
  if (tool === undefined || !isHttpTool(tool)) throw new Error(`${tool?.name ?? 'no tool'} is no HTTP tool`);
  return tool.call;
}
