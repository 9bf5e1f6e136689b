/** Closes what was opened, in the opposite order: at the end, or as soon as something later fails to open. */
export type ExitStack = ReturnType<typeof createExitStack>;

export function createExitStack() {
  const closers: (() => void | Promise<void>)[] = [];
  async function closeAll(): Promise<void> {
    for (let close = closers.pop(); close !== undefined; close = closers.pop()) await close();
  }
  return {
    push: (close: () => void | Promise<void>): void => void closers.push(close),
    close: closeAll,
    /** @returns whether all was closed in that time; what was not goes on */
    closeWithin: (ms: number): Promise<boolean> => within(closeAll(), ms),
  };
}

/** Whether it is done in time. What it comes to later is not lost: who began it goes on. */
export async function within(work: Promise<void>, ms: number): Promise<boolean> {
  let timer: NodeJS.Timeout | undefined;
  const over = new Promise<false>((resolve) => {
    timer = setTimeout(() => resolve(false), ms);
  });
  try {
    return await Promise.race([work.then(() => true), over]);
  } finally {
    clearTimeout(timer);
  }
}

/** Ends the process where an ordinary end would do harm, or would wait for a thread that never returns. */
export function endHard(): never {
  process.kill(process.pid, 'SIGKILL');
  // In a container, the first process does not receive this signal from itself.
  process.abort();
}
