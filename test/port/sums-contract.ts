import { expect, test } from 'vitest';
import type { Counter, Span, SumName } from '../../src/stores/port.ts';
import { clockOf, done, moved, newPlace, type Place, type PortFixture, putOf, type Timed, sumOf } from './changes.ts';

const EVER: Span = { kind: 'until', end: Number.MAX_SAFE_INTEGER };

/** Figures: what is spent and held, limits, windows. */
export function promisesOfSums(at: () => PortFixture, timed: Timed): void {
  test('what is held and spent adds up, and a hold is given back', async () => {
    const place = await newPlace(at().store);
    const steps: readonly [hold: number, spend: number, held: number, spent: number][] = [
      [10, 0, 10, 0],
      [5, 0, 15, 0],
      [-10, 7, 5, 7],
      [-5, 0, 0, 7],
      [0, 3, 0, 10],
    ];
    for (const [hold, spend, held, spent] of steps) {
      const answer = done(await place.commit({ sums: [sumOf('s', { hold, spend })] }));
      expect(answer.counters).toEqual([{ spent, held, rows: 1 }]);
    }
    expect(await counterOf(place, 's')).toEqual({ spent: 10, held: 0, rows: 1 });
  });

  test('what is set aside never falls below zero', async () => {
    const place = await newPlace(at().store);
    done(await place.commit({ sums: [sumOf('s', { hold: 4 })] }));
    const answer = done(await place.commit({ sums: [sumOf('s', { hold: -9, spend: 1 })] }));
    expect(answer.counters).toEqual([{ spent: 1, held: 0, rows: 1 }]);
  });

  test('a limit is reached exactly and not passed, and tells the figure as it stands', async () => {
    const place = await newPlace(at().store);
    const limit = 100;
    done(await place.commit({ sums: [sumOf('s', { spend: 40, limit })] }));
    done(await place.commit({ sums: [sumOf('s', { hold: 50, limit })] }));
    const refused = moved(await place.commit({ sums: [sumOf('s', { hold: 11, limit })] }));
    expect(refused.counters).toEqual([{ spent: 40, held: 50, rows: 1 }]);
    expect(refused.rows).toEqual([]);
    done(await place.commit({ sums: [sumOf('s', { hold: 10, limit })] }));
    moved(await place.commit({ sums: [sumOf('s', { spend: 1, limit })] }));
    done(await place.commit({ sums: [sumOf('s', { spend: 25 })] }));
    expect(await counterOf(place, 's')).toEqual({ spent: 65, held: 60, rows: 1 });
    moved(await place.commit({ sums: [sumOf('s', { limit })] }));
    moved(await place.commit({ sums: [sumOf('t', { spend: 1, limit: 0 })] }));
    done(await place.commit({ sums: [sumOf('t', { limit: 0 })] }));
  });

  test('one limit that does not hold refuses the whole change, and every figure comes back', async () => {
    const place = await newPlace(at().store);
    done(await place.commit({ sums: [sumOf('a', { spend: 1 }), sumOf('b', { spend: 2 })] }));
    const sums = [
      sumOf('a', { spend: 1, limit: 10 }),
      sumOf('b', { spend: 1, limit: 2 }),
      sumOf('c', { hold: 1, limit: 10 }),
    ];
    const refused = moved(await place.commit({ sums }));
    expect(refused.counters).toEqual([
      { spent: 1, held: 0, rows: 2 },
      { spent: 2, held: 0, rows: 2 },
      { spent: 0, held: 0, rows: 2 },
    ]);
    expect(await counterOf(place, 'a')).toEqual({ spent: 1, held: 0, rows: 2 });
  });

  test('256 changes at once on one limit: exactly as many as fit', async () => {
    const place = await newPlace(at().store);
    const sums = [sumOf('s', { hold: 7, limit: 1_000 })];
    const answers = await Promise.all(Array.from({ length: 256 }, () => place.commit({ sums })));
    expect(answers.filter((answer) => answer.kind === 'done')).toHaveLength(142);
    expect(await counterOf(place, 's')).toEqual({ spent: 0, held: 994, rows: 1 });
    const held = answers.flatMap((answer) =>
      answer.kind === 'done' ? answer.counters.map((counter) => counter.held) : [],
    );
    expect(held.toSorted((a, b) => a - b)).toEqual(Array.from({ length: 142 }, (_, index) => 7 * (index + 1)));
  });

  test('large amounts are exact, and stay at the largest', async () => {
    const place = await newPlace(at().store);
    const most = Number.MAX_SAFE_INTEGER;
    done(await place.commit({ sums: [sumOf('s', { spend: most - 1, limit: most })] }));
    done(await place.commit({ sums: [sumOf('s', { hold: 1, limit: most })] }));
    moved(await place.commit({ sums: [sumOf('s', { hold: 1, limit: most })] }));
    done(await place.commit({ sums: [sumOf('s', { hold: most, spend: most })] }));
    expect(await counterOf(place, 's')).toEqual({ spent: most, held: most, rows: 1 });
  });

  test('a group has at most so many figures that count', async () => {
    const place = await newPlace(at().store);
    const one = (name: string, most: number): ReturnType<Place['commit']> =>
      place.commit({ sums: [sumOf(name, { spend: 1, most })] });
    done(await one('a', 2));
    done(await one('b', 2));
    const refused = moved(await one('c', 2));
    expect(refused.counters).toEqual([{ spent: 0, held: 0, rows: 2 }]);
    done(await one('a', 1));
    done(await one('c', 3));
    done(await place.commit({ sums: [sumOf('other', { spend: 1, most: 1, group: 'another' })] }));
    expect(await counterOf(place, 'd')).toEqual({ spent: 0, held: 0, rows: 3 });
    const answers = await Promise.all(Array.from({ length: 8 }, (_, index) => one(`new${index}`, 6)));
    expect(answers.map((answer) => answer.kind)).toEqual([
      ...Array.from({ length: 3 }, () => 'done'),
      ...Array.from({ length: 5 }, () => 'moved'),
    ]);
  });

  test('two new figures of one group in one change count both', async () => {
    const place = await newPlace(at().store);
    const sums = [sumOf('a', { spend: 1, most: 2 }), sumOf('b', { spend: 1, most: 2 })];
    expect(done(await place.commit({ sums })).counters).toEqual([
      { spent: 1, held: 0, rows: 2 },
      { spent: 1, held: 0, rows: 2 },
    ]);
    const more = [sumOf('c', { spend: 1, most: 3 }), sumOf('d', { spend: 1, most: 3 })];
    expect(moved(await place.commit({ sums: more })).counters).toEqual([
      { spent: 0, held: 0, rows: 2 },
      { spent: 0, held: 0, rows: 2 },
    ]);
    expect(await place.store.sums(place.workspace, 10)).toHaveLength(2);
  });

  test('the text of a figure is kept for readers; null leaves it', async () => {
    const place = await newPlace(at().store);
    done(await place.commit({ sums: [sumOf('a', { spend: 1, text: 'first' }), sumOf('b', { hold: 1 })] }));
    done(await place.commit({ sums: [sumOf('a', { spend: 1 })] }));
    const listed = await place.store.sums(place.workspace, 10);
    expect(listed.toSorted((a, b) => (a.name < b.name ? -1 : 1))).toEqual([
      { name: 'a', group: 'group', text: 'first', spent: 2, held: 0, rows: 2 },
      { name: 'b', group: 'group', text: '', spent: 0, held: 1, rows: 2 },
    ]);
    done(await place.commit({ sums: [sumOf('a', { text: 'second' })] }));
    expect((await place.store.sums(place.workspace, 10)).map(({ text }) => text).toSorted()).toEqual(['', 'second']);
    expect(await place.store.sums(place.workspace, 1)).toHaveLength(1);
  });

  test('many figures are listed each once, and changes are made meanwhile', async () => {
    const place = await newPlace(at().store);
    const names = Array.from({ length: 650 }, (_, n) => `figure-${n}`);
    const sums = names.map((name, n) => sumOf(name, { spend: n + 1, group: n % 3 === 0 ? 'one' : 'other' }));
    done(await place.commit({ sums }));
    const order: string[] = [];
    const listing = place.store.sums(place.workspace, 10_000).finally(() => order.push('listed'));
    const changing = place.commit({ puts: [putOf('thing', 'a', 'x')] }).finally(() => order.push('changed'));
    const [listed] = await Promise.all([listing, changing]);
    expect(order).toEqual(['changed', 'listed']);
    expect(listed.map(({ name }) => name).toSorted()).toEqual(names.toSorted());
    for (const { name, spent, group, rows } of listed) {
      const n = names.indexOf(name);
      expect([spent, group, rows]).toEqual(n % 3 === 0 ? [n + 1, 'one', 217] : [n + 1, 'other', 433]);
    }
    for (const limit of [0, 1, 100, 250]) expect(await place.store.sums(place.workspace, limit)).toHaveLength(limit);
  });

  test('a group begins anew: nothing is spent, what is held stays', async () => {
    const place = await newPlace(at().store);
    done(
      await place.commit({
        sums: [
          sumOf('a', { spend: 5 }),
          sumOf('b', { spend: 5, hold: 2 }),
          sumOf('r', { spend: 5, span: { kind: 'rolling', ms: 3_600_000 } }),
          sumOf('x', { spend: 5, group: 'another' }),
        ],
      }),
    );
    const answer = done(
      await place.commit({ resets: ['group', 'never'], sums: [sumOf('b', { spend: 9, limit: 11 })] }),
    );
    expect(answer.counters).toEqual([{ spent: 9, held: 2, rows: 1 }]);
    const listed = await place.store.sums(place.workspace, 10);
    expect(listed.map(({ name, spent, held }) => `${name} ${spent} ${held}`).toSorted()).toEqual(['b 9 2', 'x 5 0']);
    const span: Span = { kind: 'rolling', ms: 3_600_000 };
    const again = done(await place.commit({ sums: [sumOf('a', { spend: 1 }), sumOf('r', { spend: 1, span })] }));
    expect(again.counters).toEqual([
      { spent: 1, held: 0, rows: 3 },
      { spent: 1, held: 0, rows: 3 },
    ]);
  });

  test('a refused change begins nothing anew', async () => {
    const place = await newPlace(at().store);
    done(await place.commit({ sums: [sumOf('a', { spend: 5, hold: 2 })] }));
    const refused = moved(await place.commit({ resets: ['group'], sums: [sumOf('a', { spend: 9, limit: 10 })] }));
    expect(refused.counters).toEqual([{ spent: 5, held: 2, rows: 1 }]);
    expect(await counterOf(place, 'a')).toEqual({ spent: 5, held: 2, rows: 1 });
  });

  test('a figure that was never changed is nothing, and reading makes none', async () => {
    const place = await newPlace(at().store);
    expect(await counterOf(place, 's')).toEqual({ spent: 0, held: 0, rows: 0 });
    expect(await counterOf(place, 's', { kind: 'rolling', ms: 1_000 })).toEqual({ spent: 0, held: 0, rows: 0 });
    expect(await place.store.sums(place.workspace, 10)).toEqual([]);
  });

  test('a rolling figure forgets what is a window old', async () => {
    const place = await newPlace(at().store);
    const span: Span = { kind: 'rolling', ms: 300 };
    const first = done(await place.commit({ sums: [sumOf('r', { span, spend: 3, limit: 5 })] }));
    moved(await place.commit({ until: first.now + 250, sums: [sumOf('r', { span, spend: 3, limit: 5 })] }));
    const { store, setClock } = at();
    const spentLater = async (): Promise<number | undefined> => {
      setClock?.(store.now() + 10);
      return (await counterOf(place, 'r', span)).spent;
    };
    await expect.poll(spentLater, { interval: 5 }).toBe(0);
    const { now } = done(await place.commit({ sums: [sumOf('r', { span, spend: 5, limit: 5 })] }));
    expect(now - first.now).toBeGreaterThanOrEqual(300);
  });

  timed('a rolling figure counts by slots of a thousandth, each until its end is a window ago', async () => {
    const { store } = at();
    const setClock = clockOf(at());
    const place = await newPlace(store);
    const ms = 60_000;
    const span: Span = { kind: 'rolling', ms };
    const width = ms / 1_000;
    const start = (Math.floor(store.now() / width) + 10) * width;
    const spendAt = async (now: number, spend: number): Promise<Counter | undefined> => {
      setClock(now);
      return done(await place.commit({ sums: [sumOf('r', { span, spend })] })).counters[0];
    };
    const readAt = async (now: number): Promise<number> => {
      setClock(now);
      return (await counterOf(place, 'r', span)).spent;
    };
    await spendAt(start, 1);
    await spendAt(start + width - 1, 2);
    await spendAt(start + width, 4);
    expect(await spendAt(start + 3 * width, 8)).toEqual({ spent: 15, held: 0, rows: 1 });
    expect(await readAt(start + width + ms - 1)).toBe(15);
    expect(await readAt(start + width + ms)).toBe(12);
    expect(await readAt(start + 2 * width + ms - 1)).toBe(12);
    expect(await readAt(start + 2 * width + ms)).toBe(8);
    expect(await spendAt(start + 2 * width + ms, 16)).toMatchObject({ spent: 24, rows: 1 });
    expect(await readAt(start + 4 * width + ms)).toBe(16);
    expect(await place.store.sums(place.workspace, 10)).toHaveLength(1);
    expect(await readAt(start + 3 * width + 2 * ms)).toBe(0);
    expect(await place.store.sums(place.workspace, 10)).toEqual([]);
    expect(await counterOf(place, 'r', span)).toEqual({ spent: 0, held: 0, rows: 0 });
    // Counted again from the first unit on, with room for one figure only.
    const again = done(await place.commit({ sums: [sumOf('r', { span, spend: 1, limit: 1, most: 1 })] }));
    expect(again.counters).toEqual([{ spent: 1, held: 0, rows: 1 }]);
    moved(await place.commit({ sums: [sumOf('r2', { span, spend: 1, most: 1 })] }));
  });

  timed('what ages slot by slot is taken off once, also where nobody writes', async () => {
    const { store } = at();
    const setClock = clockOf(at());
    const place = await newPlace(store);
    const ms = 60_000;
    const span: Span = { kind: 'rolling', ms };
    const width = ms / 1_000;
    const start = (Math.floor(store.now() / width) + 10) * width;
    for (let slot = 0; slot < 6; slot += 1) {
      setClock(start + slot * width);
      done(await place.commit({ sums: [sumOf('r', { span, spend: 2 ** slot })] }));
    }
    for (let slot = 0; slot < 6; slot += 1) {
      setClock(start + (slot + 1) * width + ms);
      expect((await counterOf(place, 'r', span)).spent).toBe(63 - (2 ** (slot + 1) - 1));
    }
  });

  timed('a figure counts until its span is over, and beyond while something is held', async () => {
    const { store } = at();
    const setClock = clockOf(at());
    const place = await newPlace(store);
    const end = store.now() + 1_000;
    const span: Span = { kind: 'until', end };
    const sums = [sumOf('a', { span, spend: 5, most: 2 }), sumOf('b', { span, spend: 5, hold: 1, most: 2 })];
    done(await place.commit({ sums }));
    setClock(end - 1);
    moved(await place.commit({ sums: [sumOf('c', { spend: 1, most: 2 })] }));
    expect(await place.store.prune(place.workspace, 10)).toBe(0);
    setClock(end);
    expect((await place.store.sums(place.workspace, 10)).map(({ name }) => name)).toEqual(['b']);
    const answer = done(await place.commit({ sums: [sumOf('c', { spend: 1, most: 2 })] }));
    expect(answer.counters).toEqual([{ spent: 1, held: 0, rows: 2 }]);
    expect(await place.store.prune(place.workspace, 10)).toBe(1);
    expect(await counterOf(place, 'a', span)).toEqual({ spent: 0, held: 0, rows: 2 });
    expect(await counterOf(place, 'b', span)).toEqual({ spent: 5, held: 1, rows: 2 });
    const released = done(await place.commit({ sums: [sumOf('b', { span, hold: -1 })] }));
    expect(released.counters).toMatchObject([{ held: 0, rows: 1 }]);
    expect((await place.store.sums(place.workspace, 10)).map(({ name }) => name)).toEqual(['c']);
    expect(await place.store.prune(place.workspace, 10)).toBe(1);
  });

  test('figures that count nothing are removed, at most so many at a time', async () => {
    const place = await newPlace(at().store);
    const span: Span = { kind: 'until', end: 1 };
    const sums = ['a', 'b', 'c', 'd', 'e'].map((name) => sumOf(name, { span, spend: 1 }));
    done(await place.commit({ sums: [...sums, sumOf('kept', { spend: 1 }), sumOf('held', { span, hold: 1 })] }));
    expect(await place.store.prune(place.workspace, 3)).toBe(3);
    expect(await place.store.prune(place.workspace, 3)).toBe(2);
    expect(await place.store.prune(place.workspace, 3)).toBe(0);
    expect(await counterOf(place, 'kept')).toEqual({ spent: 1, held: 0, rows: 2 });
    expect(await counterOf(place, 'a', span)).toEqual({ spent: 0, held: 0, rows: 2 });
    done(await place.commit({ sums: [sumOf('a', { span, spend: 4 })] }));
    expect((await counterOf(place, 'a', span)).spent).toBe(4);
  });
}

async function counterOf(place: Place, name: string, span = EVER, group = 'group'): Promise<Counter> {
  const sum: SumName = { name, span, group };
  const { counters } = await place.store.read(place.workspace, [], [sum]);
  const [counter] = counters;
  if (counter === undefined || counters.length !== 1) throw new Error('one figure was asked for');
  return counter;
}
