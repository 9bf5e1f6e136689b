import { expect, test } from 'vitest';
import { changeId, done, listOf, moved, newPlace, type Place, type PortFixture, putOf } from './changes.ts';

/** Lists: what stands in them, and slices of them. */
export function promisesOfLists(at: () => PortFixture): void {
  test('a row enters lists, leaves them, and moves within one', async () => {
    const place = await newPlace(at().store);
    const [first, second, third] = [changeId(), changeId(), changeId()];
    const enter = [
      { list: 'all', at: 10 },
      { list: 'open', at: 10 },
      { list: 'due', at: 500 },
    ];
    done(await place.commit({ id: first, puts: [putOf('thing', 'a', 'one', { enter })] }));
    expect([await place.ids('all'), await place.ids('open'), await place.ids('due')]).toEqual([['a'], ['a'], ['a']]);
    done(
      await place.commit({
        id: second,
        puts: [
          putOf('thing', 'a', 'two', {
            version: first,
            enter: [
              { list: 'closed', at: 20 },
              { list: 'due', at: 700 },
            ],
            leave: [
              { list: 'open', at: 10 },
              { list: 'due', at: 500 },
            ],
          }),
        ],
      }),
    );
    const { entries, more } = await place.store.list(listOf(place.workspace, 'due'));
    expect(entries).toEqual([{ at: 700, id: 'a', row: { version: second, text: 'two' } }]);
    expect(more).toBe(false);
    expect([await place.ids('all'), await place.ids('open'), await place.ids('closed')]).toEqual([['a'], [], ['a']]);
    const places = [{ list: 'all', at: 10 }];
    done(
      await place.commit({
        id: third,
        puts: [putOf('thing', 'a', 'three', { version: second, enter: places, leave: places })],
      }),
    );
    expect(await place.ids('all')).toEqual(['a']);
    const leave = [...places, { list: 'closed', at: 20 }, { list: 'due', at: 700 }, { list: 'never', at: 1 }];
    done(await place.commit({ puts: [putOf('thing', 'a', null, { version: third, leave })] }));
    expect([await place.ids('all'), await place.ids('due'), await place.ids('closed')]).toEqual([[], [], []]);
  });

  test('rows are shown by their names, in the order of the names, and what is not there is null', async () => {
    const place = await newPlace(at().store);
    const id = changeId();
    done(await place.commit({ id, puts: [putOf('thing', 'a', 'one', {}), putOf('other', 'a', 'two', {})] }));
    const names = [
      { kind: 'other', id: 'a' },
      { kind: 'thing', id: 'b' },
      { kind: 'thing', id: 'a' },
      { kind: 'never', id: 'a' },
    ];
    const shown = [{ version: id, text: 'two' }, null, { version: id, text: 'one' }, null];
    expect(await place.store.rows(place.workspace, names)).toEqual(shown);
    expect(await place.store.rows('nowhere', names)).toEqual([null, null, null, null]);
    expect(await place.store.rows(place.workspace, [])).toEqual([]);
  });

  test('of many large rows the first are shown, as far as they fit, and who asks again gets the rest', async () => {
    const place = await newPlace(at().store);
    const names = Array.from({ length: 5 }, (_, n) => ({ kind: 'thing', id: `large${n}` }));
    for (const { kind, id } of names)
      done(await place.commit({ puts: [putOf(kind, id, id.repeat(60_000), { enter: [{ list: 'large', at: 1 }] })] }));
    const found: string[] = [];
    while (found.length < names.length) {
      const some = await place.store.rows(place.workspace, names.slice(found.length));
      expect(some.length).toBeGreaterThan(0);
      found.push(...some.map((row) => row?.text ?? ''));
    }
    expect(found).toEqual(names.map(({ id }) => id.repeat(60_000)));
  });

  test('a refused put neither enters nor leaves', async () => {
    const place = await newPlace(at().store);
    done(await place.commit({ puts: [putOf('thing', 'a', 'x', { enter: [{ list: 'l', at: 1 }] })] }));
    const put = putOf('thing', 'a', 'y', { leave: [{ list: 'l', at: 1 }], enter: [{ list: 'm', at: 1 }] });
    moved(await place.commit({ puts: [put] }));
    expect([await place.ids('l'), await place.ids('m')]).toEqual([['a'], []]);
  });

  test('slices are in order of place and id, up and down, within bounds that count', async () => {
    const place = await newPlace(at().store);
    await fill(place, [
      ['d', 30],
      ['b', 20],
      ['a', 20],
      ['c', 20],
      ['z', 10],
      ['e', 40],
    ]);
    expect(await place.ids('l')).toEqual(['z', 'a', 'b', 'c', 'd', 'e']);
    expect(await place.ids('l', { order: 'down' })).toEqual(['e', 'd', 'c', 'b', 'a', 'z']);
    expect(await place.ids('l', { from: 20 })).toEqual(['a', 'b', 'c', 'd', 'e']);
    expect(await place.ids('l', { to: 20 })).toEqual(['z', 'a', 'b', 'c']);
    expect(await place.ids('l', { from: 20, to: 30, order: 'down' })).toEqual(['d', 'c', 'b', 'a']);
    expect(await place.ids('l', { from: 21, to: 29 })).toEqual([]);
    expect(await place.ids('l', { after: { at: 20, id: 'b' } })).toEqual(['c', 'd', 'e']);
    expect(await place.ids('l', { after: { at: 20, id: 'b' }, order: 'down' })).toEqual(['a', 'z']);
    expect(await place.ids('l', { after: { at: 20, id: 'b' }, to: 20 })).toEqual(['c']);
    expect(await place.ids('l', { after: { at: 20, id: 'b' }, from: 20, order: 'down' })).toEqual(['a']);
    expect(await place.ids('l', { after: { at: 5, id: 'x' }, from: 20, to: 20 })).toEqual(['a', 'b', 'c']);
    // Beyond a place that no row has any more.
    expect(await place.ids('l', { after: { at: 20, id: 'bb' } })).toEqual(['c', 'd', 'e']);
    expect(await place.ids('l', { after: { at: 25, id: '' } })).toEqual(['d', 'e']);
    expect(await place.ids('l', { after: { at: 25, id: '' }, order: 'down' })).toEqual(['c', 'b', 'a', 'z']);
    expect(await place.ids('m')).toEqual([]);
  });

  test('a slice has at most `limit` entries, and `more` says whether others follow', async () => {
    const place = await newPlace(at().store);
    await fill(
      place,
      Array.from('abcdefg').map((id, index) => [id, index < 4 ? 1 : 2]),
    );
    for (const order of ['up', 'down'] as const) {
      for (const limit of [1, 2, 3, 7, 8]) {
        const seen = await pages(place, { order, limit });
        expect(seen.map(({ id }) => id).join('')).toBe(order === 'up' ? 'abcdefg' : 'gfedcba');
      }
    }
    expect((await place.store.list(listOf(place.workspace, 'l', { limit: 7 }))).more).toBe(false);
    expect((await place.store.list(listOf(place.workspace, 'l', { limit: 6 }))).more).toBe(true);
    expect((await place.store.list(listOf(place.workspace, 'l', { limit: 4, to: 1 }))).more).toBe(false);
  });

  test('a slice has at most so many characters, and one row at least', async () => {
    const place = await newPlace(at().store);
    await fill(
      place,
      Array.from('abcdef').map((id) => [id, 1]),
      'x'.repeat(1_000),
    );
    for (const [characters, most] of [
      [1, 1],
      [1_000, 1],
      [2_500, 2],
      [6_000, 6],
    ] as const) {
      const first = await place.store.list(listOf(place.workspace, 'l', { characters }));
      expect(first.entries.length).toBeGreaterThanOrEqual(1);
      expect(first.entries.length).toBeLessThanOrEqual(most);
      expect(first.more).toBe(first.entries.length < 6);
      expect((await pages(place, { characters })).map(({ id }) => id).join('')).toBe('abcdef');
    }
  });

  test('a long list is read page by page, each entry once', async () => {
    const place = await newPlace(at().store);
    const ids = Array.from({ length: 1_000 }, (_, index) => `row-${String(index).padStart(4, '0')}`);
    await fill(
      place,
      ids.map((id, index) => [id, Math.floor(index / 300)]),
    );
    for (const order of ['up', 'down'] as const) {
      const seen = (await pages(place, { order, limit: 64 })).map(({ id }) => id);
      expect(seen).toEqual(order === 'up' ? ids : ids.toReversed());
    }
  });

  test('places are whole numbers, however large', async () => {
    const place = await newPlace(at().store);
    const places = [0, 1, 2 ** 40 + 1, 2 ** 42 + 1, Number.MAX_SAFE_INTEGER - 1, Number.MAX_SAFE_INTEGER];
    await fill(
      place,
      places.map((order, index) => [`id${index}`, order]),
    );
    const { entries } = await place.store.list(listOf(place.workspace, 'l'));
    expect(entries.map((entry) => entry.at)).toEqual(places);
  });
}

async function fill(place: Place, rows: readonly (readonly [id: string, at: number])[], text = ''): Promise<void> {
  const puts = rows.map(([id, order]) => putOf('thing', id, text, { enter: [{ list: 'l', at: order }] }));
  await Promise.all(puts.map(async (put) => done(await place.commit({ puts: [put] }))));
}

async function pages(
  place: Place,
  parts: Parameters<typeof listOf>[2],
): Promise<readonly { readonly at: number; readonly id: string }[]> {
  const seen: { readonly at: number; readonly id: string }[] = [];
  for (;;) {
    const after = seen.at(-1) ?? null;
    const { entries, more } = await place.store.list(listOf(place.workspace, 'l', { ...parts, after }));
    seen.push(...entries.map(({ at, id }) => ({ at, id })));
    if (!more) return seen;
    expect(entries.length).toBeGreaterThan(0);
  }
}
