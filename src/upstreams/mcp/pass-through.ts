import { Readable } from 'node:stream';
import { isJsonObject, type JsonObject } from '../../json/value.ts';
import { headersOf, type McpUpstream, withOwn } from './mcp-upstream.ts';
import { type McpRequest, open } from './open.ts';
import { serverEvents } from './server-events.ts';
import { readStrictly, wholeOf } from './whole-answer.ts';

/** An answer that goes on as it comes. */
export type Passed =
  | {
      readonly kind: 'answer';
      readonly status: number;
      readonly headers: Readonly<Record<string, string | readonly string[]>>;
      readonly body: Readable;
    }
  | { readonly kind: 'failed'; readonly message: string };

/** How the answer to one request is changed on its way. */
export interface Change {
  readonly id: string | number;
  readonly change: (answer: JsonObject) => JsonObject;
}

const LIMITS = { depth: 128, values: 200_000, name: 10_000 };

/** Passes a request on to a server, and its answer back. Streams flow; nothing of them is held. */
export async function passThrough(
  upstream: McpUpstream,
  request: McpRequest,
  signal: AbortSignal,
  changed: Change | null,
): Promise<Passed> {
  const headers = withOwn(upstream.settings, request.headers);
  const opened = await open(upstream.through, { ...request, headers }, { gate: () => 'go', signal, now: upstream.now });
  if (opened.kind !== 'answer')
    return { kind: 'failed', message: opened.kind === 'held_back' ? 'the caller has gone' : opened.message };
  const { status, body } = opened;
  const type = String(opened.headers['content-type'] ?? '');
  if (changed === null || status !== 200) return { kind: 'answer', status, headers: headersOf(opened.headers), body };
  const { 'content-length': _length, ...passed } = headersOf(opened.headers);
  const most = upstream.limits.responseBytes;
  const pieces = /^text\/event-stream\b/i.test(type)
    ? changedEvents(body, changed, most)
    : changedWhole(body, changed, most);
  const made = Readable.from(pieces, { objectMode: false });
  made.once('close', () => body.destroy());
  return { kind: 'answer', status, headers: passed, body: made };
}

async function* changedEvents(body: Readable, changed: Change, most: number): AsyncGenerator<Buffer> {
  for await (const event of serverEvents(body, most)) {
    const message = event.data === null ? null : await answerIn(Buffer.from(event.data), changed);
    yield message === null
      ? event.bytes
      : Buffer.from(`${event.beside}data: ${JSON.stringify(changed.change(message))}\n\n`);
  }
}

async function* changedWhole(body: Readable, changed: Change, most: number): AsyncGenerator<Buffer> {
  const message = await answerIn(await wholeOf(body, most), changed);
  // What is not read in one way only would pass unseen.
  if (message === null) throw new Error('the answer is not the answer to the request');
  yield Buffer.from(JSON.stringify(changed.change(message)));
}

/** The answer to the request; `null` if it is another message. @throws Error where it reads in more than one way */
async function answerIn(text: Buffer, { id }: Change): Promise<JsonObject | null> {
  if (text.byteLength === 0) return null;
  const parsed = await readStrictly(text, LIMITS);
  if (!parsed.ok) throw new Error(`the answer is not strict JSON: ${parsed.message}`);
  const { value } = parsed;
  return isJsonObject(value) && value['method'] === undefined && value['id'] === id ? value : null;
}
