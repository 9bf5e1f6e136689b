import type { Json } from '../../../src/json/value.ts';
import { readServerOnce } from '../../../src/upstreams/mcp/read-once.ts';

/** The tools that an MCP server at an address lists, as `svc tools` reads them to pin them. */
export async function toolsAt(address: string): Promise<readonly Json[]> {
  const { origin, pathname, search } = new URL(address);
  const mcp = { path: `${pathname}${search}`, allow: [] };
  const live = await readServerOnce({
    id: 'server',
    url: origin,
    timeoutMs: 30_000,
    network: 'any',
    credentials: null,
    mcp,
  });
  if (typeof live === 'string') throw new Error(`${address} cannot be read: ${live}`);
  return live.tools;
}
