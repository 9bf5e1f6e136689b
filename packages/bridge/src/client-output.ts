import { once } from 'node:events';
import type { Writable } from 'node:stream';
import type { JsonObject } from '../../../src/json/value.ts';
import { earlierOf, type Id, type Request } from './message.ts';

/** Where the client reads: one message of JSON-RPC a line, and no faster than it takes them. */
export class ClientOutput {
  /** Resolves when the client does not read any more: there is nobody to work for. */
  readonly gone: Promise<void>;
  readonly #output: Writable;
  #isGone = false;
  #drained: Promise<void> | null = null;

  constructor(output: Writable) {
    this.#output = output;
    this.gone = new Promise((resolve) => {
      output.on('error', () => {
        this.#isGone = true;
        resolve();
      });
    });
  }

  get isGone(): boolean {
    return this.#isGone;
  }

  /** Resolves when the client reads again; `null` while it does. */
  get drained(): Promise<void> | null {
    return this.#drained;
  }

  /** Answers a request with an error; `null`: one whose id cannot be read. */
  async refuse(id: Id | null, code: number, message: string, data?: JsonObject): Promise<void> {
    await this.write(
      JSON.stringify({ jsonrpc: '2.0', id, error: { code, message, ...(data !== undefined && { data }) } }),
    );
  }

  /** For a request that was not sent. */
  async refuseUnsent({ id, method }: Pick<Request, 'id' | 'method'>, code: number, message: string): Promise<void> {
    const { happened, sentence } = earlierOf(method);
    await this.refuse(id, code, message + sentence, { did_it_happen: happened });
  }

  /** Writes one line, and waits while the client does not read. */
  async write(line: string): Promise<void> {
    if (this.#isGone || this.#output.write(`${line}\n`)) return;
    this.#drained ??= once(this.#output, 'drain')
      .catch(() => {})
      .then(() => {
        this.#drained = null;
      });
    await this.#drained;
  }
}
