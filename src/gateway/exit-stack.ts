import { setTimeout as delay } from 'node:timers/promises';

/** Closes what was opened, in the opposite order: at the end, or as soon as something later fails to open. */
export interface ExitStack {
  push(close: () => void | Promise<void>): void;
  close(): Promise<void>;
  /** @returns whether all was closed in that time; what was not goes on */
  closeWithin(ms: number): Promise<boolean>;
}

export function createExitStack(): ExitStack {
  const closers: (() => void | Promise<void>)[] = [];
  async function closeAll(): Promise<void> {
    for (let close = closers.pop(); close !== undefined; close = closers.pop()) await close();
  }
  return {
    push: (close) => void closers.push(close),
    close: closeAll,
    async closeWithin(ms) {
      const late = new AbortController();
      const isLate = delay(ms, false, { signal: late.signal });
      try {
        return await Promise.race([closeAll().then(() => true), isLate]);
      } finally {
        isLate.catch(() => undefined);
        late.abort();
      }
    },
  };
}

/** Ends the process where an ordinary end would do harm, or would wait for a thread that never returns. */
export function endHard(): never {
  process.kill(process.pid, 'SIGKILL');
  // In a container, the first process does not receive this signal from itself.
  process.abort();
}
