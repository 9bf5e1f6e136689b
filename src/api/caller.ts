import type { FastifyReply, FastifyRequest } from 'fastify';
import { type Json, isJsonObject } from '../json/value.ts';
import type { Principal } from '../effects/model/principal.ts';
import { keyFromRequest, parseKey } from '../identity/key-format.ts';
import { type EndpointId, permit } from '../identity/permissions.ts';
import { sessionMay } from '../identity/session-permissions.ts';
import type { Caller } from './app.ts';
import type { InvalidKeyLimiter } from './invalid-key-limiter.ts';
import type { Passkeys } from '../identity/passkeys/passkeys.ts';
import type { ApiPorts, ApiSessions } from './ports.ts';
import { refuse, refuseFaults } from './problem.ts';

/** When keys in the query were declared deprecated (RFC 9745: seconds since the epoch). */
const QUERY_KEY_DEPRECATED = '@1767225600';

/**
 * The hook before each control-plane route that names a row of the permission table: 429, then 401, then 403, all
 * before the body is read. On a run request the core handles the 403: it becomes a decision with a ledger event.
 */
export function identifyCaller(
  ports: Pick<ApiPorts, 'authenticate' | 'settings' | 'store' | 'directory' | 'sessions'>,
  limiter: InvalidKeyLimiter,
): (request: FastifyRequest, reply: FastifyReply) => Promise<void> {
  return async (request, reply) => {
    const { endpoint } = request.routeOptions.config;
    if (endpoint === undefined) return;
    const started = performance.now();
    const query = queryOf(request);
    const credentials = keyFromRequest({ headers: request.headers, query }, ports.settings().queryKey);
    if (credentials.kind === 'missing') {
      request.caller = callerFor(await visitorFor(ports, request, endpoint), request, endpoint, started, ports);
      return;
    }
    if (credentials.kind === 'key' && credentials.viaQuery) {
      reply.header('deprecation', QUERY_KEY_DEPRECATED);
      reply.header('link', `<${ports.settings().publicUrl}/docs/errors/missing_key>; rel="deprecation"`);
    }
    const principal = await ownerOf(ports, limiter, credentials, request.ip);
    request.caller = callerFor({ principal }, request, endpoint, started, ports);
  };
}

/** Who sends a request without a key: somebody with a session of the console. @throws Refused */
async function visitorFor(
  { sessions }: Pick<ApiPorts, 'sessions'>,
  { headers, method }: FastifyRequest,
  endpoint: EndpointId,
): Promise<Pick<Caller, 'principal' | 'passkey'>> {
  const may = sessionMay(endpoint, method);
  const visitor = may === 'no' ? null : await sessions.visitorOf(headers);
  if (visitor === null) throw refuse('missing_key', 'Send an API key in the header X-API-Key.');
  if (may === 'after_step_up' && !visitor.hasShownKey)
    throw refuse('step_up_required', 'This session was opened by a link. Show your own key once to go on.');
  return visitor;
}

/**
 * Whom the key of a request belongs to.
 * @param address that sent it; too many invalid keys of one are not looked at any more
 * @throws Refused
 */
export async function ownerOf(
  { authenticate }: Pick<ApiPorts, 'authenticate'>,
  limiter: InvalidKeyLimiter,
  credentials: { readonly kind: 'key'; readonly key: string } | { readonly kind: 'invalid'; readonly detail: string },
  address: string,
): Promise<Principal> {
  const handle = credentials.kind === 'key' ? (parseKey(credentials.key)?.handle ?? null) : null;
  const wait = limiter.check(address, handle);
  if (wait !== null)
    throw refuse('too_many_requests', 'This address has sent too many invalid keys.', { retryAfterMs: wait });
  if (credentials.kind === 'invalid') {
    limiter.failed(address);
    throw refuse('invalid_key', credentials.detail);
  }
  const found = await authenticate(credentials.key);
  if ('failure' in found) {
    limiter.failed(address);
    throw refuse('invalid_key', 'The key is malformed, unknown, expired or revoked.');
  }
  limiter.passed(handle);
  return found;
}

/**
 * Whom a passkey belongs to that has signed a challenge, as the key that it stands for.
 * @param address that sent it; too many that are not known, of one, are not looked at any more
 * @throws Refused
 */
export async function ownerByPasskey(
  {
    passkeys,
    sessions,
    invalidKeys,
  }: Pick<ApiPorts, 'passkeys' | 'invalidKeys'> & {
    readonly sessions: Pick<ApiSessions, 'ownerOf'>;
  },
  signed: Parameters<Passkeys['signed']>[0],
  address: string,
): Promise<{ readonly principal: Principal; readonly passkey: string }> {
  checkAttempts(invalidKeys, address);
  const passkey = await passkeys.signed(signed);
  const principal = passkey === null ? null : await sessions.ownerOf(passkey);
  if (passkey !== null && principal !== null) return { principal, passkey: passkey.id };
  invalidKeys.failed(address);
  throw refuse('passkey_refused', 'This passkey is not known here, its key has ended, or it took too long: try again.');
}

/** Of one address, only so many attempts are looked at. @throws Refused */
export function checkAttempts(limiter: InvalidKeyLimiter, address: string): void {
  const wait = limiter.check(address, null);
  if (wait !== null)
    throw refuse('too_many_requests', 'This address has sent too many invalid links, passkeys or keys.', {
      retryAfterMs: wait,
    });
}

function callerFor(
  { principal, passkey = null }: Pick<Caller, 'principal' | 'passkey'>,
  request: FastifyRequest,
  endpoint: EndpointId,
  started: number,
  ports: Pick<ApiPorts, 'store' | 'directory'>,
): Caller {
  const workspace = pathParam(request, 'ws');
  const permission = permit(principal, endpoint, workspace);
  const authenticatedInMs = performance.now() - started;
  const times = { authenticatedAt: ports.store.now() - authenticatedInMs, authenticatedInMs };
  if (!permission.ok) {
    if (endpoint !== 'effects.run') throw refuse(permission.code, permission.detail);
    return { principal, passkey, view: { kind: 'none' }, refusal: permission, ...times };
  }
  if (workspace !== null && permission.view.kind === 'any' && !ports.directory.workspaceExists(workspace))
    throw refuse('not_found', 'There is no such workspace.');
  return { principal, passkey, view: permission.view, refusal: null, ...times };
}

/** Each name may appear only once in a query. Runs after authentication, and removes `api_key` from the query. */
export async function checkQuery(request: FastifyRequest): Promise<void> {
  const query = queryOf(request);
  const repeated = Object.entries(query).filter(([name, value]) => name !== 'api_key' && Array.isArray(value));
  if (repeated.length > 0)
    throw refuseFaults(repeated.map(([name]) => ({ path: `/query/${name}`, message: 'stands more than once' })));
  if ('api_key' in query) {
    const { api_key: _, ...rest } = query;
    request.query = rest;
  }
}

/** The caller of a route that names a row of the permission table. */
export function callerOf(request: FastifyRequest): Caller {
  if (request.caller === null) throw new Error('the route names no row of the permission table');
  return request.caller;
}

/** Whether something of an agent may be seen: an agent key sees nothing of other agents. */
export function mayBeSeen(caller: Caller, agentId: string): boolean {
  return caller.view.kind !== 'own' || caller.view.agentId === agentId;
}

/**
 * The agent that a request acts for: that of the key, else the one that the request names, which must be registered.
 */
export function actingAgent(
  caller: Caller,
  named: string | undefined,
  workspace: string,
  directory: ApiPorts['directory'],
): string {
  const own = caller.view.kind === 'own' ? caller.view.agentId : null;
  if (own !== null && named !== undefined && named !== own)
    throw refuseFaults([{ path: '/agent_id', message: `must be ${own}, or be left out: the key names the agent` }]);
  const id = own ?? named;
  if (id === undefined)
    throw refuseFaults([{ path: '/agent_id', message: 'is required: this key belongs to no agent' }]);
  const agent = directory.agent(workspace, id);
  if (agent === null || agent.disabled)
    throw refuseFaults([{ path: '/agent_id', message: 'names no registered agent that is enabled' }]);
  return id;
}

/** A name from the path, if the route has it. */
function pathParam(request: FastifyRequest, name: string): string | null {
  const params = request.params as Json;
  const value = isJsonObject(params) ? params[name] : undefined;
  return typeof value === 'string' ? value : null;
}

function queryOf(request: FastifyRequest): Readonly<Record<string, string | readonly string[]>> {
  return request.query as Readonly<Record<string, string | readonly string[]>>;
}

/** @throws Refused for a key made for one agent: of others, and of the people behind them, it is told nothing. */
export function refuseAgents({ view }: Caller, what = 'read the ledger of its workspace'): void {
  if (view.kind === 'own') throw refuse('wrong_key_kind', `A key that was made for one agent does not ${what}.`);
}
