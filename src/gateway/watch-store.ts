import type { EffectStore, StoreHealth } from '../effects/store.ts';
import type { createLogger } from '../telemetry/logger.ts';
import { endHard } from './exit-stack.ts';

const LOOK_MS = 250;

export interface StoreWatch {
  /** Resolves, with a message, when only another process can go on with the store. */
  readonly lost: Promise<string>;
  stop(): void;
}

/**
 * Logs when the store stops being ready, why, and when it is ready again. After a failed sync the process ends without
 * closing its database connections, whatever ends it: closing would copy data inside the store that may not be on the
 * disk.
 */
export function watchStore(store: Pick<EffectStore, 'health'>, logger: ReturnType<typeof createLogger>): StoreWatch {
  let said: StoreHealth['problem'] = null;
  let tell: (message: string) => void = () => undefined;
  const lost = new Promise<string>((resolve) => {
    tell = resolve;
  });

  function look(): void {
    const { problem } = store.health();
    if (problem?.code === said?.code && problem?.message === said?.message) return;
    said = problem;
    if (problem === null) {
      logger.info('the store is ready again');
      return;
    }
    logger.error({ code: problem.code, reason: problem.message }, 'the store is not ready');
    if (problem.code !== 'store_sync_failed') return;
    process.once('exit', endHard);
    tell(problem.message);
  }

  look();
  const timer = setInterval(look, LOOK_MS).unref();
  return {
    lost,
    stop() {
      look();
      clearInterval(timer);
    },
  };
}
