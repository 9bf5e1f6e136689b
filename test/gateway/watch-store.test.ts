import { expect, test } from 'vitest';
import { watchStore } from '../../src/gateway/watch-store.ts';
import { createLogger } from '../../src/telemetry/logger.ts';
import type { StoreHealth } from '../../src/effects/store.ts';

test('what is wrong with the store is told once, also where it only went wrong before the stop', () => {
  const told: string[] = [];
  const logger = createLogger({
    level: 'info',
    sink: { write: (line) => void told.push(String(JSON.parse(line).msg)) },
  });
  let problem: StoreHealth['problem'] = null;
  const health = () => ({ ready: problem === null, problem, durability: 'fsync', epoch: 1 });
  const watch = watchStore({ health }, logger);
  expect(told).toEqual([]);
  problem = { code: 'store_full', message: 'The disk is full.' };
  watch.stop();
  watch.stop();
  expect(told).toEqual(['the store is not ready']);
  problem = null;
  watch.stop();
  expect(told).toEqual(['the store is not ready', 'the store is ready again']);
});
