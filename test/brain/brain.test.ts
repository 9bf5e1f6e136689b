import { afterEach, expect, it, vi } from 'vitest';
import { ANSWER_CHARACTERS, Brain } from '../../src/brain/brain.ts';
import { BadQuestion, BrainNotReady, MOST_HITS } from '../../src/brain/port.ts';
import { WorkspaceIndex } from '../../src/brain/workspace-index.ts';
import type { EntityStore } from '../../src/effects/entity-store.ts';
import { type Entity, textOfEntity } from '../../src/effects/model/entity.ts';
import { createReadingTurns } from '../../src/effects/run/reading-turns.ts';
import { embeddedIn } from '../contract/embedded-store.ts';
import { RETENTION, type StoreUnderTest } from '../contract/fixture.ts';
import { openEmbeddedStore } from '../../src/gateway/embedded-store.ts';

const WS = 'demo';
const ACTOR = { type: 'user', id: 'maria' } as const;
const LIMITS = { entities: 100_000, characters: 2 ** 26 };

let opened: StoreUnderTest | null = null;
afterEach(async () => {
  vi.restoreAllMocks();
  await opened?.close();
  opened = null;
});

async function open(): Promise<{ readonly store: EntityStore; put(...entities: Entity[]): Promise<unknown> }> {
  opened = await embeddedIn(openEmbeddedStore, 'never')({ retention: RETENTION, clock: () => 1_750_000_000_000 });
  const { store } = opened;
  return {
    store,
    put: (...entities) =>
      store.putEntities({
        workspace: WS,
        actor: ACTOR,
        limits: LIMITS,
        entities: entities.map((entity) => {
          const body = textOfEntity(entity);
          const { type, id } = entity;
          return { type, id, body, digest: body, characters: body.length, origin: { kind: 'api', by: ACTOR } };
        }),
      }),
  };
}

function brainOn(
  store: EntityStore,
  failed: (workspace: string, error: unknown) => void = () => undefined,
  waitMs = 5000,
) {
  const turns = createReadingTurns({
    now: () => performance.now(),
    used: () => 0,
    after: (_, work) => setImmediate(work),
  });
  const brain = new Brain({ store, turns, failed, waitMs });
  const ids = async (query: string, limit = 50): Promise<string[]> =>
    (await brain.query(WS, { query, entityType: 'customer', joinTo: null, limit })).entities.map(({ id }) => id);
  return { brain, ids };
}

const customer = (id: string, name = `Name ${id}`): Entity => ({
  type: 'customer',
  id,
  name,
  attributes: {},
  links: [],
});

it('follows what is put, changed and removed, in many slices', async () => {
  const { store, put } = await open();
  for (let from = 0; from < 300; from += 100)
    await put(...Array.from({ length: 100 }, (_, at) => customer(`c${from + at}`)));
  const { brain, ids } = brainOn(store);
  expect(await ids('name')).toHaveLength(50);
  expect(await ids('c299')).toEqual(['c299']);
  await put(customer('c1', 'Zebra'));
  await brain.caughtUp(WS);
  expect(await ids('zebra')).toEqual(['c1']);
  await store.removeEntities({
    workspace: WS,
    entities: [{ type: 'customer', id: 'c1' }],
    origin: 'api',
    actor: ACTOR,
  });
  await brain.caughtUp(WS);
  expect(await ids('zebra')).toEqual([]);
  await put(customer('c1', 'Zebra'));
  await brain.caughtUp(WS);
  expect(await ids('zebra')).toEqual(['c1']);
  brain.close();
});

it('finds out what was removed when more was than the store remembers', async () => {
  const { store, put } = await open();
  for (let from = 0; from < 300; from += 100)
    await put(...Array.from({ length: 100 }, (_, at) => customer(`c${from + at}`)));
  const { brain, ids } = brainOn(store);
  await ids('name');
  for (let from = 0; from < 300; from += 100) {
    const entities = Array.from({ length: 100 }, (_, at) => ({ type: 'customer', id: `c${from + at}` }));
    await store.removeEntities({ workspace: WS, entities: entities.slice(1), origin: 'api', actor: ACTOR });
  }
  await brain.caughtUp(WS);
  // What is gone is in no answer anyway, so the index is asked how much it has.
  const { entities, truncated } = await brain.query(WS, {
    query: 'name',
    entityType: 'customer',
    joinTo: null,
    limit: 3,
  });
  expect(entities.map(({ id }) => id).toSorted()).toEqual(['c0', 'c100', 'c200']);
  expect(truncated).toBe(false);
  brain.close();
});

it('is built anew when most of it is left over, and goes on answering', async () => {
  const { store, put } = await open();
  const { brain, ids } = brainOn(store);
  for (let round = 0; round < 55; round += 1)
    await put(...Array.from({ length: 100 }, (_, at) => customer(`c${at}`, `Round ${round} number${at}`)));
  // Each entity is read as it is now, so the rounds have to be followed one by one.
  await ids('round');
  const listed = vi.spyOn(store, 'entitiesSince');
  for (let round = 55; round < 110; round += 1) {
    await put(...Array.from({ length: 100 }, (_, at) => customer(`c${at}`, `Round ${round} number${at}`)));
    await brain.caughtUp(WS);
  }
  expect(listed.mock.calls.some(([, version]) => version === 0)).toBe(true);
  expect(await ids('number7')).toContain('c7');
  expect(await ids('109', 50)).toHaveLength(50);
  brain.close();
});

it('says that it is not ready while entities are read, and is later', async () => {
  const { store, put } = await open();
  await put(customer('c1'));
  let go: () => void = () => undefined;
  const held = new Promise<void>((resolve) => {
    go = resolve;
  });
  const slow: EntityStore = {
    ...store,
    entitiesSince: (...asked) => held.then(() => store.entitiesSince(...asked)),
  };
  const { brain, ids } = brainOn(slow, undefined, 1);
  await expect(ids('c1')).rejects.toThrow(BrainNotReady);
  go();
  await brain.caughtUp(WS);
  expect(await ids('c1')).toEqual(['c1']);
  brain.close();
});

it('a question waits up to five seconds for the first reading', async () => {
  const { store, put } = await open();
  await put(customer('c1'));
  const endless: EntityStore = { ...store, entitiesSince: () => new Promise(() => undefined) };
  const turns = createReadingTurns({
    now: () => performance.now(),
    used: () => 0,
    after: (_, work) => setImmediate(work),
  });
  const brain = new Brain({ store: endless, turns, failed: () => undefined });
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
  try {
    const question = { query: 'c1', entityType: 'customer', joinTo: null, limit: 1 } as const;
    let said: unknown = null;
    const asked = brain.query(WS, question).catch((error: unknown) => (said = error));
    await vi.advanceTimersByTimeAsync(4_999);
    expect(said).toBeNull();
    await vi.advanceTimersByTimeAsync(1);
    await asked;
    expect(said).toBeInstanceOf(BrainNotReady);
  } finally {
    vi.useRealTimers();
    brain.close();
  }
});

it('says when the store cannot be read, and tries again', async () => {
  const { store, put } = await open();
  await put(customer('c1'));
  let broken = true;
  const flaky: EntityStore = {
    ...store,
    brainState: (workspace) => (broken ? Promise.reject(new Error('away')) : store.brainState(workspace)),
  };
  const failed = vi.fn();
  const { brain, ids } = brainOn(flaky, failed);
  await expect(ids('c1')).rejects.toThrow('away');
  expect(failed).toHaveBeenCalledWith(WS, expect.any(Error));
  broken = false;
  expect(await ids('c1')).toEqual(['c1']);
  brain.close();
});

it('tries again by itself a second after the store could not be read', async () => {
  const { store, put } = await open();
  await put(customer('c1'));
  let asked = 0;
  const away: EntityStore = {
    ...store,
    brainState() {
      asked += 1;
      return Promise.reject(new Error('away'));
    },
  };
  const { brain, ids } = brainOn(away);
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
  try {
    await expect(ids('c1')).rejects.toThrow('away');
    expect(asked).toBe(1);
    await vi.advanceTimersByTimeAsync(1000);
    expect(asked).toBe(2);
    brain.close();
  } finally {
    vi.useRealTimers();
  }
});

it('finds what changed while it looked, though the look had begun before', async () => {
  const { store, put } = await open();
  await put(customer('c1'));
  let late: (() => Promise<unknown>) | null = null;
  const slow: EntityStore = {
    ...store,
    // What it answers is of before, and comes after the change was heard of: one thread reads, and another writes.
    async brainState(workspace) {
      const before = await store.brainState(workspace);
      const change = late;
      late = null;
      await change?.();
      return before;
    },
  };
  const { brain, ids } = brainOn(slow);
  await ids('c1');
  late = () => put(customer('c2'));
  await brain.caughtUp(WS);
  await vi.waitFor(async () => expect(await ids('c2')).toEqual(['c2']));
  brain.close();
});

it('finds what was removed and put again between two looks', async () => {
  const { store, put } = await open();
  await put(customer('c1', 'Zebra'), customer('c2'));
  // Nobody tells it that something has changed: it looks when it is asked to.
  const { brain, ids } = brainOn({ ...store, onEntitiesChanged: () => undefined });
  expect(await ids('zebra')).toEqual(['c1']);
  const entities = [{ type: 'customer', id: 'c1' }];
  await store.removeEntities({ workspace: WS, entities, origin: 'api', actor: ACTOR });
  await put(customer('c1', 'Zebra'));
  await brain.caughtUp(WS);
  expect(await ids('zebra')).toEqual(['c1']);
  brain.close();
});

it('begins anew when the store has less than it had', async () => {
  const { store, put } = await open();
  await put(customer('c1'));
  await put(customer('c2'));
  let isEmptied = false;
  const emptied: EntityStore = {
    ...store,
    onEntitiesChanged: () => undefined,
    async brainState(workspace) {
      const state = await store.brainState(workspace);
      return isEmptied ? { ...state, version: 1, entities: 0 } : state;
    },
    entitiesSince: async (...asked) => (isEmptied ? { entities: [], next: null } : store.entitiesSince(...asked)),
    entities: async (workspace, refs) => (isEmptied ? refs.map(() => null) : store.entities(workspace, refs)),
  };
  const { brain } = brainOn(emptied);
  const one = { query: 'name', entityType: 'customer', joinTo: null, limit: 1 } as const;
  // The second is what there is more of; the index is asked, since what is gone is in no answer anyway.
  expect((await brain.query(WS, one)).truncated).toBe(true);
  isEmptied = true;
  await brain.caughtUp(WS);
  expect(await brain.query(WS, one)).toMatchObject({ entities: [], truncated: false });
  brain.close();
});

it('names as sources what was found and what it is linked with; what was cut is told', async () => {
  const { store, put } = await open();
  const of = { rel: 'of', type: 'customer', id: 'hub' };
  const spoke = (at: number): Entity => ({ ...customer(`s${at}`, 'Spoke'), type: 'order', links: [of] });
  await put(customer('hub', 'Hub'), ...Array.from({ length: 25 }, (_, at) => spoke(at)));
  const { brain } = brainOn(store);
  const question = { query: 'hub', entityType: 'customer', joinTo: 'order', limit: 10 } as const;
  const { joined, sources, truncated } = await brain.query(WS, question);
  expect(joined.map(({ entities }) => entities.length)).toEqual([20]);
  expect(sources).toHaveLength(21);
  expect(truncated).toBe(true);
  brain.close();
});

it('a hundred linked entities are shown of all hits; questions are of the form that is said', async () => {
  const { store, put } = await open();
  const spoke = (hub: number, at: number): Entity => ({
    ...customer(`s${hub}-${at}`, 'Spoke'),
    type: 'order',
    links: [{ rel: 'of', type: 'customer', id: `hub${hub}` }],
  });
  for (let hub = 0; hub < 7; hub += 1)
    await put(customer(`hub${hub}`, 'Hub'), ...Array.from({ length: 15 }, (_, at) => spoke(hub, at)));
  const { brain } = brainOn(store);
  const question = { query: 'hub', entityType: 'customer', joinTo: 'order', limit: 10 } as const;
  const { joined, truncated } = await brain.query(WS, question);
  expect(joined.map(({ entities }) => entities.length)).toEqual([15, 15, 15, 15, 15, 15, 10]);
  expect(truncated).toBe(true);
  const ask = (change: Partial<Parameters<typeof brain.query>[1]>) => brain.query(WS, { ...question, ...change });
  await expect(ask({ query: 'h'.repeat(256), limit: MOST_HITS })).resolves.toBeDefined();
  await expect(ask({ query: 'h'.repeat(257) })).rejects.toThrow(BadQuestion);
  await expect(ask({ limit: MOST_HITS + 1 })).rejects.toThrow(BadQuestion);
  await expect(ask({ limit: 0 })).rejects.toThrow(BadQuestion);
  await expect(ask({ entityType: '1x' })).rejects.toThrow('entity_type must be the type of entities');
  await expect(ask({ joinTo: 'an order' })).rejects.toThrow('join_to.entity_type must be the type of entities');
  brain.close();
});

it('20,000 links are looked at for all hits of a question together', async () => {
  const { store, put } = await open();
  await put(customer('c1', 'Same'), customer('c2', 'Same'), customer('c3', 'Same'));
  const { brain } = brainOn(store);
  let each = 0;
  vi.spyOn(WorkspaceIndex.prototype, 'linked').mockImplementation((_of, _type, _limit, budget) => {
    const more = budget.left < each;
    budget.left -= each;
    return { linked: [], more };
  });
  const isCut = async (links: number): Promise<boolean> => {
    each = links;
    return (await brain.query(WS, { query: 'same', entityType: 'customer', joinTo: 'order', limit: 3 })).truncated;
  };
  expect([await isCut(6_666), await isCut(6_667)]).toEqual([false, true]);
  brain.close();
});

it('cuts answers that would be too large, and says so', async () => {
  const { store, put } = await open();
  const note = 'x'.repeat(16_000);
  await put(
    ...Array.from({ length: 60 }, (_, at) => ({
      ...customer(`c${at}`, 'Same'),
      attributes: { note },
      links: [{ rel: 'of', type: 'customer', id: `c${(at + 50) % 60}` }],
    })),
  );
  const { brain } = brainOn(store);
  const read = vi.spyOn(store, 'entities');
  const { entities, joined, sources, truncated } = await brain.query(WS, {
    query: 'same',
    entityType: 'customer',
    joinTo: 'customer',
    limit: 50,
  });
  expect(truncated).toBe(true);
  expect(entities.length).toBe(32);
  // Where something comes from that is not shown is not told, and what has no room is not read.
  expect(new Set(sources.map(({ id }) => id))).toEqual(
    new Set([...entities, ...joined.flatMap((join) => join.entities)].map(({ id }) => id)),
  );
  expect(read.mock.calls.flatMap(([, refs]) => refs).length).toBe(50);
  expect(JSON.stringify({ entities, joined }).length).toBeLessThan(ANSWER_CHARACTERS * 1.05);
  brain.close();
});

it('an entity that is shown often counts as often as it is shown', async () => {
  const { store, put } = await open();
  const hub = { ...customer('hub', 'Hub'), type: 'company', attributes: { note: 'x'.repeat(16_000) } };
  const of = { rel: 'of', type: 'company', id: 'hub' };
  await put(hub, ...Array.from({ length: 50 }, (_, at) => ({ ...customer(`c${at}`, 'Same'), links: [of] })));
  const { brain } = brainOn(store);
  const answer = await brain.query(WS, { query: 'same', entityType: 'customer', joinTo: 'company', limit: 50 });
  expect(answer.entities).toHaveLength(50);
  expect(answer.joined).toHaveLength(32);
  expect(answer.truncated).toBe(true);
  brain.close();
});

it('a hit that was removed since it was found is not shown, and neither is what it is linked with', async () => {
  const { store, put } = await open();
  const link = { rel: 'of', type: 'order', id: 'o1' };
  await put(
    { ...customer('c1', 'Same'), links: [link] },
    { ...customer('c2', 'Same'), links: [link] },
    {
      ...customer('o1', 'Order'),
      type: 'order',
    },
  );
  const { brain } = brainOn({ ...store, onEntitiesChanged: () => undefined });
  const question = { query: 'same', entityType: 'customer', joinTo: 'order', limit: 10 } as const;
  expect((await brain.query(WS, question)).joined.map(({ of }) => of.id)).toEqual(['c1', 'c2']);
  const entities = [{ type: 'customer', id: 'c1' }];
  await store.removeEntities({ workspace: WS, entities, origin: 'api', actor: ACTOR });
  // Nobody has told the index, so it still finds both.
  const answer = await brain.query(WS, question);
  expect(answer.entities.map(({ id }) => id)).toEqual(['c2']);
  expect(answer.joined.map(({ of }) => of.id)).toEqual(['c2']);
  expect(answer.sources.map(({ id }) => id).toSorted()).toEqual(['c2', 'o1']);
  brain.close();
});

it('what changes while it is read is found when the reading is over', async () => {
  const { store, put } = await open();
  await put(customer('c1', 'First'));
  let changed = false;
  const meanwhile: EntityStore = {
    ...store,
    async entitiesSince(...asked) {
      const slice = await store.entitiesSince(...asked);
      if (!changed) {
        changed = true;
        await put(customer('c2', 'Second'));
        const entities = [{ type: 'customer', id: 'c1' }];
        await store.removeEntities({ workspace: WS, entities, origin: 'api', actor: ACTOR });
      }
      return slice;
    },
    onEntitiesChanged: () => undefined,
  };
  const { brain, ids } = brainOn(meanwhile);
  const one = await brain.query(WS, { query: 'first', entityType: 'customer', joinTo: null, limit: 1 });
  expect(one).toMatchObject({ entities: [], truncated: false });
  expect(await ids('second')).toEqual(['c2']);
  brain.close();
});

it('who wrote waits until it is found, and where nobody has asked yet, for nothing', async () => {
  const { store, put } = await open();
  let go: () => void = () => undefined;
  let held: Promise<void> | null = null;
  const slow: EntityStore = {
    ...store,
    entitiesSince: async (...asked) => {
      await held;
      return store.entitiesSince(...asked);
    },
  };
  const { brain, ids } = brainOn(slow);
  held = new Promise((resolve) => {
    go = resolve;
  });
  await put(customer('c1', 'First'));
  await brain.written(WS);
  go();
  expect(await ids('first')).toEqual(['c1']);

  held = new Promise((resolve) => {
    go = resolve;
  });
  await put(customer('c2', 'Second'));
  const found = brain.written(WS).then(() => ids('second'));
  expect(await ids('second')).toEqual([]);
  go();
  expect(await found).toEqual(['c2']);

  const hasty = brainOn(slow, undefined, 5);
  await vi.waitFor(() => hasty.ids('first'), 10_000);
  held = new Promise(() => undefined);
  await put(customer('c3', 'Third'));
  await hasty.brain.written(WS);
  expect(await hasty.ids('third')).toEqual([]);
  brain.close();
  hasty.brain.close();
});
