/** Closes what was opened, in the opposite order: at the end, or as soon as something later fails to open. */
export interface ExitStack {
  push(close: () => void | Promise<void>): void;
  close(): Promise<void>;
}

export function createExitStack(): ExitStack {
  const closers: (() => void | Promise<void>)[] = [];
  return {
    push: (close) => void closers.push(close),
    async close() {
      for (let close = closers.pop(); close !== undefined; close = closers.pop()) await close();
    },
  };
}
