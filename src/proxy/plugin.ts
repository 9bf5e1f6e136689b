import httpProxy from '@fastify/http-proxy';
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import type { Dispatcher } from 'undici';
import type { RunResult } from '../effects/outcome.ts';
import { type AnswerContext, outcomeAnswer, problemAnswer, type ProxyAnswer } from './answer.ts';
import { type Arrival, type Arrived, receive } from './arrival.ts';
import { hasBody, paramsOf, type ReadRequest, readRequest, runRequestOf } from './governed.ts';
import { returnedHeaders } from './headers.ts';
import { createLive } from './live.ts';
import type { ProxyPorts } from './ports.ts';
import { createReadLedger } from './read-ledger.ts';
import { createRefusals, type DoorRefusal } from './refusals.ts';
import { createRouteTable, type RouteMatch, type RouteTable } from './route-table.ts';
import { judgeRead, type StreamedRead } from './streamed-read.ts';
import { attachUpgrades } from './upgrades.ts';

declare module 'fastify' {
  interface FastifyRequest {
    /** A read that was let through and streams. */
    streamed: StreamedRead | null;
  }
}

/** When keys in the query were declared deprecated (RFC 9745). */
const QUERY_KEY_DEPRECATED = '@1767225600';

const METHODS = ['DELETE', 'GET', 'HEAD', 'PATCH', 'POST', 'PUT', 'OPTIONS'];

/**
 * The data plane: everything that is not one of the gateway's own paths. Declared writes are governed by the core,
 * declared reads stream through, the rest is refused. Register it on the server once; routes may change while it runs.
 */
export async function proxyPlugin(app: FastifyInstance, options: { readonly ports: ProxyPorts }): Promise<void> {
  const { ports } = options;
  const table = currentTable(ports);
  const reads = createReadLedger(ports.append, ports.now);
  const refusals = createRefusals(ports);
  const live = createLive(ports);
  const upgrades = attachUpgrades(app.server, { ports, table, refusals, live, reads });

  // Bodies are read here, strictly, or stream; no parser of the server touches them.
  app.removeAllContentTypeParsers();
  app.decorateRequest('streamed', null);
  app.addHook('onResponse', (request, _reply, done) => {
    if (request.streamed !== null) live.remove(request.streamed.live);
    done();
  });
  app.addHook('onClose', async () => {
    upgrades.close();
    live.close();
    await reads.close();
    await refusals.close();
  });

  const send = (reply: FastifyReply, answer: ProxyAnswer): void => {
    void reply.code(answer.status).headers(answer.headers).send(answer.body);
  };
  const contextOf = (request: FastifyRequest, arrived: Arrived): AnswerContext => {
    const { match } = arrived;
    return {
      request: { id: request.id, method: request.method },
      principal: arrived.principal,
      prefix: match.kind === 'none' ? '' : match.route.prefix,
      upstream: match.kind === 'none' ? '' : match.route.upstream,
      setCookie: match.kind !== 'none' && match.route.setCookie,
      onDuplicate: match.kind === 'rule' ? match.rule.onDuplicate : 'conflict',
    };
  };
  const sendResult = (request: FastifyRequest, reply: FastifyReply, arrived: Arrived, result: RunResult): void => {
    send(reply, outcomeAnswer(ports, result, contextOf(request, arrived)));
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
      // Part of the body may be unread: the connection cannot carry another request.
      if (!request.raw.complete) reply.header('connection', 'close');
      send(reply, problemAnswer(ports, read.problem, request));
      return;
    }
    const run = runRequestOf(arrived, match, request.raw, read);
    if ('kind' in run) send(reply, problemAnswer(ports, run.problem, request));
    else sendResult(request, reply, arrived, await ports.run(run));
  };

  /** Lets a read stream, or does instead what its verdict asks for. */
  const passRead = (
    request: FastifyRequest,
    reply: FastifyReply,
    arrived: Arrived,
    match: Exclude<RouteMatch, { kind: 'none' }>,
    read: ReadRequest,
    done: () => void,
  ): Promise<void> | null => {
    if (read.kind !== 'read') return match.kind === 'rule' ? runGoverned(request, reply, arrived, match, read) : null;
    const judged = judgeRead(ports, arrived, match, request.raw, read, () => reply.raw.destroy());
    switch (judged.kind) {
      case 'stream':
        request.streamed = judged.read;
        live.add(judged.read.live);
        done();
        return null;
      case 'problem':
        send(reply, problemAnswer(ports, judged.problem, request));
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
    sendResult(request, reply, arrived, await refusals.refuse(arrived, request.method, refusal));
  };

  const proceed = (
    arrival: Arrival,
    request: FastifyRequest,
    reply: FastifyReply,
    done: () => void,
  ): Promise<void> | null => {
    if (arrival.kind === 'own') {
      reply.callNotFound();
      return null;
    }
    if (arrival.viaQuery) reply.header('deprecation', QUERY_KEY_DEPRECATED);
    if (arrival.kind === 'problem') {
      send(reply, problemAnswer(ports, arrival.problem, request));
      return null;
    }
    const { match } = arrival;
    const isRead = request.method === 'GET' || request.method === 'HEAD';
    switch (match.kind) {
      case 'rule': {
        if (match.tool.kind === 'write') {
          return readRequest(ports, arrival, match, request.raw).then((read) =>
            runGoverned(request, reply, arrival, match, read),
          );
        }
        if (hasBody(request.raw)) {
          return readRequest(ports, arrival, match, request.raw).then(async (read) => {
            await passRead(request, reply, arrival, match, read, done);
          });
        }
        return passRead(request, reply, arrival, match, paramsOf(ports, arrival, match, request.raw, null), done);
      }
      case 'undeclared':
        if (match.route.undeclared === 'passthrough_reads' && isRead) {
          return passRead(request, reply, arrival, match, { kind: 'read', params: {}, body: null }, done);
        }
        return refuse(request, reply, arrival, NOT_DECLARED);
      case 'none':
        return refuse(request, reply, arrival, NOT_DECLARED);
    }
  };

  await app.register(httpProxy, {
    // Each request names its upstream; the gateway's own paths are more specific than this one.
    upstream: '',
    prefix: '',
    routes: ['/*'],
    httpMethods: METHODS,
    disableRequestLogging: true,
    undici: { request: streamThrough(ports) },
    preHandler: (request, reply, done) => {
      // What is answered here never calls `done`, and so never reaches the streaming handler.
      const fail = (error: unknown): void => done(error instanceof Error ? error : new Error(String(error)));
      const pass = (): void => done();
      try {
        const arrival = receive(ports, table(), request.raw, request.ip);
        if (arrival instanceof Promise) {
          arrival.then((arrived) => proceed(arrived, request, reply, pass)).catch(fail);
        } else {
          proceed(arrival, request, reply, pass)?.catch(fail);
        }
      } catch (error) {
        fail(error);
      }
    },
    handler: (request, reply, _dest, replyOptions) => {
      const { streamed } = request;
      if (streamed === null) throw new Error('a request that was not let through reached the streaming handler');
      if (streamed.body === null) return reply.from(streamed.path, replyOptions);
      const contentType = request.headers['content-type'] ?? 'application/json';
      return reply.from(streamed.path, { ...replyOptions, body: streamed.body, contentType });
    },
    replyOptions: {
      getUpstream: (request) => `http://${hostOf(request.streamed?.upstreamId ?? '')}`,
      queryString: (_search, _url, request) => request.streamed?.query ?? '',
      rewriteRequestHeaders: (request, headers) => {
        const { streamed } = request;
        if (streamed === null) return {};
        const length = headers['content-length'];
        if (streamed.body !== null && length !== undefined) streamed.headers['content-length'] = String(length);
        return streamed.headers;
      },
      rewriteHeaders: (headers, request) => {
        const streamed = request?.streamed;
        if (!streamed) return {};
        const { prefix, setCookie, upstream } = streamed;
        return returnedHeaders(headers, { prefix, setCookie, upstreamUrl: upstream.url });
      },
      onResponse: (request, reply, response) => {
        const { streamed } = request;
        const { statusCode } = reply;
        if (streamed !== null) reads.record({ ...streamed.passed, status: statusCode });
        reply.header('svc-decision', statusCode < 300 ? 'committed' : 'failed');
        void reply.send('stream' in response ? response.stream : response);
      },
      onError: (reply, { error }) => {
        const { streamed } = reply.request;
        if (streamed !== null) reads.record({ ...streamed.passed, status: null });
        const answer = failedRead(ports, streamed, error);
        void reply.code(answer.status).headers(answer.headers).send(answer.body);
      },
      // The default repeats a GET that was answered 503 up to ten times.
      retryDelay: () => null,
    },
  });
}

type RuleMatch = Extract<RouteMatch, { kind: 'rule' }>;

/** The route table of the routes in force; compiled once for each configuration. */
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

const NOT_DECLARED: DoorRefusal = {
  decision: 'denied_policy',
  reason: {
    code: 'route_not_declared',
    message: 'No rule of the gateway’s configuration matches this method and path.',
  },
};

/** A read that came to nothing. It changed nothing, and is no effect. */
function failedRead(ports: ProxyPorts, streamed: StreamedRead | null, error: Error): ProxyAnswer {
  const connect =
    /connect/i.test(error.message) || (error.cause instanceof Error && error.cause.name === 'ConnectFailed');
  const reason = connect
    ? { code: 'connect_failed', message: 'The upstream could not be reached.' }
    : { code: 'upstream_refused', message: 'The upstream gave no answer that can be read.' };
  const body = {
    decision: 'failed',
    tool: streamed?.passed.tool ?? null,
    agent_id: streamed?.passed.agentId ?? null,
    reason,
    did_it_happen: 'no',
    safe_to_retry: true,
    next: 'retry',
    links: { docs: `${ports.settings().publicUrl}/docs/errors/${reason.code}` },
  };
  return {
    status: 502,
    headers: {
      'content-type': 'application/json; charset=utf-8',
      'svc-decision': 'failed',
      'x-should-retry': 'true',
    },
    body: JSON.stringify(body),
  };
}

/** A host name that stands for an upstream's id between here and {@link streamThrough}; it is never resolved. */
function hostOf(id: string): string {
  return `u${Buffer.from(id).toString('hex')}.upstream`;
}

/** Hands a streaming request to the pool of the upstream that its origin stands for. */
function streamThrough(ports: ProxyPorts): Dispatcher['request'] {
  const idOf = (origin: unknown): string => {
    const hex = /^http:\/\/u([0-9a-f]*)\.upstream$/.exec(String(origin))?.[1];
    return hex === undefined ? '' : Buffer.from(hex, 'hex').toString();
  };
  function request(
    this: unknown,
    options: Dispatcher.RequestOptions,
    callback?: (error: Error | null, data: Dispatcher.ResponseData) => void,
  ) {
    const stream = ports.stream(idOf(options.origin));
    if (stream === null) throw new Error('the upstream of this route is not declared any more');
    return callback === undefined ? stream.request(options) : stream.request(options, callback);
  }
  return request as Dispatcher['request'];
}
