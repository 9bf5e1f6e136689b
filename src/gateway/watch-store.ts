import type { EffectStore, StoreHealth } from '../effects/store.ts';
import type { createLogger } from '../telemetry/logger.ts';
import { endHard } from './exit-stack.ts';

const CHECK_MS = 250;

/**
 * Logs when the store stops being ready, why, and when it is ready again. After a failed sync the process ends without
 * closing its database connections, whatever ends it: closing would copy data inside the store that may not be on the
 * disk.
 */
export function watchStore(store: Pick<EffectStore, 'health'>, logger: ReturnType<typeof createLogger>) {
  let reported: StoreHealth['problem'] = null;
  let fail: (message: string) => void = () => undefined;
  const lost = new Promise<string>((resolve) => {
    fail = resolve;
  });

  function check(): void {
    const { problem } = store.health();
    if (problem?.code === reported?.code && problem?.message === reported?.message) return;
    reported = problem;
    if (problem === null) {
      logger.info('the store is ready again');
      return;
    }
    logger.error({ code: problem.code, reason: problem.message }, 'the store is not ready');
    if (problem.code !== 'store_sync_failed') return;
    process.once('exit', endHard);
    fail(problem.message);
  }

  check();
  const timer = setInterval(check, CHECK_MS).unref();
  return {
    /** Resolves, with a message, when only another process can go on with the store. */
    lost,
    stop(): void {
      check();
      clearInterval(timer);
    },
  };
}
