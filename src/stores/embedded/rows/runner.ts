import type { StoreHealth } from '../../../effects/store.ts';
import type { Watched } from '../../port.ts';
import type { EngineOptions } from '../engine.ts';
import type { Boot } from './ended.ts';
import { startRowEngine } from './perform.ts';
import type { Reply } from './reply.ts';
import type { Request } from './request.ts';

/** Where requests run: in this thread or in another one. */
export interface Runner {
  readonly installId: string;
  now(): number;
  health(): StoreHealth;
  /** When a gateway last started to use the store. */
  boot(): Boot;
  /** Answers once everything in the answer is durable. */
  ask(request: Request): Promise<Reply>;
  close(): Promise<void>;
}

/** Called with changes of watched rows; `null`: anything may have changed. */
export type OnTold = (told: readonly Watched[] | null) => void;

/** A store that is open but not used yet (the clock is not trusted) has no boot. */
export const NEVER_BEGUN: Boot = { at: 0, unwatchedMs: 0 };

/** Runs requests in this thread. */
export async function runRowsHere(options: EngineOptions, onTold: OnTold): Promise<Runner> {
  let boot = NEVER_BEGUN;
  const { engine, perform } = await startRowEngine(options, {
    onTold,
    onHealth: () => {},
    onBatch: () => {},
    onBoot(begun) {
      boot = begun;
    },
  });
  return {
    installId: engine.installId,
    now: engine.now,
    health: engine.health,
    boot: () => boot,
    ask: (request) => new Promise((resolve, reject) => perform(request, resolve, reject)),
    close: engine.close,
  };
}
