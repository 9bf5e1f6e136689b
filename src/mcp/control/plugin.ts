import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import type { Principal } from '../../effects/model/principal.ts';
import { permit } from '../../identity/permissions.ts';
import { callerOf } from '../caller.ts';
import { problem, acceptMessages, answerFaults, messageIn, RpcRefused, sendError, sendMessage } from '../http.ts';
import { type RpcMessage, RPC, resultMessage } from '../jsonrpc.ts';
import { HANDSHAKE_VERSIONS, STATELESS_VERSIONS } from '../../mcp-protocol/revisions.ts';
import { eraOf } from '../protocol.ts';
import { Dispatch, INSTRUCTIONS, SERVER_INFO } from './dispatch.ts';
import type { ControlPorts } from './ports.ts';
import { approvalTools } from './approvals.ts';
import { brainTools } from './brain.ts';
import { catalogTools } from './catalog.ts';
import { executionTools } from './executions.ts';
import { explainTools } from './explain.ts';
import { observabilityTools } from './observability.ts';
import { readinessTools } from './readiness.ts';
import { receiptTools } from './receipts.ts';
import { simulationTools } from './simulation.ts';
import type { ControlTool } from './tool.ts';

const PATH = '/v1/mcp';

declare module 'fastify' {
  interface FastifyRequest {
    mcpCaller: { readonly principal: Principal; readonly at: number; readonly tookMs: number } | null;
  }
}

/**
 * `/v1/mcp`: the MCP control plane (interface specification, 4.1). It keeps no sessions: each request says everything,
 * in both eras of the protocol, so any gateway of a fleet answers it.
 */
export async function mcpControlPlugin(
  app: FastifyInstance,
  { ports }: { readonly ports: ControlPorts },
): Promise<void> {
  acceptMessages(app, () => ports.settings().jsonLimits);
  answerFaults(app, ports);
  app.decorateRequest('mcpCaller', null);
  const dispatch = new Dispatch(ports, controlTools(ports));

  app.addHook('onRequest', async (request, reply) => {
    const began = performance.now();
    const { principal } = await callerOf(ports, request, reply);
    const permission = permit(principal, 'mcp.connect');
    if (!permission.ok) throw problem(permission.code, permission.detail);
    const tookMs = performance.now() - began;
    request.mcpCaller = { principal, at: ports.store.now() - tookMs, tookMs };
  });

  app.get(PATH, async (request, reply) => {
    // Official clients of 2025 ask for a stream of the server's own messages. Anything but a 405 makes them ask again
    // about once a second, for ever.
    if (/\btext\/event-stream\b/i.test(request.headers.accept ?? ''))
      return onlyPost(reply, 'There is no stream of messages here');
    return reply.header('cache-control', 'no-store').send(discovery(ports.settings().publicUrl));
  });

  app.delete(PATH, async (_request, reply) => onlyPost(reply, 'There are no sessions here to end'));

  app.post<{ Body: RpcMessage | undefined }>(PATH, async (request, reply) => {
    const message = messageIn(request);
    const era = eraOf(message, request.headers);
    if (era.kind === 'refused') throw new RpcRefused(era);
    // Nothing here waits for a notification or an answer of a client.
    if (message.kind !== 'request') return reply.code(202).send();
    const { principal, ...authenticated } = callerIn(request);
    const result = await dispatch.answer(message, era, { principal, request, authenticated });
    return sendMessage(reply, resultMessage(message.id, result));
  });
}

function callerIn(request: FastifyRequest): NonNullable<FastifyRequest['mcpCaller']> {
  if (request.mcpCaller === null) throw new Error('the request has not passed the hook that finds its caller');
  return request.mcpCaller;
}

function onlyPost(reply: FastifyReply, why: string): FastifyReply {
  return sendError(reply.header('allow', 'POST'), 405, null, {
    code: RPC.refused,
    message: `${why}: send messages with POST.`,
  });
}

/** What a `GET` tells: enough to configure a client. */
function discovery(publicUrl: string): object {
  const url = `${publicUrl}${PATH}`;
  return {
    ...SERVER_INFO,
    protocol: 'mcp',
    transport: 'streamable-http',
    protocol_versions: [...STATELESS_VERSIONS, ...HANDSHAKE_VERSIONS],
    url,
    tools: { url, method: 'tools/list' },
    key_profiles_url: `${url}/key-profiles`,
    auth: { scheme: 'api_key', header: 'X-API-Key', also: ['Authorization: Bearer'] },
    instructions: INSTRUCTIONS,
    docs_url: `${publicUrl}/docs`,
  };
}

/** The table of control-plane tools, in the order in which they are listed. */
function controlTools(ports: ControlPorts): readonly ControlTool[] {
  const others = [
    ...simulationTools(ports),
    ...explainTools(ports),
    ...brainTools(ports),
    ...approvalTools(ports),
    ...executionTools(ports),
    ...receiptTools(ports),
    ...observabilityTools(ports),
    ...readinessTools(ports),
  ];
  return [...catalogTools(ports, others), ...others];
}
