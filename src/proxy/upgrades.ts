import httpProxy from 'http-proxy';
import { Agent as HttpAgent, type IncomingMessage, type Server, STATUS_CODES } from 'node:http';
import { Agent as HttpsAgent } from 'node:https';
import type { Duplex } from 'node:stream';
import { errors } from 'undici';
import { guardedConnector } from '../upstreams/http/connect.ts';
import { CONNECT_TIMEOUT_MS } from '../upstreams/http/connections.ts';
import { recordUpgrade, type UpgradeAccess } from './access.ts';
import { PLAIN_STYLE } from './error-shape.ts';
import { type AnswerContext, outcomeAnswer, problemAnswer, type ProxyAnswer } from './answer.ts';
import { type Arrived, type Identities, problemOf, receive } from './arrival.ts';
import { paramsOf } from './governed.ts';
import { returnedHeaders } from './headers.ts';
import type { Live } from '../identity/live.ts';
import type { ProxiedUpstream, ProxyPorts } from './ports.ts';
import type { ReadLedger } from './read-ledger.ts';
import type { DoorRefusal, Refusals } from './refusals.ts';
import type { RouteTable } from './route-table.ts';
import { BUSY, failureOf, judgeRead, type StreamedRead } from './streamed-read.ts';

export interface UpgradeParts {
  readonly ports: ProxyPorts;
  readonly identities: Identities;
  readonly table: () => RouteTable;
  readonly refusals: Refusals;
  readonly live: Live;
  readonly reads: ReadLedger;
}

/** Headers of the handshake itself (RFC 6455). */
const HANDSHAKE = [
  'sec-websocket-key',
  'sec-websocket-version',
  'sec-websocket-protocol',
  'sec-websocket-extensions',
] as const;

/**
 * Tunnels WebSocket upgrades if a rule says `frames: ungoverned`, after the same checks as for any read, and refuses
 * others. A request for any other protocol is served without the upgrade. An open tunnel is cut when its key or a pause
 * no longer allows it.
 */
export function attachUpgrades(server: Server, parts: UpgradeParts): { close(): void } {
  const tunnel = createTunnel(parts);
  const onUpgrade = (request: IncomingMessage, socket: Duplex, head: Buffer): void => {
    // What is written now would be read as the answer to the earlier request: a refusal for a call that may have run.
    if (isAnswering(socket)) {
      socket.destroy();
      return;
    }
    if (!isWebSocket(request)) {
      if (!serveWithoutUpgrade(server, request, socket, head)) socket.destroy();
      return;
    }
    socket.on('error', () => socket.destroy());
    const { ports } = parts;
    const requestId = ports.newId('eff').replace('eff_', 'req_');
    const entry = recordUpgrade(request, requestId, ports.access ?? (() => {}));
    handshake(parts, request, socket, entry)
      .then((read) => {
        if (read !== null) tunnel(request, socket, head, read, entry);
      })
      .catch(() => socket.destroy());
  };
  server.on('upgrade', onUpgrade);
  return { close: () => void server.off('upgrade', onUpgrade) };
}

/** Judges an upgrade. If it may not pass, answers on the socket and returns `null`. */
async function handshake(
  parts: UpgradeParts,
  request: IncomingMessage,
  socket: Duplex,
  entry: UpgradeAccess,
): Promise<StreamedRead | null> {
  const { ports, identities, table, refusals } = parts;
  const context = { id: entry.requestId, method: request.method ?? 'GET', keyed: false };
  const answer = (given: ProxyAnswer): null => answerWith(socket, given, entry);
  const fault = ports.doorFault(request);
  if (fault !== null) return answer(problemAnswer(ports, fault, context));
  const address = request.socket.remoteAddress ?? '';
  const arrival = await receive(ports, identities, table(), request, address, entry.requestId);
  if (arrival.kind === 'own') {
    const problem = problemOf('invalid_request', 'This path does not take upgrades.');
    return answer(problemAnswer(ports, problem, context));
  }
  if (arrival.kind === 'problem') return answer(problemAnswer(ports, arrival.problem, context));
  entry.arrived = arrival;
  const { match } = arrival;
  const refuse = async (refusal: DoorRefusal): Promise<null> => {
    const result = await refusals.refuse(arrival, context.method, refusal);
    return answer(outcomeAnswer(ports, result, answerContext(arrival, context)));
  };
  if (match.kind !== 'rule' || match.rule.frames !== 'ungoverned') {
    return refuse(NO_UPGRADE);
  }
  const read = paramsOf(ports, arrival, match, request, null);
  if (read.kind !== 'read') {
    const problem =
      read.kind === 'problem' ? read.problem : problemOf('invalid_request', 'The request cannot be read.');
    return answer(problemAnswer(ports, problem, context));
  }
  const judged = judgeRead(ports, arrival, match, request, read);
  switch (judged.kind) {
    case 'stream': {
      const { upstream, workspace, agentId } = judged.read.passed;
      const giveBack = await ports.place('tunnels', upstream, workspace, agentId);
      if (giveBack === null) return answer(problemAnswer(ports, BUSY, context));
      if (!socket.destroyed) {
        socket.once('close', giveBack);
        return judged.read;
      }
      // Its 'close' has been: nothing would end a tunnel that is opened now.
      giveBack();
      return null;
    }
    case 'problem':
      return answer(problemAnswer(ports, judged.problem, context));
    case 'govern':
      return refuse(judged.denied ?? TOO_MUCH);
  }
}

const NO_UPGRADE: DoorRefusal = {
  decision: 'denied_policy',
  reason: { code: 'route_not_declared', message: 'No rule of the gateway’s configuration lets an upgrade pass here.' },
};

const TOO_MUCH: DoorRefusal = {
  decision: 'denied_policy',
  reason: {
    code: 'rule_denied',
    message: 'A rule asks for more than a tunnel can be held to (a budget, a claim, an approval).',
  },
};

function answerContext(arrived: Arrived, request: AnswerContext['request']): AnswerContext {
  const { match } = arrived;
  return {
    request,
    principal: arrived.principal,
    prefix: match.kind === 'none' ? '' : match.route.prefix,
    origin: () => '',
    foreignLinks: 'hide',
    links: [],
    upstream: match.kind === 'none' ? '' : match.route.upstream,
    setCookie: false,
    onDuplicate: 'conflict',
    pendingStatus: 202,
    // Whoever asks for a tunnel reads the status.
    style: PLAIN_STYLE,
  };
}

function isWebSocket(request: IncomingMessage): boolean {
  const asked = request.headers.upgrade?.toLowerCase().split(',') ?? [];
  return request.method === 'GET' && asked.some((protocol) => protocol.trim() === 'websocket');
}

/** Writes an answer on a socket that never became a tunnel, and closes it. */
function answerWith(socket: Duplex, { status, headers, body }: ProxyAnswer, entry: UpgradeAccess): null {
  entry.status = status;
  entry.decision = textOf(headers['svc-decision']);
  entry.effectId = textOf(headers['svc-effect-id']);
  const lines = [`HTTP/1.1 ${status} ${STATUS_CODES[status] ?? ''}`];
  for (const [name, value] of Object.entries({ 'x-should-retry': 'false', ...headers })) {
    for (const each of typeof value === 'string' ? [value] : value) lines.push(`${name}: ${each}`);
  }
  lines.push(`content-length: ${Buffer.byteLength(body)}`, 'connection: close', '', '');
  socket.write(lines.join('\r\n'));
  socket.end(body);
  return null;
}

function textOf(header: string | readonly string[] | undefined): string | null {
  return typeof header === 'string' ? header : null;
}

function createTunnel({ live, reads, ports }: UpgradeParts) {
  const proxy = quietly(() => httpProxy.createProxyServer({ ws: true, xfwd: false, toProxy: true }));
  const open = new WeakMap<IncomingMessage, { readonly read: StreamedRead; readonly entry: UpgradeAccess }>();
  // Runs before http-proxy's own listeners, so that they copy only what may pass.
  proxy.on('proxyReqWs', (proxyRequest, request, socket) => {
    const opening = open.get(request);
    if (opening === undefined) return void proxyRequest.destroy();
    const { read, entry } = opening;
    // A tunnel lasts as long as it likes. That it opens is an answer like others.
    const giveUp = (): void => void proxyRequest.destroy(new errors.HeadersTimeoutError());
    const late = read.timeoutMs === null ? undefined : setTimeout(giveUp, read.timeoutMs);
    const clean = (response: IncomingMessage): void => {
      clearTimeout(late);
      ports.heard(read.upstreamId, null);
      const { connection, upgrade } = response.headers;
      const kept = returnedHeaders(response.headers, read);
      const switching = response.statusCode === 101 && upgrade !== undefined && connection !== undefined;
      const observed = read.passed.observed?.would ?? null;
      if (observed !== null) kept['svc-observed'] = observed;
      response.headers = switching ? { ...kept, connection: 'Upgrade', upgrade } : { ...kept, connection: 'close' };
      reads.record(read.passed, response.statusCode ?? null);
      entry.status = response.statusCode ?? null;
      entry.decision = switching ? 'committed' : 'failed';
    };
    proxyRequest.on('response', clean);
    proxyRequest.on('upgrade', (response, upstreamSocket) => {
      clean(response);
      // When one side ends, the other is closed too. A side that only stops sending would keep its place for ever.
      socket.once('end', () => upstreamSocket.destroySoon());
      upstreamSocket.once('end', () => socket.destroySoon());
      socket.once('close', () => upstreamSocket.destroy());
      upstreamSocket.once('close', () => socket.destroy());
    });
    socket.once('close', () => {
      clearTimeout(late);
      proxyRequest.destroy();
    });
  });
  return (request: IncomingMessage, socket: Duplex, head: Buffer, read: StreamedRead, entry: UpgradeAccess): void => {
    open.set(request, { read, entry });
    const connection = { ...read.live, isAdmitted: false, stands: () => true, cut: () => void socket.destroy() };
    live.add(connection);
    socket.once('close', () => live.remove(connection));
    const { protocol, hostname, port } = new URL(read.upstreamUrl);
    const { headers } = request;
    const forwarded: Record<string, string> = { ...read.headers, connection: 'Upgrade', upgrade: 'websocket' };
    for (const name of HANDSHAKE) {
      const value = headers[name];
      // If the key was also offered as a subprotocol, it must not go on.
      if (typeof value === 'string' && !value.includes(read.live.key)) forwarded[name] = value;
    }
    request.headers = forwarded;
    request.url = read.pathAndQuery;
    const settings = ports.upstream(read.upstreamId);
    const target = { protocol, host: hostname, hostname, port: port || (protocol === 'https:' ? '443' : '80') };
    const agent = guardedAgent(protocol, settings);
    quietly(() =>
      proxy.ws(request, socket, head, { target, agent, changeOrigin: true }, (error) => {
        // The caller has left, or the tunnel was open: nothing that is written now would be an answer.
        if (!socket.writable || entry.status !== null) return void socket.destroy();
        ports.heard(read.upstreamId, 'code' in error ? String(error.code) : 'no_answer');
        answerWith(socket, unreachable(error, read.upstreamUrl), entry);
      }),
    );
  };
}

function unreachable(error: Error, upstreamUrl: string): ProxyAnswer {
  const reason = failureOf(error, upstreamUrl);
  return {
    status: 502,
    headers: { 'content-type': 'application/json', 'svc-decision': 'failed', 'x-should-retry': 'true' },
    body: JSON.stringify({ decision: 'failed', reason, did_it_happen: 'no' }),
  };
}

/** An agent for one tunnel. It connects only to addresses where an upstream may be. */
function guardedAgent(protocol: string, upstream: ProxiedUpstream | null): HttpAgent {
  const agent = protocol === 'https:' ? new HttpsAgent() : new HttpAgent();
  const { network = 'public', tls = null } = upstream ?? {};
  const connect = guardedConnector({ network, timeoutMs: CONNECT_TIMEOUT_MS, tls }, () => {});
  return Object.assign(agent, {
    createConnection: (
      options: { readonly host?: string; readonly port?: number | string },
      created: (error: Error | null, socket?: Duplex) => void,
    ): void => {
      const host = options.host ?? '';
      connect({ hostname: host, host, protocol, port: String(options.port ?? '') }, (error, socket) => {
        if (error === null && socket !== null) created(null, socket);
        else created(error);
      });
    },
  });
}

/** http-proxy uses a deprecated function of Node. Its warning would go to standard error, where logs are JSON lines. */
function quietly<T>(act: () => T): T {
  const before = process.noDeprecation;
  process.noDeprecation = true;
  try {
    return act();
  } finally {
    if (before === undefined) Reflect.deleteProperty(process, 'noDeprecation');
    else process.noDeprecation = before;
  }
}

/**
 * Node keeps at most this many header names and values of a request. The rest, which it drops, may have been the
 * framing.
 */
const MAX_RAW_HEADERS = 2000;

/** Headers that ask for another protocol (RFC 9110, 7.8; h2c: RFC 7540, 3.2). */
const OF_UPGRADES: ReadonlySet<string> = new Set(['upgrade', 'http2-settings']);

/**
 * Serves a request that asks for a protocol that the gateway does not speak, as if it had not asked; RFC 9110 lets a
 * server do so. (Java's client asks for `h2c` by default.) The request goes back to the server, which reads it from the
 * connection again. Its body and the requests after it are read as usual.
 * @param head what came after the headers
 * @returns whether it could be handed back; if not, nothing was done
 */
function serveWithoutUpgrade(server: Server, request: IncomingMessage, socket: Duplex, head: Buffer): boolean {
  const { rawHeaders } = request;
  if (rawHeaders.length >= MAX_RAW_HEADERS) return false;
  const lines = [`${request.method} ${request.url} HTTP/${request.httpVersion}`];
  for (let i = 0; i + 1 < rawHeaders.length; i += 2) {
    const name = rawHeaders[i] ?? '';
    const value = rawHeaders[i + 1] ?? '';
    if (OF_UPGRADES.has(name.toLowerCase())) continue;
    lines.push(`${name}: ${name.toLowerCase() === 'connection' ? withoutUpgrade(value) : value}`);
  }
  lines.push('', '');
  server.emit('connection', socket);
  socket.unshift(Buffer.concat([Buffer.from(lines.join('\r\n'), 'latin1'), head]));
  return true;
}

/** Whether the answer to an earlier request of the connection is not finished. */
function isAnswering(socket: Duplex): boolean {
  return '_httpMessage' in socket && Boolean(socket._httpMessage);
}

function withoutUpgrade(connection: string): string {
  return connection
    .split(',')
    .map((option) => option.trim())
    .filter((option) => !OF_UPGRADES.has(option.toLowerCase()))
    .join(', ');
}
