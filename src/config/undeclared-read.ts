import type { HttpTool } from '../effects/model/tool.ts';
import { standInTool } from './stand-in-tool.ts';

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
