import type { StoreHealth } from '../../../effects/store.ts';
import type { Watched } from '../../port.ts';
import type { EngineOptions } from '../engine.ts';
import type { Boot } from './ended.ts';
import { startRowEngine } from './perform.ts';
import type { Reply } from './reply.ts';
import type { Request } from './request.ts';

/** Where requests run: in this thread or in another. */
export interface Runner {
  readonly installId: string;
  now(): number;
  health(): StoreHealth;
  /** When the store was last begun with. */
  boot(): Boot;
  /** Answers after what it says is durable. */
  ask(request: Request): Promise<Reply>;
  close(): Promise<void>;
}

/** Hears of changes of what is watched; `null`: anything may have changed. */
export type OnTold = (told: readonly Watched[] | null) => void;

/** A store that is open and not begun with (a clock that is not believed) has no boot yet. */
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
