import { type Answer, idHeader, NoAnswer, Sender, type Session, sessionHeaders } from '../../../src/cli/mcp/http.ts';
import { GOODBYE_MS, RECONNECT_MS, wait } from './patience.ts';

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
