import { expect, test } from 'vitest';
import { watchStore } from '../../src/gateway/ground.ts';
import { createLogger } from '../../src/telemetry/logger.ts';
import type { StoreHealth } from '../../src/effects/store.ts';

test('what is wrong with the store is told once, also where it only went wrong before the stop', () => {
  const told: string[] = [];
  const write = (line: string): void => {
    const { msg, reason = null } = JSON.parse(line);
    told.push(reason === null ? String(msg) : `${msg}: ${reason}`);
  };
  const logger = createLogger({ level: 'info', sink: { write } });
  let problem: StoreHealth['problem'] = null;
  const health = () => ({ ready: problem === null, problem, durability: 'fsync', epoch: 1 });
  const watch = watchStore({ health }, logger);
  expect(told).toEqual([]);
  problem = { code: 'store_full', message: 'The disk is full.' };
  watch.stop();
  watch.stop();
  expect(told).toEqual(['the store is not ready: The disk is full.']);
  problem = { code: 'store_full', message: 'The quota is used up.' };
  watch.stop();
  expect(told.slice(1)).toEqual(['the store is not ready: The quota is used up.']);
  problem = null;
  watch.stop();
  expect(told.slice(2)).toEqual(['the store is ready again']);
});
