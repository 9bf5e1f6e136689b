import { isJsonObject, type Json, type JsonObject } from '../json/value.ts';
import { META } from './revisions.ts';

/** Longest version of a client or a server, characters. It is no place for a text. */
const VERSION_FORM = /^[\w.+-]{1,64}$/;
const TRACE = {
  traceparent: /^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$/,
  tracestate: /^[\x20-\x7e]{1,512}$/,
};

/**
 * What a client says of itself and of a call in `_meta`, as the protocol defines it. Everything else there would reach
 * the server without policy, record or fingerprint knowing of it.
 */
export function protocolMeta(meta: Json | undefined): JsonObject {
  if (!isJsonObject(meta)) return {};
  const kept: Record<string, Json> = {};
  const { progressToken: token } = meta;
  if (typeof token === 'string' || Number.isSafeInteger(token)) kept['progressToken'] = token ?? null;
  for (const [name, form] of Object.entries(TRACE)) {
    const value = meta[name];
    if (typeof value === 'string' && form.test(value)) kept[name] = value;
  }
  const { [META.protocolVersion]: version, [META.clientCapabilities]: capabilities, [META.logLevel]: level } = meta;
  if (typeof version === 'string') kept[META.protocolVersion] = version;
  if (isJsonObject(capabilities)) kept[META.clientCapabilities] = capabilities;
  if (typeof level === 'string') kept[META.logLevel] = level;
  const { [META.clientInfo]: client } = meta;
  if (isJsonObject(client)) kept[META.clientInfo] = identityOf(client);
  return kept;
}

/** Name and version of a client or a server, without the texts that it may have beside them. */
export function identityOf({ name, version }: JsonObject): JsonObject {
  return {
    name: typeof name === 'string' ? name.slice(0, 128) : '',
    version: typeof version === 'string' && VERSION_FORM.test(version) ? version : '0',
  };
}

/** Those members of `_meta` that a tool is declared to need. @param names declared for the tool */
export function declaredMeta(meta: Json | undefined, names: readonly string[]): JsonObject {
  if (!isJsonObject(meta)) return {};
  return Object.fromEntries(names.flatMap((name) => (Object.hasOwn(meta, name) ? [[name, meta[name] ?? null]] : [])));
}
