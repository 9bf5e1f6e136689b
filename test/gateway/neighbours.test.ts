import { afterEach, beforeEach, expect, it, vi } from 'vitest';
import { StoreUnavailable } from '../../src/effects/store.ts';
import { watchNeighbours } from '../../src/gateway/start.ts';
import type { LivePauseView } from '../../src/gateway/views.ts';
import { createDirectory } from '../../src/identity/directory.ts';

beforeEach(() => {
  vi.useFakeTimers({ toFake: ['setInterval', 'clearInterval'] });
});
afterEach(() => {
  vi.useRealTimers();
});

/** What is read again, in order, and what keeps it. */
function world() {
  const read: string[] = [];
  const state: { held: Promise<void> | null; fault: Error | null } = { held: null, fault: null };
  const note = async (what: string): Promise<void> => {
    read.push(what);
    if (state.held !== null) await state.held;
    if (state.fault !== null) throw state.fault;
  };
  const directory = {
    ...createDirectory({ workspaces: [], rolesOf: new Map() }, { workspaces: async () => [], agents: async () => [] }),
    refresh: () => note('directory'),
  };
  const pauses: LivePauseView = {
    version: () => 0,
    match: () => null,
    refresh: (workspace) => note(`pauses of ${workspace}`),
    loaded: () => ['one', 'two'],
    isLoaded: () => true,
    onChange: () => undefined,
  };
  return { read, state, stop: watchNeighbours(directory, pauses, () => note('policies')) };
}

async function pass(ms: number): Promise<void> {
  vi.advanceTimersByTime(ms);
  for (let turns = 0; turns < 5; turns += 1) await new Promise((resolve) => setImmediate(resolve));
}

const ALL = ['directory', 'policies', 'pauses of one', 'pauses of two'];

it('what other gateways changed is read well within a second, again and again, also after a look that failed', async () => {
  const { read, state, stop } = world();
  expect(read).toEqual([]);
  await pass(400);
  expect(read).toEqual(ALL);
  state.fault = new StoreUnavailable('away');
  await pass(400);
  state.fault = null;
  await pass(400);
  expect(read).toEqual([...ALL, ...ALL, ...ALL]);
  await stop();
  await pass(2_000);
  expect(read).toHaveLength(3 * ALL.length);
});

it('one look at a time; who stops waits for the one that runs', async () => {
  const { read, state, stop } = world();
  let release = (): void => undefined;
  state.held = new Promise((resolve) => (release = resolve));
  await pass(2_000);
  expect(read).toEqual(ALL);
  let isStopped = false;
  const stopping = stop().then(() => (isStopped = true));
  await pass(0);
  expect(isStopped).toBe(false);
  release();
  await stopping;
});
