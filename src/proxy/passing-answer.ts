import type { FastifyReply } from 'fastify';
import { Gathered } from '../bytes/gathered.ts';
import type { Listen } from '../effects/model/run-request.ts';
import type { AnswerHead } from '../effects/model/answer.ts';
import { createEventScan, isEventStream } from '../upstreams/http/events.ts';
import type { ProxyAnswer } from './answer.ts';

/** The most bytes of an event that are held back until it is complete. */
const MOST_HELD = 65_536;

export interface PassingContext {
  /** Called when the answer has begun. */
  readonly begun: () => void;
  /** The headers of the upstream's answer that go on, and those that say which effect this is. */
  readonly headers: (head: AnswerHead, effect: Parameters<Listen>[0]) => ProxyAnswer['headers'];
  /** A caller that takes nothing for so long counts as gone, ms. */
  readonly stallMs: number;
}

/**
 * The answer to a governed write while it is passed on to its caller. Nothing is sent before the upstream's answer has
 * begun.
 */
export function createPassingAnswer(reply: FastifyReply, { begun, headers, stallMs }: PassingContext) {
  const { raw } = reply;
  let hasBegun = false;
  let events: ReturnType<typeof createEventsOut> | null = null;

  /** @returns when the caller can take more; at once where it has gone */
  const send = (bytes: Buffer): Promise<void> | undefined => {
    if (bytes.byteLength === 0 || raw.destroyed || raw.write(bytes)) return undefined;
    return new Promise((resolve) => {
      const stalled = setTimeout(() => raw.destroy(), stallMs);
      const done = (): void => {
        clearTimeout(stalled);
        raw.off('drain', done).off('close', done);
        resolve();
      };
      raw.once('drain', done).once('close', done);
    });
  };

  return {
    listen: ((effect) => ({
      begin(head) {
        hasBegun = true;
        const { 'content-type': type, 'content-encoding': encoding } = head.headers;
        events = isEventStream(type) && encoding === undefined ? createEventsOut() : null;
        reply.hijack();
        if (raw.destroyed) return;
        begun();
        try {
          void reply.code(head.status).headers(headers(head, effect));
          reply.contained();
          // Node refuses to announce trailers that it could not send.
          if (raw.req.httpVersion === '1.1' && head.status !== 204) void reply.header('trailer', TRAILERS.join(', '));
          for (const [name, value] of Object.entries(reply.getHeaders()))
            if (value !== undefined) raw.setHeader(name, value);
          raw.writeHead(head.status).flushHeaders();
        } catch {
          // A header that cannot be written. The call goes on without its caller.
          raw.destroy();
        }
      },
      write: (piece) => send(events === null ? piece : events.take(piece)),
    })) satisfies Listen,
    /** Whether its head was sent. Then {@link finish} has to end it. */
    get hasBegun() {
      return hasBegun;
    },
    /**
     * Ends an answer that has begun. What happened is committed: as a whole, with the decision in the trailer. Otherwise
     * with an event that holds the decision, or cut off, so that no client takes it for whole.
     * @param answer the outcome, as it would be answered if nothing had been sent
     */
    finish(answer: ProxyAnswer): void {
      // For the line of the log: its head has gone.
      void reply.header('svc-decision', answer.headers['svc-decision']);
      if (raw.destroyed) return;
      const isWhole = answer.headers['svc-decision'] === 'committed';
      if (!isWhole && events?.isBetween() !== true) {
        raw.destroy();
        return;
      }
      const last = isWhole ? (events?.rest() ?? null) : eventOf(answer);
      if (last !== null && last.length > 0) raw.write(last);
      raw.addTrailers(trailersOf(answer.headers));
      raw.end();
    },
  };
}

/** The decision as an event of the stream. Clients of model APIs throw their own error when one has `error` in it. */
function eventOf({ body }: ProxyAnswer): string {
  return `event: error\ndata: ${body.toString()}\n\n`;
}

function trailersOf(headers: ProxyAnswer['headers']): Record<string, string> {
  const trailers: Record<string, string> = {};
  for (const name of TRAILERS) {
    const value = headers[name];
    if (typeof value === 'string') trailers[name] = value;
  }
  return trailers;
}

/** What is known only when the answer is over. */
const TRAILERS: readonly string[] = ['svc-decision', 'svc-observed', 'svc-settlement'];

/** Passes events on when they are complete: a stream that breaks off inside one could not say anything any more. */
function createEventsOut() {
  const scan = createEventScan();
  const held = new Gathered();
  /** The last bytes that went on are inside an event that was too long to be held back. */
  let isTorn = false;
  return {
    /** Takes a piece; gives what can go on. */
    take(piece: Buffer): Buffer {
      const over = scan.over(piece);
      if (over > 0) isTorn = false;
      const left = piece.subarray(over);
      const ready = over > 0 ? held.takenWith(piece.subarray(0, over)) : EMPTY;
      if (left.byteLength === 0) return ready;
      if (isTorn || held.byteLength + left.byteLength > MOST_HELD) {
        isTorn = true;
        return ready.byteLength === 0 ? held.takenWith(left) : Buffer.concat([ready, left]);
      }
      held.add(left);
      return ready;
    },
    /** Whether all that went on are complete events. */
    isBetween: (): boolean => !isTorn,
    /** What is held back. */
    rest: (): Buffer => held.take(),
  };
}

const EMPTY = Buffer.alloc(0);
