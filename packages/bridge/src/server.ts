import { setTimeout as sleep } from 'node:timers/promises';
import { type Answer, idHeader, NoAnswer, Sender, type Session, sessionHeaders } from '../../../src/cli/mcp/http.ts';

/* How long the bridge waits for what, ms. */

/** A message without an answer holds up what comes after it as long, and is tried as long at all. */
export const TURN_MS = 1_000;
export const DELIVERY_MS = 15_000;
/** A stream is read on after its answer: most end by themselves, and leave the connection to others. */
export const LINGER_MS = 1_000;
/** A gateway that does not listen is asked again. Nothing was sent meanwhile. */
const RECONNECT_MS = 15_000;
/** Open requests may end after the end of the input. Hosts kill after two seconds. */
export const LAST_ANSWERS_MS = 1_000;
export const LAST_WORDS_MS = 200;
const GOODBYE_MS = 500;
/** Between attempts, growing. A stream that lived longer than the longest wait begins anew with the shortest. */
export const MOST_WAIT_MS = 15_000;
const FIRST_WAIT_MS = 250;
/** Whatever a server asks for. */
const LEAST_WAIT_MS = 100;

/** Waits longer each time, or as long as the server says. Ends early when the signal does. */
export async function wait(attempt: number, retryMs: number | null, signal: AbortSignal): Promise<void> {
  const ms = Math.max(LEAST_WAIT_MS, retryMs ?? backoff(attempt));
  await sleep(ms, undefined, { signal }).catch(() => {});
}

/** How long to wait after so many attempts. */
export function backoff(attempt: number): number {
  return Math.min(MOST_WAIT_MS, FIRST_WAIT_MS * 2 ** attempt);
}

/** Resolves when something is so, or after so many ms. */
export async function until(isSo: () => boolean, most: number): Promise<void> {
  const end = Date.now() + most;
  while (Date.now() < end && !isSo()) await sleep(20);
}

/** The server on the other side of the bridge, with the key that it is asked with, which may be replaced meanwhile. */
export class Server {
  /** Its address, without what a query may hold. */
  readonly where: string;
  readonly #sender: Sender;
  readonly #readKey: () => Promise<string>;
  #key: string;

  /** @param readKey reads the key anew: somebody may have put another one into its file */
  constructor(url: URL, key: string, readKey: () => Promise<string>) {
    this.where = url.origin + url.pathname;
    this.#sender = new Sender(url);
    this.#key = key;
    this.#readKey = readKey;
  }

  get key(): string {
    return this.#key;
  }

  /**
   * Posts a message. A gateway that does not listen is asked again for a while: nothing was sent. A key that was refused
   * is read anew once.
   * @param isSafe whether it may be sent again although it may have arrived
   * @throws NoAnswer
   */
  async post(
    body: Buffer,
    headers: Readonly<Record<string, string>>,
    signal: AbortSignal,
    isSafe = false,
  ): Promise<Answer> {
    const until = Date.now() + RECONNECT_MS;
    let isRepeated = false;
    for (let attempt = 0; ; attempt += 1) {
      const key = this.#key;
      const all = {
        ...this.#headers(null),
        accept: 'application/json, text/event-stream',
        'content-type': 'application/json',
        ...headers,
      };
      try {
        const answer = await this.#sender.send({ method: 'POST', headers: all, body, signal });
        if (answer.status !== 401 || !(await this.hasNewKey(key))) return answer;
        answer.body.destroy();
      } catch (error) {
        const mayRepeat = error instanceof NoAnswer && (!error.mayHaveArrived || (isSafe && !isRepeated));
        if (!mayRepeat || signal.aborted || Date.now() > until) throw error;
        isRepeated ||= error.mayHaveArrived;
        await wait(attempt, null, signal);
      }
    }
  }

  /**
   * Opens the stream on which the server speaks first, or continues one after an event.
   * @returns `null` where it cannot be reached
   */
  async listen(session: Session | null, lastId: string | null, signal: AbortSignal): Promise<Answer | null> {
    const after = lastId === null ? {} : idHeader(lastId);
    const headers = { ...this.#headers(session), accept: 'text/event-stream', ...after };
    return this.#sender.send({ method: 'GET', headers, body: null, signal }).catch(() => null);
  }

  /** Tells the server that a session is over, as far as it hears that in time. */
  async endSession(session: Session | null): Promise<void> {
    if (session === null || session.id === null) return;
    const signal = AbortSignal.timeout(GOODBYE_MS);
    const headers = this.#headers(session);
    const answer = await this.#sender.send({ method: 'DELETE', headers, body: null, signal }).catch(() => null);
    answer?.body.destroy();
  }

  /**
   * Whether there is another key than the one that was refused.
   * @param refused the key that was refused; another request may have found the new one already
   */
  async hasNewKey(refused: string): Promise<boolean> {
    if (this.#key === refused) this.#key = await this.#readKey().catch(() => refused);
    return this.#key !== refused;
  }

  close(): void {
    this.#sender.close();
  }

  #headers(session: Session | null): Record<string, string> {
    return {
      authorization: `Bearer ${this.#key}`,
      ...sessionHeaders(session),
    };
  }
}
