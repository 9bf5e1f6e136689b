import { setTimeout as sleep } from 'node:timers/promises';
import type { Readable, Writable } from 'node:stream';
import { once } from 'node:events';
import { printable } from '../../diagnostics/render.ts';
import { type Line, lineSplitter } from '../../json/lines.ts';
import { parseJson } from '../../json/parse.ts';
import { type Json, type JsonObject, isJsonObject } from '../../json/value.ts';
import { statelessVersion } from '../../mcp-protocol/revisions.ts';
import { readEvents, type StreamEnd } from './events.ts';
import { type Answer, NoAnswer, readText, Sender } from './http.ts';
import { type FromClient, type Id, mirrorHeaders, readMessage, ToolHeaders } from './message.ts';

/** Between whom the bridge stands. */
export interface BridgeSides {
  readonly url: URL;
  /** Reads the key anew: somebody may have put another one into its file. */
  readonly readKey: () => Promise<string>;
  /** What a person has to do when the key is refused. */
  readonly keyHint: string;
  readonly input: Readable;
  readonly output: Writable;
  /** A line for people, on standard error. */
  readonly say: (line: string) => void;
  /** Resolves when the process is told to end. */
  readonly stopped: Promise<void>;
}

/** Bytes of one message, in either direction. */
const MOST_MESSAGE = 16 * 1024 * 1024;
/** Requests of the client that may be open at once. Answers and notifications always pass: somebody waits for them. */
const MOST_OPEN = 256;
/** Bytes of requests that may be open at once. */
const MOST_OPEN_BYTES = 64 * 1024 * 1024;
/** How long a gateway that does not listen is asked again, ms. Nothing was sent meanwhile. */
const RECONNECT_MS = 15_000;
/** How long open requests may end after the end of the input, ms. Hosts kill after two seconds. */
const LAST_ANSWERS_MS = 1_000;
const GOODBYE_MS = 500;
/** How often a stream that broke is continued before its request gets an error. */
const MOST_RESUMES = 10;
const FIRST_WAIT_MS = 250;
const MOST_WAIT_MS = 15_000;

/** Requests that change nothing: they may be sent again when a connection broke. */
const SAFE: ReadonlySet<string> = new Set([
  'initialize',
  'ping',
  'server/discover',
  'tools/list',
  'prompts/list',
  'prompts/get',
  'resources/list',
  'resources/templates/list',
  'resources/read',
  'completion/complete',
  'subscriptions/listen',
  'tasks/get',
  'tasks/list',
]);

/** Codes of the bridge's own errors, from the range that JSON-RPC leaves to implementations. */
const CODE = { refused: -32_001, unreachable: -32_002, broken: -32_003, busy: -32_004, http: -32_005 } as const;

type Request = Extract<FromClient, { kind: 'request' }>;

interface Open {
  readonly message: Request;
  readonly body: Buffer;
  readonly abort: AbortController;
  readonly stateless: string | null;
  /** The client does not expect an answer any more. */
  isCancelled: boolean;
}

/** The session of the older era: it begins with `initialize`, and is begun anew where the server has forgotten it. */
interface Session {
  readonly id: string | null;
  readonly version: string | null;
}

const NOTHING_READ: StreamEnd = { lastId: null, retryMs: null };

/**
 * Carries MCP between standard input and output and a server over streamable HTTP, in both protocol eras. Each request
 * gets exactly one answer; nothing is written but messages of the protocol. Resolves when the input has ended.
 */
export async function runBridge(sides: BridgeSides): Promise<void> {
  const bridge = new Bridge(sides, await sides.readKey());
  await bridge.run();
}

class Bridge {
  readonly #sides: BridgeSides;
  readonly #sender: Sender;
  readonly #tools = new ToolHeaders();
  readonly #open = new Map<string, Open>();
  readonly #ending = new AbortController();
  #openBytes = 0;
  #key: string;
  #session: Session | null = null;
  #statelessVersion: string | null = null;
  /** The client's `initialize`, to begin a session anew. */
  #initialize: Buffer | null = null;
  #renewal: Promise<boolean> | null = null;
  #listening: AbortController | null = null;
  #isGone = false;
  /** Resolves when the client reads again. */
  #drained: Promise<void> | null = null;

  constructor(sides: BridgeSides, key: string) {
    this.#sides = sides;
    this.#key = key;
    this.#sender = new Sender(sides.url);
  }

  async run(): Promise<void> {
    const { input, output, stopped } = this.#sides;
    output.on('error', () => {
      // The client does not read any more: there is nobody to work for.
      this.#isGone = true;
      input.destroy();
    });
    void stopped.then(() => input.destroy());
    const split = lineSplitter(MOST_MESSAGE);
    try {
      for await (const chunk of input as AsyncIterable<Buffer>)
        for (const line of split(Buffer.from(chunk))) await this.#takeLine(line);
    } catch {
      // Destroyed above, or the other end broke: the end of the input, in any case.
    }
    await this.#end();
  }

  async #end(): Promise<void> {
    const until = Date.now() + LAST_ANSWERS_MS;
    while (!this.#isGone && Date.now() < until && this.#hasLastAnswers()) await sleep(20);
    this.#ending.abort();
    this.#listening?.abort();
    for (const { abort } of this.#open.values()) abort.abort();
    const id = this.#session?.id ?? null;
    if (id !== null) {
      const signal = AbortSignal.timeout(GOODBYE_MS);
      const headers = this.#headers(this.#session);
      const answer = await this.#sender.send({ method: 'DELETE', headers, body: null, signal }).catch(() => null);
      answer?.body.destroy();
    }
    this.#sender.close();
  }

  #hasLastAnswers(): boolean {
    return [...this.#open.values()].some(({ message }) => message.method !== 'subscriptions/listen');
  }

  async #takeLine(line: Line): Promise<void> {
    if (line.kind === 'too_long')
      return this.#refuse(null, -32_600, `A message has at most ${MOST_MESSAGE} bytes. This one was not sent.`);
    if (line.bytes.length === 0) return;
    const message = readMessage(line.bytes);
    switch (message.kind) {
      case 'refused':
        return this.#refuse(null, message.code, message.message);
      case 'request':
        return this.#takeRequest(message, line.bytes);
      case 'notification':
        return this.#takeNotification(message, line.bytes);
      case 'response':
        await this.#deliver(line.bytes, null, 'an answer');
        return;
      default:
        return message satisfies never;
    }
  }

  async #takeRequest(message: Request, body: Buffer): Promise<void> {
    const name = JSON.stringify(message.id);
    if (this.#open.has(name)) return this.#refuse(message.id, -32_600, 'A request with this id is still open.');
    if (this.#open.size >= MOST_OPEN || this.#openBytes + body.length > MOST_OPEN_BYTES)
      return this.#refuse(message.id, CODE.busy, 'Too many requests are open at once. This one was not sent.', {
        did_it_happen: 'no',
      });
    const stateless = statelessVersion(message.params);
    if (stateless !== null) this.#statelessVersion = stateless;
    const open: Open = { message, body, abort: new AbortController(), stateless, isCancelled: false };
    this.#open.set(name, open);
    this.#openBytes += body.length;
    const answered = this.#answer(open).finally(() => {
      this.#open.delete(name);
      this.#openBytes -= body.length;
    });
    // Whatever comes next belongs to the session that this begins.
    if (message.method === 'initialize') await answered;
  }

  async #takeNotification(
    { method, params }: Extract<FromClient, { kind: 'notification' }>,
    body: Buffer,
  ): Promise<void> {
    if (method === 'notifications/cancelled') {
      const open = this.#open.get(JSON.stringify(params['requestId'] ?? null));
      if (open !== undefined) open.isCancelled = true;
      // In the stateless era a request is cancelled by hanging up.
      if (open !== undefined && open.stateless !== null) return open.abort.abort();
    }
    // Awaited: what the client writes next may rely on it.
    const isTaken = await this.#deliver(body, statelessVersion(params), method);
    if (isTaken && method === 'notifications/initialized') this.#listen();
  }

  /** Sends what gets no answer. @returns whether the server took it */
  async #deliver(body: Buffer, stateless: string | null, what: string): Promise<boolean> {
    try {
      const answer = await this.#post(body, this.#versionHeaders(stateless), this.#ending.signal);
      answer.body.destroy();
      if (answer.status < 300) return true;
      this.#sides.say(`the server refused ${printable(what)} with status ${answer.status}`);
    } catch (error) {
      if (!this.#ending.signal.aborted) this.#sides.say(`${printable(what)} was not delivered: ${whyOf(error)}`);
    }
    return false;
  }

  /** Sends a request and sees to it that the client gets one answer, whatever happens. */
  async #answer(open: Open): Promise<void> {
    const { message, abort, stateless } = open;
    const mirrored = stateless === null ? {} : mirrorHeaders(message.method, message.params, this.#tools);
    try {
      for (let attempt = 0; ; attempt += 1) {
        const session = message.method === 'initialize' ? null : this.#session;
        const answer = await this.#post(
          open.body,
          { ...this.#versionHeaders(stateless, session), ...mirrored },
          abort.signal,
          SAFE.has(message.method),
        );
        // The session is unknown there, so the request did not run.
        if (answer.status === 404 && session?.id && attempt === 0 && (await this.#renewSession(session))) {
          answer.body.destroy();
          continue;
        }
        const isAnswered = await this.#take(open, answer);
        if (isAnswered || open.isCancelled || abort.signal.aborted) return;
        // A subscription holds nothing that a second one could repeat.
        if (message.method !== 'subscriptions/listen' || attempt >= MOST_RESUMES) break;
        await wait(attempt, null, abort.signal);
      }
      await this.#fail(open, CODE.broken, `The connection to ${this.#where()} broke before the answer.`);
    } catch (error) {
      if (open.isCancelled) return;
      const arrived = error instanceof NoAnswer ? error.mayHaveArrived : true;
      if (arrived) await this.#fail(open, CODE.broken, `No answer came from ${this.#where()}: ${whyOf(error)}.`);
      else
        await this.#refuse(message.id, CODE.unreachable, `${this.#where()} cannot be reached: ${whyOf(error)}.`, {
          did_it_happen: 'no',
          hint: 'Nothing was sent. Check that the gateway runs and that --url is right, then ask again.',
        });
    }
  }

  /** An error for a request that may have been carried out. */
  async #fail(open: Open, code: number, message: string): Promise<void> {
    if (open.isCancelled) return;
    const happened = SAFE.has(open.message.method) ? 'no' : 'unknown';
    const hint =
      happened === 'no'
        ? 'The request changes nothing. Ask again.'
        : 'Whether the call ran is not known. Through the gateway the same call with the same arguments joins the first one.';
    await this.#refuse(open.message.id, code, message, { did_it_happen: happened, hint });
  }

  /** Reads what the server says to a request. @returns whether the client has its answer */
  async #take(open: Open, answer: Answer): Promise<boolean> {
    const { message } = open;
    if (answer.status < 200 || answer.status > 299) {
      await this.#refuseAs(open, answer);
      return true;
    }
    const type = /^[^;\s]*/.exec(answer.headers['content-type'] ?? '')?.[0]?.toLowerCase();
    if (message.method === 'initialize') this.#begin(open.body, textOf(answer.headers['mcp-session-id']));
    if (type === 'text/event-stream') return this.#takeStream(open, answer);
    const text = await readText(answer.body, MOST_MESSAGE);
    if (text === null) return false;
    if (type === 'application/json' && (await this.#pass(text, open)) === message.id) return true;
    await this.#refuse(message.id, CODE.http, `${this.#where()} answered with something that is no answer of MCP.`, {
      http_status: answer.status,
      hint: 'Check that --url names an MCP server, for example http://127.0.0.1:8080/v1/mcp.',
    });
    return true;
  }

  /** Reads a stream to its end, and continues it where it broke and the server keeps it. */
  async #takeStream(open: Open, first: Answer): Promise<boolean> {
    let isAnswered = false;
    let answer: Answer | null = first;
    let end = NOTHING_READ;
    for (let resumed = 0; resumed <= MOST_RESUMES; resumed += 1) {
      if (answer !== null) {
        end = await readEvents(answer.body, MOST_MESSAGE, end, async (data) => {
          if ((await this.#pass(data, open)) === open.message.id) isAnswered = true;
        });
      }
      if (isAnswered || open.isCancelled || open.abort.signal.aborted || end.lastId === null) break;
      await wait(resumed, end.retryMs, open.abort.signal);
      answer = await this.#continue(end.lastId, open.abort.signal);
      // A server that does not have the stream any more says so, and does not change its mind.
      if (answer !== null && !isStream(answer)) {
        answer.body.destroy();
        break;
      }
    }
    return isAnswered;
  }

  async #continue(lastId: string, signal: AbortSignal): Promise<Answer | null> {
    const headers = { ...this.#headers(this.#session), accept: 'text/event-stream', 'last-event-id': lastId };
    return this.#sender.send({ method: 'GET', headers, body: null, signal }).catch(() => null);
  }

  /**
   * Passes a message of the server on, if the client may have it.
   * @returns the id, if the message was the answer to a request that waits
   */
  async #pass(text: string, open: Open | null): Promise<Id | null> {
    const value = parseJson(text);
    if (value === undefined || !isJsonObject(value)) {
      this.#sides.say('the server sent something that is no JSON-RPC message; it was dropped');
      return null;
    }
    const { id, method } = value;
    const isAnswer = typeof method !== 'string';
    const waits = isAnswer ? this.#open.get(JSON.stringify(id ?? null)) : undefined;
    if (isAnswer && waits === undefined) return null;
    if (waits?.message.method === 'tools/list') this.#tools.learn(value['result']);
    if (waits?.message.method === 'initialize' && waits === open) this.#agree(value['result']);
    // In JSON, line breaks stand between the parts of a value only.
    await this.#write(text.replaceAll(/[\r\n]+/g, ' '));
    return waits?.message.id ?? null;
  }

  #begin(initialize: Buffer, id: string | null): void {
    this.#initialize = initialize;
    this.#session = { id, version: null };
  }

  #agree(result: Json | undefined): void {
    const version = isJsonObject(result) ? result['protocolVersion'] : undefined;
    if (this.#session !== null && typeof version === 'string') this.#session = { ...this.#session, version };
  }

  /** Begins a session anew where the server has forgotten `lost`, without the client. @returns whether there is one */
  async #renewSession(lost: Session): Promise<boolean> {
    if (this.#session !== lost) return this.#session !== null;
    this.#renewal ??= this.#initializeAgain(lost).finally(() => {
      this.#renewal = null;
    });
    return this.#renewal;
  }

  async #initializeAgain(lost: Session): Promise<boolean> {
    if (this.#initialize === null) return false;
    this.#sides.say('the server has forgotten the session; beginning a new one');
    try {
      const answer = await this.#post(this.#initialize, {}, this.#ending.signal, true);
      const id = textOf(answer.headers['mcp-session-id']);
      // The client has an answer to its own `initialize`; this one is for nobody.
      const text = await (isStream(answer) ? firstMessage(answer) : readText(answer.body, MOST_MESSAGE));
      const value = text === null ? undefined : parseJson(text);
      if (answer.status > 299 || id === null || !isJsonObject(value) || !('result' in value)) return false;
      this.#session = { id, version: lost.version };
      const initialized = Buffer.from('{"jsonrpc":"2.0","method":"notifications/initialized"}');
      if (await this.#deliver(initialized, null, 'notifications/initialized')) this.#listen();
      return true;
    } catch {
      return false;
    }
  }

  /** Holds the stream open on which the server speaks first, if it has one. */
  #listen(): void {
    this.#listening?.abort();
    this.#listening = new AbortController();
    void this.#hear(AbortSignal.any([this.#listening.signal, this.#ending.signal]));
  }

  async #hear(signal: AbortSignal): Promise<void> {
    let end = NOTHING_READ;
    for (let attempt = 0; !signal.aborted; attempt += 1) {
      const session = this.#session;
      const again = end.lastId === null ? {} : { 'last-event-id': end.lastId };
      const headers = { ...this.#headers(session), accept: 'text/event-stream', ...again };
      const answer = await this.#sender.send({ method: 'GET', headers, body: null, signal }).catch(() => null);
      if (answer !== null && isStream(answer)) {
        const began = Date.now();
        end = await readEvents(answer.body, MOST_MESSAGE, end, async (data) => {
          await this.#pass(data, null);
        });
        // A server that ends each stream at once is not asked in a loop.
        if (Date.now() - began > MOST_WAIT_MS) attempt = 0;
      } else if (answer !== null) {
        answer.body.destroy();
        if (answer.status === 404 && session?.id) {
          // The new session has a stream of its own.
          await this.#renewSession(session);
          return;
        }
        if (answer.status < 500 && answer.status !== 429) return;
      }
      await wait(attempt, end.retryMs, signal);
    }
  }

  /**
   * Posts a message. A gateway that does not listen is asked again for a while: nothing was sent. A key that was refused
   * is read anew once.
   * @param isSafe whether it may be sent again although it may have arrived
   * @throws NoAnswer
   */
  async #post(
    body: Buffer,
    headers: Readonly<Record<string, string>>,
    signal: AbortSignal,
    isSafe = false,
  ): Promise<Answer> {
    const until = Date.now() + RECONNECT_MS;
    let isRepeated = false;
    for (let attempt = 0; ; attempt += 1) {
      const all = {
        ...this.#headers(null),
        accept: 'application/json, text/event-stream',
        'content-type': 'application/json',
        ...headers,
      };
      try {
        const answer = await this.#sender.send({ method: 'POST', headers: all, body, signal });
        if (answer.status !== 401 || !(await this.#hasNewKey())) return answer;
        answer.body.destroy();
      } catch (error) {
        const mayRepeat = error instanceof NoAnswer && (!error.mayHaveArrived || (isSafe && !isRepeated));
        if (!mayRepeat || signal.aborted || Date.now() > until) throw error;
        isRepeated ||= error.mayHaveArrived;
        await wait(attempt, null, signal);
      }
    }
  }

  async #hasNewKey(): Promise<boolean> {
    const key = await this.#sides.readKey().catch(() => this.#key);
    const isNew = key !== this.#key;
    this.#key = key;
    return isNew;
  }

  /** An error for an answer that is none of MCP; one that is, is passed on under the id of the request. */
  async #refuseAs(open: Open, answer: Answer): Promise<void> {
    const { id } = open.message;
    const { status } = answer;
    const text = (await readText(answer.body, MOST_MESSAGE)) ?? '';
    const body = parseJson(text);
    const said = isJsonObject(body) ? body : {};
    const isAuth = status === 401 || status === 403;
    const error = isJsonObject(said['error']) && typeof said['error']['code'] === 'number' ? said['error'] : null;
    if (error !== null && !isAuth) return this.#write(JSON.stringify({ jsonrpc: '2.0', id, error }));
    const detail = [error?.['message'], said['detail'], said['title']].find((one) => typeof one === 'string');
    const reason = typeof detail === 'string' ? `: ${detail.slice(0, 1_000)}` : '.';
    const retryAfter = textOf(answer.headers['retry-after']);
    const data: JsonObject = {
      http_status: status,
      ...(typeof said['code'] === 'string' && { code: said['code'] }),
      ...(retryAfter !== null && { retry_after: retryAfter }),
    };
    if (!isAuth) return this.#refuse(id, CODE.http, `${this.#where()} answered with status ${status}${reason}`, data);
    const hint =
      status === 401
        ? this.#sides.keyHint
        : 'The key is known, and may not do this. Ask an administrator for a key with the scopes that it takes.';
    await this.#refuse(id, CODE.refused, `${this.#where()} refused the key (status ${status})${reason}`, {
      ...data,
      did_it_happen: 'no',
      hint,
    });
  }

  async #refuse(id: Id | null, code: number, message: string, data?: JsonObject): Promise<void> {
    await this.#write(
      JSON.stringify({ jsonrpc: '2.0', id, error: { code, message, ...(data !== undefined && { data }) } }),
    );
  }

  /** Writes one line, and waits while the client does not read. */
  async #write(line: string): Promise<void> {
    const { output } = this.#sides;
    if (this.#isGone || output.write(`${line}\n`)) return;
    this.#drained ??= once(output, 'drain')
      .catch(() => {})
      .then(() => {
        this.#drained = null;
      });
    await this.#drained;
  }

  #headers(session: Session | null): Record<string, string> {
    return {
      authorization: `Bearer ${this.#key}`,
      ...(session !== null && session.id !== null && { 'mcp-session-id': session.id }),
      ...(session !== null && session.version !== null && { 'mcp-protocol-version': session.version }),
    };
  }

  /** Which revision and session a message belongs to. */
  #versionHeaders(stateless: string | null, session: Session | null = this.#session): Record<string, string> {
    const version = stateless ?? (session === null ? this.#statelessVersion : null);
    if (version !== null) return { 'mcp-protocol-version': version };
    return {
      ...(session !== null && session.id !== null && { 'mcp-session-id': session.id }),
      ...(session !== null && session.version !== null && { 'mcp-protocol-version': session.version }),
    };
  }

  #where(): string {
    return `${this.#sides.url.origin}${this.#sides.url.pathname}`;
  }
}

/** Waits longer each time, or as long as the server says. Ends early when the signal does. */
async function wait(attempt: number, retryMs: number | null, signal: AbortSignal): Promise<void> {
  const ms = retryMs ?? Math.min(MOST_WAIT_MS, FIRST_WAIT_MS * 2 ** attempt);
  await sleep(ms, undefined, { signal }).catch(() => {});
}

function isStream(answer: Answer): boolean {
  return answer.status === 200 && /^text\/event-stream\b/i.test(answer.headers['content-type'] ?? '');
}

/** The first message of a stream that is an answer. */
async function firstMessage(answer: Answer): Promise<string | null> {
  let found: string | null = null;
  await readEvents(answer.body, MOST_MESSAGE, NOTHING_READ, async (data) => {
    const value = parseJson(data);
    if (isJsonObject(value) && !('method' in value)) {
      found ??= data;
      answer.body.destroy();
    }
  });
  return found;
}

function textOf(value: string | readonly string[] | undefined): string | null {
  return typeof value === 'string' && value !== '' ? value : null;
}

function whyOf(error: unknown): string {
  return printable(error instanceof Error ? error.message : String(error));
}
