import type { IncomingMessage, ServerResponse } from 'node:http';
import type { FastifyReply, FastifyRequest } from 'fastify';
import type { RunResult } from '../effects/model/outcome.ts';
import { bytesSince, traceOf } from '../telemetry/access.ts';
import type { RunRequest } from '../effects/model/run-request.ts';
import { afterWait, type AnsweredRequest, answered, contextOf, linkedAnswer, type ProxyAnswer } from './answer.ts';
import { type Arrival, type Arrived, type Identities, knownOf, receive } from './arrival.ts';
import { bareRead, hasBody, paramsOf, type ReadRequest, readParams, runRequestOf, unread } from './governed.ts';
import { contentFault } from './read-content.ts';
import type { ProxyPorts, ProxySettings } from './ports.ts';
import { type ReadBody, takeBody } from '../bytes/gathered.ts';
import type { RouteTable, RuleMatch } from './route-table.ts';
import { judgeRead } from './streamed-read.ts';
import { type PassingDoor, passInPlace, type ReadCaller } from './streaming.ts';
import { isEventStream } from '../upstreams/http/events.ts';
import { takesFiles } from '../upstreams/http/request-template.ts';

/** The way past the router of the server, for what is plain. `src/api/front.ts` is it. */
export interface Front {
  take(handler: (request: IncomingMessage, response: ServerResponse, requestId: string) => void): void;
  route(request: IncomingMessage, response: ServerResponse, requestId: string, next: Continue): void;
  routed(request: IncomingMessage): { readonly next: Continue } | undefined;
  answer(response: ServerResponse, requestId: string, answer: ProxyAnswer): boolean;
  head(response: ServerResponse, requestId: string, answer: Omit<ProxyAnswer, 'body'>): void;
  answered(method: string, status: number, durationMs: number): void;
}

type Continue = (request: FastifyRequest, reply: FastifyReply) => void;

export interface UnroutedDoor extends PassingDoor {
  readonly ports: ProxyPorts;
  readonly front: Front;
  readonly identities: Identities;
  readonly table: () => RouteTable;
  /** Serves what does not go straight. It may have nothing of the body yet. */
  readonly proceed: (arrival: Arrival, request: FastifyRequest, reply: FastifyReply) => void;
  /** Answers a request that cannot be run as it was read. */
  readonly runRead: (
    request: FastifyRequest,
    reply: FastifyReply,
    arrived: Arrived,
    match: RuleMatch,
    read: ReadRequest,
  ) => void;
  readonly send: (reply: FastifyReply, answer: ProxyAnswer) => void;
}

/**
 * One call that came in before the router, from its arrival to its line in the log. It goes straight where it is plain: a
 * declared write whose body is read as a whole, and whose answer is too, or a read without a body that policy lets pass.
 * Whatever else it turns out to be goes to the router with what is known so far.
 */
export class UnroutedCall implements ReadCaller {
  readonly #door: UnroutedDoor;
  readonly #request: IncomingMessage;
  readonly response: ServerResponse;
  readonly #requestId: string;
  readonly #began = performance.now();
  #arrived: Arrived | null = null;
  /** What was answered, or the reply of the router that answers. */
  #answer: Pick<ProxyAnswer, 'headers'> | null = null;
  #reply: FastifyReply | null = null;

  constructor(door: UnroutedDoor, request: IncomingMessage, response: ServerResponse, requestId: string) {
    this.#door = door;
    this.#request = request;
    this.response = response;
    this.#requestId = requestId;
  }

  begin(): void {
    const { ports, identities, table } = this.#door;
    const request = this.#request;
    this.response.on('close', () => this.#over()).on('error', ignore);
    try {
      const arrival = receive(ports, identities, table(), request, request.socket.remoteAddress ?? '', this.#requestId);
      if (arrival instanceof Promise) arrival.then((arrived) => this.#arrive(arrived)).catch(this.#fail);
      else this.#arrive(arrival);
    } catch (error) {
      this.#fail(error);
    }
  }

  #arrive(arrival: Arrival): void {
    const { ports } = this.#door;
    const request = this.#request;
    if (arrival.kind === 'arrived') this.#arrived = arrival;
    const match = plainWriteOf(arrival);
    if (arrival.kind === 'arrived' && match === null && this.#passesRead(arrival)) return;
    if (arrival.kind !== 'arrived' || match === null || request.headers['content-encoding'] !== undefined) {
      this.#route((routed, reply) => this.#door.proceed(arrival, routed, reply));
      return;
    }
    if (!hasBody(request)) {
      // In a turn of its own: only then the parser says that the request is complete.
      Promise.resolve()
        .then(() => this.#run(arrival, match, paramsOf(ports, arrival, match, request, null)))
        .catch(this.#fail);
      return;
    }
    const type = contentFault(match, request.headers);
    const { bodyLimit, jsonLimits } = ports.settings();
    if (type !== null || Number(request.headers['content-length'] ?? 0) > bodyLimit) {
      this.#route((routed, reply) => this.#door.proceed(arrival, routed, reply));
      return;
    }
    takeBody(request, bodyLimit, (body) => this.#read(arrival, match, { bodyLimit, jsonLimits }, body));
  }

  /** @returns whether it is a read that is passed on; if not, nothing was done */
  #passesRead(arrived: Arrived): boolean {
    const { ports } = this.#door;
    const found = arrived.viaQuery ? null : bareRead(ports, arrived, this.#request);
    if (found?.read.kind !== 'read') return false;
    const judged = judgeRead(ports, arrived, found.match, this.#request, found.read);
    if (judged.kind !== 'stream') return false;
    passInPlace(this.#door, this, judged.read)?.catch(this.#fail);
    return true;
  }

  get request(): AnsweredRequest {
    return answered(this.#request, this.#requestId);
  }

  head(answer: Omit<ProxyAnswer, 'body'>): void {
    this.#answer = answer;
    this.#door.front.head(this.response, this.#requestId, answer);
  }

  stands(): boolean {
    return isEventStream(String(this.#headers()['content-type']));
  }

  #read(
    arrived: Arrived,
    match: RuleMatch,
    { bodyLimit, jsonLimits }: Pick<ProxySettings, 'bodyLimit' | 'jsonLimits'>,
    body: ReadBody,
  ): void {
    try {
      const read: ReadRequest | Promise<ReadRequest> =
        body.kind === 'body'
          ? readParams(this.#door.ports, arrived, match, this.#request, body.bytes, jsonLimits)
          : unread(body, bodyLimit);
      if (read instanceof Promise) read.then((whole) => this.#run(arrived, match, whole)).catch(this.#fail);
      else this.#run(arrived, match, read);
    } catch (error) {
      this.#fail(error);
    }
  }

  #run(arrived: Arrived, match: RuleMatch, read: ReadRequest): void {
    const { ports, runRead } = this.#door;
    if (read.kind !== 'read') {
      this.#route((request, reply) => runRead(request, reply, arrived, match, read));
      return;
    }
    const run = runRequestOf(ports, arrived, match, this.#request, read);
    if ('kind' in run) this.#route((request, reply) => runRead(request, reply, arrived, match, run));
    else ports.run(run).then((result) => this.#ran(arrived, run, result, null), this.#fail);
  }

  /** @param applied what was waited for; `null`: nothing */
  #ran(arrived: Arrived, run: RunRequest, result: RunResult, applied: string | null): void {
    const { ports } = this.#door;
    try {
      const isOver = applied !== null || result.kind === 'problem' || result.outcome.decision === 'committed';
      const held = isOver ? null : ports.preferredWait.hold(this.#request, this.response, run, result);
      if (held !== null) {
        held.became.then((became) => this.#ran(arrived, run, became, held.applied)).catch(this.#fail);
        return;
      }
      const answer = linkedAnswer(ports, result, contextOf(ports, this.#request, this.#requestId, arrived));
      if (answer instanceof Promise) answer.then((linked) => this.send(afterWait(linked, applied))).catch(this.#fail);
      else this.send(applied === null ? answer : afterWait(answer, applied));
    } catch (error) {
      this.#fail(error);
    }
  }

  send(answer: ProxyAnswer): void {
    this.#answer = answer;
    if (this.#door.front.answer(this.response, this.#requestId, answer)) return;
    this.#route((_request, reply) => this.#door.send(reply, answer));
  }

  #route(next: (request: FastifyRequest, reply: FastifyReply) => void): void {
    this.#door.front.route(this.#request, this.response, this.#requestId, (request, reply) => {
      this.#reply = reply;
      next(request, reply);
    });
  }

  readonly #fail = (error: unknown): void => {
    const cause = error instanceof Error ? error : new Error(String(error));
    if (this.#reply === null) this.#route((_request, reply) => void reply.send(cause));
    else void this.#reply.send(cause);
  };

  /** The line of the log and the counts, once the connection has taken the answer, or its caller has gone. */
  #over(): void {
    const { front, ports } = this.#door;
    const response = this.response;
    const { method = '', headers, socket } = this.#request;
    const durationMs = performance.now() - this.#began;
    const isWhole = response.writableFinished;
    if (isWhole) front.answered(method, response.statusCode, durationMs);
    if (ports.access === null) return;
    const known = knownOf(this.#arrived, this.#headers());
    const { workspace, agentId, tool, upstream, rpc, decision, effectId, authenticatedInMs, lasts } = known;
    const { bytesIn, bytesOut } = bytesSince(socket);
    // Every write comes here: spreads would cost 4 kB.
    ports.access({
      workspace,
      agentId,
      tool,
      upstream,
      rpc,
      authenticatedInMs,
      decision,
      effectId,
      lasts,
      requestId: this.#requestId,
      method,
      status: response.headersSent ? response.statusCode : 499,
      bytesIn,
      bytesOut,
      durationMs,
      traceId: traceOf(headers['traceparent']),
      cut: !isWhole,
    });
  }

  /** Of the answer, as far as there is one. */
  #headers(): Readonly<Record<string, number | string | readonly string[] | undefined>> {
    return this.#reply === null ? (this.#answer?.headers ?? {}) : this.#reply.getHeaders();
  }
}

/** The rule of a request that goes straight; `null` where it does not. */
function plainWriteOf(arrival: Arrival): RuleMatch | null {
  if (arrival.kind !== 'arrived' || arrival.viaQuery) return null;
  const { match } = arrival;
  if (match.kind !== 'rule' || match.tool.kind !== 'write' || match.tool.streams !== undefined) return null;
  return takesFiles(match.plan) ? null : match;
}

function ignore(): void {}
