import type { IncomingMessage } from 'node:http';
import { createParser } from 'eventsource-parser';
import { isJsonObject } from '../../json/value.ts';
import { parseJson } from '../../json/text.ts';
import type { Allowance } from './bounds.ts';
import type { Text } from './http.ts';

/** What a stream of events left for the one that continues it. */
export interface StreamEnd {
  /** `null` where no event had an id: then the stream cannot be continued. */
  readonly lastId: string | null;
  /** How long the server asks to wait, ms; `null` where it does not say. */
  readonly retryMs: number | null;
  /** An event was longer than allowed, or all that is held was: it would be the same again. */
  readonly isTooLong: boolean;
}

export const NOTHING_READ: StreamEnd = { lastId: null, retryMs: null, isTooLong: false };

/** Where the parts of events come from that are not whole yet, and how much of them is held. */
export interface EventBounds {
  /** Characters of one event. */
  readonly most: number;
  readonly allowance: Allowance;
}

/**
 * Reads server-sent events, and reads on only when `take` is done with all events of a chunk. It resolves when the
 * stream ends or breaks: which of the two makes no difference to somebody who waits for an answer.
 */
export async function readEvents(
  body: IncomingMessage,
  { most, allowance }: EventBounds,
  before: StreamEnd,
  take: (data: string) => Promise<void>,
): Promise<StreamEnd> {
  let { lastId, retryMs } = before;
  let isTooLong = false;
  let events: string[] = [];
  let held = 0;
  const release = (): void => {
    allowance.giveBack(held);
    held = 0;
  };
  const parser = createParser({
    maxBufferSize: most,
    onEvent: ({ event, id, data }) => {
      release();
      if (id !== undefined) lastId = id;
      // Servers prime a stream with an event that has an id and no data.
      if (data !== '' && (event === undefined || event === 'message')) events.push(data);
    },
    onComment: release,
    onRetry: (retry) => {
      retryMs = Math.min(retry, MOST_RETRY_MS);
    },
    onError: ({ type }) => {
      isTooLong ||= type === 'max-buffer-size-exceeded';
    },
  });
  const decoder = new TextDecoder();
  try {
    for await (const chunk of body as AsyncIterable<Buffer>) {
      isTooLong ||= !allowance.take(chunk.length);
      if (isTooLong) break;
      held += chunk.length;
      parser.feed(decoder.decode(chunk, { stream: true }));
      const found = events;
      events = [];
      for (const data of found) await take(data);
    }
  } catch {
    // Broken, cancelled, or an event beyond all measure: the stream is over.
  } finally {
    release();
    body.destroy();
  }
  return { lastId, retryMs, isTooLong };
}

/** The first message of a stream that is an answer. */
export async function firstAnswer(body: IncomingMessage, bounds: EventBounds): Promise<Text> {
  let found: string | null = null;
  await readEvents(body, bounds, NOTHING_READ, async (data) => {
    const value = parseJson(data);
    if (isJsonObject(value) && !('method' in value)) {
      found ??= data;
      body.destroy();
    }
  });
  return found === null ? { kind: 'broken' } : { kind: 'text', text: found };
}

const MOST_RETRY_MS = 60_000;
