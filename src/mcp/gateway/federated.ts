import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { randomUUID } from 'node:crypto';
import type { Principal } from '../../effects/model/principal.ts';
import type { McpCall, Tool } from '../../effects/model/tool.ts';
import { isJsonObject, type JsonObject, type Json } from '../../json/value.ts';
import { RpcRefused, sendMessage } from '../http.ts';
import { refused, resultMessage, RPC, type RpcMessage, type RpcRequest } from '../jsonrpc.ts';
import { acquainted, cacheable, inForm, noMethod, pageOf } from '../own-answers.ts';
import type { Era } from '../protocol.ts';
import type { Catalog } from '../../upstreams/catalog.ts';
import { CHANGED } from '../../upstreams/mcp/pin-watch.ts';
import { VERSION } from '../../version.ts';
import { note } from './access.ts';
import { isAskedHere } from './approval-url.ts';
import {
  arrivedMessage,
  guardDoor,
  headersNamed,
  mayAskUrl,
  refuseOwnKey,
  type Sender,
  senderOf,
  sessionName,
} from './arrival.ts';
import { runCall } from './call.ts';
import { createLiveCalls } from './live-calls.ts';
import { mayNotify } from './methods.ts';
import type { GatewayPorts } from './ports.ts';
import { holderOf, sealSession } from './sessions.ts';
import { answerTask, OFFERS_TASKS } from './tasks.ts';

interface FederatedTool {
  readonly name: string;
  /** Its name in the catalog. */
  readonly full: string;
  readonly upstream: string;
  readonly call: McpCall;
}

/** Tools on one page of a list. Some libraries read the first page only. */
const PAGE = 1_000;

const known = new WeakMap<Catalog, ReadonlyMap<string, FederatedTool>>();

/** The tools by their names, in the order of these. The configuration has seen to it that no name stands twice. */
function toolsOf(catalog: Catalog): ReadonlyMap<string, FederatedTool> {
  let tools = known.get(catalog);
  if (tools === undefined) {
    const found = catalog.tools().flatMap(asFederated);
    tools = new Map(found.toSorted((one, other) => (one.name < other.name ? -1 : 1)).map((tool) => [tool.name, tool]));
    known.set(catalog, tools);
  }
  return tools;
}

function asFederated({ name: full, upstream, call }: Tool): readonly FederatedTool[] {
  if (call.kind !== 'mcp' || call.federated === undefined) return [];
  return [{ name: call.federated, full, upstream, call }];
}

/** The tool with a name; `null` if there is none. */
export function federatedTool(catalog: Catalog, name: Json | undefined): FederatedTool | null {
  return typeof name === 'string' ? (toolsOf(catalog).get(name) ?? null) : null;
}

/**
 * The answer to `tools/list`: the tools as they were pinned, which the key may call, in pages.
 * @param isHidden whether a tool is known to be something else than what was pinned
 * @throws RpcRefused where the cursor is none of this list
 */
export function federatedList(
  catalog: Catalog,
  { allowedTools }: Pick<Principal, 'allowedTools'>,
  message: RpcRequest,
  isHidden: (tool: FederatedTool) => boolean,
): JsonObject {
  const visible = [...toolsOf(catalog).values()].filter(
    (tool) => (allowedTools?.includes(tool.full) ?? true) && !isHidden(tool),
  );
  const { page, next } = pageOf(message, visible, PAGE, ({ name }) => name);
  return { tools: page.map(({ name, call }) => ({ ...call.pinned, name })), ...next };
}

type Incoming = FastifyRequest<{ Body: RpcMessage | undefined }>;

const SERVER_INFO = { name: 'svc-gateway', title: 'svc-gateway', version: VERSION } as const;
const OWN = {
  serverInfo: SERVER_INFO,
  instructions: 'Tools of several servers. A name begins with its server, then stands __, then the tool.',
  offers: OFFERS_TASKS,
};

/** Headers that go on to the servers. What else clients say of the transport is about their session with the gateway. */
const TRACE = ['traceparent', 'tracestate', 'baggage'];

/**
 * The door to the tools of all MCP servers, `/mcp`. The gateway answers everything but calls itself, from the pins: a
 * server that is slow, or away, delays nobody. A call is the same effect as at `/mcp/{upstream}`. Sessions are a name and
 * its seal; nothing is kept for them.
 */
export async function mcpFederatedPlugin(
  app: FastifyInstance,
  { ports }: { readonly ports: GatewayPorts },
): Promise<void> {
  const door = new FederatedDoor(ports);
  guardDoor(app, ports);
  const at = { url: '/mcp', exposeHeadRoute: false } as const;
  app.route({
    ...at,
    method: 'POST',
    handler: async (request: Incoming, reply) => {
      const { message, era } = arrivedMessage(request);
      const arrived = arriveAtAll(ports, request, message);
      switch (message.kind) {
        case 'request':
          return door.answerRequest(arrived, message, era, request, reply);
        case 'notification':
          return door.takeNotification(arrived, message, reply);
        case 'response':
          if (isAskedHere(message.id)) return reply.code(202).send();
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
}

class FederatedDoor {
  readonly #ports: GatewayPorts;
  readonly #live = createLiveCalls();

  constructor(ports: GatewayPorts) {
    this.#ports = ports;
  }

  async answerRequest(
    arrived: Sender,
    message: RpcRequest,
    era: Era,
    request: Incoming,
    reply: FastifyReply,
  ): Promise<FastifyReply> {
    const answerWith = (result: JsonObject): FastifyReply =>
      sendMessage(reply, resultMessage(message.id, inForm(result, era, OWN)));
    switch (message.method) {
      case 'tools/call':
        return this.#call(arrived, message, era, request, reply);
      case 'tools/list':
        return answerWith(
          cacheable(
            federatedList(this.#ports.catalog(), arrived.principal, message, (tool) => this.#isQuarantined(tool)),
            era,
          ),
        );
      case 'tasks/get':
      case 'tasks/update':
      case 'tasks/cancel':
        if (era.kind === 'stateless') return answerWith(await answerTask(this.#ports, arrived, message, era, null));
        break;
      case 'initialize':
        if (era.kind === 'handshake')
          reply.header(
            'mcp-session-id',
            sealSession(this.#ports.workspaceKey(arrived.workspace), arrived.owner, {
              id: randomUUID(),
              takesUrls: arrived.takesUrls,
            }),
          );
    }
    const answer = acquainted(message, era, OWN);
    if (answer !== null) return answerWith(answer);
    throw noMethod(
      message,
      era,
      `There is no method ${JSON.stringify(message.method)} here: /mcp has the tools of all servers, /mcp/ID all of one.`,
    );
  }

  /** Of what nobody has looked at lately the pin is shown: to list asks no server. */
  #isQuarantined({ upstream, call }: FederatedTool): boolean {
    const server = this.#ports.server(upstream);
    const state = server?.pins.stateOf(server.settings.mcp.words, call);
    return state === 'changed' || state === 'gone';
  }

  async #call(
    arrived: Sender,
    message: RpcRequest,
    era: Era,
    request: Incoming,
    reply: FastifyReply,
  ): Promise<FastifyReply> {
    const { principal, workspace, agentId, owner } = arrived;
    refuseOwnKey(arrived, message.params);
    const tool = federatedTool(this.#ports.catalog(), message.params['name']);
    const server = tool === null ? null : this.#ports.server(tool.upstream);
    if (tool === null || server === null)
      throw new RpcRefused(refused(200, message.id, RPC.invalidParams, 'params.name must be one of tools/list.'));
    note(request, { upstream: tool.upstream });
    const headers = headersNamed(request, [...TRACE, ...(server.settings.headers?.forward ?? [])]);
    const params = { ...message.params, name: tool.call.name, ...metaOf(message.params, era) };
    return runCall(
      this.#ports,
      this.#live,
      {
        principal,
        workspace,
        agentId,
        upstream: tool.upstream,
        owner,
        message: { ...message, params },
        headers,
        session: sessionName(arrived),
        federated: {
          sessionOf: holderOf(owner),
          shape: (result) => inForm(result, era, OWN),
        },
        // The servers' ids of sessions stay here.
        seal: () => null,
        events: null,
        authenticatedAt: arrived.authenticatedAt,
        era,
        takesUrls: mayAskUrl(era, arrived),
      },
      request,
      reply,
    );
  }

  takeNotification(
    arrived: Sender,
    { method, params }: Extract<RpcMessage, { kind: 'notification' }>,
    reply: FastifyReply,
  ): FastifyReply {
    if (!mayNotify(method, []))
      throw new RpcRefused(refused(400, null, RPC.methodNotFound, `There is no notification ${method} here.`));
    const { requestId } = params;
    if (method === 'notifications/cancelled' && (typeof requestId === 'string' || typeof requestId === 'number')) {
      const running = this.#live.of(sessionName(arrived), requestId);
      if (running?.onClientClose === 'abort') running.abort();
    }
    return reply.code(202).send();
  }
}

function arriveAtAll(ports: GatewayPorts, request: Incoming, message: RpcMessage | null): Sender {
  // No upstream has this id: a session is of this door, or of one server.
  const upstream = '';
  const tool = request.mcpSender?.principal.allowedTools?.[0] ?? 'mcp.(session)';
  return senderOf(ports, request, message, { upstream, tool });
}

/** `_meta` without what a client of the stateless era says of itself: the servers are spoken to in sessions. */
function metaOf({ _meta: meta }: JsonObject, era: Era): JsonObject {
  if (era.kind === 'handshake' || !isJsonObject(meta)) return {};
  const others = Object.entries(meta).filter(([name]) => !name.startsWith('io.modelcontextprotocol/'));
  return { _meta: Object.fromEntries(others) };
}

/**
 * Listens to the bytes of a stream for a server's word that its tools have changed, wherever the bytes are parted. It
 * only makes the gateway look: a false alarm costs nothing else.
 */
export function announcements(heard: () => void): (piece: Buffer) => void {
  let last = Buffer.alloc(0);
  return (piece) => {
    const text = last.byteLength === 0 ? piece : Buffer.concat([last, piece]);
    const at = text.lastIndexOf(CHANGED);
    if (at !== -1) heard();
    const from = Math.max(at === -1 ? 0 : at + CHANGED.byteLength, text.byteLength - CHANGED.byteLength + 1);
    last = Buffer.from(text.subarray(from));
  };
}
