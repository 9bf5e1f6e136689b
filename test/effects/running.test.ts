import { getHeapStatistics, setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { expect, it } from 'vitest';
import type { Stage } from '../../src/effects/model/effect.ts';
import { Running } from '../../src/effects/run/running.ts';

const UNDER_WAY = 8;
const ATTEMPTS = 2_000;
/** Between two collections of the young generation, so that few are there at both. */
const BETWEEN = 200;
const STAGES = 1_000;
const POINTER_BYTES = 8;

it('keeps nothing of an attempt that has ended, also where only the young generation is collected', () => {
  setFlagsFromString('--expose-gc');
  const gc = runInNewContext('gc') as (options?: { readonly type: 'minor' }) => void;
  const usedAfterMinor = (): number => {
    gc({ type: 'minor' });
    return getHeapStatistics().used_heap_size;
  };
  const running = new Running();
  const places: number[] = [];
  const runMany = (attempts: number): void => {
    for (let each = 1; each <= attempts; each += 1) {
      places.push(running.begin({ effect: { id: `eff_${each}`, attempt: 1 }, over: stagesOf(STAGES), now: null }));
      const [oldest] = places;
      if (oldest !== undefined && places.length > UNDER_WAY) {
        places.shift();
        running.end(oldest);
      }
      if (each % BETWEEN === 0) gc({ type: 'minor' });
    }
  };
  // What is there now is old from here on: a table that is left later is dead, and no small collection sees it.
  runMany(BETWEEN);
  gc();
  gc();
  const before = usedAfterMinor();
  runMany(ATTEMPTS);
  expect(usedAfterMinor() - before).toBeLessThan((ATTEMPTS * STAGES * POINTER_BYTES) / 4);
});

function stagesOf(count: number): readonly Stage[] {
  const stage: Stage = { stage: 'validate', status: 'passed', startedAt: 0, durationMs: 0, detail: null };
  return Array.from({ length: count }, () => stage);
}
