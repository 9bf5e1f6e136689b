import type { Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import { type IncomingMessage, STATUS_CODES, type ServerResponse } from 'node:http';
import ajvFormats from 'ajv-formats';
import { Ajv2020, type AnySchema, type ValidateFunction } from 'ajv/dist/2020.js';
import type { TypeBoxTypeProvider } from '@fastify/type-provider-typebox';
import Fastify, {
  LogController,
  type FastifyBaseLogger,
  type FastifyError,
  type FastifyReply,
  type FastifyRequest,
  type FastifySchemaCompiler,
} from 'fastify';
import type { Route, TlsPair } from '../config/configuration.ts';
import type { Entrance } from '../config/entrance.ts';
import { OWN_PATH } from '../config/resolve-routes.ts';
import { MOST_FAULTS, stopAt } from '../diagnostics/stop-at.ts';
import { CODES } from '../effects/model/codes.ts';
import type { JsonObject } from '../json/value.ts';
import { newId } from '../effects/run/ids.ts';
import type { Problem } from '../effects/model/run-request.ts';
import { ArchiveUnavailable, StoreUnavailable } from '../effects/store.ts';
import type { ApiApp } from './app.ts';
import {
  ConnectionCap,
  createDoorCheck,
  createEntrances,
  createListeners,
  dropTheRest,
  type Listeners,
  ROUTES_ONLY,
} from './listeners.ts';
import { Front, measureOverload, OVERLOADED } from './front.ts';
import type { ApiSettings } from './ports.ts';
import { EARLIER, Refused, faultSummary, plainProblem, renderProblem, shouldRetry } from './problem.ts';
import { decisionOfRefusal } from './run-refusal.ts';
import { validationFaults } from './validation-faults.ts';

/** A request that has not arrived completely after this time is given up, ms. */
const REQUEST_TIMEOUT_MS = 60_000;
/** The same for its headers, counted from the connection or the first byte of the request. */
const HEADERS_TIMEOUT_MS = 10_000;
/**
 * A connection is closed if no further request comes on it for this long, ms. It is longer than load balancers keep
 * theirs.
 */
const KEEP_ALIVE_MS = 72_000;
/** How often these time-outs are checked, ms. */
const TIMEOUTS_EVERY_MS = 5_000;

export interface ServerOptions {
  readonly logger: FastifyBaseLogger;
  readonly settings: () => ApiSettings;
  /** The most bytes of a request body. */
  readonly bodyLimit: number;
  /** The most connections of callers at the same time. */
  readonly connections: number;
  /** Certificate and key of the main listener; absent: no TLS. */
  readonly tls?: TlsPair | null;
  /** The routes in force. Some may have a host name or a listener of their own. */
  readonly routes?: () => readonly Pick<Route, 'host' | 'listen'>[];
  /** Called for each request except health checks. */
  readonly arrived?: () => void;
  /** The gateway is about to stop, so each answer closes its connection. */
  readonly isStopping?: () => boolean;
  /** Called for each answer: the route's pattern (`''` if none matched), method, status and ms. */
  readonly answered?: (route: string, method: string, status: number, durationMs: number) => void;
}

/**
 * The HTTP server that all doors share: request ids, Host and Origin checks, shedding, one form of errors, and
 * `x-should-retry` on every answer that is not 2xx. Validation does not coerce, fill in or drop anything, and finds
 * faults together (the first {@link MOST_FAULTS}). No proxy header is trusted. The doors add their routes.
 */
export function createServer(options: ServerOptions): ApiApp {
  return createListeningServer(options).app;
}

/** Like {@link createServer}, with the parts that open other listeners for it and take requests before its router. */
export function createListeningServer(options: ServerOptions): {
  readonly app: ApiApp;
  readonly listeners: Listeners;
  readonly front: Front;
} {
  const { settings } = options;
  const entranceOf = createEntrances(options.routes ?? (() => NO_ROUTES));
  const app = openApp(options, entranceOf, {
    idOf: (request) => front.routed(request)?.requestId ?? newId('req'),
    wasLate: () => overload.wasLate(),
  });
  const allowed = allowedMethods(app);

  const { connections, listeners } = createListeners(
    app.server,
    options.tls ?? null,
    (server) => new ConnectionCap(server, options.connections),
  );
  const overload = measureOverload(connections.underWay);
  app.addHook('onReady', async () => overload.started());
  app.addHook('onClose', async () => overload.close());

  const doorFault = createDoorCheck(settings, entranceOf);
  const door = { isClosing: false };
  let listenersClosed = Promise.resolve();
  app.addHook('preClose', async () => {
    door.isClosing = true;
    listenersClosed = listeners.close();
    connections.close();
  });
  app.addHook('onClose', () => listenersClosed);
  const refused = (request: IncomingMessage, requestId: string, why: string) =>
    refusedUnread(request, requestId, why, entranceOf, settings());
  const front = new Front(app.server, connections.underWay, {
    isOverloaded: overload.isOverloaded,
    refused: (request, requestId, why) =>
      why === OVERLOADED && PROBES.has(request.url ?? '') ? null : refused(request, requestId, why),
    admits(request) {
      if (door.isClosing || isOwn(request, entranceOf) || doorFault(request) !== null) return false;
      options.arrived?.();
      return true;
    },
    newId: () => newId('req'),
    isStopping: () => options.isStopping?.() === true,
    shouldRetry,
    answered: (method, status, durationMs) => options.answered?.('/*', method, status, durationMs),
  });
  letIn(app, options, {
    front,
    doorFault,
    door,
    refused: (request, requestId) => refused(request, requestId, SHUTTING_DOWN),
  });
  const { answered } = options;
  if (answered !== undefined)
    app.addHook('onResponse', (request, reply, done) => {
      // Whoever took the request before the router counts it.
      if (front.routed(request.raw) === undefined)
        answered(request.routeOptions.url ?? '', request.method, reply.statusCode, reply.elapsedTime);
      done();
    });

  refuseOddRequests(app, front, connections);
  addLastHeaders(app, options);
  answerErrors(app, options);
  answerUnknownPaths(app, settings, (request) =>
    entranceOf(request.raw).kind === 'own' ? allowed(request.url) : PROXIED,
  );
  return { app, listeners, front };
}

/** The server as Fastify makes it, without hooks. */
function openApp(
  options: ServerOptions,
  entranceOf: ReturnType<typeof createEntrances>,
  { idOf, wasLate }: { readonly idOf: (request: IncomingMessage) => string; readonly wasLate: () => boolean },
): ApiApp {
  const app: ApiApp = Fastify({
    loggerInstance: options.logger,
    logController: new LogController({ disableRequestLogging: true, requestIdLogLabel: 'request_id' }),
    // Answers are sent unchanged: a serializer would drop members that a schema does not list.
    schemaController: { compilersFactory: { buildSerializer: () => () => (data) => JSON.stringify(data) } },
    trustProxy: false,
    bodyLimit: options.bodyLimit,
    genReqId: idOf,
    requestIdHeader: false,
    // Its answer would lack what every answer must have; see the hook below.
    return503OnClosing: false,
    requestTimeout: REQUEST_TIMEOUT_MS,
    keepAliveTimeout: KEEP_ALIVE_MS,
    forceCloseConnections: 'idle',
    routerOptions: { maxParamLength: 512, caseSensitive: true, constraints: { entrance: byEntrance(entranceOf) } },
    // A request without Host, or with two, is refused below, so that the refusal has the same form as all others.
    http: {
      requireHostHeader: false,
      joinDuplicateHeaders: true,
      headersTimeout: HEADERS_TIMEOUT_MS,
      connectionsCheckingInterval: TIMEOUTS_EVERY_MS,
    },
    clientErrorHandler: (error, socket) => answerBrokenRequest(error, socket, wasLate()),
    frameworkErrors: (_error, request, reply) => void answer(reply, request, UNREADABLE_PATH, {}, options.settings()),
  }).withTypeProvider<TypeBoxTypeProvider>();
  app.setValidatorCompiler(compileForFirstRequest());
  app.decorateRequest('caller', null);
  return app;
}

/** Judges requests at the door that nobody took before the router. */
function letIn(
  app: ApiApp,
  { arrived }: ServerOptions,
  parts: {
    readonly front: Front;
    readonly doorFault: ReturnType<typeof createDoorCheck>;
    readonly door: { readonly isClosing: boolean };
    readonly refused: (request: IncomingMessage, requestId: string) => ReturnType<typeof refusedUnread>;
  },
): void {
  const { front, doorFault, door, refused } = parts;
  app.addHook('onRequest', (request, reply, done) => {
    reply.header('x-request-id', request.id);
    if (front.routed(request.raw) !== undefined) {
      // It was let in already, and may have run.
      done();
      return;
    }
    const fault = doorFault(request.raw);
    if (fault !== null) {
      done(new Refused(fault, {}));
    } else if (door.isClosing && !isProbe(request)) {
      const { status, headers, body } = refused(request.raw, request.id);
      reply
        .code(status)
        .headers({ ...headers, connection: 'close' })
        .send(body);
    } else {
      if (!isProbe(request)) arrived?.();
      done();
    }
  });
}

function refuseOddRequests({ server }: ApiApp, front: Front, connections: ConnectionCap): void {
  server.on('checkExpectation', (request: IncomingMessage, response: ServerResponse) => {
    connections.begun(request, response);
    if (!front.mayServe(request, response)) return;
    response.writeHead(417, BROKEN_HEADERS).end(JSON.stringify(brokenBody(417)));
  });

  server.on('connect', (_request, socket: Duplex) => {
    socket.on('error', () => socket.destroy());
    endWith(socket, 501);
  });
}

/** What every answer has, whichever door gives it. */
function addLastHeaders(app: ApiApp, options: ServerOptions): void {
  app.decorateReply('contained', function () {
    const { headers, routeOptions } = this.request;
    if (!NAVIGATIONS.has(String(headers['sec-fetch-dest'])) || routeOptions.config?.page === true) return;
    const present = this.getHeader('content-security-policy');
    // Of several policies each counts, so nothing that an upstream says takes this back.
    this.header('content-security-policy', present === undefined ? 'sandbox' : `${String(present)}, sandbox`);
  });
  app.decorateReply('lastHeaders', function () {
    this.contained();
    if (options.isStopping?.() === true || mayNotEnd(this.request.raw)) this.header('connection', 'close');
    const { statusCode } = this;
    if ((statusCode < 200 || statusCode >= 300) && !this.hasHeader('x-should-retry'))
      this.header('x-should-retry', shouldRetry(statusCode) ? 'true' : 'false');
  });
  app.addHook('onSend', (_request, reply, payload, done) => {
    reply.lastHeaders();
    done(null, payload);
  });
}

function answerErrors(app: ApiApp, { settings, logger }: ServerOptions): void {
  app.setErrorHandler((error: FastifyError, request, reply) => {
    // Where the archive is, is no matter of agents.
    const isForAgent = error instanceof ArchiveUnavailable && request.caller?.view.kind === 'own';
    const problem = problemOf(isForAgent ? new StoreUnavailable() : error);
    if (problem.code === 'internal')
      logger.error({ err: error, request_id: request.id }, 'a request failed inside the gateway');
    const refusal = request.caller?.refusal ?? null;
    if (refusal !== null && problem.code !== 'internal' && !(error instanceof StoreUnavailable)) {
      const decision = decisionOfRefusal(refusal, request.body, settings().publicUrl);
      return reply.code(decision.status).headers(decision.headers).send(decision.body);
    }
    return answer(reply, request, problem, error instanceof Refused ? error.members : {}, settings());
  });
}

function answerUnknownPaths(
  app: ApiApp,
  settings: ServerOptions['settings'],
  methodsOf: (request: FastifyRequest) => readonly string[],
): void {
  app.setNotFoundHandler((request, reply) => {
    const methods = methodsOf(request);
    // If the path takes this method and was still not found, it names something that cannot exist (an id that is too
    // long).
    if (methods.length === 0 || methods.includes(request.method))
      return answer(reply, request, plainProblem('not_found', 'There is nothing at this path.'), {}, settings());
    reply.header('allow', methods.join(', '));
    const problem = plainProblem('method_not_allowed', `This path takes ${methods.join(', ')}.`);
    return answer(reply, request, problem, {}, settings());
  });
}

/** The most bytes of a body that are still to come when its answer is given, for the connection to stay open. */
const MOST_LEFT = 65_536;

/** Whether much of the body is still to come, or nobody knows how much: it ends with its connection. */
function mayNotEnd({ complete, headers }: IncomingMessage): boolean {
  if (complete) return false;
  return headers['transfer-encoding'] !== undefined || Number(headers['content-length'] ?? 0) > MOST_LEFT;
}

const UNREADABLE_PATH = plainProblem('invalid_request', 'The path of the request cannot be read.');
const NO_ROUTES: readonly never[] = [];
/** What browsers say where they open an answer as a page, by itself or in another one. */
const NAVIGATIONS: ReadonlySet<string> = new Set(['document', 'iframe', 'frame', 'embed', 'object', 'fencedframe']);
/** The methods that the data plane takes; see the proxy's plugin. */
const PROXIED: readonly string[] = ['DELETE', 'GET', 'HEAD', 'OPTIONS', 'PATCH', 'POST', 'PUT'];

/** Hides the gateway's own addresses from requests that came in elsewhere: those reach only handlers that allow it. */
function byEntrance(entranceOf: (request: IncomingMessage) => Entrance) {
  return {
    name: 'entrance',
    storage: <Handler>() => {
      const handlers = new Map<string, Handler>();
      return {
        get: (kind: string): Handler | null => handlers.get(kind) ?? null,
        set: (kind: string, handler: Handler): void => void handlers.set(kind, handler),
      };
    },
    // The type does not know that the result may be `undefined`, which matches handlers without a constraint.
    deriveConstraint: (request: IncomingMessage) =>
      (entranceOf(request).kind === 'own' ? undefined : ROUTES_ONLY) as string,
    mustMatchWhenDerived: true,
  };
}

/** Health and metrics must answer under load too: that is when they are needed. */
function isProbe(request: FastifyRequest): boolean {
  return PROBES.has(request.routeOptions.url ?? '');
}

const PROBES: ReadonlySet<string> = new Set(['/livez', '/readyz', '/metrics']);

/** The answer to a request that nothing is read of. Under overload it is made before the router: it has to cost little. */
function refusedUnread(
  request: IncomingMessage,
  requestId: string,
  why: string,
  entranceOf: (request: IncomingMessage) => Entrance,
  { publicUrl }: ApiSettings,
): { readonly status: number; readonly headers: Readonly<Record<string, string>>; readonly body: string } {
  const { method = '', url = '', headers } = request;
  const problem = { ...plainProblem('not_ready', why), retryAfterMs: 1_000 };
  const changes = method !== 'GET' && method !== 'HEAD';
  const isRun = isOwn(request, entranceOf) ? method === 'POST' && RUN_PATH.test(url) : changes;
  // A write on a route may have a key that is derived from it: then an earlier one like it is the same action.
  const run = headers['idempotency-key'] !== undefined || isRun;
  const rendered = renderProblem(problem, {}, { publicUrl, requestId, run, changes });
  const more = { 'x-request-id': requestId, ...(mayNotEnd(request) ? { connection: 'close' } : {}) };
  return { status: rendered.status, headers: { ...rendered.headers, ...more }, body: JSON.stringify(rendered.body) };
}

/** Whether a request is for one of the gateway's own addresses; one that leads to the documentation is `/`. */
function isOwn(request: IncomingMessage, entranceOf: (request: IncomingMessage) => Entrance): boolean {
  const [path = ''] = (request.url ?? '').split('?', 1);
  return (path === '/' || OWN_PATH.test(path)) && entranceOf(request).kind === 'own';
}

const SHUTTING_DOWN = 'The gateway is shutting down. Nothing was done with this request.';
/** Where calls arrive. A message to an MCP server may be one. */
const RUN_PATH = /^\/(?:v1\/workspaces\/[^/]+\/effects|mcp(?:\/[^/?]*)?)(?:\?|$)/;

function answer(
  reply: FastifyReply,
  request: FastifyRequest,
  problem: Problem,
  members: JsonObject,
  settings: ApiSettings,
): FastifyReply {
  const rendered = renderProblem(problem, members, {
    publicUrl: settings.publicUrl,
    requestId: request.id,
    run: request.routeOptions.config?.endpoint === 'effects.run',
    changes: request.method !== 'GET' && request.method !== 'HEAD',
  });
  return reply
    .code(rendered.status)
    .headers({ ...rendered.headers, 'x-request-id': request.id })
    .send(JSON.stringify(rendered.body));
}

/** Turns anything that was thrown into a problem. An unknown error becomes `internal`, without its message. */
export function problemOf(error: Error & Partial<FastifyError>): Problem {
  if (error instanceof Refused) return error.problem;
  if (error instanceof ArchiveUnavailable)
    return { ...plainProblem('store_unavailable', error.message), retryAfterMs: 60_000 };
  if (error instanceof StoreUnavailable)
    return {
      ...plainProblem('store_unavailable', 'The store cannot be reached; nothing was sent.'),
      retryAfterMs: 1_000,
    };
  if (error.validation !== undefined) {
    const errors = validationFaults(error.validation, error.validationContext ?? 'body');
    const keyOnly =
      errors.length === 1 && errors[0]?.path === '/idempotency_key' && errors[0].message === 'is required';
    return {
      code: keyOnly ? 'idempotency_key_required' : 'invalid_request',
      detail: faultSummary(errors),
      errors,
      retryAfterMs: null,
    };
  }
  if (error.code === 'FST_ERR_CTP_INVALID_MEDIA_TYPE')
    return plainProblem('unsupported_media_type', 'Send the body as application/json.');
  const status = error.code === 'ECONNRESET' ? 400 : (error.statusCode ?? 500);
  return status >= 400 && status < 500
    ? plainProblem('invalid_request', 'The request cannot be read.')
    : plainProblem('internal', 'Something went wrong inside the gateway. The request id is in its log.');
}

/** The methods that routes have for a path; called only if no route was found. */
function allowedMethods(app: ApiApp): (url: string) => readonly string[] {
  const routes: { readonly methods: readonly string[]; readonly path: RegExp }[] = [];
  app.addHook('onRoute', ({ method, url }) => {
    if (url.includes('*')) return;
    const pattern = url.replaceAll(/[.+?^${}()|[\]\\]/g, String.raw`\$&`).replaceAll(/:[A-Za-z_]+/g, '[^/]+');
    routes.push({ methods: Array.isArray(method) ? method : [method], path: new RegExp(`^${pattern}$`) });
  });
  return (url) => {
    const [path = ''] = url.split('?');
    return [...new Set(routes.filter((route) => route.path.test(path)).flatMap((route) => route.methods))].sort();
  };
}

/** What Node's parser refuses never becomes a request, so the answer is written directly on the socket. */
function answerBrokenRequest(error: Error & { readonly code?: string }, socket: Socket, wasLate: boolean): void {
  if (error.code === 'ECONNRESET' || !socket.writable) {
    socket.destroy();
    return;
  }
  const isTimeout = error.code === 'ERR_HTTP_REQUEST_TIMEOUT';
  // Where the gateway itself was late, what the caller sent in time may not have been read.
  endWith(socket, error.code === 'HPE_HEADER_OVERFLOW' ? 431 : !isTimeout ? 400 : wasLate ? 503 : 408);
}

/** Sends the last answer on a connection. */
function endWith(socket: Duplex, status: number): void {
  dropTheRest(socket);
  const body = JSON.stringify(brokenBody(status));
  const headers = {
    ...BROKEN_HEADERS,
    ...(isLate(status) ? { 'x-should-retry': 'true', 'retry-after': '1' } : {}),
    'content-length': Buffer.byteLength(body),
    connection: 'close',
  };
  const lines = Object.entries(headers).map(([name, value]) => `${name}: ${value}`);
  socket.end(`HTTP/1.1 ${status} ${STATUS_CODES[status] ?? ''}\r\n${lines.join('\r\n')}\r\n\r\n${body}`);
}

const BROKEN_HEADERS = { 'content-type': 'application/problem+json', 'x-should-retry': 'false' } as const;

const BROKEN: Readonly<Record<number, string>> = {
  408: 'The request did not arrive whole in time.',
  417: 'Of Expect only 100-continue is met.',
  431: 'The headers of the request are too large.',
  501: 'This gateway is no forward proxy: it has no CONNECT.',
  503: 'The gateway is overloaded and did not read the request in time. Nothing was done with it.',
};

function brokenBody(status: number): JsonObject {
  const code = status === 503 ? 'not_ready' : 'invalid_request';
  return {
    title: CODES[code].title,
    status,
    detail: `${BROKEN[status] ?? 'This is not a request that can be read (RFC 9112).'}${isLate(status) ? EARLIER : ''}`,
    code,
    did_it_happen: isLate(status) ? 'maybe' : 'no',
    safe_to_retry: true,
    next: isLate(status) ? 'retry' : 'replan',
  };
}

/** The only fault of such a request is that it came, or was read, too slowly. */
function isLate(status: number): boolean {
  return status === 408 || status === 503;
}

/** A schema of a route is compiled for its first request: no start waits for all of them. */
function compileForFirstRequest(): FastifySchemaCompiler<AnySchema> {
  const code = { process: stopAt(MOST_FAULTS) };
  // None of our schemas has a branch that would be misjudged if validation stops early.
  const ajv = new Ajv2020({ validateSchema: false, allErrors: true, verbose: true, allowUnionTypes: true, code });
  ajvFormats.default(ajv);
  return ({ schema }) => {
    let compiled: ValidateFunction | null = null;
    const validator: Pick<ValidateFunction, 'errors'> & ((value: unknown) => boolean) = (value) => {
      compiled ??= ajv.compile(schema);
      const fits = compiled(value);
      validator.errors = compiled.errors ?? null;
      return fits;
    };
    return validator;
  };
}
