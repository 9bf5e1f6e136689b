import { expect, it } from 'vitest';
import type { Caller } from '../../src/api/app.ts';
import { createLists } from '../../src/api/lists.ts';
import { Refused } from '../../src/api/problem.ts';
import { createReadingTurns } from '../../src/effects/run/reading-turns.ts';
import { startRig } from './rig.ts';

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
  const crowd = Array.from({ length: AT_ONCE + 30 }, () => lists.make(callerWith('crowd'), make));
  const beyond = await lists.make(callerWith('crowd'), make).catch((error: unknown) => error);
  expect(beyond).toBeInstanceOf(Refused);
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
  expect(await lists.make(callerWith('crowd'), async () => 'again')).toBe('again');
});

it('a list that fails gives its place to the next', async () => {
  const lists = createLists(createReadingTurns());
  const fail = (): Promise<never> => Promise.reject(new Error('no store'));
  const results = await Promise.allSettled(Array.from({ length: 20 }, () => lists.make(callerWith('k'), fail)));
  expect(results.every(({ status }) => status === 'rejected')).toBe(true);
  expect(await lists.make(callerWith('k'), async () => 'made')).toBe('made');
});

it.each(['effects', 'approvals', 'observed-reads', 'budgets', 'claims', 'reservations'])(
  'too many lists of %s at once are refused, and the others are answered',
  async (list) => {
    const rig = await startRig();
    try {
      const path = `/v1/workspaces/demo/${list}`;
      const key = rig.keys.agent;
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
