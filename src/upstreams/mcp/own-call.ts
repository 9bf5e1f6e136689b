import type { McpCall } from '../../effects/model/tool.ts';
import type { JsonObject } from '../../json/value.ts';
import { encodeHeader } from '../../mcp-protocol/mirror-headers.ts';
import { paramHeadersIn, paramHeadersOf } from '../../mcp-protocol/param-headers.ts';
import type { Entered } from './own-session.ts';

export interface OwnCall {
  readonly id: number;
  /** Members of the message's params beside the name and the arguments. */
  readonly rest: JsonObject;
  readonly headers: Readonly<Record<string, string>>;
}

/** A call of a tool as the server wants it: in the stateless era, headers repeat what its body says. */
export function ownCall({ id, begun }: Entered, { name, pinned }: McpCall, params: JsonObject): OwnCall {
  switch (begun.kind) {
    case 'session':
      return { id, rest: {}, headers: begun.headers };
    case 'stateless':
      return {
        id,
        rest: { _meta: begun.meta },
        headers: {
          ...begun.headers,
          'mcp-method': 'tools/call',
          'mcp-name': encodeHeader(name),
          ...paramHeadersOf(paramHeadersIn(pinned['inputSchema']), params),
        },
      };
  }
}
