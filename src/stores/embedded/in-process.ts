import type { StoreHealth } from '../../effects/store.ts';
import { type EngineListener, type EngineOptions, startEngine } from './engine.ts';
import { type OperationName, type Operations, runOperation } from './operations.ts';

/** Where operations run: in this thread or in another. */
export interface Runner {
  readonly installId: string;
  now(): number;
  health(): StoreHealth;
  /** Answers after the operation's transaction is durable. */
  call<Name extends OperationName>(
    name: Name,
    request: Operations[Name]['request'],
  ): Promise<Operations[Name]['reply']>;
  close(): Promise<void>;
}

export type RunnerListener = Pick<EngineListener, 'onKeysChanged' | 'onPausesChanged'>;

/** Runs operations in this thread. */
export async function runInProcess(options: EngineOptions, listener: RunnerListener): Promise<Runner> {
  const engine = await startEngine(options, { ...listener, onHealth: () => {}, onBatch: () => {} });
  return {
    installId: engine.installId,
    now: engine.now,
    health: engine.health,
    call: (name, request) =>
      new Promise((resolve, reject) => {
        let settle = (): void => {};
        engine.submit({
          run(session) {
            const reply = runOperation(session, name, request);
            settle = () => resolve(reply);
          },
          done: () => settle(),
          failed: reject,
        });
      }),
    close: engine.close,
  };
}
