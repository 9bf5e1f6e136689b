import { setTimeout as sleep } from 'node:timers/promises';
import type { Readable, Writable } from 'node:stream';
import { printable } from '../../../src/diagnostics/render.ts';
import { type Line, lineSplitter } from '../../../src/bytes/lines.ts';
import { type Json, type JsonObject, isJsonObject } from '../../../src/json/value.ts';
import { parseJson } from '../../../src/json/text.ts';
import { statelessVersion } from '../../../src/mcp-protocol/revisions.ts';
import { Allowance, sparing } from '../../../src/cli/mcp/bounds.ts';
import { firstAnswer, NOTHING_READ, readEvents } from '../../../src/cli/mcp/events.ts';
import {
  type Answer,
  headerText,
  isStream,
  NoAnswer,
  readText,
  type Session,
  sessionHeaders,
} from '../../../src/cli/mcp/http.ts';
import { ClientOutput } from './client-output.ts';
import { LineQueue } from './line-queue.ts';
import {
  changesNothing,
  earlierOf,
  type FromClient,
  headerVersion,
  isAnswer,
  mirrorHeaders,
  readMessage,
  type Request,
  ToolHeaders,
  withoutUnsendable,
} from './message.ts';
import { CODE, refusalOf } from './refusal.ts';
import {
  Server,
  backoff,
  DELIVERY_MS,
  LAST_ANSWERS_MS,
  LAST_WORDS_MS,
  LINGER_MS,
  MOST_WAIT_MS,
  TURN_MS,
  until,
  wait,
} from './server.ts';

export interface BridgeSides {
  readonly url: URL;
  /** Reads the key anew: somebody may have put another one into its file. */
  readonly readKey: () => Promise<string>;
  /** What a person has to do when the key is refused. */
  readonly keyHint: string;
  readonly input: Readable;
  readonly output: Writable;
  /** A line for people, on standard error. */
  readonly log: (line: string) => void;
  /** Resolves when the process is told to end. */
  readonly stopped: Promise<void>;
}

/** Bytes of one message, in either direction. */
const MOST_MESSAGE = 16 * 1024 * 1024;
/** Requests of the client that may be open at once. Answers and notifications always pass: somebody waits for them. */
const MOST_OPEN = 256;
/** Bytes of requests that may be open at once. */
const MOST_OPEN_BYTES = 64 * 1024 * 1024;
/** Bytes of lines that wait for those before them: only `initialize` and messages without an answer are waited for. */
const MOST_WAITING_BYTES = 32 * 1024 * 1024;
/** Bytes of messages of the server that are not whole yet. */
const MOST_ARRIVING_BYTES = 128 * 1024 * 1024;
/** How often a stream that broke is continued without any new event before its request gets an error. */
const MOST_RESUMES = 10;

const TOO_MUCH = 'Too many requests are open at once. This one was not sent.';

interface Open {
  readonly message: Request;
  readonly body: Buffer;
  readonly abort: AbortController;
  readonly stateless: string | null;
  /** The client has its answer, or does not expect one any more. */
  isSettled: boolean;
}

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
  readonly #server: Server;
  readonly #client: ClientOutput;
  readonly #tools = new ToolHeaders();
  readonly #open = new Map<string, Open>();
  readonly #ending = new AbortController();
  readonly #waiting = new LineQueue(MOST_WAITING_BYTES);
  readonly #arriving = { most: MOST_MESSAGE, allowance: new Allowance(MOST_ARRIVING_BYTES) };
  readonly #log: (line: string) => void;
  #openBytes = 0;
  #session: Session | null = null;
  #statelessVersion: string | null = null;
  /** The client's `initialize`, to begin a session anew. */
  #initialize: Buffer | null = null;
  #renewal: Promise<boolean> | null = null;
  #listening: AbortController | null = null;

  constructor(sides: BridgeSides, key: string) {
    this.#sides = sides;
    this.#server = new Server(sides.url, key, sides.readKey);
    this.#client = new ClientOutput(sides.output);
    this.#log = sparing(sides.log);
  }

  async run(): Promise<void> {
    const { input, stopped } = this.#sides;
    const over = Promise.race([this.#client.gone, stopped]);
    void over.then(() => input.destroy());
    const work = this.#takeLines();
    const split = lineSplitter(MOST_MESSAGE);
    try {
      for await (const chunk of input as AsyncIterable<Buffer>)
        for (const line of split(Buffer.from(chunk))) {
          // A client that does not read its answers is not read either.
          let isHeld = this.#waiting.push(line);
          while (!isHeld && this.#client.drained !== null && !input.destroyed) {
            await Promise.race([this.#client.drained, over]);
            isHeld = this.#waiting.push(line);
          }
          if (!isHeld) await Promise.race([this.#dropLine(line), over]);
        }
    } catch {
      // Destroyed above, or the other end broke: the end of the input, in any case.
    }
    this.#waiting.close();
    await this.#end(work);
  }

  async #takeLines(): Promise<void> {
    for await (const line of this.#waiting.lines()) await this.#takeLine(line);
  }

  /** @param work what is done with the lines that are left */
  async #end(work: Promise<void>): Promise<void> {
    let isWorking = true;
    void work.finally(() => {
      isWorking = false;
    });
    // A subscription goes on until it is ended.
    const isAnswered = (): boolean =>
      [...this.#open.values()].every(({ message }) => message.method === 'subscriptions/listen');
    await until(() => this.#client.isGone || (!isWorking && isAnswered()), LAST_ANSWERS_MS);
    this.#ending.abort();
    this.#listening?.abort();
    for (const { abort } of this.#open.values()) abort.abort();
    await until(() => this.#client.isGone || (!isWorking && this.#open.size === 0), LAST_WORDS_MS);
    await this.#server.endSession(this.#session);
    this.#server.close();
  }

  /** A line that comes while too many wait. */
  async #dropLine(line: Line): Promise<void> {
    const message = line.kind === 'line' ? readMessage(line.bytes) : null;
    if (message?.kind === 'request') return this.#client.refuseUnsent(message, CODE.busy, TOO_MUCH);
    this.#log('too many lines wait for the server; one was dropped');
  }

  async #takeLine(line: Line): Promise<void> {
    if (line.kind === 'too_long')
      return this.#client.refuse(null, -32_600, `A message has at most ${MOST_MESSAGE} bytes. This one was not sent.`);
    if (line.bytes.length === 0) return;
    const message = readMessage(line.bytes);
    switch (message.kind) {
      case 'refused':
        return this.#client.refuse(null, message.code, message.message);
      case 'request':
        return this.#takeRequest(message, line.bytes);
      case 'notification':
        return this.#takeNotification(message, line.bytes);
      case 'response':
        await this.#deliver(line.bytes, null, 'an answer', TURN_MS);
        return;
      default:
        return message satisfies never;
    }
  }

  async #takeRequest(message: Request, body: Buffer): Promise<void> {
    const name = JSON.stringify(message.id);
    if (this.#open.has(name)) return this.#client.refuse(message.id, -32_600, 'A request with this id is still open.');
    if (this.#ending.signal.aborted)
      return this.#client.refuseUnsent(message, CODE.unreachable, 'The bridge ends. This one was not sent.');
    if (this.#open.size >= MOST_OPEN || this.#openBytes + body.length > MOST_OPEN_BYTES)
      return this.#client.refuseUnsent(message, CODE.busy, TOO_MUCH);
    const stateless = headerVersion(statelessVersion(message.params) ?? undefined);
    if (stateless !== null) this.#statelessVersion = stateless;
    const open: Open = { message, body, abort: new AbortController(), stateless, isSettled: false };
    this.#open.set(name, open);
    this.#openBytes += body.length;
    const answered = this.#answer(open).finally(() => this.#settle(open));
    // Whatever comes next belongs to the session that this begins.
    if (message.method === 'initialize') await answered;
  }

  /**
   * Every answer passes here first, and every request only once.
   * @returns whether the client still expects an answer
   */
  #settle(open: Open): boolean {
    if (open.isSettled) return false;
    open.isSettled = true;
    this.#open.delete(JSON.stringify(open.message.id));
    this.#openBytes -= open.body.length;
    const { abort } = open;
    setTimeout(() => abort.abort(), LINGER_MS).unref();
    return true;
  }

  async #takeNotification(
    { method, params }: Extract<FromClient, { kind: 'notification' }>,
    body: Buffer,
  ): Promise<void> {
    if (method === 'notifications/cancelled') {
      const open = this.#open.get(JSON.stringify(params['requestId'] ?? null));
      if (open !== undefined) this.#settle(open);
      // In the stateless era a request is cancelled by hanging up.
      if (open !== undefined && open.stateless !== null) return open.abort.abort();
    }
    // What the client writes next may rely on it.
    const stateless = headerVersion(statelessVersion(params) ?? undefined);
    const isTaken = await this.#deliver(body, stateless, method, TURN_MS);
    if (isTaken && method === 'notifications/initialized') this.#listen();
  }

  /**
   * Sends what gets no answer.
   * @param turnMs how long it is waited for. A server that is slower, or silent, holds up nothing else
   * @returns whether the server took it; what is not known yet counts as taken
   */
  async #deliver(body: Buffer, stateless: string | null, what: string, turnMs: number): Promise<boolean> {
    const given = new AbortController();
    const abort = (): void => given.abort();
    const timer = setTimeout(abort, DELIVERY_MS);
    this.#ending.signal.addEventListener('abort', abort);
    if (this.#ending.signal.aborted) abort();
    const taken = this.#tell(body, stateless, what, given.signal).finally(() => {
      clearTimeout(timer);
      this.#ending.signal.removeEventListener('abort', abort);
    });
    const turn = new AbortController();
    const isTaken = await Promise.race([taken, sleep(turnMs, true, { signal: turn.signal }).catch(() => true)]);
    turn.abort();
    return isTaken;
  }

  async #tell(body: Buffer, stateless: string | null, what: string, signal: AbortSignal): Promise<boolean> {
    try {
      const answer = await this.#server.post(body, this.#versionHeaders(stateless), signal);
      answer.body.destroy();
      if (answer.status < 300) return true;
      this.#log(`the server refused ${printable(what)} with status ${answer.status}`);
    } catch (error) {
      if (!this.#ending.signal.aborted) this.#log(`${printable(what)} was not delivered: ${whyOf(error)}`);
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
        const answer = await this.#server.post(
          open.body,
          { ...this.#versionHeaders(stateless, session), ...mirrored },
          abort.signal,
          changesNothing(message.method),
        );
        // The session is unknown there, so the request did not run.
        if (answer.status === 404 && session?.id && attempt === 0 && (await this.#renewSession(session))) {
          answer.body.destroy();
          continue;
        }
        const began = Date.now();
        await this.#take(open, answer);
        if (open.isSettled) return;
        if (abort.signal.aborted) break;
        // A subscription holds nothing that a second one could repeat.
        if (message.method !== 'subscriptions/listen' || attempt >= MOST_RESUMES) break;
        if (Date.now() - began > MOST_WAIT_MS) attempt = 0;
        await wait(attempt, null, abort.signal);
      }
      await this.#fail(open, CODE.broken, `The connection to ${this.#server.where} broke before the answer.`);
    } catch (error) {
      if (open.isSettled) return;
      const arrived = error instanceof NoAnswer ? error.mayHaveArrived : true;
      if (arrived) await this.#fail(open, CODE.broken, `No answer came from ${this.#server.where}: ${whyOf(error)}.`);
      else
        await this.#refuseOpen(open, CODE.unreachable, `${this.#server.where} cannot be reached: ${whyOf(error)}.`, {
          did_it_happen: earlierOf(message.method).happened,
          hint: `This one was not sent.${earlierOf(message.method).sentence} Check that the gateway runs and that --url is right, then ask again.`,
        });
    }
  }

  /** An error for a request that may have been carried out. */
  async #fail(open: Open, code: number, message: string): Promise<void> {
    const { happened } = earlierOf(open.message.method);
    const hint =
      happened === 'no'
        ? 'The request changes nothing. Ask again.'
        : 'Whether the call ran is not known. Through the gateway the same call with the same arguments joins the first one.';
    await this.#refuseOpen(open, code, message, { did_it_happen: happened, hint });
  }

  /** Reads what the server says to a request, to its end. Without an answer in it, the request stays open. */
  async #take(open: Open, answer: Answer): Promise<void> {
    const { message } = open;
    if (answer.status < 200 || answer.status > 299) return this.#refuseAs(open, answer);
    if (message.method === 'initialize') this.#begin(open.body, headerText(answer.headers['mcp-session-id']));
    if (isStream(answer)) return this.#takeStream(open, answer);
    const read = await readText(answer.body, MOST_MESSAGE, this.#arriving.allowance);
    if (read.kind === 'too_long') return this.#failAsTooLong(open);
    if (read.kind === 'broken') return;
    const type = /^[^;\s]*/.exec(answer.headers['content-type'] ?? '')?.[0]?.toLowerCase();
    if (type === 'application/json') await this.#pass(read.text, open);
    await this.#refuseOpen(open, CODE.http, `${this.#server.where} answered with something that is no answer of MCP.`, {
      http_status: answer.status,
      hint: 'Check that --url names an MCP server, for example http://127.0.0.1:8080/v1/mcp.',
    });
  }

  /** Reads a stream to its end, and continues it where it broke and the server keeps it. */
  async #takeStream(open: Open, first: Answer): Promise<void> {
    const { signal } = open.abort;
    let answer: Answer | null = first;
    let end = NOTHING_READ;
    for (let resumed = 0; resumed <= MOST_RESUMES; resumed += 1) {
      if (answer !== null) {
        const { lastId } = end;
        end = await readEvents(answer.body, this.#arriving, end, (data) => this.#pass(data, open));
        // Servers that let their clients poll end each stream, and have said something in it.
        if (end.lastId !== lastId) resumed = 0;
      }
      if (open.isSettled || signal.aborted || end.lastId === null) return;
      if (end.isTooLong) break;
      await wait(resumed, end.retryMs, signal);
      answer = await this.#server.listen(this.#session, end.lastId, signal);
      // A server that does not have the stream any more says so, and does not change its mind.
      if (answer !== null && !isStream(answer)) {
        answer.body.destroy();
        return;
      }
    }
    if (end.isTooLong) await this.#failAsTooLong(open);
  }

  #failAsTooLong(open: Open): Promise<void> {
    const most = `more than ${MOST_MESSAGE} bytes, or more than fits beside other answers`;
    return this.#fail(open, CODE.broken, `${this.#server.where} answered with ${most}.`);
  }

  /** Passes a message of the server on, if the client may have it. @param open on whose stream it came */
  async #pass(text: string, open: Open | null): Promise<void> {
    const value = parseJson(text);
    if (value === undefined || !isJsonObject(value)) {
      this.#log('the server sent something that is no JSON-RPC message; it was dropped');
      return;
    }
    const { id, method } = value;
    let sendable: string | null = null;
    if (typeof method !== 'string') {
      const waits = this.#open.get(JSON.stringify(id ?? null));
      if (waits === undefined) return;
      if (!isAnswer(value))
        return this.#refuseOpen(
          waits,
          CODE.http,
          `${this.#server.where} answered with something that is no answer of MCP.`,
        );
      if (!this.#settle(waits)) return;
      if (waits.message.method === 'tools/list') {
        this.#tools.learn(value['result']);
        if (statelessVersion(waits.message.params) !== null) sendable = withoutUnsendable(value, this.#log);
      }
      if (waits.message.method === 'initialize' && waits === open) this.#agree(value['result']);
    }
    // In JSON, line breaks stand between the parts of a value only.
    await this.#client.write((sendable ?? text).replaceAll(/[\r\n]+/g, ' '));
  }

  #begin(initialize: Buffer, id: string | null): void {
    const before = this.#session;
    this.#initialize = initialize;
    this.#session = { id, version: null };
    if (before !== null && before.id !== id) void this.#server.endSession(before);
  }

  #agree(result: Json | undefined): void {
    const version = headerVersion(isJsonObject(result) ? result['protocolVersion'] : undefined);
    if (this.#session !== null && version !== null) this.#session = { ...this.#session, version };
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
    this.#log('the server has forgotten the session; beginning a new one');
    try {
      const answer = await this.#server.post(this.#initialize, {}, this.#ending.signal, true);
      const id = headerText(answer.headers['mcp-session-id']);
      // The client has an answer to its own `initialize`; this one is for nobody.
      const text = await (isStream(answer)
        ? firstAnswer(answer.body, this.#arriving)
        : readText(answer.body, MOST_MESSAGE, this.#arriving.allowance));
      const value = text.kind === 'text' ? parseJson(text.text) : undefined;
      if (answer.status > 299 || id === null || !isJsonObject(value) || !('result' in value)) return false;
      this.#session = { id, version: lost.version };
      const initialized = Buffer.from('{"jsonrpc":"2.0","method":"notifications/initialized"}');
      if (await this.#deliver(initialized, null, 'notifications/initialized', DELIVERY_MS)) this.#listen();
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
      const { key } = this.#server;
      const answer = await this.#server.listen(session, end.lastId, signal);
      if (answer !== null && isStream(answer)) {
        const began = Date.now();
        end = await readEvents(answer.body, this.#arriving, end, (data) => this.#pass(data, null));
        // A server that ends each stream at once is not asked in a loop.
        if (Date.now() - began > MOST_WAIT_MS) attempt = 0;
      } else if (answer !== null) {
        answer.body.destroy();
        if (answer.status === 404 && session?.id) {
          // The new session has a stream of its own.
          await this.#renewSession(session);
          return;
        }
        const mayChange = answer.status >= 500 || answer.status === 429;
        if (!mayChange && !(answer.status === 401 && (await this.#server.hasNewKey(key)))) return;
      }
      await wait(attempt, Math.max(backoff(attempt), end.retryMs ?? 0), signal);
    }
  }

  /** An error for an answer that is none of MCP; one that is, is passed on under the id of the request. */
  async #refuseAs(open: Open, { status, headers, body }: Answer): Promise<void> {
    const read = await readText(body, MOST_MESSAGE, this.#arriving.allowance);
    const text = read.kind === 'text' ? read.text : '';
    const error = refusalOf(
      { where: this.#server.where, status, headers, text },
      open.message.method,
      this.#server.key,
      this.#sides.keyHint,
    );
    const line = JSON.stringify({ jsonrpc: '2.0', id: open.message.id, error });
    if (this.#settle(open)) await this.#client.write(line);
  }

  async #refuseOpen(open: Open, code: number, message: string, data?: JsonObject): Promise<void> {
    if (this.#settle(open)) await this.#client.refuse(open.message.id, code, message, data);
  }

  /** Which revision and session a message belongs to. */
  #versionHeaders(stateless: string | null, session: Session | null = this.#session): Record<string, string> {
    const version = stateless ?? (session === null ? this.#statelessVersion : null);
    return version === null ? sessionHeaders(session) : { 'mcp-protocol-version': version };
  }
}

function whyOf(error: unknown): string {
  return printable(error instanceof Error ? error.message : String(error));
}
