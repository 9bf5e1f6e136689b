import type { Line } from '../../../src/bytes/lines.ts';

/** What a line costs beside its bytes. */
const OVERHEAD = 256;

/**
 * Lines in their order, from who reads them to who takes them, so that the end of the input is seen while a line is being
 * dealt with. What it holds has a bound.
 */
export class LineQueue {
  readonly #most: number;
  readonly #lines: Line[] = [];
  #held = 0;
  #isClosed = false;
  #wake: (() => void) | null = null;

  /** @param most bytes that it holds, with something for each line */
  constructor(most: number) {
    this.#most = most;
  }

  /** @returns whether there was room */
  push(line: Line): boolean {
    const cost = costOf(line);
    if (this.#held > 0 && this.#held + cost > this.#most) return false;
    this.#held += cost;
    this.#lines.push(line);
    this.#wake?.();
    return true;
  }

  /** No line comes any more. */
  close(): void {
    this.#isClosed = true;
    this.#wake?.();
  }

  /** The lines, one at a time, until the queue is closed and empty. A line counts as held until the next one is asked for. */
  async *lines(): AsyncGenerator<Line> {
    for (;;) {
      const line = this.#lines.shift();
      if (line !== undefined) {
        yield line;
        this.#held -= costOf(line);
      } else if (this.#isClosed) return;
      else
        await new Promise<void>((resolve) => {
          this.#wake = resolve;
        });
    }
  }
}

function costOf(line: Line): number {
  return OVERHEAD + (line.kind === 'line' ? line.bytes.length : 0);
}
