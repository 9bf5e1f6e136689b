import type { IncomingMessage, Server, ServerResponse } from 'node:http';
import type { FastifyReply, FastifyRequest } from 'fastify';
import type { Socket } from 'node:net';
import { monitorEventLoopDelay } from 'node:perf_hooks';
import { endWith } from '../bytes/gathered.ts';
import { dropTheRest } from './listeners.ts';

interface WholeAnswer {
  readonly status: number;
  readonly headers: Readonly<Record<string, string | string[]>>;
  readonly body: Buffer | string;
}

interface Routed {
  readonly requestId: string;
  /** What goes on with the request once the router has it. */
  readonly next: (request: FastifyRequest, reply: FastifyReply) => void;
}

/** What the server knows of a request, and does for each of them; the same that the router's hooks know and do. */
interface FrontOptions {
  /** Whether the server would take this request, and nothing stands against it at this moment. */
  readonly isOverloaded: () => boolean;
  /** The answer to a request that is not served; `null` for one that is served nevertheless while it is {@link OVERLOADED}. */
  readonly refused: (request: IncomingMessage, requestId: string, why: string) => WholeAnswer | null;
  readonly admits: (request: IncomingMessage) => boolean;
  readonly newId: () => string;
  readonly isStopping: () => boolean;
  readonly shouldRetry: (status: number) => boolean;
  readonly answered: (method: string, status: number, durationMs: number) => void;
}

/**
 * Requests that a handler takes before the router does: routing, hooks and reply of the router cost a governed write a
 * tenth of its time, and a read a fifth. Only what is plain is offered; everything else, and what the handler gives back,
 * the router serves as ever, and whoever asks cannot tell the two apart.
 */
export class Front {
  readonly #options: FrontOptions;
  readonly #underWay: ReadonlyMap<Socket, number>;
  readonly #routed = new WeakMap<IncomingMessage, Routed>();
  readonly #route: (request: IncomingMessage, response: ServerResponse) => void;
  /** Connections of which no more requests are served. */
  readonly #ending = new WeakSet<Socket>();
  #take: ((request: IncomingMessage, response: ServerResponse, requestId: string) => void) | null = null;

  /**
   * @param server whose first listener for requests is the router
   * @param underWay how many requests of each connection wait for their answers, those counted that just arrive
   */
  constructor(server: Server, underWay: ReadonlyMap<Socket, number>, options: FrontOptions) {
    this.#underWay = underWay;
    this.#options = options;
    // Others that listen, such as the count of connections with a request under way, hear of each request.
    const [router, ...others] = server.listeners('request');
    this.#route = (request, response) => {
      if (router !== undefined) Reflect.apply(router, server, [request, response]);
    };
    server.removeAllListeners('request').on('request', (request, response) => {
      for (const other of others) Reflect.apply(other, server, [request, response]);
      this.#arrived(request, response);
    });
  }

  /** @param handler gets a request before anything of its body was read, with the id that its answer will have */
  take(handler: (request: IncomingMessage, response: ServerResponse, requestId: string) => void): void {
    this.#take = handler;
  }

  /** Gives a request that was taken to the router. Its handler has to continue with {@link routed}. */
  route(request: IncomingMessage, response: ServerResponse, requestId: string, next: Routed['next']): void {
    this.#routed.set(request, { requestId, next });
    this.#route(request, response);
  }

  /** What was given to the router with a request; `undefined` where it was never taken. */
  routed(request: IncomingMessage): Routed | undefined {
    return this.#routed.get(request);
  }

  /**
   * Writes an answer.
   * @returns whether that was possible; otherwise the router has to answer, which can write everything
   */
  answer(response: ServerResponse, requestId: string, answer: WholeAnswer): boolean {
    const { status, body } = answer;
    if (status < 200 || status === 204 || status === 304 || !isPlainType(answer)) return false;
    const headers = this.#headersOf(requestId, answer);
    headers['content-length'] = String(Buffer.byteLength(body));
    try {
      response.writeHead(status, headers);
    } catch {
      return false;
    }
    endWith(response, body);
    return true;
  }

  /**
   * Writes the head of an answer whose body the caller writes.
   * @throws where a header cannot be written
   */
  head(response: ServerResponse, requestId: string, answer: Omit<WholeAnswer, 'body'>): void {
    response.writeHead(answer.status, this.#headersOf(requestId, answer));
  }

  /** The headers of an answer, with those that every answer has. */
  #headersOf(requestId: string, answer: Omit<WholeAnswer, 'body'>): Record<string, string | string[]> {
    const headers: Record<string, string | string[]> = { 'x-request-id': requestId };
    for (const name in answer.headers) {
      const value = answer.headers[name];
      if (value !== undefined) headers[name] = value;
    }
    if (this.#options.isStopping()) headers['connection'] = 'close';
    if (answer.status >= 300) headers['x-should-retry'] ??= this.#options.shouldRetry(answer.status) ? 'true' : 'false';
    return headers;
  }

  /** Counts a request that was taken and is over. */
  answered(method: string, status: number, durationMs: number): void {
    this.#options.answered(method, status, durationMs);
  }

  /**
   * Node reads all requests that arrive together in one turn. Beyond so many of a connection one is refused, those after
   * it are not served, and the connection ends with the answers to those before.
   */
  mayServe(request: IncomingMessage, response: ServerResponse): boolean {
    const { socket } = request;
    if (this.#ending.has(socket)) return false;
    if ((this.#underWay.get(socket) ?? 0) <= MOST_PIPELINED) return true;
    this.#ending.add(socket);
    dropTheRest(socket);
    response.setHeader('connection', 'close');
    return !this.#refused(request, response, PIPELINED);
  }

  #refused(request: IncomingMessage, response: ServerResponse, why: string): boolean {
    const answer = this.#options.refused(request, this.#options.newId(), why);
    if (answer === null) return false;
    const length = String(Buffer.byteLength(answer.body));
    response.writeHead(answer.status, { ...answer.headers, 'content-length': length }).end(answer.body);
    this.#options.answered(request.method ?? '', answer.status, 0);
    return true;
  }

  #arrived(request: IncomingMessage, response: ServerResponse): void {
    if (!this.mayServe(request, response)) return;
    if (this.#options.isOverloaded() && this.#refused(request, response, OVERLOADED)) return;
    if (this.#take === null || !isPlain(request) || !this.#options.admits(request)) this.#route(request, response);
    else this.#take(request, response, this.#options.newId());
  }
}

/** Requests of one connection that wait for their answers at the same time. */
const MOST_PIPELINED = 32;
export const OVERLOADED = 'The gateway is overloaded. Nothing was done with this request.';
const PIPELINED =
  'Too many requests of this connection wait for their answers. Nothing was done with this one or those after it.';

const METHODS: ReadonlySet<string> = new Set(['DELETE', 'GET', 'PATCH', 'POST', 'PUT']);
/** An address whose path the router would not decode. */
const ADDRESS = /^\/[^%?#]*(?:\?[^#]*)?$/;
const TYPE = /^[\w!#$%&'*+.^`|~-]+\/[\w!#$%&'*+.^`|~-]+(?:;|$)/;

/** Whether the router would find no fault in the head of a request, and no reason to change an answer to it. */
function isPlain({ method = '', url = '', headers }: IncomingMessage): boolean {
  if (!METHODS.has(method) || !ADDRESS.test(url)) return false;
  const type = headers['content-type'];
  return (type === undefined || TYPE.test(type)) && headers['sec-fetch-dest'] === undefined;
}

/** Whether the router would send a body under the type that the answer names. */
function isPlainType({ headers, body }: WholeAnswer): boolean {
  const type = headers['content-type'];
  if (typeof type !== 'string') return false;
  return typeof body === 'string' ? type === 'application/json; charset=utf-8' : TYPE.test(type);
}

/** Requests are refused if the event loop was late by this much on average over a second, ms. One long pause is no overload. */
const MAX_EVENT_LOOP_DELAY_MS = 750;
/** Connections with a request under way beyond which requests are refused as soon as the event loop is {@link LATE_MS} late. */
const MOST_WHILE_LATE = 128;
/** How late the event loop is, or how long it takes up new requests in one turn, for it to be late, ms. */
const LATE_MS = 100;
/** A request has this long to arrive, and the next look at those that did not, ms. */
const LATE_REMEMBERED_MS = 15_000;
/** Samples of the first two seconds are ignored, ms: they measure the start-up work, not load. */
const MEASURED_AFTER_MS = 2_000;
const SAMPLE_MS = 1_000;
const RESOLUTION_MS = 10;

/**
 * Whether the process has more work than it can do.
 * Measures how late the event loop runs. It opens no file, so it works even if the process has no descriptors left.
 * @param underWay connections with a request under way
 */
export function measureOverload(underWay: { readonly size: number }) {
  const histogram = monitorEventLoopDelay({ resolution: RESOLUTION_MS });
  histogram.enable();
  let delay = 0;
  let startedAt = performance.now();
  /** When the delay was last beyond what is borne. */
  let lateAt = Number.NEGATIVE_INFINITY;
  const timer = setInterval(() => {
    const { mean } = histogram;
    // No sample in a second means that the loop was blocked for the whole second.
    delay = Number.isNaN(mean) ? Number.POSITIVE_INFINITY : mean / 1e6 - RESOLUTION_MS;
    if (delay > LATE_MS) lateAt = performance.now();
    histogram.reset();
  }, SAMPLE_MS).unref();

  /** The turn of the event loop that takes up requests beyond {@link MOST_WHILE_LATE}: since when, and until when it is late. */
  let turnBegan: number | null = null;
  let lateUntil = Number.NEGATIVE_INFINITY;
  const takesLong = (now: number): boolean => {
    if (turnBegan === null) {
      turnBegan = now;
      setImmediate(() => (turnBegan = null));
    } else if (now - turnBegan > LATE_MS) lateUntil = now + SAMPLE_MS;
    return now < lateUntil;
  };

  return {
    /**
     * Whether a request that arrives now is to be refused. What was accepted before it is then carried through: all of
     * them together would be slower than callers wait, and none would come to its end.
     */
    isOverloaded(): boolean {
      if (underWay.size < MOST_WHILE_LATE && delay <= MAX_EVENT_LOOP_DELAY_MS) return false;
      const now = performance.now();
      if (now - startedAt <= MEASURED_AFTER_MS) return false;
      return delay > MAX_EVENT_LOOP_DELAY_MS || takesLong(now) || delay > LATE_MS;
    },
    /** Whether the event loop was late for so long that a request may have waited unread. */
    wasLate: (): boolean => performance.now() - lateAt < LATE_REMEMBERED_MS,
    /** Earlier samples belong to the start. */
    started: (): void => {
      startedAt = performance.now();
    },
    close: (): void => {
      clearInterval(timer);
      histogram.disable();
    },
  };
}
