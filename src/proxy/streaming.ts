import { pipeline } from 'node:stream';
import type { FastifyReply, FastifyRequest } from 'fastify';
import { type Dispatcher, errors } from 'undici';
import type { ProxyAnswer } from './answer.ts';
import { errorMembers, PLAIN_STYLE, shownStatus } from './error-shape.ts';
import { returnedHeaders } from './headers.ts';
import { isJson, linkStream, LinksUnreadable, unreadable } from './json-links.ts';
import { OF_THE_BYTES, ownFields } from './own-links.ts';
import type { ProxyPorts } from './ports.ts';
import type { ReadLedger } from './read-ledger.ts';
import { type StreamedRead, unreachableWords } from './streamed-read.ts';

type ReplyOptions = NonNullable<Parameters<FastifyReply['from']>[1]>;

/**
 * How `reply.from` of @fastify/http-proxy passes a read on. The path is always `/`, and the path and query that were
 * matched travel inside its query (see {@link streamThrough}). So no URL parser ever sees them, and what was matched is
 * what is sent.
 */
export function streamingOptions(ports: ProxyPorts, reads: ReadLedger): ReplyOptions {
  return {
    getUpstream: (request) => originOf(request.streamed?.upstreamId ?? ''),
    queryString: (_search, _url, request) => request.streamed?.pathAndQuery ?? '/',
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
      const returned = returnedHeaders(headers, { ...streamed, upstreamUrl: streamed.upstream.url });
      if (isRewritten(streamed, headers['content-type'])) for (const name of OF_THE_BYTES) delete returned[name];
      return returned;
    },
    onResponse: (request, reply, response) => {
      const { streamed } = request;
      const { statusCode } = reply;
      if (streamed !== null) reads.record(streamed.passed, statusCode);
      reply.header('svc-decision', statusCode < 300 ? 'committed' : 'failed');
      const observed = streamed?.passed.observed?.would ?? null;
      if (observed !== null) reply.header('svc-observed', observed);
      if (statusCode === 304 && 'stream' in response) {
        // Such an answer has no body, whatever length it names. undici reports that length as a missing body.
        response.stream.on('error', () => {}).resume();
        void reply.send();
      } else if (
        'stream' in response &&
        streamed !== null &&
        isRewritten(streamed, textOf(reply.getHeader('content-type')))
      ) {
        const isPlain = /^identity$/i.test(textOf(reply.getHeader('content-encoding')) ?? 'identity');
        const own = ownFields({ ...streamed, upstreamUrl: streamed.upstream.url });
        // The reply hears of what went wrong from the second stream.
        void reply.send(pipeline(response.stream, isPlain ? linkStream(streamed.links, own) : unreadable(), () => {}));
      } else void reply.send('stream' in response ? response.stream : response);
    },
    onError: (reply, { error }) => {
      const { streamed } = reply.request;
      if (streamed !== null) reads.record(streamed.passed, null);
      const answer = failedRead(ports, streamed, error);
      void reply.code(answer.status).headers(answer.headers).send(answer.body);
    },
    // By default, a GET that was answered 503 is repeated up to ten times.
    retryDelay: () => null,
  };
}

/** Whether links in the body are made the gateway's. */
function isRewritten({ links }: StreamedRead, contentType: string | readonly string[] | undefined): boolean {
  return links.length > 0 && isJson(contentType);
}

function textOf(value: unknown): string | undefined {
  return typeof value === 'string' ? value : undefined;
}

/**
 * Answers a read whose upstream failed before any byte of the body was returned. Nothing of the upstream's answer
 * stays.
 */
export function sendFailedRead(ports: ProxyPorts, reply: FastifyReply, error: Error): FastifyReply {
  const kept = ['x-request-id', 'deprecation'];
  for (const name of Object.keys(reply.getHeaders())) if (!kept.includes(name)) reply.removeHeader(name);
  const answer = failedRead(ports, reply.request.streamed, error);
  return reply.code(answer.status).headers(answer.headers).send(answer.body);
}

/** Why a read ended: one line in the log, and nobody's fault. */
function callerGone(): Error {
  const gone = new Error('the caller left before the answer was over');
  gone.name = 'CallerGone';
  gone.stack = `${gone.name}: ${gone.message}`;
  return gone;
}

/** Passes on a read that was allowed. */
export function passOn(request: FastifyRequest, reply: FastifyReply, read: StreamedRead, options: ReplyOptions): void {
  request.streamed = read;
  const gone = new AbortController();
  reply.raw.once('close', () => {
    if (!reply.raw.writableFinished) gone.abort(callerGone());
  });
  callerOf = gone.signal;
  const timed = read.timeoutMs === null ? options : { ...options, timeout: read.timeoutMs };
  if (read.body === null) void reply.from('/', timed);
  else
    void reply.from('/', {
      ...timed,
      body: read.body,
      contentType: read.headers['content-type'] ?? 'application/json',
    });
  callerOf = null;
}

/**
 * Aborts when the caller of the read that {@link passOn} passes on has gone. It is a variable because `reply.from`
 * cannot hand it over. That is safe because `reply.from` calls {@link streamThrough} before it returns.
 */
let callerOf: AbortSignal | null = null;

/**
 * Sends a streaming request to the pool of its upstream, with the path that it carries. Its origin says which upstream.
 */
export function streamThrough(ports: ProxyPorts): Dispatcher['request'] {
  function request(
    this: unknown,
    options: Dispatcher.RequestOptions,
    callback?: (error: Error | null, data: Dispatcher.ResponseData) => void,
  ) {
    const stream = ports.stream(idsByOrigin.get(String(options.origin)) ?? '');
    if (stream === null) throw new Error('the upstream of this route is not declared any more');
    if (!options.path.startsWith('/?/')) throw new Error('a streaming request carries its path as a query');
    const passed = { ...options, path: options.path.slice(2), ...(callerOf === null ? {} : { signal: callerOf }) };
    return callback === undefined ? stream.request(passed) : stream.request(passed, callback);
  }
  return request as Dispatcher['request'];
}

/**
 * Made-up origins that identify upstreams between {@link streamingOptions} and {@link streamThrough}. They are never
 * resolved.
 */
const origins = new Map<string, string>();
const idsByOrigin = new Map<string, string>();

function originOf(id: string): string {
  let origin = origins.get(id);
  if (origin === undefined) {
    origin = `http://u${Buffer.from(id).toString('hex')}.upstream`;
    origins.set(id, origin);
    idsByOrigin.set(origin, id);
  }
  return origin;
}

/** A read that failed. It changed nothing and is not an effect. */
function failedRead(ports: ProxyPorts, streamed: StreamedRead | null, error: Error): ProxyAnswer {
  const unconnected = error.cause instanceof Error && error.cause.name === 'ConnectFailed';
  const late = error.cause instanceof errors.HeadersTimeoutError || error instanceof errors.BodyTimeoutError;
  const reason = unconnected
    ? { code: 'connect_failed', message: unreachableWords(error.cause) }
    : {
        code: 'upstream_refused',
        message: late
          ? 'The upstream did not answer within the time-out.'
          : error instanceof LinksUnreadable
            ? error.message
            : 'The upstream gave no answer that can be read.',
      };
  const observed = streamed?.passed.observed?.would ?? null;
  const style = streamed?.style ?? PLAIN_STYLE;
  const body = {
    decision: 'failed',
    tool: streamed?.passed.tool ?? null,
    agent_id: streamed?.passed.agentId ?? null,
    reason,
    did_it_happen: 'no',
    safe_to_retry: true,
    next: 'retry',
    links: { docs: `${ports.settings().publicUrl}/docs/errors/${reason.code}` },
    ...errorMembers(
      { decision: 'failed', status: 502, ...reason, docs: `${ports.settings().publicUrl}/docs/errors/${reason.code}` },
      style.errorFormat,
    ),
  };
  return {
    status: shownStatus(502, true, style),
    headers: {
      'content-type': 'application/json; charset=utf-8',
      'svc-decision': 'failed',
      'x-should-retry': 'true',
      'stripe-should-retry': 'true',
      ...(observed === null ? {} : { 'svc-observed': observed }),
    },
    body: JSON.stringify(body),
  };
}
