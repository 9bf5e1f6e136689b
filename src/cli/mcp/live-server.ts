import { parseJson } from '../../json/parse.ts';
import { parseStrictJson } from '../../json/strict.ts';
import { type JsonObject, isJsonObject } from '../../json/value.ts';
import type { Answered } from '../../mcp-protocol/begin.ts';
import { MOST_PAGES, MOST_TOOLS, readServer, type ServerLine, type Unread } from '../../mcp-protocol/read-server.ts';
import type { LiveServer } from '../../pins/compare.ts';
import { VERSION } from '../../version.ts';
import { CommandFailure } from '../ports.ts';
import { Allowance } from './bounds.ts';
import { NOTHING_READ, readEvents } from './events.ts';
import { NoAnswer, readText, Sender } from './http.ts';

/** Bytes of one answer. */
const MOST = 16 * 1024 * 1024;
const LIMITS = { depth: 128, values: 1_000_000, name: 10_000 };
const TIMEOUT_MS = 30_000;

/** The hint where no POST is accepted. */
const OLD =
  ' A server of 2024-11-05, whose address often ends in /sse, is declared with `transport: sse` and pinned with `svc tools pin --config`: docs/mcp.md.';

/** Where a server is, and with what it is asked. */
export interface ServerAddress {
  readonly url: URL;
  /** Headers of each request, such as `authorization`. */
  readonly headers: Readonly<Record<string, string>>;
}

interface CliAnswered extends Answered {
  readonly status: number;
  /** The answer to the request; `null` where there is none. */
  readonly message: JsonObject | null;
}

/**
 * What an MCP server says of itself now: its name, its instructions, and all pages of its tools, read strictly.
 * @throws CommandFailure
 */
export async function readLiveServer(address: ServerAddress): Promise<LiveServer> {
  const sender = new Sender(address.url);
  try {
    return await readServer(() => new Reader(address, sender), { name: 'svc', version: VERSION });
  } catch (error) {
    if (error instanceof NoAnswer) throw new CommandFailure(`${address.url.href} does not answer: ${error.message}`);
    throw error;
  } finally {
    sender.close();
  }
}

class Reader implements ServerLine<CliAnswered> {
  readonly #address: ServerAddress;
  readonly #sender: Sender;
  readonly #signal = AbortSignal.timeout(TIMEOUT_MS);

  constructor(address: ServerAddress, sender: Sender) {
    this.#address = address;
    this.#sender = sender;
  }

  ask(request: JsonObject & { readonly id: number }, headers: Readonly<Record<string, string>>): Promise<CliAnswered> {
    return this.#post(request, headers);
  }

  async notify(notification: JsonObject, headers: Readonly<Record<string, string>>): Promise<void> {
    await this.#post(notification, headers);
  }

  async #post(message: JsonObject, given: Readonly<Record<string, string>>): Promise<CliAnswered> {
    const { status, headers, body } = await this.#sender.send({
      method: 'POST',
      headers: {
        ...this.#address.headers,
        accept: 'application/json, text/event-stream',
        'content-type': 'application/json',
        ...given,
      },
      body: Buffer.from(JSON.stringify({ jsonrpc: '2.0', ...message })),
      signal: this.#signal,
    });
    const session = headers['mcp-session-id'];
    const answered = { status, session: typeof session === 'string' ? session : null };
    if (message['id'] === undefined) {
      body.destroy();
      return { ...answered, message: null, result: null };
    }
    const texts: string[] = [];
    const isIt = (text: string): boolean => {
      const value = parseJson(text);
      if (value === undefined) return text.includes('"result"');
      return isJsonObject(value) && !('method' in value) && value['id'] === message['id'];
    };
    const allowance = new Allowance(MOST);
    if (/^text\/event-stream\b/i.test(headers['content-type'] ?? ''))
      await readEvents(body, { most: MOST, allowance }, NOTHING_READ, async (data) => {
        if (!isIt(data)) return;
        texts.push(data);
        body.destroy();
      });
    else {
      const read = await readText(body, MOST, allowance);
      if (read.kind === 'text' && isIt(read.text)) texts.push(read.text);
    }
    const [text] = texts;
    const found = text === undefined ? null : this.#strict(text);
    return { ...answered, message: found, result: resultOf(status, found) };
  }

  /** What cannot be read in one way only cannot be pinned either. */
  #strict(text: string): JsonObject | null {
    const parsed = parseStrictJson(text, LIMITS);
    if (!parsed.ok)
      throw new CommandFailure(`${this.#address.url.href} answers with JSON that cannot be pinned: ${parsed.message}.`);
    return isJsonObject(parsed.value) ? parsed.value : null;
  }

  async end(given: Readonly<Record<string, string>>): Promise<void> {
    const headers = { ...this.#address.headers, ...given };
    const signal = AbortSignal.timeout(1_000);
    const answer = await this.#sender.send({ method: 'DELETE', headers, body: null, signal }).catch(() => null);
    answer?.body.destroy();
  }

  unread(why: Unread, answered: CliAnswered): CommandFailure {
    switch (why) {
      case 'not_begun':
      case 'not_listed':
        return this.#refused(answered);
      case 'endless':
        return new CommandFailure(`${this.#address.url.href} lists its tools on more than ${MOST_PAGES} pages.`);
      case 'too_many':
        return new CommandFailure(`${this.#address.url.href} lists more than ${MOST_TOOLS} tools.`);
    }
  }

  #refused({ status, message }: CliAnswered): CommandFailure {
    const error = isJsonObject(message?.['error']) ? message['error'] : {};
    const detail = typeof error['message'] === 'string' ? `: ${error['message'].slice(0, 500)}` : '';
    const hint =
      status === 401 || status === 403
        ? ' It wants a key, or another one: name the variable that holds it with --key-env.'
        : ` Is this the address of its MCP endpoint?${status === 404 || status === 405 ? OLD : ''}`;
    return new CommandFailure(
      `${this.#address.url.href} does not list its tools over MCP (status ${status})${detail}.${hint}`,
    );
  }
}

function resultOf(status: number, message: JsonObject | null): JsonObject | null {
  const result = message?.['result'];
  return status === 200 && isJsonObject(result) ? result : null;
}
