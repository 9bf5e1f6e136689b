import { expect, it, vi } from 'vitest';
import type { Caller } from '../../src/api/app.ts';
import { createLists } from '../../src/api/lists.ts';
import { Refused } from '../../src/api/problem.ts';
import { createReadingTurns } from '../../src/effects/run/reading-turns.ts';
import { refund, startRig } from './rig.ts';

const AT_ONCE = 2;

function callerWith(keyId: string): Caller {
  return {
    principal: {
      kind: 'agent',
      keyId,
      workspace: 'w',
      agentId: 'bot',
      user: null,
      madeBy: null,
      keyCreatedAt: 0,
      readOnly: false,
      allowedTools: null,
    },
    view: { kind: 'own', workspace: 'w', agentId: 'bot' },
    refusal: null,
    authenticatedAt: 0,
    authenticatedInMs: 0,
  };
}

/** Lists that end when the test says so. */
function held() {
  const ends: (() => void)[] = [];
  return {
    ends,
    make: () => new Promise<void>((resolve) => ends.push(resolve)),
  };
}

it('a key has two lists made at once; others of it wait, and beyond that are refused; another key is served', async () => {
  const lists = createLists(createReadingTurns());
  const { ends, make } = held();
  const served: number[] = [];
  const crowd = Array.from({ length: AT_ONCE + 30 }, (_, n) =>
    lists.make(callerWith('crowd'), () => {
      served.push(n);
      return make();
    }),
  );
  let beyond: unknown = null;
  lists.make(callerWith('crowd'), make).catch((error: unknown) => {
    beyond = error;
  });
  await expect.poll(() => beyond).toBeInstanceOf(Refused);
  expect(beyond).toMatchObject({ problem: { code: 'too_many_requests', retryAfterMs: 1_000 } });
  expect(await lists.make(callerWith('other'), async () => 'served')).toBe('served');
  expect(ends).toHaveLength(AT_ONCE);

  let ended = 0;
  while (ended < crowd.length) {
    await expect.poll(() => ends.length).toBe(Math.min(ended + AT_ONCE, crowd.length));
    ends[ended]?.();
    ended += 1;
  }
  await Promise.all(crowd);
  // Whoever has waited longest is the next.
  expect(served).toEqual(Array.from({ length: AT_ONCE + 30 }, (_, n) => n));
  expect(await lists.make(callerWith('crowd'), async () => 'again')).toBe('again');
});

it('a place that is handed on is no second place: whoever comes then waits', async () => {
  const lists = createLists(createReadingTurns());
  const { ends, make } = held();
  const first = Array.from({ length: AT_ONCE + 1 }, () => lists.make(callerWith('k'), make));
  await expect.poll(() => ends.length).toBe(AT_ONCE);
  ends[0]?.();
  await expect.poll(() => ends.length).toBe(AT_ONCE + 1);
  let isMade = false;
  const later = lists.make(callerWith('k'), async () => {
    isMade = true;
  });
  await new Promise((resolve) => setTimeout(resolve, 20));
  expect(isMade).toBe(false);
  for (const end of ends) end();
  await Promise.all([...first, later]);
  expect(isMade).toBe(true);
});

it('a list that fails gives its place to the next', async () => {
  const lists = createLists(createReadingTurns());
  const fail = (): Promise<never> => Promise.reject(new Error('no store'));
  const results = await Promise.allSettled(Array.from({ length: 20 }, () => lists.make(callerWith('k'), fail)));
  expect(results.every(({ status }) => status === 'rejected')).toBe(true);
  expect(await lists.make(callerWith('k'), async () => 'made')).toBe('made');
});

const OF_WORKSPACE = ['effects', 'approvals', 'observed-reads', 'budgets', 'claims', 'reservations'];

it.each([...OF_WORKSPACE.map((list) => `/v1/workspaces/demo/${list}`), '/v1/beta/keys', '/v1/beta/users/maria/keys'])(
  'too many lists of %s at once are refused, and the others are answered',
  async (path) => {
    const rig = await startRig();
    try {
      const key = path.includes('/keys') ? rig.keys.admin : rig.keys.agent;
      // So that all of them arrive before the first is made.
      await rig.send('GET', path, { key });
      const all = await Promise.all(Array.from({ length: 60 }, () => rig.send('GET', path, { key })));
      const statuses = new Set(all.map(({ status }) => status));
      expect([...statuses].toSorted((a, b) => a - b)).toEqual([200, 429]);
      expect((await rig.send('GET', path, { key })).status).toBe(200);
    } finally {
      await rig.close();
    }
  },
);

it('keys, and the events of an effect, are read and rendered in turns', async () => {
  const rig = await startRig();
  try {
    const { turns } = rig.ports.store;
    const made = await rig.send('POST', '/v1/workspaces/demo/effects', { key: rig.keys.agent, body: refund() });
    for (const [path, member, key] of [
      ['/v1/beta/keys', 'keys', rig.keys.admin],
      ['/v1/beta/users/maria/keys', 'keys', rig.keys.admin],
      [`/v1/workspaces/demo/effects/${String(made.json['effect_id'])}`, 'ledger', rig.keys.agent],
    ] as const) {
      const run = vi.spyOn(turns, 'run');
      const map = vi.spyOn(turns, 'map');
      const seen = await rig.send('GET', path, { key });
      const { length: shown } = seen.json[member] as unknown as readonly unknown[];
      expect(shown).toBeGreaterThan(0);
      expect(run.mock.calls.length).toBeGreaterThan(0);
      // Once to read them, once to render them.
      expect(map.mock.calls.filter(([items]) => items.length >= shown)).toHaveLength(2);
      run.mockRestore();
      map.mockRestore();
    }
  } finally {
    await rig.close();
  }
});
