import type { IncomingMessage } from 'node:http';
import { createParser } from 'eventsource-parser';

/** What a stream of events left for the one that continues it. */
export interface StreamEnd {
  /** `null` where no event had an id: then the stream cannot be continued. */
  readonly lastId: string | null;
  /** How long the server asks to wait, ms; `null` where it does not say. */
  readonly retryMs: number | null;
}

/**
 * Reads server-sent events, and reads on only when `take` is done with all events of a chunk. It resolves when the
 * stream ends or breaks: which of the two makes no difference to somebody who waits for an answer.
 * @param most characters of one event
 */
export async function readEvents(
  body: IncomingMessage,
  most: number,
  before: StreamEnd,
  take: (data: string) => Promise<void>,
): Promise<StreamEnd> {
  let { lastId, retryMs } = before;
  let events: string[] = [];
  const parser = createParser({
    maxBufferSize: most,
    onEvent: ({ event, id, data }) => {
      if (id !== undefined) lastId = id;
      // Servers prime a stream with an event that has an id and no data.
      if (data !== '' && (event === undefined || event === 'message')) events.push(data);
    },
    onRetry: (retry) => {
      retryMs = Math.min(retry, MOST_RETRY_MS);
    },
  });
  const decoder = new TextDecoder();
  try {
    for await (const chunk of body as AsyncIterable<Buffer>) {
      parser.feed(decoder.decode(chunk, { stream: true }));
      const found = events;
      events = [];
      for (const data of found) await take(data);
    }
  } catch {
    // Broken, cancelled, or an event beyond all measure: the stream is over.
  } finally {
    body.destroy();
  }
  return { lastId, retryMs };
}

const MOST_RETRY_MS = 60_000;
