import type { FastifyReply, FastifyRequest } from 'fastify';
import type { Principal } from '../effects/model/principal.ts';
import { keyFromRequest } from '../identity/key-format.ts';
import type { Identified } from '../identity/identified.ts';
import { problem, RpcProblem } from './http.ts';

/** When keys in the query were declared deprecated (RFC 9745: seconds since the epoch). */
const QUERY_KEY_DEPRECATED = '@1767225600';

export interface CallerPorts {
  /** Whom a key belongs to. Returns a promise only if the key is not in the cache. */
  readonly identify: (key: string, address: string) => Identified | Promise<Identified>;
  readonly settings: () => { readonly publicUrl: string; readonly queryKey: 'allow' | 'refuse' };
}

/**
 * Finds out who sends a request to an MCP face, before its body is read.
 * @throws RpcProblem without a valid key, and where the query has anything but the key
 */
export async function callerOf(
  ports: CallerPorts,
  request: FastifyRequest,
  reply: FastifyReply,
): Promise<{ readonly principal: Principal; readonly key: string }> {
  const query = request.query as Readonly<Record<string, string | readonly string[]>>;
  const { publicUrl, queryKey } = ports.settings();
  const credentials = keyFromRequest({ headers: request.headers, query }, queryKey);
  switch (credentials.kind) {
    case 'missing':
      throw problem('missing_key', 'Send an API key in the header X-API-Key.');
    case 'invalid':
      throw problem('invalid_key', credentials.detail);
    case 'key':
      break;
  }
  if (credentials.viaQuery)
    reply.headers({
      deprecation: QUERY_KEY_DEPRECATED,
      link: `<${publicUrl}/docs/errors/missing_key>; rel="deprecation"`,
    });
  const who = await ports.identify(credentials.key, request.ip);
  if (who.kind === 'problem') throw new RpcProblem(who.problem);
  const stranger = Object.keys(query).find((name) => name !== 'api_key');
  if (stranger !== undefined)
    throw problem('invalid_request', `There is no query here but the key: leave out ${stranger.slice(0, 100)}.`);
  return { principal: who.principal, key: credentials.key };
}
