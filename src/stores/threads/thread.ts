import { threadBeside } from '../../home.ts';
import { Worker } from 'node:worker_threads';
import { StoreUnavailable } from '../../effects/store.ts';
import { DONE, type ThreadData, type ToGateway, type ToStore, UNAVAILABLE } from './channel.ts';
import { type Ask, FORMS, type Operation, type Send } from './operations.ts';
import { type Codec, Decoder, Encoder, type Message } from './operations.ts';

interface Waiting {
  /** Reads the answer, and hands it over. */
  take(replies: Codec): void;
  reject(error: Error): void;
}

/** A thread of the store, as the gateway's thread sees it. */
export interface StoreThread {
  /** Requests of one turn go together, some to a message. */
  readonly send: Send<Operation>;
  readonly ask: Ask<Operation>;
  /** Sends what was asked, and then this. */
  deliver(message: Exclude<ToStore, Message>): void;
  /** The process may end although the thread runs. */
  unref(): void;
}

/**
 * Most of the memory of a thread that is for what soon is garbage, MB. V8's own is 48; a row is read, written and
 * forgotten, and who waits for it waits for the disk.
 */
const MOST_YOUNG_MB = 24;

/**
 * The most requests in a message. Where the thread got all that the gateway asks in a turn, one waited while the other
 * worked, under many callers (decision 71).
 */
const MOST_TOGETHER = 6;

/**
 * Starts a thread of the store.
 * @param receive called with each message that is no reply
 * @param seen called with the store's time of replies, before they reach who waits for them
 * @param ended called when it has ended, after everything that waited for it was rejected
 */
export function startThread(
  entry: URL,
  workerData: ThreadData,
  receive: (message: Exclude<ToGateway, Message>) => void,
  seen: (now: number) => void,
  ended: (why: string) => void,
): StoreThread {
  const worker = new Worker(entry, { workerData, resourceLimits: { maxYoungGenerationSizeMb: MOST_YOUNG_MB } });
  /**
   * Who waits, by the number of the request. Numbers are used again: V8 keeps the tables that a `Map` with many deletions
   * has outgrown, with everything that was in them, until the next full collection.
   */
  let waiting: (Waiting | null)[] = [];
  let free: number[] = [];
  const outgoing = new Encoder();
  let fault = 'its thread ended';
  /** Why it ended; `null`: it runs. */
  let end: string | null = null;
  let unposted = 0;

  function postRequests(): void {
    unposted = 0;
    const message = outgoing.take();
    if (message !== null) worker.postMessage(message);
  }

  const send: Send<Operation> = (op, asked, done, reject) => {
    if (end !== null) return reject(new StoreUnavailable(end));
    const id = free.pop() ?? waiting.length;
    outgoing.number(id);
    outgoing.text(op);
    const forms = FORMS[op];
    forms.asked(outgoing, asked);
    waiting[id] = { take: (replies) => done(forms.answer(replies)), reject };
    unposted += 1;
    const isLone = waiting.length - free.length === 1;
    if (isLone || unposted === MOST_TOGETHER) postRequests();
    else if (unposted === 1) setImmediate(postRequests);
  };

  worker.on('message', (message: ToGateway) => {
    if (typeof message === 'string') takeReplies(message, waiting, free, seen);
    else receive(message);
  });
  worker.on('error', (error) => {
    fault = error.message;
  });
  worker.on('exit', () => {
    const why = `The store stopped: ${fault}.`;
    end = why;
    const callers = waiting;
    waiting = [];
    free = [];
    for (const caller of callers) caller?.reject(new StoreUnavailable(why));
    ended(why);
  });

  return {
    send,
    ask: (op, asked) => new Promise((resolve, reject) => send(op, asked, resolve, reject)),
    deliver(message) {
      postRequests();
      worker.postMessage(message);
    },
    unref: () => worker.unref(),
  };
}

/** Hands each reply of a message to who waits for it, whose number is free again. */
function takeReplies(message: Message, waiting: (Waiting | null)[], free: number[], seen: (now: number) => void): void {
  const replies = new Decoder(message);
  seen(replies.number());
  do {
    const id = replies.number();
    const caller = waiting[id];
    // Without its caller nobody knows where the reply ends.
    if (!caller) throw new TypeError('a thread of the store answered what nobody had asked');
    waiting[id] = null;
    free.push(id);
    const status = replies.number();
    if (status === DONE) caller.take(replies);
    else if (status === UNAVAILABLE) caller.reject(new StoreUnavailable(replies.text()));
    else caller.reject(new Error(replies.text()));
  } while (!replies.isAtEnd());
}

/** What a thread of the store runs; `null`: none can. */
export const threadEntry = (): URL | null => threadBeside(import.meta.url, 'worker');
