import { mkdirSync, readFileSync, renameSync, rmdirSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, it, vi } from 'vitest';
import type { StoreHealth } from '../../src/effects/store.ts';
import { type Engine, startEngine } from '../../src/stores/embedded/engine.ts';
import { storeFolder } from '../contract/embedded-store.ts';

const DAY = 86_400_000;

let path = '';
beforeEach(() => {
  path = storeFolder();
});
afterEach(() => {
  vi.useRealTimers();
  vi.restoreAllMocks();
  rmSync(path, { recursive: true });
});

function start(said: StoreHealth[] = []): Promise<Engine> {
  const options = { path, lockWaitMs: 0, clock: null, maxClockJumpMs: DAY, isOwnThread: true, program: null };
  return startEngine({ ...options, keys: new Map() }, (news) => {
    if (news.kind === 'health') said.push(news.health);
  });
}

it('a file that cannot be opened is tried again at least every five seconds, however long it was away', async () => {
  await (await start()).close();
  // The machine starts anew, with a clock that is far ahead.
  const mark = join(path, 'install.json');
  const { seen, ...known } = JSON.parse(readFileSync(mark, 'utf8'));
  writeFileSync(mark, JSON.stringify({ ...known, seen: { ...seen, boot: 'another' } }));
  const real = Date.now;
  vi.spyOn(Date, 'now').mockImplementation(() => real() + 2 * DAY);
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
  const said: StoreHealth[] = [];
  const engine = await start(said);
  expect(said.at(-1)).toMatchObject({ ready: false, problem: { code: 'clock_ahead' } });

  const [file, away] = [join(path, 'store.db'), join(path, 'away.db')];
  renameSync(file, away);
  mkdirSync(file);
  vi.restoreAllMocks();
  vi.advanceTimersByTime(60_000);
  const tried = said.filter(({ problem }) => problem?.code === 'store_unavailable').length;
  expect(tried).toBeGreaterThan(10);
  rmdirSync(file);
  renameSync(away, file);
  vi.advanceTimersByTime(5_000);
  expect(said.at(-1)).toMatchObject({ ready: true, problem: null });
  await engine.close();
});
