import type { FastifyInstance, FastifyRequest } from 'fastify';
import type { Principal } from '../../effects/model/principal.ts';
import { withoutOwnCookies } from '../../effects/run/header-names.ts';
import { isJsonObject, type JsonObject } from '../../json/value.ts';
import { takesUrls, URLS_SINCE } from '../../mcp-protocol/elicitation.ts';
import { callerOf } from '../caller.ts';
import { problem, acceptMessages, answerFaults, messageIn, RpcRefused } from '../http.ts';
import { refused, RPC, type RpcMessage } from '../jsonrpc.ts';
import { type Era, eraOf } from '../protocol.ts';
import { note, recordMessages } from './access.ts';
import { knownMethod } from './methods.ts';
import type { GatewayPorts } from './ports.ts';
import { openSession, type SessionOwner } from './sessions.ts';
import { holdsOwnKey } from '../../effects/run/check-call.ts';

declare module 'fastify' {
  interface FastifyRequest {
    /** Whom the key of a request to an MCP server belongs to, when that was found out, and how long it took. */
    mcpSender: (Awaited<ReturnType<typeof callerOf>> & { readonly at: number; readonly tookMs: number }) | null;
  }
}

/** Who sends a request, and in which session. */
export interface Sender {
  readonly principal: Principal;
  readonly workspace: string;
  readonly agentId: string | null;
  readonly owner: SessionOwner;
  /** The id that was sealed for the session; `null` outside of one. */
  readonly session: string | null;
  /** The client of the session has its user visit addresses; of a client that begins one, as it says. */
  readonly takesUrls: boolean;
  readonly authenticatedAt: number;
}

/** What every door to MCP servers does with a request before its own handlers see it. */
export function guardDoor(app: FastifyInstance, ports: GatewayPorts): void {
  acceptMessages(app, ports.jsonLimits);
  answerFaults(app, ports);
  app.decorateRequest('mcpSender', null);
  recordMessages(app, ports.access);
  app.addHook('onRequest', async (request, reply) => {
    const began = performance.now();
    const caller = await callerOf(ports, request, reply);
    request.mcpSender = { ...caller, at: ports.now(), tookMs: performance.now() - began };
  });
}

/** The message of a request, and its era. @throws RpcRefused where headers and body disagree */
export function arrivedMessage(request: FastifyRequest<{ Body: RpcMessage | undefined }>): {
  readonly message: RpcMessage;
  readonly era: Era;
} {
  const message = messageIn(request);
  if (message.kind !== 'response') note(request, { rpc: knownMethod(message.method) });
  const era = eraOf(message, request.headers);
  if (era.kind === 'refused') throw new RpcRefused(era);
  return { message, era };
}

/**
 * @param at the upstream whose sessions count here, and the tool by which the key is authorised
 * @throws RpcProblem, RpcRefused where the request is of nobody, or in a session of somebody else
 */
export function senderOf(
  ports: GatewayPorts,
  request: FastifyRequest,
  message: RpcMessage | null,
  { upstream, tool }: { readonly upstream: string; readonly tool: string },
): Sender {
  const { mcpSender: caller } = request;
  if (caller === null) throw problem('missing_key', 'Send an API key in the header X-API-Key.');
  const { principal } = caller;
  const id = message === null || message.kind === 'notification' ? null : message.id;
  const workspace = principal.kind === 'administrative' ? '' : (principal.workspace ?? '');
  const named = request.headers['svc-agent-id'];
  const agentId = typeof named === 'string' && named !== '' ? named : null;
  const authorized = ports.authorize(principal, { endpoint: 'proxy.read', workspace, tool, agentId });
  if (authorized.kind === 'invalid')
    throw problem('invalid_request', 'This key belongs to no agent: name the one that acts in Svc-Agent-Id.');
  // A call of a tool is authorised as such, with a record of its refusal.
  if (authorized.kind === 'denied' && !(message?.kind === 'request' && message.method === 'tools/call')) {
    const { decision, reason } = authorized;
    note(request, { decision });
    throw new RpcRefused(refused(403, id, RPC.refused, reason.message, { decision, code: reason.code }));
  }
  const owner = { upstream, workspace, agentId: authorized.kind === 'agent' ? authorized.agent.id : '' };
  const sealed = request.headers['mcp-session-id'];
  const opened = sealed === undefined ? null : openSession(ports.workspaceKey(workspace), owner, String(sealed));
  if (sealed !== undefined && opened === null)
    throw new RpcRefused(
      refused(404, id, RPC.refused, 'There is no such session of this agent. Begin a new one with initialize.', {}),
    );
  const session = opened?.id ?? null;
  const acceptsUrls = opened?.takesUrls ?? beginsWithUrls(message);
  return { principal, workspace, agentId, owner, session, takesUrls: acceptsUrls, authenticatedAt: caller.at };
}

function beginsWithUrls(message: RpcMessage | null): boolean {
  if (message?.kind !== 'request' || message.method !== 'initialize') return false;
  const { capabilities } = message.params;
  return isJsonObject(capabilities) && takesUrls(capabilities);
}

/** Whether the client of a call has its user visit addresses, as it says itself, and as its revision knows it. */
export function mayAskUrl(era: Era, sender: Pick<Sender, 'takesUrls'>): boolean {
  switch (era.kind) {
    case 'stateless':
      return takesUrls(era.clientCapabilities);
    case 'handshake':
      return era.version === URLS_SINCE && sender.takesUrls;
  }
}

/** What calls are told apart by that run at once: a client chooses ids for its own session only. */
export function sessionName({ owner, session }: Pick<Sender, 'owner' | 'session'>): string {
  return JSON.stringify([owner.upstream, owner.workspace, owner.agentId, session]);
}

/** @throws RpcProblem where a message would carry the key of its sender on */
export function refuseOwnKey({ principal }: Sender, params: JsonObject): void {
  if (holdsOwnKey(params, principal.keyId))
    throw problem(
      'invalid_request',
      'The message would carry the gateway’s key to the server. Send it in X-API-Key only.',
    );
}

/** Those headers of a request that have one of the names. Of cookies the gateway's own are left out. */
export function headersNamed(
  { headers }: Pick<FastifyRequest, 'headers'>,
  names: readonly string[],
): Record<string, string> {
  const found: Record<string, string> = {};
  for (const name of names) {
    const value = headers[name];
    const passed = name === 'cookie' && typeof value === 'string' ? withoutOwnCookies(value) : value;
    if (typeof passed === 'string' && passed !== '') found[name] = passed;
  }
  return found;
}
