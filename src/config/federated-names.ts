import type { Tool } from '../effects/model/tool.ts';
import type { Judge } from './judge.ts';
import type { GatewayFile } from './schema.ts';

/** What clients and models take for the name of a tool. */
const USABLE = /^[A-Za-z0-9_-]{1,64}$/;

/** The name of a tool at the door to all MCP servers; `null` if it would be none that clients take. */
export function federatedName(upstream: string, tool: string): string | null {
  const name = `${upstream}__${tool}`;
  return USABLE.test(name) ? name : null;
}

/** No tool of one server may have the name of another's: ids may have `__` in them, too. */
export function checkFederated(file: GatewayFile, tools: readonly Tool[], judge: Judge): void {
  const owners = new Map<string, Tool>();
  for (const tool of tools) {
    const name = tool.call.kind === 'mcp' ? tool.call.federated : undefined;
    if (name === undefined) continue;
    const other = owners.get(name);
    if (other === undefined) owners.set(name, tool);
    else
      judge.error(
        'duplicate_tool',
        file.upstreams.find(({ id }) => id === tool.upstream) ?? file,
        ['id'],
        `At /mcp both '${other.name}' and '${tool.name}' would be ${name}`,
        "give one of the two upstreams an id without '__'",
      );
  }
}
