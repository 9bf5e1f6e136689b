import { dirname } from 'node:path';
import { type CompiledStore, compileStore } from '../../stores/compiled.ts';
import { compileRecorder, record, type Recording, type Run } from './record.ts';

const WORKLOAD = 'test/torture/power/workload.ts';

export const SEED = 20_261_122;

export const TWICE: readonly Run[] = [
  { prefix: 'first', calls: 150, end: 'kill', failedSync: null },
  { prefix: 'second', calls: 100, end: 'close', failedSync: null },
];

/** @param failedSync by its number among those of the journal */
export const failing = (failedSync: number): readonly Run[] => [
  { prefix: 'first', calls: 10_000, end: 'close', failedSync },
  { prefix: 'second', calls: 100, end: 'kill', failedSync: null },
  { prefix: 'third', calls: 30, end: 'close', failedSync: null },
];

/** A copy of the store that can be altered, and the recorder of its disk. */
export interface PowerBench {
  readonly store: CompiledStore;
  /** @param lie as of {@link record} */
  recorded(runs: readonly Run[], lie?: string): Recording;
}

/** Compiles both; a C compiler is needed. */
export function preparePower(): PowerBench {
  const store = compileStore([WORKLOAD]);
  // So that the journal is brought into the file, and begun anew, often.
  store.alter('src/stores/embedded/engine.ts', 'CHECKPOINT_PAGES = 4000', 'CHECKPOINT_PAGES = 60');
  const library = compileRecorder(dirname(store.file('settings.ts')));
  return { store, recorded: (runs, lie) => record(library, store.file(WORKLOAD), runs, lie) };
}
