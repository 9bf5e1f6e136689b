import { expect, test } from 'vitest';
import type { LedgerEntry, Watched } from '../../src/stores/port.ts';
import { changeId, done, eventOf, moved, newPlace, type Place, type PortFixture, putOf } from './changes.ts';

/** The ledger, and hearing of changes. */
export function promisesOfLedger(at: () => PortFixture): void {
  test('events have places from 1 on without gaps, with time and epoch of their change', async () => {
    const place = await newPlace(at().store);
    const first = done(await place.commit({ events: [eventOf('a', 'x'), eventOf('b')] }));
    moved(
      await place.commit({
        events: [eventOf('never')],
        guards: [{ kind: 'thing', id: 'a', version: changeId() }],
      }),
    );
    const second = done(await place.commit({ events: [eventOf('c', 'x')] }));
    const third = done(await place.commit({}));
    expect([first.seq, second.seq, third.seq]).toEqual([1, 3, 4]);
    const { epoch } = place;
    expect(await ledger(place)).toEqual([
      { seq: 1, text: 'a', about: 'x', at: first.now, epoch },
      { seq: 2, text: 'b', about: null, at: first.now, epoch },
      { seq: 3, text: 'c', about: 'x', at: second.now, epoch },
    ]);
  });

  test('slices go up and down from a place', async () => {
    const place = await newPlace(at().store);
    for (let round = 0; round < 5; round += 1)
      done(await place.commit({ events: [eventOf(`a${round}`, 'x'), eventOf(`b${round}`, 'y')] }));
    const seqs = async (parts: Partial<Parameters<Place['store']['ledger']>[0]>): Promise<readonly number[]> =>
      (await ledger(place, parts)).map(({ seq }) => seq);
    expect(await seqs({})).toEqual([1, 2, 3, 4, 5, 6, 7, 8, 9, 10]);
    expect(await seqs({ after: 0, limit: 3 })).toEqual([1, 2, 3]);
    expect(await seqs({ after: 3, limit: 3 })).toEqual([4, 5, 6]);
    expect(await seqs({ after: 10 })).toEqual([]);
    expect(await seqs({ after: 99 })).toEqual([]);
    expect(await seqs({ order: 'down', limit: 3 })).toEqual([10, 9, 8]);
    expect(await seqs({ order: 'down', after: 8, limit: 3 })).toEqual([7, 6, 5]);
    expect(await seqs({ order: 'down', after: 1 })).toEqual([]);
    expect(await seqs({ about: 'x' })).toEqual([1, 3, 5, 7, 9]);
    expect(await seqs({ about: 'x', after: 3, limit: 2 })).toEqual([5, 7]);
    expect(await seqs({ about: 'y', order: 'down', limit: 2 })).toEqual([10, 8]);
    expect(await seqs({ about: 'y', order: 'down', after: 8, limit: 2 })).toEqual([6, 4]);
    expect(await seqs({ about: 'z' })).toEqual([]);
  });

  test('many changes of one turn, and their events: one order, each found by what it is about', async () => {
    const place = await newPlace(at().store);
    const answers = await Promise.all(
      Array.from({ length: 300 }, (_, index) =>
        place.commit({ events: [eventOf(`one ${index}`, `id${index % 7}`), eventOf(`two ${index}`, `id${index}`)] }),
      ),
    );
    const seqs = answers.map((answer) => done(answer).seq);
    expect(seqs.toSorted((a, b) => a - b)).toEqual(Array.from({ length: 300 }, (_, index) => 1 + 2 * index));
    const seen: LedgerEntry[] = [];
    for (;;) {
      const slice = await ledger(place, { after: seen.at(-1)?.seq ?? null, limit: 77 });
      if (slice.length === 0) break;
      seen.push(...slice);
    }
    expect(seen.map(({ seq }) => seq)).toEqual(Array.from({ length: 600 }, (_, index) => index + 1));
    for (const [index, seq] of seqs.entries()) {
      expect(seen[seq - 1]?.text).toBe(`one ${index}`);
      expect(seen[seq]?.text).toBe(`two ${index}`);
    }
    const about = await ledger(place, { about: 'id3', limit: 1_000 });
    expect(about).toEqual(seen.filter((entry) => entry.about === 'id3'));
    expect(about).toHaveLength(44);
    expect(await ledger(place, { about: 'id200' })).toHaveLength(1);
  });

  test('events are about what they were said to be about, also those after another one about the same', async () => {
    const place = await newPlace(at().store);
    const one = ['x', 'x', null, null, '', '', '\u0001', '\u0001', 'x'];
    // More than a store may write at once.
    const many = Array.from({ length: 2_100 }, () => 'x');
    const all = [one, ['x', 'y'], many];
    const changes = all.map((abouts) => abouts.map((about, index) => eventOf(String(index), about)));
    for (const answer of await Promise.all(changes.map((events) => place.commit({ events })))) done(answer);
    const entries: LedgerEntry[] = [];
    while (entries.length < all.flat().length)
      entries.push(...(await ledger(place, { after: entries.length, limit: 1_000 })));
    expect(entries.map(({ about }) => about)).toEqual(all.flat());
    expect(entries.map(({ text }) => text)).toEqual(changes.flat().map(({ text }) => text));
    expect((await ledger(place, { about: '' })).map(({ seq }) => seq)).toEqual([5, 6]);
    expect((await ledger(place, { about: 'x', limit: 6 })).map(({ seq }) => seq)).toEqual([1, 2, 9, 10, 12, 13]);
  });

  test('changes of watched kinds are heard of, and those of others are not', async () => {
    const place = await newPlace(at().store);
    const heard: Watched[] = [];
    const kinds = [`watched-${place.workspace}`, `second-${place.workspace}`] as const;
    place.store.watch(kinds, (changed) => heard.push(changed));
    const tells = (kind: string, id: string): boolean =>
      heard.some(
        (it) => it.kind === kind && (it.id ?? id) === id && (it.workspace ?? place.workspace) === place.workspace,
      );
    const first = changeId();
    done(await place.commit({ id: first, puts: [putOf(kinds[0], 'a', 'x'), putOf('thing', 'b', 'x')] }));
    await expect.poll(() => tells(kinds[0], 'a')).toBe(true);
    expect(heard.every(({ kind }) => kind === kinds[0])).toBe(true);
    heard.length = 0;
    done(await place.commit({ puts: [putOf(kinds[0], 'a', null, { version: first }), putOf(kinds[1], 'c', 'x')] }));
    await expect.poll(() => tells(kinds[0], 'a') && tells(kinds[1], 'c')).toBe(true);
  });

  test('who hears of a change reads it', async () => {
    const place = await newPlace(at().store);
    const kind = `read-${place.workspace}`;
    const read = new Promise<string | undefined>((resolve) => {
      place.store.watch([kind], () => {
        void place.row(kind, 'a').then((row) => resolve(row?.text));
      });
    });
    done(await place.commit({ puts: [putOf(kind, 'a', 'new')] }));
    expect(await read).toBe('new');
  });
}

function ledger(
  place: Place,
  parts: Partial<Parameters<Place['store']['ledger']>[0]> = {},
): Promise<readonly LedgerEntry[]> {
  const { workspace, store } = place;
  return store.ledger({ workspace, about: null, order: 'up', after: null, limit: 100, ...parts });
}
