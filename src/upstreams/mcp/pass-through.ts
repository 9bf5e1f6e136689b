import { Readable } from 'node:stream';
import type { JsonObject } from '../../json/value.ts';
import { jsonInSlices } from '../../json/write.ts';
import { ownedStream } from '../owned-stream.ts';
import { headersOf, type McpUpstream, withOwn } from './mcp-upstream.ts';
import { type McpRequest, open } from './open.ts';
import { type Guarded, guarded, isPacked } from './own-addresses.ts';
import { eventOf, serverEvents } from './server-events.ts';
import { wholeOf } from './whole-answer.ts';

export type Passed =
  | {
      readonly kind: 'answer';
      readonly status: number;
      readonly headers: Readonly<Record<string, string | readonly string[]>>;
      readonly body: Readable;
    }
  | { readonly kind: 'failed'; readonly message: string };

export interface Change {
  readonly id: string | number;
  readonly change: (answer: JsonObject) => JsonObject | Promise<JsonObject>;
}

/**
 * Passes a request on to a server, and its answer back. Streams flow, event by event; of an answer that is JSON the
 * whole is read first. What names the gateway in an elicitation does not pass (see {@link guarded}).
 */
export async function passThrough(
  upstream: McpUpstream,
  request: McpRequest,
  signal: AbortSignal,
  changed: Change | null,
): Promise<Passed> {
  const opened = await open(
    upstream.through,
    { ...request, headers: withOwn(upstream.settings, request.headers) },
    { gate: () => 'go', signal, now: upstream.now },
  );
  if (opened.kind !== 'answer')
    return { kind: 'failed', message: opened.kind === 'held_back' ? 'the caller has gone' : opened.message };
  const { status, body } = opened;
  const type = String(opened.headers['content-type'] ?? '');
  const isStream = /^text\/event-stream\b/i.test(type);
  const headers = headersOf(opened.headers);
  // What is of neither kind no client reads as a message.
  if (!isStream && !/\bjson\b/i.test(type)) return { kind: 'answer', status, headers, body };
  if (isPacked(opened.headers)) {
    body.destroy();
    return { kind: 'failed', message: 'its answer is packed (Content-Encoding), which it was not asked for' };
  }
  const change = status === 200 ? changed : null;
  const { 'content-length': _length, ...passed } = headers;
  if (isStream) {
    const made = ownedStream(guardedEvents(body, change, upstream));
    made.once('close', () => body.destroy());
    return { kind: 'answer', status, headers: passed, body: made };
  }
  try {
    const whole = await guardedWhole(body, change, upstream);
    return { kind: 'answer', status, headers: withLength(headers, whole), body: Readable.from([whole]) };
  } catch (error) {
    body.destroy();
    return { kind: 'failed', message: error instanceof Error ? error.message : 'its answer broke off' };
  }
}

async function* guardedEvents(body: Readable, changed: Change | null, upstream: McpUpstream): AsyncGenerator<Buffer> {
  for await (const event of serverEvents(body, upstream.limits.responseBytes)) {
    const { data } = event;
    if (data === null) {
      yield event.bytes;
      continue;
    }
    const received = await guarded(data, upstream.namesGateway);
    const now = received === null ? null : await changedIn(received, changed);
    // What a client might read as something else than the gateway is left out.
    if (now !== null) yield now === data ? event.bytes : eventOf(event, now);
  }
}

async function guardedWhole(body: Readable, changed: Change | null, upstream: McpUpstream): Promise<Buffer> {
  const bytes = await wholeOf(body, upstream.limits.responseBytes);
  const received = await guarded(bytes, upstream.namesGateway);
  if (received === null) throw new Error('its answer reads in more than one way');
  const made = await changedIn(received, changed);
  // What is not the answer would pass unseen.
  if (changed !== null && made === received.bytes) throw new Error('its answer is not the answer to the request');
  return made;
}

/** What was said, changed where it is the answer to the request. @throws Error where it may be, and nobody can say */
async function changedIn({ bytes, message, fault }: Guarded, changed: Change | null): Promise<Buffer> {
  if (changed === null) return bytes;
  if (fault !== null) throw new Error(`the answer is not strict JSON: ${fault}`);
  return isAnswer(message, changed) ? jsonInSlices(await changed.change(message)) : bytes;
}

function isAnswer(message: JsonObject | null, { id }: Change): message is JsonObject {
  return message !== null && message['method'] === undefined && message['id'] === id;
}

/** The length of what goes on, where the server said one. */
function withLength(
  headers: Readonly<Record<string, string | readonly string[]>>,
  { byteLength }: Buffer,
): Readonly<Record<string, string | readonly string[]>> {
  return headers['content-length'] === undefined ? headers : { ...headers, 'content-length': String(byteLength) };
}
