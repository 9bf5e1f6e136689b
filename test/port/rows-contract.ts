import { expect, test } from 'vitest';
import { ABSENT } from '../../src/stores/port.ts';
import {
  changeId,
  clockOf,
  changeOf,
  done,
  eventOf,
  moved,
  newPlace,
  type PortFixture,
  type Timed,
  putOf,
  rowIn,
  sumOf,
} from './changes.ts';

/** Rows: guards, versions, what comes back. */
export function promisesOfRows(at: () => PortFixture, timed: Timed): void {
  test('a row is read as it was put, with the id of the change that wrote it last', async () => {
    const place = await newPlace(at().store);
    const [first, second] = [changeId(), changeId()];
    done(await place.commit({ id: first, puts: [putOf('thing', 'a', 'one')] }));
    expect(await place.row('thing', 'a')).toEqual({ version: first, text: 'one' });
    done(await place.commit({ id: second, puts: [putOf('thing', 'a', 'two', { version: first })] }));
    expect(await place.row('thing', 'a')).toEqual({ version: second, text: 'two' });
    expect(await place.row('thing', 'b')).toBeNull();
    expect(await place.row('other', 'a')).toBeNull();
  });

  test('a row that goes is absent, and one that comes again is another', async () => {
    const place = await newPlace(at().store);
    const [first, gone, again] = [changeId(), changeId(), changeId()];
    done(await place.commit({ id: first, puts: [putOf('thing', 'a', 'one')] }));
    done(await place.commit({ id: gone, puts: [putOf('thing', 'a', null, { version: first })] }));
    expect(await place.row('thing', 'a')).toBeNull();
    done(await place.commit({ id: again, puts: [putOf('thing', 'a', 'one')] }));
    const answer = moved(await place.commit({ guards: [{ kind: 'thing', id: 'a', version: first }] }));
    expect(answer.rows).toEqual([{ kind: 'thing', id: 'a', row: { version: again, text: 'one' } }]);
  });

  test('the removal of a row that is absent is done, and of one that is there is refused', async () => {
    const place = await newPlace(at().store);
    done(await place.commit({ puts: [putOf('thing', 'a', null)] }));
    expect(await place.row('thing', 'a')).toBeNull();
    done(await place.commit({ puts: [putOf('thing', 'a', 'one')] }));
    moved(await place.commit({ puts: [putOf('thing', 'a', null)] }));
    expect((await place.row('thing', 'a'))?.text).toBe('one');
  });

  test('an empty text and an empty id are a row', async () => {
    const place = await newPlace(at().store);
    const id = changeId();
    done(await place.commit({ id, puts: [putOf('thing', '', '')] }));
    expect(await place.row('thing', '')).toEqual({ version: id, text: '' });
    moved(await place.commit({ puts: [putOf('thing', '', 'x')] }));
  });

  test('a put over another version than is there is refused, and the row that is there comes back', async () => {
    const place = await newPlace(at().store);
    const id = changeId();
    done(await place.commit({ id, puts: [putOf('thing', 'a', 'one')] }));
    for (const version of [ABSENT, changeId(), id.slice(0, -1), `${id}0`]) {
      const answer = moved(await place.commit({ puts: [putOf('thing', 'a', 'two', { version })] }));
      expect(answer.rows).toEqual([{ kind: 'thing', id: 'a', row: { version: id, text: 'one' } }]);
    }
    const absent = moved(await place.commit({ puts: [putOf('thing', 'b', 'two', { version: id })] }));
    expect(absent.rows).toEqual([{ kind: 'thing', id: 'b', row: null }]);
    expect(await place.row('thing', 'b')).toBeNull();
  });

  test('a guard holds for its own row only', async () => {
    const place = await newPlace(at().store);
    const [a, b] = [changeId(), changeId()];
    done(await place.commit({ id: a, puts: [putOf('thing', 'a', 'a')] }));
    done(await place.commit({ id: b, puts: [putOf('thing', 'b', 'b')] }));
    done(
      await place.commit({
        guards: [
          { kind: 'thing', id: 'a', version: a },
          { kind: 'thing', id: 'b', version: b },
          { kind: 'thing', id: 'c', version: ABSENT },
          { kind: 'other', id: 'a', version: ABSENT },
        ],
      }),
    );
    const swapped = moved(
      await place.commit({
        guards: [
          { kind: 'thing', id: 'a', version: b },
          { kind: 'thing', id: 'b', version: a },
          { kind: 'thing', id: 'c', version: ABSENT },
        ],
      }),
    );
    expect(swapped.rows).toHaveLength(2);
    expect(rowIn(swapped.rows, 'thing', 'a')).toEqual({ version: a, text: 'a' });
    expect(rowIn(swapped.rows, 'thing', 'b')).toEqual({ version: b, text: 'b' });
  });

  test('what a row names is read with it, where there is one', async () => {
    const place = await newPlace(at().store);
    const id = changeId();
    const puts = [putOf('key', 'k', 'target'), putOf('key', 'loose', 'nothing'), putOf('thing', 'target', 'whole')];
    done(await place.commit({ id, puts }));
    const wants = ['k', 'loose', 'none'].map((key) => ({ kind: 'key', id: key, follow: 'thing' }));
    const { rows } = await place.store.read(place.workspace, wants, []);
    expect(rows).toHaveLength(4);
    expect(rowIn(rows, 'key', 'k')).toEqual({ version: id, text: 'target' });
    expect(rowIn(rows, 'thing', 'target')).toEqual({ version: id, text: 'whole' });
    expect(rowIn(rows, 'key', 'loose')).toEqual({ version: id, text: 'nothing' });
    expect(rowIn(rows, 'key', 'none')).toBeNull();
  });

  test('what a row names comes back with it where a guard or a put does not hold, and not where it does', async () => {
    const place = await newPlace(at().store);
    const id = changeId();
    done(await place.commit({ id, puts: [putOf('key', 'k', 'target'), putOf('thing', 'target', 'whole')] }));
    const held = moved(
      await place.commit({
        guards: [{ kind: 'key', id: 'k', version: id, follow: 'thing' }],
        puts: [putOf('thing', 'other', 'x', { version: id })],
      }),
    );
    expect(held.rows).toEqual([{ kind: 'thing', id: 'other', row: null }]);
    const byGuard = moved(await place.commit({ guards: [{ kind: 'key', id: 'k', version: ABSENT, follow: 'thing' }] }));
    const byPut = moved(await place.commit({ puts: [{ ...putOf('key', 'k', 'mine'), follow: 'thing' }] }));
    for (const { rows } of [byGuard, byPut]) {
      expect(rows).toHaveLength(2);
      expect(rowIn(rows, 'key', 'k')).toEqual({ version: id, text: 'target' });
      expect(rowIn(rows, 'thing', 'target')).toEqual({ version: id, text: 'whole' });
    }
    // A row that is read and written as well is not followed where it holds: a put looks at itself only.
    done(await place.commit({ puts: [{ ...putOf('key', 'k', 'mine', { version: id }), follow: 'thing' }] }));
  });

  test('a refused change leaves nothing: no row, place, figure, event', async () => {
    const place = await newPlace(at().store);
    done(await place.commit({ sums: [sumOf('s', { spend: 7 })], events: [eventOf('first')] }));
    const answer = moved(
      await place.commit({
        guards: [{ kind: 'thing', id: 'a', version: changeId() }],
        puts: [putOf('thing', 'b', 'x', { enter: [{ list: 'l', at: 1 }] })],
        sums: [sumOf('s', { spend: 5 }), sumOf('new', { hold: 3, text: 'text' })],
        resets: ['group'],
        events: [eventOf('second', 'b')],
      }),
    );
    expect(answer.counters).toEqual([
      { spent: 7, held: 0, rows: 1 },
      { spent: 0, held: 0, rows: 1 },
    ]);
    expect(await place.row('thing', 'b')).toBeNull();
    expect(await place.ids('l')).toEqual([]);
    expect(await place.store.sums(place.workspace, 10)).toHaveLength(1);
    const next = done(await place.commit({ events: [eventOf('third')] }));
    expect(next.seq).toBe(2);
  });

  test('a change without writes is done where its guards hold', async () => {
    const place = await newPlace(at().store);
    const before = done(await place.commit({}));
    expect(before).toMatchObject({ epoch: place.epoch, seq: 1, counters: [] });
    const answer = done(await place.commit({ guards: [{ kind: 'thing', id: 'a', version: ABSENT }] }));
    expect(answer.now).toBeGreaterThanOrEqual(before.now);
  });

  test('a change that is sent again is refused, and shows by its id that it was made', async () => {
    const place = await newPlace(at().store);
    const change = changeOf(place.workspace, place.epoch, {
      puts: [putOf('thing', 'a', 'one')],
      sums: [sumOf('s', { spend: 1 })],
      events: [eventOf('made')],
    });
    done(await place.store.commit(change));
    const again = moved(await place.store.commit(change));
    expect(again.rows).toEqual([{ kind: 'thing', id: 'a', row: { version: change.id, text: 'one' } }]);
    expect(again.counters).toEqual([{ spent: 1, held: 0, rows: 1 }]);
  });

  test('another epoch moves', async () => {
    const place = await newPlace(at().store);
    for (const epoch of [place.epoch - 1, place.epoch + 1]) {
      const answer = moved(await place.commit({ epoch, puts: [putOf('thing', 'a', 'x')] }));
      expect(answer.epoch).toBe(place.epoch);
      expect(answer.rows).toEqual([]);
    }
    expect(await place.row('thing', 'a')).toBeNull();
  });

  test('the time of the store is within [from, until)', async () => {
    const place = await newPlace(at().store);
    const { now } = await place.store.read(place.workspace, [], []);
    moved(await place.commit({ from: now + 60_000, puts: [putOf('thing', 'a', 'x')] }));
    const late = moved(await place.commit({ until: now, puts: [putOf('thing', 'a', 'x')] }));
    expect(late.now).toBeGreaterThanOrEqual(now);
    expect(late.rows).toEqual([]);
    expect(await place.row('thing', 'a')).toBeNull();
    done(await place.commit({ from: now, until: now + 60_000, puts: [putOf('thing', 'a', 'x')] }));
  });

  timed('both ends of the span are as they say', async () => {
    const { store } = at();
    const setClock = clockOf(at());
    const place = await newPlace(store);
    const now = store.now() + 10;
    setClock(now);
    moved(await place.commit({ until: now }));
    moved(await place.commit({ from: now + 1 }));
    expect(done(await place.commit({ from: now, until: now + 1 })).now).toBe(now);
  });

  test('time does not go back, and is about what `now` says', async () => {
    const place = await newPlace(at().store);
    let last = 0;
    for (let round = 0; round < 20; round += 1) {
      const before = at().store.now();
      const { now } = await place.commit({ events: [eventOf('tick')] });
      expect(now).toBeGreaterThanOrEqual(last);
      last = now;
      // However long the commit took.
      expect(now).toBeGreaterThan(before - 1_000);
      expect(now).toBeLessThan(at().store.now() + 1_000);
    }
  });

  test('a change is told of a time that is not before the one that it was decided at', async () => {
    const { store } = at();
    const place = await newPlace(store);
    const decided = store.now() + 300;
    expect(done(await place.commit({ at: decided, events: [eventOf('early')] })).now).toBeGreaterThanOrEqual(decided);
    expect(done(await place.commit({ events: [eventOf('next')] })).now).toBeGreaterThanOrEqual(decided);
    const { workspace } = place;
    for (const event of await store.ledger({ workspace, about: null, order: 'up', after: null, limit: 9 }))
      expect(event.at).toBeGreaterThanOrEqual(decided);
  });

  test('what was answered is there after an orderly end, and the ledger goes on', async () => {
    const { reopen } = at();
    const place = await newPlace(at().store);
    const id = changeId();
    done(
      await place.commit({
        id,
        puts: [putOf('thing', 'a', 'one', { enter: [{ list: 'l', at: 5 }] })],
        sums: [
          sumOf('s', { spend: 2, hold: 3, text: 'about s' }),
          sumOf('r', { span: { kind: 'rolling', ms: 3_600_000 }, spend: 4, group: 'rolling' }),
        ],
        events: [eventOf('one', 'a'), eventOf('two')],
      }),
    );
    const store = await reopen();
    const later = await newPlace(store, place.workspace);
    expect(later.epoch).toBe(place.epoch);
    expect(await later.row('thing', 'a')).toEqual({ version: id, text: 'one' });
    expect(await later.ids('l')).toEqual(['a']);
    const answer = done(
      await later.commit({
        sums: [
          sumOf('s', { spend: 1 }),
          sumOf('r', { span: { kind: 'rolling', ms: 3_600_000 }, group: 'rolling', spend: 1 }),
        ],
        events: [eventOf('three')],
      }),
    );
    expect(answer.seq).toBe(3);
    expect(answer.counters).toEqual([
      { spent: 3, held: 3, rows: 1 },
      { spent: 5, held: 0, rows: 1 },
    ]);
  });
}
