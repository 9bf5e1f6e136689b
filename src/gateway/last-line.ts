import type { GatewayOptions } from '../cli/ports.ts';
import { createLogger, logSink } from '../telemetry/logger.ts';
import { endHard } from './exit-stack.ts';
import { type GatewayProcess, startGateway } from './start.ts';
import { setFlagsFromString } from 'node:v8';

/** After a fault, what runs has this long to be settled, ms. */
const SETTLE_MS = 5_000;
/** A start that is told to stop has this long to come to its end, ms. */
const STOP_STARTING_MS = 10_000;

/**
 * Starts a gateway that owns its process. A fault that nobody caught ends it: its state cannot be trusted with another
 * call. The fault is logged, nothing more is taken, and what runs is settled, if that is soon over.
 */
export async function startOwnProcess(options: GatewayOptions): Promise<GatewayProcess> {
  configureGarbageCollection();
  const sink = logSink();
  const logger = createLogger({ level: 'fatal', sink });
  let running: GatewayProcess | null = null;
  let isStarting = true;
  let isEnding = false;

  const end = (err: unknown): void => {
    logger.fatal({ err }, 'nobody caught this fault: the gateway takes nothing more, and ends');
    if (isEnding) return;
    isEnding = true;
    const exit = (): void => void sink.written().then(() => process.exit(1));
    setTimeout(exit, SETTLE_MS);
    Promise.resolve(running?.abandon()).then(exit, exit);
  };
  process.on('uncaughtException', end);
  process.on('unhandledRejection', end);
  // Whoever read what is written may leave.
  for (const output of [process.stdout, process.stderr]) output.on('error', () => {});
  // Threads may wait for ever, for a reader of the log or for a file, and an ordinary end waits for them.
  process.on('exit', () => {
    if (isStarting || !sink.isWritten()) endHard();
  });

  const stop = (): void => {
    setTimeout(() => {
      if (!isStarting) return;
      logger.fatal('told to stop while it was starting, and the start does not come to its end');
      void sink.written().then(endHard);
    }, STOP_STARTING_MS).unref();
  };
  const signals = ['SIGINT', 'SIGTERM'] as const;
  for (const signal of signals) process.on(signal, stop);
  try {
    running = await startGateway(options);
    return running;
  } finally {
    isStarting = false;
    for (const signal of signals) process.off(signal, stop);
  }
}

/**
 * Tells V8 how to collect garbage (decision 51). It counts for threads that are begun later, too.
 * - Sooner than it would: by itself it lets a heap grow to twice and more of what is alive, in each thread, and gives
 *   little of it back.
 * - What is young by the thread that made it: there is so little of it alive that four helpers use more of the
 *   processors in finding work than the work takes.
 * - Nothing is made in old memory: parts of a call would be, and keep all that came after them until a full collection.
 */
function configureGarbageCollection(): void {
  setFlagsFromString('--heap-growing-percent=70');
  setFlagsFromString('--no-parallel-scavenge');
  setFlagsFromString('--no-allocation-site-pretenuring');
}
