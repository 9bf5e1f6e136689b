import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { pipeline } from 'node:stream';
import { passingTool } from '../../config/stand-in-tools.ts';
import type { Principal } from '../../effects/model/principal.ts';
import type { Tool } from '../../effects/model/tool.ts';
import type { LiveConnection } from '../../identity/live.ts';
import { isJsonArray, isJsonObject, type Json, type JsonObject } from '../../json/value.ts';
import { identityOf } from '../../mcp-protocol/call-params.ts';
import { META } from '../../mcp-protocol/revisions.ts';
import { paramsWithoutTasks, withoutExtension } from '../../mcp-protocol/tasks.ts';
import { problem, RpcProblem, RpcRefused, sendError, sendMessage } from '../http.ts';
import { refused, RPC, type RpcId, type RpcMessage, type RpcRequest, resultMessage } from '../jsonrpc.ts';
import type { Era } from '../protocol.ts';
import { readTools } from '../../pins/observed.ts';
import { pinnedAt } from '../../upstreams/catalog.ts';
import { isEventStream } from '../../upstreams/http/events.ts';
import type { McpUpstream } from '../../upstreams/mcp/mcp-upstream.ts';
import type { McpRequest } from '../../upstreams/mcp/open.ts';
import { type Change, passThrough, type Passed } from '../../upstreams/mcp/pass-through.ts';
import { note } from './access.ts';
import { announcements } from './federated.ts';
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
import { type ArrivedCall, liveOf, runCall, writeHead } from './call.ts';
import { EventIdMarks, markedEvents, openEventId } from './event-ids.ts';
import { createLiveCalls } from './live-calls.ts';
import { mayNotify, treatmentOf } from './methods.ts';
import type { GatewayPorts, Refused } from './ports.ts';
import { type AnswerHeaders, holderOf, sealHeaders, sealSession } from './sessions.ts';
import { answerTask, OFFERS_TASKS } from './tasks.ts';

const made = new Map<string, Tool>();

/** The tool as which a method is judged: `crm.(resources/read)`. */
function judgedTool(upstream: string, method: string): Tool {
  const name = `${upstream}\n${method}`;
  let tool = made.get(name);
  if (tool === undefined) {
    tool = passingTool(upstream, method);
    made.set(name, tool);
  }
  return tool;
}

/** The result of an answer; `null` where it is an error. */
function resultIn({ result }: JsonObject): JsonObject | null {
  return isJsonObject(result) ? result : null;
}

/**
 * Some of the tools of an answer to `tools/list`, in the order of their names.
 * @param isVisible whether the tool is exactly as it was pinned, in this list too, and the key may call it. New and
 *   changed tools are not shown: their descriptions speak to the model
 */
export function visibleTools(tools: readonly Json[], isVisible: (name: string) => boolean): readonly Json[] {
  return tools.filter((tool) => isVisible(nameOf(tool))).toSorted(byName);
}

function byName(left: Json, right: Json): number {
  const [one, other] = [nameOf(left), nameOf(right)];
  return one < other ? -1 : one > other ? 1 : 0;
}

function nameOf(tool: Json): string {
  const name = isJsonObject(tool) ? tool['name'] : undefined;
  return typeof name === 'string' ? name : '';
}

type Incoming = FastifyRequest<{ Params: { readonly upstream: string }; Body: RpcMessage | undefined }>;

/** Headers of the transport that go on; all others stay here, and so does the caller's key. */
const TRANSPORT = [
  'accept',
  'mcp-protocol-version',
  'last-event-id',
  'mcp-method',
  'mcp-name',
  'traceparent',
  'tracestate',
  'baggage',
];

/** What has no message is of the era with sessions. */
const NO_MESSAGE: Era = { kind: 'handshake', version: null };

/** Who sends a request to which server. `session` is the server's own id of it. */
interface Arrived extends Sender {
  readonly server: McpUpstream;
  readonly headers: Readonly<Record<string, string>>;
  readonly era: Era;
}

/**
 * The door to MCP servers, `/mcp/{upstream}`. Calls of tools are effects. What else clients and servers say passes as it
 * came, where the method is known and the agent may, and streams pass as they flow.
 */
export async function mcpGatewayPlugin(
  app: FastifyInstance,
  { ports }: { readonly ports: GatewayPorts },
): Promise<void> {
  const door = new ServerDoor(ports);
  // Clients keep streams open as long as they run: the gateway would never stop.
  app.addHook('preClose', async () => ports.live.stop());
  app.addHook('onClose', async () => ports.live.close());
  guardDoor(app, ports);
  const at = { url: '/mcp/:upstream', exposeHeadRoute: false } as const;
  app.route({
    ...at,
    method: 'POST',
    handler: async (request: Incoming, reply) => {
      const { message, era } = arrivedMessage(request);
      const arrived = arrive(ports, request, message, era);
      refuseOwnKey(arrived, paramsOf(message));
      switch (message.kind) {
        case 'request':
          return door.answerRequest(arrived, message, request, reply);
        case 'notification':
          return door.takeNotification(arrived, message, reply);
        case 'response':
          // What the gateway asked is nothing that the server would know.
          return isAskedHere(message.id) ? reply.code(202).send() : door.pass(arrived, postOf(arrived, message), reply);
      }
    },
  });
  for (const method of ['GET', 'DELETE'] as const)
    app.route({
      ...at,
      method,
      handler: async (request: Incoming, reply) => {
        if (request.raw.headers['content-length'] !== undefined && request.raw.headers['content-length'] !== '0')
          throw problem('invalid_request', `A ${method} has no body here.`);
        const arrived = arrive(ports, request, null, NO_MESSAGE);
        const { path } = arrived.server.settings.mcp;
        const sent = { method, path, headers: arrived.headers, body: null };
        return method === 'GET' ? door.openStream(arrived, sent, reply) : door.pass(arrived, sent, reply);
      },
    });
}

/** What passes the door: the calls that run, and the streams that stand. */
class ServerDoor {
  readonly #ports: GatewayPorts;
  readonly #live = createLiveCalls();

  constructor(ports: GatewayPorts) {
    this.#ports = ports;
  }

  /** Opens the stream of what a server says of its own accord. */
  async openStream(arrived: Arrived, sent: McpRequest, reply: FastifyReply): Promise<FastifyReply> {
    const { workspace, agentId, server } = arrived;
    const tool = judgedTool(server.settings.id, 'session');
    const passing = { workspace, agentId, tool, params: {}, requestIp: reply.request.ip };
    // A key of some tools may connect if one of them is of the server; the session itself is none of them.
    const judge = (principal: Principal): Refused | null =>
      this.#ports.judge({ ...passing, principal: { ...principal, allowedTools: null } }, 'without_rules');
    const refusal = judge(arrived.principal);
    if (refusal !== null) return refuse(reply, 403, null, refusal);
    const mayStay = (now: Principal): boolean => this.#mayConnect(arrived, now) && judge(now) === null;
    return this.pass(arrived, sent, reply, { stands: true, mayStay });
  }

  async answerRequest(
    arrived: Arrived,
    message: RpcRequest,
    request: Incoming,
    reply: FastifyReply,
  ): Promise<FastifyReply> {
    const { server, principal, workspace, agentId } = arrived;
    const { allow } = server.settings.mcp;
    const treatment = treatmentOf(message.method, allow);
    switch (treatment) {
      case 'govern': {
        const call: ArrivedCall = {
          principal,
          workspace,
          agentId,
          upstream: server.settings.id,
          owner: arrived.owner,
          message,
          headers: arrived.headers,
          session: sessionName(arrived),
          federated: null,
          seal: this.#sealerOf(arrived),
          events: new EventIdMarks(this.#ports.workspaceKey(workspace), { ...arrived.owner, session: arrived.session }),
          authenticatedAt: arrived.authenticatedAt,
          era: arrived.era,
          takesUrls: mayAskUrl(arrived.era, arrived),
        };
        return runCall(this.#ports, this.#live, call, request, reply);
      }
      case 'judge':
        return this.#judged(arrived, message, request, reply);
      case 'list_tools': {
        const change = (answer: JsonObject): Promise<JsonObject> => this.#listed(arrived, answer);
        return this.pass(arrived, postOf(arrived, message), reply, { changed: { id: message.id, change } });
      }
      case 'introduce': {
        const change = (answer: JsonObject): JsonObject => {
          const result = resultIn(answer);
          return result === null ? answer : { ...answer, result: introduced(arrived, result) };
        };
        return this.pass(arrived, postOf(arrived, message), reply, { changed: { id: message.id, change } });
      }
      case 'task': {
        const result = await answerTask(this.#ports, arrived, message, arrived.era, server.settings.id);
        return sendMessage(reply, resultMessage(message.id, result));
      }
      case 'pass':
        return this.pass(arrived, postOf(arrived, message), reply);
      case 'deny':
        throw new RpcRefused(
          refused(
            // Before that era, a 404 tells a client that its session has ended.
            arrived.era.kind === 'stateless' ? 404 : 200,
            message.id,
            RPC.methodNotFound,
            `The gateway does not pass on ${message.method}. An operator can allow it (mcp.allow).`,
          ),
        );
    }
  }

  /** Passes a request on that a rule lets pass, or says why not. */
  async #judged(arrived: Arrived, message: RpcRequest, request: Incoming, reply: FastifyReply): Promise<FastifyReply> {
    const { server, principal, workspace, agentId } = arrived;
    const tool = judgedTool(server.settings.id, message.method);
    note(request, { tool: tool.name });
    const { params } = message;
    const passing = { principal, workspace, agentId, tool, params, requestIp: request.ip };
    const refusal = this.#ports.judge(passing);
    const stands = message.method === 'subscriptions/listen';
    const mayStay = (now: Principal): boolean => this.#ports.judge({ ...passing, principal: now }, 'open') === null;
    if (refusal === null) return this.pass(arrived, postOf(arrived, message), reply, { stands, mayStay });
    return refuse(reply, 200, message.id, refusal);
  }

  /** A list of tools, as this agent may see it. */
  async #listed(arrived: Arrived, answer: JsonObject): Promise<JsonObject> {
    const { server } = arrived;
    const result = resultIn(answer);
    if (result === null || !isJsonArray(result['tools'])) return answer;
    const isPinned = (name: string): boolean => pinnedAt(this.#ports.catalog(), server.settings.id, name) !== null;
    const tools = await readTools(result['tools'], isPinned);
    // From here on at once: another list must not come between this one and what is shown of it.
    server.pins.passes({ tools }, isPinned);
    const { nextCursor, resultType, ttlMs, cacheScope } = result;
    const list = { tools: visibleTools(tools, (name) => this.#isVisible(arrived, name)) };
    return { ...answer, result: { ...list, ...present({ nextCursor, resultType, ttlMs, cacheScope }) } };
  }

  /** Of a list that {@link PinWatch.passes} has just seen: a tool in it that is not as pinned, or stands twice, is `changed`. */
  #isVisible(arrived: Arrived, name: string): boolean {
    const { principal, server } = arrived;
    const { pins, settings } = server;
    if (principal.allowedTools?.includes(`${settings.id}.${name}`) === false) return false;
    const pinned = pinnedAt(this.#ports.catalog(), settings.id, name);
    return pinned !== null && pins.stateOf(settings.mcp.words, pinned.call) === 'pinned';
  }

  /** Makes ids of sessions what this agent gets. */
  #sealerOf({ workspace, owner, takesUrls }: Arrived): (id: string) => string | null {
    return (id) => sealSession(this.#ports.workspaceKey(workspace), owner, { id, takesUrls });
  }

  async takeNotification(
    arrived: Arrived,
    message: Extract<RpcMessage, { kind: 'notification' }>,
    reply: FastifyReply,
  ): Promise<FastifyReply> {
    if (!mayNotify(message.method, arrived.server.settings.mcp.allow))
      throw new RpcRefused(refused(400, null, RPC.methodNotFound, `The gateway does not pass on ${message.method}.`));
    if (message.method === 'notifications/cancelled') {
      const { requestId } = message.params;
      const call = isRpcId(requestId) ? this.#live.of(sessionName(arrived), requestId) : null;
      // What has left is not called back: its outcome is recorded, and the next call with the same key gets it.
      if (call?.onClientClose === 'finish') return reply.code(202).send();
      if (call !== null) {
        call.abort();
        const params = { ...message.params, requestId: call.sentAs };
        return this.pass(arrived, postOf(arrived, { ...message, params }), reply);
      }
    }
    return this.pass(arrived, postOf(arrived, message), reply);
  }

  /** Passes a request on, and its answer back as it flows. */
  async pass(
    arrived: Arrived,
    sent: McpRequest,
    reply: FastifyReply,
    {
      changed = null,
      stands = false,
      mayStay = (principal) => this.#mayConnect(arrived, principal),
    }: {
      readonly changed?: Change | null;
      /** Its answer is a stream that lasts until one side leaves, or the sender may have it no more. */
      readonly stands?: boolean;
      readonly mayStay?: LiveConnection['mayStay'];
    } = {},
  ): Promise<FastifyReply> {
    const { raw } = reply;
    const gone = new AbortController();
    const open = liveOf(reply, { mayStay, isAdmitted: false, stands: () => stands });
    // One for both: the pipeline below listens seven times, and beyond ten in all Node warns of a leak.
    raw.once('close', () => {
      gone.abort();
      this.#ports.live.remove(open);
    });
    if (!raw.destroyed) this.#ports.live.add(open);
    const passed: Passed = await passThrough(arrived.server, sent, gone.signal, changed);
    if (passed.kind === 'failed')
      throw problem('not_ready', `The MCP server could not be reached: ${passed.message}.`, 1_000);
    const { status, body } = passed;
    const { headers, unsealed } = sealHeaders(passed.headers, this.#sealerOf(arrived));
    if (unsealed) {
      body.destroy();
      throw problem('not_ready', 'The MCP server gave a session id that cannot be used.');
    }
    const begun = passed.headers['mcp-session-id'];
    const owner = { ...arrived.owner, session: typeof begun === 'string' ? begun : arrived.session };
    const marks = isEvents(passed.headers)
      ? new EventIdMarks(this.#ports.workspaceKey(arrived.workspace), owner)
      : null;
    reply.hijack();
    if (raw.destroyed) {
      body.destroy();
      return reply;
    }
    if (stands) {
      if (status === 200) note(reply.request, { lasts: true });
      const doubts = announcements(() => arrived.server.pins.doubt(arrived.server));
      body.on('data', doubts);
    }
    writeHead(reply, status, headers);
    // Where one of them ends early, the others do; there is nobody left to tell.
    pipeline([body, ...(marks === null ? [] : [markedEvents(marks)]), raw], () => {});
    return reply;
  }

  #mayConnect({ workspace, agentId, server }: Arrived, principal: Principal): boolean {
    const tool = authorizedBy(principal, server.settings.id);
    return this.#ports.authorize(principal, { endpoint: 'proxy.read', workspace, agentId, tool }).kind === 'agent';
  }
}

function refuse(reply: FastifyReply, status: number, id: RpcId | null, refusal: Refused): FastifyReply {
  if (refusal.kind === 'problem') throw new RpcProblem(refusal.problem);
  const { decision, reason } = refusal;
  note(reply.request, { decision });
  return sendError(reply.header('svc-decision', decision), status, id, {
    code: RPC.refused,
    message: reason.message,
    data: { decision, code: reason.code, ...(reason.rule === undefined ? {} : { rule: reason.rule }) },
  });
}

/** As which tool a key may connect to a server: it may call one of it. */
function authorizedBy({ allowedTools }: Principal, upstream: string): string {
  return allowedTools?.find((name) => name.startsWith(`${upstream}.`)) ?? `${upstream}.(session)`;
}

/** @throws RpcProblem, RpcRefused where the request is for no server, of nobody, or in a session of somebody else */
function arrive(ports: GatewayPorts, request: Incoming, message: RpcMessage | null, era: Era): Arrived {
  const server = ports.server(request.params.upstream);
  if (server === null) throw problem('not_found', 'There is no MCP server of this name here.');
  const upstream = server.settings.id;
  note(request, { upstream });
  const tool = request.mcpSender === null ? '' : authorizedBy(request.mcpSender.principal, upstream);
  const sender = senderOf(ports, request, message, { upstream, tool });
  const headers = headersNamed(request, [...TRANSPORT, ...(server.settings.headers?.forward ?? [])]);
  if (sender.session !== null) headers['mcp-session-id'] = sender.session;
  const { 'last-event-id': last } = headers;
  if (last !== undefined) {
    const { workspace, owner, session } = sender;
    const id = openEventId(ports.workspaceKey(workspace), { ...owner, session }, last);
    if (id === null) {
      const text = 'Last-Event-ID is no event of this session of this agent. Leave it out to begin a new stream.';
      throw new RpcRefused(refused(400, null, RPC.refused, text, {}));
    }
    headers['last-event-id'] = id;
  }
  return { ...sender, server, headers, era };
}

/**
 * What a server says of itself, as far as somebody has approved it or the protocol needs it: models read names and
 * instructions. The name is the pinned one, or that of the upstream.
 */
function introduced({ era, server }: Arrived, result: JsonObject): JsonObject {
  const { id, mcp } = server.settings;
  const instructions = server.pins.introduces(result, mcp.words);
  const { protocolVersion, supportedVersions, serverInfo, _meta: meta, resultType, ttlMs, cacheScope } = result;
  const info = serverInfo ?? (isJsonObject(meta) ? meta[META.serverInfo] : undefined);
  const identity = { ...identityOf(isJsonObject(info) ? info : {}), name: mcp.words?.server ?? id };
  return {
    ...present({ protocolVersion, supportedVersions, resultType, ttlMs, cacheScope }),
    ...(isJsonObject(result['capabilities']) && { capabilities: offered(era, result['capabilities']) }),
    ...(serverInfo !== undefined || era.kind === 'handshake' ? { serverInfo: identity } : {}),
    ...(era.kind === 'stateless' && { _meta: { [META.serverInfo]: identity } }),
    ...(instructions !== null && { instructions }),
  };
}

/** The gateway's tasks are in place of a server's own: a task of a server would have an outcome that no effect knows. */
function offered(era: Era, capabilities: JsonObject): JsonObject {
  const { tasks: _own, ...others } = withoutExtension(capabilities);
  const extensions = isJsonObject(others['extensions']) ? others['extensions'] : {};
  const ours = era.kind === 'stateless' ? { extensions: { ...extensions, ...OFFERS_TASKS.extensions } } : {};
  return { ...others, ...ours };
}

function present(members: Readonly<Record<string, Json | undefined>>): JsonObject {
  const there: Record<string, Json> = {};
  for (const [name, value] of Object.entries(members)) if (value !== undefined) there[name] = value;
  return there;
}

/** The canonical form of a message: what was decided on is what is sent. */
function postOf({ server, headers, owner }: Arrived, message: RpcMessage): McpRequest {
  const { kind: _kind, ...members } =
    message.kind === 'response'
      ? { kind: message.kind, id: message.id, ...answerOf(message) }
      : { ...message, params: paramsWithoutTasks(message.params) };
  return {
    method: 'POST',
    path: server.settings.mcp.path,
    headers: { ...headers, 'content-type': 'application/json' },
    body: Buffer.from(JSON.stringify({ jsonrpc: '2.0', ...members })),
    holder: holderOf(owner),
  };
}

function answerOf({ answer }: Extract<RpcMessage, { kind: 'response' }>): JsonObject {
  return answer.kind === 'result' ? { result: answer.result } : { error: answer.error };
}

function isEvents({ 'content-type': type }: AnswerHeaders): boolean {
  return isEventStream(typeof type === 'object' ? type[0] : type);
}

function paramsOf(message: RpcMessage): JsonObject {
  return message.kind === 'response' ? answerOf(message) : message.params;
}

function isRpcId(id: unknown): id is RpcId {
  return typeof id === 'string' || typeof id === 'number';
}
