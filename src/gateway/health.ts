import type { ApiPorts } from '../api/ports.ts';
import type { Chores } from './chores.ts';
import { opinionNotes } from './core-ports.ts';
import type { Drain } from './drain.ts';
import type { FilesInForce } from './files-in-force.ts';
import type { Ground } from './ground.ts';
import type { Signals } from './signals.ts';
import { retentionNotes } from './sweeper.ts';
import type { TakeUp } from './take-up.ts';

export type Health = Pick<ApiPorts, 'store' | 'impediments' | 'notes' | 'metrics'>;

/** What `/readyz` and `/metrics` say, at all doors. */
export function healthOf(
  { held, store }: Ground,
  { metrics, upkeep, notifying, alarm, silent, opinion }: Signals,
  files: FilesInForce,
  chores: Chores,
  takeUp: Pick<TakeUp, 'isDone'>,
  drain: Drain,
): Health {
  return {
    store,
    impediments: () => {
      if (drain.isDraining()) return [{ part: 'gateway', message: 'It is shutting down.' }];
      if (!takeUp.isDone()) return [{ part: 'gateway', message: 'It takes up work when the store is ready.' }];
      const hindrance = files.reloader.hindrance();
      return hindrance === null ? [] : [{ part: 'policies', message: hindrance }];
    },
    notes: () => {
      const { warning } = store.health();
      return [
        ...files.notes(),
        ...(warning === undefined ? [] : [{ part: 'store', message: warning }]),
        ...retentionNotes(chores.swept(), Date.now()),
        ...upkeep.notes(),
        ...notifying.notes(),
        ...alarm.notes(),
        ...opinionNotes(held, opinion),
        ...chores.probeNotes(),
        ...silent.notes(Date.now()),
      ];
    },
    metrics: () => metrics.render(),
  };
}
