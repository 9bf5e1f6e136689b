import type { Principal } from '../../effects/model/principal.ts';
import type { McpCall, Tool } from '../../effects/model/tool.ts';
import type { Json, JsonObject } from '../../json/value.ts';
import type { Catalog } from '../../upstreams/catalog.ts';
import type { RpcRequest } from '../jsonrpc.ts';
import { pageOf } from '../own-answers.ts';

export interface FederatedTool {
  readonly name: string;
  /** Its name in the catalog. */
  readonly full: string;
  readonly upstream: string;
  readonly call: McpCall;
}

/** Tools on one page of a list. Some libraries read the first page only. */
const PAGE = 1_000;

const known = new WeakMap<Catalog, ReadonlyMap<string, FederatedTool>>();

/** The tools by their names, in the order of these. The configuration has seen to it that no name stands twice. */
function toolsOf(catalog: Catalog): ReadonlyMap<string, FederatedTool> {
  let tools = known.get(catalog);
  if (tools === undefined) {
    const found = catalog.tools().flatMap(asFederated);
    tools = new Map(found.toSorted((one, other) => (one.name < other.name ? -1 : 1)).map((tool) => [tool.name, tool]));
    known.set(catalog, tools);
  }
  return tools;
}

function asFederated({ name: full, upstream, call }: Tool): readonly FederatedTool[] {
  if (call.kind !== 'mcp' || call.federated === undefined) return [];
  return [{ name: call.federated, full, upstream, call }];
}

/** The tool with a name; `null` if there is none. */
export function federatedTool(catalog: Catalog, name: Json | undefined): FederatedTool | null {
  return typeof name === 'string' ? (toolsOf(catalog).get(name) ?? null) : null;
}

/**
 * The answer to `tools/list`: the tools as they were pinned, which the key may call, in pages.
 * @param isHidden whether a tool is known to be something else than what was pinned
 * @throws RpcRefused where the cursor is none of this list
 */
export function federatedList(
  catalog: Catalog,
  { allowedTools }: Pick<Principal, 'allowedTools'>,
  message: RpcRequest,
  isHidden: (tool: FederatedTool) => boolean,
): JsonObject {
  const visible = [...toolsOf(catalog).values()].filter(
    (tool) => (allowedTools?.includes(tool.full) ?? true) && !isHidden(tool),
  );
  const { page, next } = pageOf(message, visible, PAGE, ({ name }) => name);
  return { tools: page.map(({ name, call }) => ({ ...call.pinned, name })), ...next };
}
