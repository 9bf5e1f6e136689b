import { expect, it } from 'vitest';
import type { Draft } from '../../src/records/draft.ts';
import { createStepRunner, First } from '../../src/records/runner.ts';
import { StoreUnavailable } from '../../src/effects/store.ts';
import type { RowStore } from '../../src/stores/port.ts';
import { emptyRows, mapStore } from '../port/map-rows.ts';

const put = (draft: Draft, id: string, text: string | null): void => {
  draft.row('k', id);
  draft.put('k', id, text, [], []);
};

/** Makes no sense of one without the other. */
const both = (draft: Draft): string => {
  const one = draft.row('k', 'one');
  const other = draft.row('k', 'other');
  if ((one === null) !== (other === null)) throw new TypeError('one without the other');
  draft.events([{ about: null, text: one === null ? 'none' : 'both' }]);
  return one === null ? 'none' : 'both';
};

it('a step that makes no sense of rows of different moments is run again on rows of one', async () => {
  const store = mapStore(emptyRows(), () => 1000);
  const [mine, others] = [createStepRunner(store), createStepRunner(store)];
  await others.run('w', (draft) => put(draft, 'other', 'there'));
  await mine.run('w', (draft) => put(draft, 'one', 'there'));
  await others.run('w', (draft) => (put(draft, 'one', null), put(draft, 'other', null)));
  expect((await mine.run('w', both)).result).toBe('none');
  await others.run('w', (draft) => put(draft, 'one', 'there'));
  await expect(mine.run('w', both)).rejects.toThrow('one without the other');
  await expect(mine.peek('w', both)).rejects.toThrow('one without the other');
});

it('what is under way is not shown before it is made, and does not hold up who looks', async () => {
  const store = mapStore(emptyRows(), () => 1000);
  let goOn = (): void => {};
  const held = new Promise<void>((resolve) => {
    goOn = resolve;
  });
  const slow: RowStore = { ...store, commit: (change) => held.then(() => store.commit(change)) };
  const runner = createStepRunner(slow);
  const writing = runner.run('w', (draft) => put(draft, 'one', 'there'));
  const shown = (): Promise<string | null> => runner.peek('w', (draft) => draft.row('k', 'one')?.text ?? null);
  expect(await shown()).toBeNull();
  goOn();
  await writing;
  expect(await shown()).toBe('there');
});

it('what has to be committed first is seen by the step that is run again', async () => {
  const runner = createStepRunner(mapStore(emptyRows(), () => 1000));
  const step = (draft: Draft): string => {
    const there = draft.row('k', 'one');
    if (there !== null) return there.text;
    throw new First(() => runner.run('w', (first) => put(first, 'one', 'committed first')));
  };
  expect(await runner.peek('w', step)).toBe('committed first');
  expect((await runner.run('w', step)).result).toBe('committed first');
});

it('an answer from elsewhere that cannot be read rejects, and holds up no close', async () => {
  const runner = createStepRunner(mapStore(emptyRows(), () => 1000));
  const asked: string[] = [];
  const answering = (request: string, done: (answer: string) => void): void => {
    asked.push(request);
    queueMicrotask(() => done('an answer'));
  };
  const failing = (_: string, __: unknown, failed: (error: Error) => void): void => failed(new Error('no store'));
  const unreadable = (): never => {
    throw new TypeError('cannot be read');
  };
  await expect(runner.elsewhere(answering, 'one', unreadable, true)).rejects.toThrow('cannot be read');
  await expect(runner.elsewhere(failing, 'two', String, true)).rejects.toThrow('no store');
  expect(await runner.elsewhere(answering, 'three', String, true)).toBe('an answer');
  expect(runner.commits()).toMatchObject({ done: 2 });
  await runner.close();
  await expect(runner.elsewhere(answering, 'four', String, true)).rejects.toThrow('The store is closed.');
  expect(asked).toEqual(['one', 'three']);
});

it('a step whose rows have changed each time is given up after its sixth run, and not before', async () => {
  const store = mapStore(emptyRows(), () => 1000);
  const others = createStepRunner(store);
  let left = 0;
  const contended: RowStore = {
    ...store,
    async commit(change) {
      if (left > 0) {
        left -= 1;
        await others.run('w', (draft) => put(draft, 'one', `other ${left}`));
      }
      return store.commit(change);
    },
  };
  const runner = createStepRunner(contended);
  left = 5;
  await runner.run('w', (draft) => put(draft, 'one', 'mine'));
  expect(runner.commits()).toEqual({ done: 1, moved: 5, givenUp: 0 });
  left = 6;
  const busy = runner.run('w', (draft) => put(draft, 'one', 'mine again'));
  await expect(busy).rejects.toThrow(StoreUnavailable);
  await expect(busy).rejects.toThrow('Send the same call again.');
  expect(runner.commits()).toEqual({ done: 1, moved: 11, givenUp: 1 });
  expect(await runner.peek('w', (draft) => draft.row('k', 'one')?.text)).toBe('other 0');
});

it('a change that nobody knows the outcome of is not taken to be made, and holds up no close', async () => {
  const store = mapStore(emptyRows(), () => 1000);
  let isAway = false;
  const away: RowStore = {
    ...store,
    commit: (change) => (isAway ? Promise.reject(new StoreUnavailable('away')) : store.commit(change)),
  };
  const runner = createStepRunner(away);
  await runner.run('w', (draft) => put(draft, 'one', 'there'));
  isAway = true;
  await expect(runner.run('w', (draft) => put(draft, 'one', 'lost'))).rejects.toThrow('away');
  isAway = false;
  const seen: (string | undefined)[] = [];
  await runner.run('w', (draft) => {
    seen.push(draft.row('k', 'one')?.text);
    put(draft, 'two', 'there');
  });
  expect(new Set(seen)).toEqual(new Set(['there']));
  await runner.close();
  await expect(runner.run('w', (draft) => put(draft, 'one', 'late'))).rejects.toThrow('The store is closed.');
});

it('a first look at a workspace that fails is made again by the next step', async () => {
  const store = mapStore(emptyRows(), () => 1000);
  let isAway = true;
  const away: RowStore = {
    ...store,
    read: (...asked) => (isAway ? Promise.reject(new StoreUnavailable('away')) : store.read(...asked)),
  };
  const runner = createStepRunner(away);
  await expect(runner.run('w', (draft) => put(draft, 'one', 'lost'))).rejects.toThrow('away');
  isAway = false;
  await runner.run('w', (draft) => put(draft, 'one', 'there'));
  expect(await runner.peek('w', (draft) => draft.row('k', 'one')?.text)).toBe('there');
});

it('the time of a step never goes back behind what the store has said, whichever answer comes last', async () => {
  let clock = 1_000;
  const store = mapStore(emptyRows(), () => clock);
  const said = [9_000, 5_000, 7_000];
  const runner = createStepRunner({
    ...store,
    read: async (...asked) => ({ ...(await store.read(...asked)), now: said.shift() ?? 0 }),
  });
  const seen: number[] = [];
  await runner.peek('w', (draft) => {
    seen.push(draft.now);
    draft.row('k', 'one');
    draft.row('k', 'other');
  });
  expect(new Set(seen)).toEqual(new Set([9_000]));
  clock = 12_000;
  await runner.run('w', (draft) => seen.push(draft.now));
  expect(seen.at(-1)).toBe(12_000);
});

it('a new epoch is that of the next change, whether the store said it with a refusal or with what was made', async () => {
  const rows = emptyRows();
  const store = mapStore(rows, () => 1000);
  const epochs: number[] = [];
  const runner = createStepRunner({
    ...store,
    commit(change) {
      epochs.push(change.epoch);
      return store.commit(change);
    },
  });
  await runner.run('w', (draft) => put(draft, 'one', 'there'));
  rows.epoch = 2;
  await runner.run('w', (draft) => put(draft, 'one', 'after a fail-over'));
  expect(epochs).toEqual([1, 1, 2]);
});

it('what makes no sense beside a change that is under way is judged by what the store has', async () => {
  const store = mapStore(emptyRows(), () => 1000);
  let goOn = (): void => {};
  const held = new Promise<void>((resolve) => {
    goOn = resolve;
  });
  let reads = 0;
  const runner = createStepRunner({
    ...store,
    read: (...asked) => ((reads += 1), store.read(...asked)),
    commit: (change) => held.then(() => store.commit(change)),
  });
  const writing = runner.run('w', (draft) => put(draft, 'one', 'there'));
  await expect.poll(() => reads).toBeGreaterThan(0);
  expect(await runner.peek('w', both)).toBe('none');
  expect(reads).toBeLessThan(10);
  goOn();
  await writing;
});

it('who closes waits for what is under way', async () => {
  const store = mapStore(emptyRows(), () => 1000);
  let goOn = (): void => {};
  const held = new Promise<void>((resolve) => {
    goOn = resolve;
  });
  const runner = createStepRunner({ ...store, commit: (change) => held.then(() => store.commit(change)) });
  const order: string[] = [];
  const writing = runner.run('w', (draft) => put(draft, 'one', 'there')).then(() => order.push('made'));
  const closing = runner.close().then(() => order.push('closed'));
  for (let turn = 0; turn < 5; turn += 1) await new Promise((resolve) => setImmediate(resolve));
  goOn();
  await Promise.all([writing, closing]);
  expect(order).toEqual(['made', 'closed']);
});

it('a step that asks for more and more is given up after two hundred reads', async () => {
  const store = mapStore(emptyRows(), () => 1000);
  let reads = 0;
  const counting: RowStore = { ...store, read: (...asked) => ((reads += 1), store.read(...asked)) };
  const greedy = (most: number) => (draft: Draft) => {
    for (let n = 0; n < most; n += 1) draft.row('k', `row ${n}`);
  };
  await createStepRunner(counting).run('w', greedy(150));
  reads = 0;
  await expect(createStepRunner(counting).run('w', greedy(400))).rejects.toThrow(StoreUnavailable);
  expect(reads).toBe(200);
});
