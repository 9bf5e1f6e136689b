import type { Through } from '../pipe/exchange.ts';
import { PipeServer } from '../pipe/pipe-server.ts';
import type { PipeEvents, PipeHeaders } from '../pipe/pipe.ts';
import { type SseAddress, SsePipe } from './sse-pipe.ts';

export interface SseServerSettings extends Omit<SseAddress, 'through'> {
  /** Streams that may be there at once: one for each session. */
  readonly most: number;
  /** How long a session may be unused, ms. */
  readonly idleMs: number;
}

/** An MCP server of the transport that came before streamable HTTP (2024-11-05). */
export class SseServer extends PipeServer {
  readonly #through: Through;

  /** @param now ms of a clock that never goes back */
  constructor(settings: SseServerSettings, through: Through, now: () => number) {
    const { most, idleMs } = settings;
    const open = (events: PipeEvents, headers: PipeHeaders): SsePipe =>
      new SsePipe({ ...settings, through }, headers, events);
    // A connection that is refused costs nothing: there is no reason to wait.
    super({ open, most, idleMs, mostWaitMs: 0 }, now);
    this.#through = through;
  }

  override async close(): Promise<void> {
    await super.close();
    await this.#through.close();
  }

  override async destroy(): Promise<void> {
    await super.destroy();
    await this.#through.destroy();
  }
}
