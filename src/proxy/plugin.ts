import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import type { Route } from '../config/configuration.ts';
import type { RunResult } from '../effects/model/outcome.ts';
import type { RunRequest } from '../effects/model/run-request.ts';
import { isEventStream } from '../upstreams/http/events.ts';
import { recordProxied } from './access.ts';
import { answered, contextOf, linkedAnswer, passedOnHeaders, problemAnswer, type ProxyAnswer } from './answer.ts';
import { type Arrival, type Arrived, createIdentities, receive } from './arrival.ts';
import { bareRead, liveAnswer, type ReadRequest, readRequest, runRequestOf } from './governed.ts';
import { type Front, UnroutedCall, type UnroutedDoor } from './unrouted-call.ts';
import { createLive } from '../identity/live.ts';
import { createPassingAnswer } from './passing-answer.ts';
import type { ProxyPorts } from './ports.ts';
import { createReadLedger } from './read-ledger.ts';
import { createRefusals, type DoorRefusal } from './refusals.ts';
import { createRouteTable, type RouteMatch, type RouteTable, type RuleMatch } from './route-table.ts';
import { judgeRead } from './streamed-read.ts';
import { type PassingDoor, passInPlace, type ReadCaller } from './streaming.ts';
import { attachUpgrades } from './upgrades.ts';

declare module 'fastify' {
  interface FastifyRequest {
    arrived: Arrived | null;
  }
}

/** When keys in the query were declared deprecated (RFC 9745). */
const QUERY_KEY_DEPRECATED = '@1767225600';

const METHODS = ['DELETE', 'GET', 'HEAD', 'PATCH', 'POST', 'PUT', 'OPTIONS'];

/**
 * The data plane: everything except the gateway's own paths. The core governs declared writes, declared reads are
 * streamed, and the rest is refused. Register it on the server once; routes may change while it runs.
 */
export async function proxyPlugin(
  app: FastifyInstance,
  options: { readonly ports: ProxyPorts; readonly front: Front | null },
): Promise<void> {
  const { ports, front } = options;
  const table = currentTable(ports);
  const reads = createReadLedger(ports.append, ports.now);
  const refusals = createRefusals(ports);
  const live = createLive(ports);
  const identities = createIdentities(ports);
  const upgrades = attachUpgrades(app.server, { ports, identities, table, refusals, live, reads });

  // The code here reads bodies strictly or streams them, so the parsers of the server must not touch them.
  app.removeAllContentTypeParsers();
  app.addContentTypeParser('*', (_request, payload, done) => done(null, payload));
  app.decorateRequest('arrived', null);
  // Nothing is logged of a request here, so none needs a logger of its own.
  app.setChildLoggerFactory((logger) => logger);
  // The server waits for every connection before it closes, and only then are the hooks below called.
  app.addHook('preClose', async () => live.stop());
  app.addHook('onClose', async () => {
    upgrades.close();
    identities.close();
    live.close();
    await reads.close();
    await refusals.close();
  });

  const send = (reply: FastifyReply, answer: ProxyAnswer): void => {
    void reply.code(answer.status).headers(answer.headers).send(answer.body);
  };
  const sendResult = async (
    request: FastifyRequest,
    reply: FastifyReply,
    arrived: Arrived,
    result: RunResult,
  ): Promise<void> => {
    send(reply, await linkedAnswer(ports, result, contextOf(ports, request.raw, request.id, arrived)));
  };

  const runToItsEnd = async (
    request: FastifyRequest,
    reply: FastifyReply,
    arrived: Arrived,
    run: RunRequest,
  ): Promise<void> => {
    const first = await ports.run(run);
    const held = ports.preferredWait.hold(request.raw, reply.raw, run, first);
    if (held !== null) reply.header('preference-applied', held.applied);
    await sendResult(request, reply, arrived, held === null ? first : await held.became);
  };

  /** Runs a call whose answer may be passed on while it comes. */
  const runPassingOn = async (
    request: FastifyRequest,
    reply: FastifyReply,
    arrived: Arrived,
    match: RuleMatch,
    run: RunRequest,
  ): Promise<void> => {
    const context = contextOf(ports, request.raw, request.id, arrived);
    const passing = createPassingAnswer(reply, {
      begun: () => {
        const open = liveAnswer(ports, arrived, match, run, () => reply.raw.destroy());
        live.add(open);
        reply.raw.once('close', () => live.remove(open));
      },
      headers: (head, effect) => passedOnHeaders(ports, head, effect, context),
      stallMs: match.tool.timeoutMs,
    });
    const answer = await linkedAnswer(ports, await ports.run({ ...run, listen: passing.listen }), context);
    if (passing.hasBegun) passing.finish(answer);
    else send(reply, answer);
  };

  const runGoverned = async (
    request: FastifyRequest,
    reply: FastifyReply,
    arrived: Arrived,
    match: RuleMatch,
    read: ReadRequest,
  ): Promise<void> => {
    if (read.kind === 'gone') {
      reply.hijack();
      request.raw.destroy();
      return;
    }
    if (read.kind === 'problem') {
      send(reply, problemAnswer(ports, read.problem, answered(request.raw, request.id), match.route));
      return;
    }
    try {
      const run = runRequestOf(ports, arrived, match, request.raw, read);
      if ('kind' in run) send(reply, problemAnswer(ports, run.problem, answered(request.raw, request.id), match.route));
      else if (match.tool.streams === undefined) await runToItsEnd(request, reply, arrived, run);
      else await runPassingOn(request, reply, arrived, match, run);
    } finally {
      await read.upload?.discard();
    }
  };

  const warn = (err: Error): void => app.log.warn({ err }, 'a read was not answered as a whole');
  const passing: PassingDoor = { ports, reads, live, warn };
  const readCaller = (request: FastifyRequest, reply: FastifyReply): ReadCaller => ({
    request: answered(request.raw, request.id),
    response: reply.raw,
    stands: () => isEventStream(String(reply.getHeader('content-type'))),
    head({ status, headers }) {
      reply.code(status).headers(headers);
      reply.lastHeaders();
      const flat: (string | number | string[])[] = [];
      for (const [name, value] of Object.entries(reply.getHeaders())) if (value !== undefined) flat.push(name, value);
      reply.raw.writeHead(status, flat);
      reply.hijack();
    },
    send: (answer) => send(reply, answer),
  });

  /** Streams a read, or does what its verdict asks for instead. */
  const passRead = (
    request: FastifyRequest,
    reply: FastifyReply,
    arrived: Arrived,
    match: Exclude<RouteMatch, { kind: 'none' }>,
    read: ReadRequest,
  ): Promise<void> | null => {
    if (read.kind !== 'read') return match.kind === 'rule' ? runGoverned(request, reply, arrived, match, read) : null;
    const judged = judgeRead(ports, arrived, match, request.raw, read);
    switch (judged.kind) {
      case 'stream':
        return passInPlace(passing, readCaller(request, reply), judged.read);
      case 'problem':
        send(reply, problemAnswer(ports, judged.problem, answered(request.raw, request.id), match.route));
        return null;
      case 'govern':
        if (match.kind === 'rule') return runGoverned(request, reply, arrived, match, read);
        return refuse(request, reply, arrived, judged.denied ?? NOT_DECLARED);
    }
  };

  const refuse = async (
    request: FastifyRequest,
    reply: FastifyReply,
    arrived: Arrived,
    refusal: DoorRefusal,
  ): Promise<void> => {
    await sendResult(request, reply, arrived, await refusals.refuse(arrived, request.method, refusal));
  };

  const proceed = (arrival: Arrival, request: FastifyRequest, reply: FastifyReply): Promise<void> | null => {
    if (arrival.kind === 'own') {
      reply.callNotFound();
      return null;
    }
    if (arrival.viaQuery) reply.header('deprecation', QUERY_KEY_DEPRECATED);
    if (arrival.kind === 'problem') {
      send(reply, problemAnswer(ports, arrival.problem, answered(request.raw, request.id), arrival.style));
      return null;
    }
    request.arrived = arrival;
    const bare = bareRead(ports, arrival, request.raw);
    if (bare !== null) return passRead(request, reply, arrival, bare.match, bare.read);
    const { match } = arrival;
    switch (match.kind) {
      case 'rule':
        return readRequest(ports, arrival, match, request.raw).then(async (read) => {
          if (match.tool.kind === 'write') await runGoverned(request, reply, arrival, match, read);
          else await passRead(request, reply, arrival, match, read);
        });
      case 'undeclared':
        return refuse(request, reply, arrival, noRuleOf(match.route, request.raw.method ?? '', arrival.path));
      case 'none':
        return refuse(request, reply, arrival, NOT_DECLARED);
    }
  };

  const handler = (request: FastifyRequest, reply: FastifyReply): void => {
    const routed = front?.routed(request.raw);
    if (routed !== undefined) {
      routed.next(request, reply);
      return;
    }
    if (ports.access !== null) recordProxied(request, reply, arrivedOf, ports.access);
    try {
      const arrival = receive(ports, identities, table(), request.raw, request.ip, request.id);
      if (arrival instanceof Promise) {
        arrival.then((arrived) => proceed(arrived, request, reply)).catch(failOf(reply));
      } else {
        proceed(arrival, request, reply)?.catch(failOf(reply));
      }
    } catch (error) {
      failOf(reply)(error);
    }
  };
  if (front !== null) {
    const door: UnroutedDoor = {
      ...passing,
      ports,
      front,
      identities,
      table,
      proceed: (arrival, request, reply) => void proceed(arrival, request, reply)?.catch(failOf(reply)),
      runRead: (request, reply, arrived, match, read) =>
        void runGoverned(request, reply, arrived, match, read).catch(failOf(reply)),
      send,
    };
    front.take((request, response, requestId) => new UnroutedCall(door, request, response, requestId).begin());
  }
  // The gateway's own paths are more specific than this one and win.
  app.route({ method: METHODS, url: '/*', handler });
  // Routes with their own host name or listener share it with nothing else.
  app.route({ method: METHODS, url: '/*', handler, constraints: { entrance: 'routes' } });
}

function failOf(reply: FastifyReply): (error: unknown) => void {
  return (error) => void reply.send(error instanceof Error ? error : new Error(String(error)));
}

function arrivedOf({ arrived }: FastifyRequest): Arrived | null {
  return arrived;
}

/** The route table of the routes in force, compiled once for each configuration. */
function currentTable(ports: ProxyPorts): () => RouteTable {
  let of = { routes: ports.routes(), catalog: ports.catalog() };
  let table = createRouteTable(of.routes, of.catalog);
  return () => {
    const routes = ports.routes();
    const catalog = ports.catalog();
    if (routes !== of.routes || catalog !== of.catalog) {
      table = createRouteTable(routes, catalog);
      of = { routes, catalog };
    }
    return table;
  };
}

/** The refusal says how to declare the request, because client libraries show only its message. */
function noRuleOf({ prefix }: Route, method: string, path: string): DoorRefusal {
  const what = `${method} ${path.slice(0, 200)}`;
  const message = `No rule of the route ${prefix === '' ? '/' : prefix} matches ${what}. If agents are to call it, declare a tool and add to the rules of the route: - { match: "${what}", tool: … }, with :name for a segment that varies.`;
  return { ...NOT_DECLARED, reason: { ...NOT_DECLARED.reason, message } };
}

const NOT_DECLARED: DoorRefusal = {
  decision: 'denied_policy',
  reason: {
    code: 'route_not_declared',
    message: 'No rule of the gateway’s configuration matches this method and path.',
  },
};
