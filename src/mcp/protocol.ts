import { type Json, type JsonObject, isJsonObject } from '../json/value.ts';
import { decodeHeader, namedIn } from '../mcp-protocol/mirror-headers.ts';
import { HANDSHAKE_VERSIONS, META, STATELESS_VERSIONS } from '../mcp-protocol/revisions.ts';
import { type RpcId, type RpcMessage, type RpcRefusal, RPC, refused } from './jsonrpc.ts';

/** Which era a message is of, and what it says about its client. */
export type Era =
  | {
      readonly kind: 'stateless';
      readonly version: (typeof STATELESS_VERSIONS)[number];
      readonly clientCapabilities: JsonObject;
      readonly clientInfo: JsonObject | null;
    }
  /** `version`: from the header `MCP-Protocol-Version`; `null` where there is none (plain HTTP clients, `initialize`). */
  | { readonly kind: 'handshake'; readonly version: (typeof HANDSHAKE_VERSIONS)[number] | null };

/** Headers by their names in lower case; those that mirror the body are read. */
export type MirrorHeaders = Readonly<Record<string, string | readonly string[] | undefined>>;

/**
 * Finds the era of a message, by the body first: only a stateless message names its version in `_meta`. The headers are
 * compared with the body. Where they disagree the message is refused, in both eras: another server on the way may have
 * gone by the header.
 */
export function eraOf(message: RpcMessage, headers: MirrorHeaders): Era | RpcRefusal {
  const header = textOf(headers['mcp-protocol-version']);
  if (message.kind === 'response') return eraOfResponse(message.id, header);
  const id = message.kind === 'request' ? message.id : null;
  const meta = message.params['_meta'];
  if (meta !== undefined && !isJsonObject(meta))
    return refused(400, id, RPC.invalidParams, 'The member _meta of params must be an object.');
  const claim = meta?.[META.protocolVersion];
  const mirror = mirrorFault(message.method, message.params, headers, id);
  if (mirror !== null) return mirror;
  if (claim !== undefined) return eraOfClaim(message, meta ?? {}, claim, header, headers);
  if (header === null) return { kind: 'handshake', version: null };
  const known = HANDSHAKE_VERSIONS.find((version) => version === header);
  if (known !== undefined) return { kind: 'handshake', version: known };
  const stateless = STATELESS_VERSIONS.find((version) => version === header);
  if (stateless === undefined) return unsupported(id, header, [...STATELESS_VERSIONS, ...HANDSHAKE_VERSIONS]);
  if (message.kind === 'notification')
    return { kind: 'stateless', version: stateless, clientCapabilities: {}, clientInfo: null };
  if (message.method === 'initialize')
    return mismatch(id, 'MCP-Protocol-Version', header, `the body begins a session, which ${header} does not have`);
  const missing = meta === undefined ? ['_meta'] : missingIn(meta);
  return refused(400, id, RPC.invalidParams, `A request of ${header} names in params._meta: ${missing.join(', ')}.`, {
    missing,
  });
}

/** Only clients of the eras with sessions answer requests of a server. */
function eraOfResponse(id: RpcId, header: string | null): Era | RpcRefusal {
  if (header === null) return { kind: 'handshake', version: null };
  const known = HANDSHAKE_VERSIONS.find((version) => version === header);
  if (known !== undefined) return { kind: 'handshake', version: known };
  return refused(400, id, RPC.invalidRequest, `In ${header.slice(0, 40)} no answers are sent to a server.`);
}

function eraOfClaim(
  message: Exclude<RpcMessage, { kind: 'response' }>,
  meta: JsonObject,
  claim: Json,
  header: string | null,
  headers: MirrorHeaders,
): Era | RpcRefusal {
  const id = message.kind === 'request' ? message.id : null;
  if (typeof claim !== 'string') return refused(400, id, RPC.invalidParams, `${META.protocolVersion} must be a text.`);
  if (header !== null && header !== claim)
    return mismatch(id, 'MCP-Protocol-Version', header, `the body names ${claim.slice(0, 40)}`);
  const version = STATELESS_VERSIONS.find((one) => one === claim);
  if (version === undefined) return unsupported(id, claim, STATELESS_VERSIONS);
  const info = meta[META.clientInfo];
  const clientInfo = isJsonObject(info) ? info : null;
  const capabilities = meta[META.clientCapabilities];
  if (message.kind === 'notification')
    return {
      kind: 'stateless',
      version,
      clientCapabilities: isJsonObject(capabilities) ? capabilities : {},
      clientInfo,
    };
  if (!isJsonObject(capabilities))
    return refused(400, id, RPC.invalidParams, `params._meta must name ${META.clientCapabilities}, an object.`, {
      missing: [META.clientCapabilities],
    });
  if (info !== undefined && clientInfo === null)
    return refused(400, id, RPC.invalidParams, `${META.clientInfo} must be an object.`);
  if (header === null) return mismatch(id, 'MCP-Protocol-Version', null, `the body names ${claim}`);
  if (headers['mcp-method'] === undefined) return mismatch(id, 'Mcp-Method', null, `the body names ${message.method}`);
  const named = namedIn(message.method, message.params);
  if (named !== null && headers['mcp-name'] === undefined)
    return mismatch(id, 'Mcp-Name', null, `the body names ${named.slice(0, 100)}`);
  return { kind: 'stateless', version, clientCapabilities: capabilities, clientInfo };
}

/** A header that is there has to say what the body says. */
function mirrorFault(method: string, params: JsonObject, headers: MirrorHeaders, id: RpcId | null): RpcRefusal | null {
  const inHeader = textOf(headers['mcp-method']);
  if (inHeader !== null && inHeader !== method) return mismatch(id, 'Mcp-Method', inHeader, `the body names ${method}`);
  const name = textOf(headers['mcp-name']);
  if (name === null) return null;
  const decoded = decodeHeader(name);
  if (decoded === null) return mismatch(id, 'Mcp-Name', name, 'its Base64 cannot be read');
  const named = namedIn(method, params);
  if (named === null || named === decoded) return null;
  return mismatch(id, 'Mcp-Name', name, `the body names ${named.slice(0, 100)}`);
}

function missingIn(meta: JsonObject): string[] {
  const missing = [META.protocolVersion, META.clientCapabilities].filter((name) => meta[name] === undefined);
  return missing.length === 0 ? [META.protocolVersion] : missing;
}

/** The versions that are offered are those of the era in which the client asked. */
function unsupported(id: RpcId | null, requested: string, supported: readonly string[]): RpcRefusal {
  const shown = requested.slice(0, 100);
  return refused(400, id, RPC.unsupportedVersion, `This server does not speak the protocol version ${shown}.`, {
    supported,
    requested: shown,
  });
}

/** The refusal of a message whose header does not say what its body says. @param value `null` where it is missing */
export function mismatch(id: RpcId | null, header: string, value: string | null, body: string): RpcRefusal {
  const found = value === null ? `The header ${header} is missing` : `The header ${header} says ${value.slice(0, 100)}`;
  return refused(400, id, RPC.headerMismatch, `${found}, and ${body}.`, { header });
}

/** A header that stands several times is joined by Node, and equals nothing. */
function textOf(value: string | readonly string[] | undefined): string | null {
  return value === undefined ? null : String(value).trim();
}
