import { isJsonObject, type JsonObject } from '../json/value.ts';
import { HANDSHAKE_VERSIONS, META, STATELESS_VERSIONS } from '../mcp-protocol/revisions.ts';
import { RpcRefused } from './http.ts';
import { refused, RPC, type RpcRequest } from './jsonrpc.ts';
import type { Era } from './protocol.ts';

/** What the gateway says of itself where it answers as a server. */
export interface OwnServer {
  readonly serverInfo: JsonObject;
  readonly instructions: string;
  /** Capabilities in the stateless era, beside tools. */
  readonly offers?: JsonObject;
}

const CAPABILITIES = { tools: { listChanged: false } } as const;

/**
 * The answer to a method by which clients and servers become acquainted; `null` where the era of the message has none of
 * that name.
 * @throws RpcRefused
 */
export function acquainted({ method, id, params }: RpcRequest, era: Era, own: OwnServer): JsonObject | null {
  const { serverInfo, instructions, offers = {} } = own;
  switch (era.kind) {
    case 'handshake': {
      if (method === 'ping') return {};
      if (method !== 'initialize') return null;
      const { protocolVersion: asked } = params;
      if (typeof asked !== 'string')
        throw new RpcRefused(refused(200, id, RPC.invalidParams, 'initialize names a protocolVersion.'));
      const protocolVersion = HANDSHAKE_VERSIONS.find((version) => version === asked) ?? HANDSHAKE_VERSIONS[0];
      return { protocolVersion, capabilities: CAPABILITIES, serverInfo, instructions };
    }
    case 'stateless':
      if (method !== 'server/discover') return null;
      return cacheable(
        { supportedVersions: STATELESS_VERSIONS, capabilities: { ...CAPABILITIES, ...offers }, instructions },
        era,
      );
  }
}

/** What each key sees is its own, and a change of its rights counts at once. */
export function cacheable(result: JsonObject, era: Era): JsonObject {
  return era.kind === 'stateless' ? { ...result, ttlMs: 0, cacheScope: 'private' } : result;
}

export function inForm(result: JsonObject, era: Era, { serverInfo }: OwnServer): JsonObject {
  if (era.kind === 'handshake') {
    // Where the server is of the other era.
    const { resultType, ...others } = result;
    return resultType === 'complete' ? others : result;
  }
  const meta = isJsonObject(result['_meta']) ? result['_meta'] : {};
  return { resultType: 'complete', ...result, _meta: { ...meta, [META.serverInfo]: serverInfo } };
}

/** @param text says that there is no such method, and what there is */
export function noMethod({ id }: RpcRequest, era: Era, text: string): RpcRefused {
  // A 404 would tell clients of the era with sessions that theirs has ended.
  return new RpcRefused(refused(era.kind === 'stateless' ? 404 : 200, id, RPC.methodNotFound, text));
}

/**
 * A page of a list of tools.
 * @param visible what the key sees, in order
 * @param cursorOf the cursor of the page that begins with it
 * @throws RpcRefused where the cursor is none of this list
 */
export function pageOf<Item>(
  { id, params: { cursor } }: RpcRequest,
  visible: readonly Item[],
  size: number,
  cursorOf: (item: Item) => string,
): { readonly page: readonly Item[]; readonly next: { readonly nextCursor?: string } } {
  const from = cursor === undefined ? 0 : visible.findIndex((item) => cursorOf(item) === cursor);
  if (from === -1)
    throw new RpcRefused(refused(200, id, RPC.invalidParams, 'The cursor is none of this list: begin without one.'));
  const next = visible[from + size];
  return {
    page: visible.slice(from, from + size),
    next: next === undefined ? {} : { nextCursor: cursorOf(next) },
  };
}
