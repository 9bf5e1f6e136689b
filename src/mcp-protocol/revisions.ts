import { isJsonObject, type Json } from '../json/value.ts';

/** Revisions without `initialize` and sessions: each request says everything about itself. Newest first. */
export const STATELESS_VERSIONS = ['2026-07-28'] as const;
/** Revisions that begin with `initialize`. Newest first. */
export const HANDSHAKE_VERSIONS = ['2025-11-25', '2025-06-18', '2025-03-26', '2024-11-05'] as const;

/** Members of `_meta` that the protocol defines for stateless requests and their answers. */
export const META = {
  protocolVersion: 'io.modelcontextprotocol/protocolVersion',
  clientInfo: 'io.modelcontextprotocol/clientInfo',
  clientCapabilities: 'io.modelcontextprotocol/clientCapabilities',
  serverInfo: 'io.modelcontextprotocol/serverInfo',
  logLevel: 'io.modelcontextprotocol/logLevel',
} as const;

/** The revision that a message of the stateless era names in itself; `null` for a message of the era of sessions. */
export function statelessVersion(params: Json | undefined): string | null {
  const meta = isJsonObject(params) ? params['_meta'] : undefined;
  const version = isJsonObject(meta) ? meta[META.protocolVersion] : undefined;
  return typeof version === 'string' ? version : null;
}
