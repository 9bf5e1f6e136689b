import { randomUUID } from 'node:crypto';
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import type { Principal } from '../../effects/model/principal.ts';
import { holdsOwnKey } from '../../effects/run/own-key.ts';
import { isJsonObject, type JsonObject } from '../../json/value.ts';
import { HANDSHAKE_VERSIONS, META, STATELESS_VERSIONS } from '../../mcp-protocol/revisions.ts';
import { VERSION } from '../../version.ts';
import { callerOf, problem } from '../caller.ts';
import { acceptMessages, answerFaults, messageIn, RpcRefused, sendMessage } from '../http.ts';
import { refused, resultMessage, RPC, type RpcMessage, type RpcRequest } from '../jsonrpc.ts';
import { type Era, eraOf } from '../protocol.ts';
import { announcements } from './announcements.ts';
import { runCall } from './call.ts';
import { federatedList, federatedTool } from './federated-tools.ts';
import { createLiveCalls } from './live-calls.ts';
import { mayNotify } from './methods.ts';
import type { GatewayPorts } from './ports.ts';
import { openSession, sealSession, type SessionOwner } from './sessions.ts';

type Incoming = FastifyRequest<{ Body: RpcMessage | undefined }>;

const SERVER_INFO = { name: 'svc-gateway', title: 'svc-gateway', version: VERSION } as const;
const CAPABILITIES = { tools: { listChanged: false } } as const;
const INSTRUCTIONS = 'Tools of several servers. A name begins with its server, then stands __, then the tool.';

/** Headers that go on to the servers. What else clients say of the transport is about their session with the gateway. */
const TRACE = ['traceparent', 'tracestate', 'baggage'];

/** Who sends a request. */
interface Arrived {
  readonly principal: Principal;
  readonly workspace: string;
  readonly agentId: string | null;
  readonly owner: SessionOwner;
  /** The name of the session; `null` outside of one. */
  readonly session: string | null;
  readonly authenticatedAt: number;
}

/**
 * The door to the tools of all MCP servers, `/mcp`. The gateway answers everything but calls itself, from the pins: a
 * server that is slow, or away, delays nobody. A call is the same effect as at `/mcp/{upstream}`. Sessions are a name and
 * its seal; nothing is kept for them.
 */
export async function mcpFederatedPlugin(
  app: FastifyInstance,
  { ports }: { readonly ports: GatewayPorts },
): Promise<void> {
  const live = createLiveCalls();
  acceptMessages(app, ports.jsonLimits);
  answerFaults(app, ports);
  app.decorateRequest('mcpSender', null);
  app.addHook('onRequest', async (request, reply) => {
    request.mcpSender = { principal: await callerOf(ports, request, reply), at: ports.now() };
  });
  const at = { url: '/mcp', exposeHeadRoute: false } as const;
  app.route({
    ...at,
    method: 'POST',
    handler: async (request: Incoming, reply) => {
      const message = messageIn(request);
      const era = eraOf(message, request.headers);
      if (era.kind === 'refused') throw new RpcRefused(era);
      const arrived = arriveAtAll(ports, request, message);
      switch (message.kind) {
        case 'request':
          return answerRequest(arrived, message, era, request, reply);
        case 'notification':
          return takeNotification(arrived, message, reply);
        case 'response':
          throw new RpcRefused(refused(400, message.id, RPC.invalidRequest, 'Nothing was asked here.'));
      }
    },
  });
  app.route({
    ...at,
    method: 'GET',
    handler: async (request: Incoming, reply) => {
      arriveAtAll(ports, request, null);
      // Nothing is sent but answers: a client that hears 405 does not ask again.
      return reply.code(405).header('allow', 'DELETE, POST').send();
    },
  });
  app.route({
    ...at,
    method: 'DELETE',
    handler: async (request: Incoming, reply) => {
      arriveAtAll(ports, request, null);
      return reply.code(204).send();
    },
  });

  async function answerRequest(
    arrived: Arrived,
    message: RpcRequest,
    era: Era,
    request: Incoming,
    reply: FastifyReply,
  ): Promise<FastifyReply> {
    const say = (result: JsonObject): FastifyReply => sendMessage(reply, resultMessage(message.id, shape(result, era)));
    switch (message.method) {
      case 'tools/call':
        return call(arrived, message, era, request, reply);
      case 'tools/list':
        return say({ ...federatedList(ports.catalog(), arrived.principal, message), ...cacheOf(era) });
      case 'initialize':
        if (era.kind !== 'handshake') break;
        reply.header('mcp-session-id', sealSession(ports.workspaceKey(arrived.workspace), arrived.owner, randomUUID()));
        return say(initialized(message));
      case 'ping':
        if (era.kind !== 'handshake') break;
        return say({});
      case 'server/discover':
        if (era.kind !== 'stateless') break;
        return say({
          supportedVersions: STATELESS_VERSIONS,
          capabilities: CAPABILITIES,
          instructions: INSTRUCTIONS,
          ...cacheOf(era),
        });
    }
    const text = `There is no method ${JSON.stringify(message.method)} here: /mcp has the tools of all servers, /mcp/ID all of one.`;
    // A 404 would tell clients of the era with sessions that theirs has ended.
    throw new RpcRefused(refused(era.kind === 'stateless' ? 404 : 200, message.id, RPC.methodNotFound, text));
  }

  async function call(
    arrived: Arrived,
    message: RpcRequest,
    era: Era,
    request: Incoming,
    reply: FastifyReply,
  ): Promise<FastifyReply> {
    const { principal, workspace, agentId, owner } = arrived;
    if (holdsOwnKey(message.params, principal.keyId))
      throw problem(
        'invalid_request',
        'The message would carry the gateway’s key to the server. Send it in X-API-Key.',
      );
    const tool = federatedTool(ports.catalog(), message.params['name']);
    const server = tool === null ? null : ports.server(tool.upstream);
    if (tool === null || server === null)
      throw new RpcRefused(refused(200, message.id, RPC.invalidParams, 'params.name must be one of tools/list.'));
    const headers: Record<string, string> = {};
    for (const name of [...TRACE, ...(server.settings.headers?.forward ?? [])]) {
      const value = request.headers[name];
      if (typeof value === 'string') headers[name] = value;
    }
    const params = { ...message.params, name: tool.call.name, ...metaOf(message.params, era) };
    return runCall(
      ports,
      live,
      {
        principal,
        workspace,
        agentId,
        upstream: tool.upstream,
        message: { ...message, params },
        headers,
        session: sessionName(arrived),
        federated: {
          sessionOf: JSON.stringify([workspace, owner.agentId]),
          shape: (result) => shape(result, era),
        },
        // The servers' ids of sessions stay here.
        seal: () => null,
        heard: announcements(() => server.pins.doubt(server)),
        authenticatedAt: arrived.authenticatedAt,
        isStateless: era.kind === 'stateless',
      },
      request,
      reply,
    );
  }

  function takeNotification(
    arrived: Arrived,
    { method, params }: Extract<RpcMessage, { kind: 'notification' }>,
    reply: FastifyReply,
  ): FastifyReply {
    if (!mayNotify(method, []))
      throw new RpcRefused(refused(400, null, RPC.methodNotFound, `There is no notification ${method} here.`));
    const { requestId } = params;
    if (method === 'notifications/cancelled' && (typeof requestId === 'string' || typeof requestId === 'number')) {
      const running = live.of(sessionName(arrived), requestId);
      if (running?.onClientClose === 'abort') running.abort();
    }
    return reply.code(202).send();
  }
}

/** @throws RpcProblem, RpcRefused where the request is of nobody, or in a session of somebody else */
function arriveAtAll(ports: GatewayPorts, request: Incoming, message: RpcMessage | null): Arrived {
  const { mcpSender: caller } = request;
  if (caller === null) throw problem('missing_key', 'Send an API key in the header X-API-Key.');
  const { principal } = caller;
  const id = message === null || message.kind === 'notification' ? null : message.id;
  const workspace = principal.kind === 'administrative' ? '' : (principal.workspace ?? '');
  const named = request.headers['svc-agent-id'];
  const agentId = typeof named === 'string' && named !== '' ? named : null;
  const authorized = ports.authorize(principal, {
    endpoint: 'proxy.read',
    workspace,
    tool: principal.allowedTools?.[0] ?? 'mcp.(session)',
    agentId,
  });
  if (authorized.kind === 'invalid')
    throw problem('invalid_request', 'This key belongs to no agent: name the one that acts in Svc-Agent-Id.');
  // A call of a tool is authorised as such, with a record of its refusal.
  if (authorized.kind === 'denied' && !(message?.kind === 'request' && message.method === 'tools/call')) {
    const { decision, reason } = authorized;
    throw new RpcRefused(refused(403, id, RPC.refused, reason.message, { decision, code: reason.code }));
  }
  // No upstream has this id: a session is of this door, or of one server.
  const owner = { upstream: '', workspace, agentId: authorized.kind === 'agent' ? authorized.agent.id : '' };
  const sealed = request.headers['mcp-session-id'];
  const session = sealed === undefined ? null : openSession(ports.workspaceKey(workspace), owner, String(sealed));
  if (sealed !== undefined && session === null)
    throw new RpcRefused(
      refused(404, id, RPC.refused, 'There is no such session of this agent. Begin a new one with initialize.', {}),
    );
  return { principal, workspace, agentId, owner, session, authenticatedAt: caller.at };
}

function sessionName({ owner, session }: Arrived): string {
  return JSON.stringify([owner.workspace, owner.agentId, session]);
}

function initialized({ id, params }: RpcRequest): JsonObject {
  const { protocolVersion: asked } = params;
  if (typeof asked !== 'string')
    throw new RpcRefused(refused(200, id, RPC.invalidParams, 'initialize names a protocolVersion.'));
  return {
    protocolVersion: HANDSHAKE_VERSIONS.find((version) => version === asked) ?? HANDSHAKE_VERSIONS[0],
    capabilities: CAPABILITIES,
    serverInfo: SERVER_INFO,
    instructions: INSTRUCTIONS,
  };
}

/** A result in the form of the client's era. */
function shape(result: JsonObject, era: Era): JsonObject {
  if (era.kind === 'handshake') return result;
  const { _meta: meta } = result;
  return {
    resultType: 'complete',
    ...result,
    _meta: { ...(isJsonObject(meta) ? meta : {}), [META.serverInfo]: SERVER_INFO },
  };
}

/** What each key sees is its own, and a change of its rights counts at once. */
function cacheOf(era: Era): JsonObject {
  return era.kind === 'stateless' ? { ttlMs: 0, cacheScope: 'private' } : {};
}

/** `_meta` without what a client of the stateless era says of itself: the servers are spoken to in sessions. */
function metaOf({ _meta: meta }: JsonObject, era: Era): JsonObject {
  if (era.kind === 'handshake' || !isJsonObject(meta)) return {};
  const others = Object.entries(meta).filter(([name]) => !name.startsWith('io.modelcontextprotocol/'));
  return { _meta: Object.fromEntries(others) };
}
