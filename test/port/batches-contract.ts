import { expect, test } from 'vitest';
import { ABSENT, type Answer } from '../../src/stores/port.ts';
import {
  changeId,
  done,
  eventOf,
  listOf,
  moved,
  newPlace,
  newWorkspace,
  type PortFixture,
  putOf,
  rowIn,
  sumOf,
} from './changes.ts';

/** Changes of one turn, several workspaces, and texts of every kind. */
export function promisesOfBatches(at: () => PortFixture): void {
  test('later changes of a turn see earlier ones, and a refused one leaves its neighbours whole', async () => {
    const place = await newPlace(at().store);
    const [first, second, third] = [changeId(), changeId(), changeId()];
    const answers = await Promise.all([
      place.commit({
        id: first,
        puts: [putOf('thing', 'a', 'one', { enter: [{ list: 'l', at: 1 }] })],
        sums: [sumOf('s', { hold: 5, limit: 10 })],
        events: [eventOf('first')],
      }),
      place.commit({
        id: second,
        puts: [putOf('thing', 'a', 'two')],
        sums: [sumOf('s', { hold: 1 })],
        events: [eventOf('second')],
      }),
      place.commit({ sums: [sumOf('s', { hold: 6, limit: 10 })], events: [eventOf('too much')] }),
      place.commit({
        id: third,
        puts: [putOf('thing', 'a', 'three', { version: first, leave: [{ list: 'l', at: 1 }] })],
        sums: [sumOf('s', { hold: -5, spend: 5 })],
        events: [eventOf('third')],
      }),
      place.commit({ guards: [{ kind: 'thing', id: 'a', version: third }] }),
    ]);
    expect(answers.map(({ kind }) => kind)).toEqual(['done', 'moved', 'moved', 'done', 'done']);
    const refused = moved(answers[1] ?? missing());
    expect(rowIn(refused.rows, 'thing', 'a')).toEqual({ version: first, text: 'one' });
    expect(refused.counters).toEqual([{ spent: 0, held: 5, rows: 1 }]);
    expect(moved(answers[2] ?? missing()).counters).toEqual([{ spent: 0, held: 5, rows: 1 }]);
    expect([answers[0], answers[3], answers[4]].map((answer) => done(answer ?? missing()).seq)).toEqual([1, 2, 3]);
    expect(await place.row('thing', 'a')).toEqual({ version: third, text: 'three' });
    expect(await place.ids('l')).toEqual([]);
    const { workspace, store } = place;
    const events = await store.ledger({ workspace, about: null, order: 'up', after: null, limit: 10 });
    expect(events.map(({ text }) => text)).toEqual(['first', 'third']);
  });

  test('of many that want one row one has it', async () => {
    const place = await newPlace(at().store);
    const ids = Array.from({ length: 256 }, changeId);
    const answers = await Promise.all(
      ids.map((id) =>
        place.commit({ id, puts: [{ ...putOf('key', 'k', id), follow: 'thing' }, putOf('thing', id, id)] }),
      ),
    );
    const winners = ids.filter((_, index) => answers[index]?.kind === 'done');
    expect(winners).toHaveLength(1);
    const [winner = ''] = winners;
    for (const answer of answers) {
      if (answer.kind === 'done') continue;
      expect(rowIn(answer.rows, 'key', 'k')).toEqual({ version: winner, text: winner });
      expect(rowIn(answer.rows, 'thing', winner)).toEqual({ version: winner, text: winner });
    }
  });

  test.each([10, 1_000, 100_000])(
    'a row of %s characters that a neighbour has just made is told whole',
    async (length) => {
      const place = await newPlace(at().store);
      const [id, next] = [changeId(), changeId()];
      const [text, longer] = ['x'.repeat(length), 'y'.repeat(length + 1)];
      const answers = await Promise.all([
        place.commit({ id, puts: [putOf('thing', 'a', text)] }),
        place.commit({ puts: [putOf('thing', 'a', 'not made')] }),
        place.commit({ id: next, puts: [putOf('thing', 'a', longer, { version: id })] }),
        place.commit({ puts: [putOf('thing', 'a', 'not made', { version: id })] }),
      ]);
      expect(answers.map(({ kind }) => kind)).toEqual(['done', 'moved', 'done', 'moved']);
      expect(rowIn(moved(answers[1] ?? missing()).rows, 'thing', 'a')).toEqual({ version: id, text });
      expect(rowIn(moved(answers[3] ?? missing()).rows, 'thing', 'a')).toEqual({ version: next, text: longer });
      const stale = moved(await place.commit({ guards: [{ kind: 'thing', id: 'a', version: id }] }));
      expect(rowIn(stale.rows, 'thing', 'a')).toEqual({ version: next, text: longer });
      expect(await place.row('thing', 'a')).toEqual({ version: next, text: longer });
    },
  );

  test('a chain of changes in one turn is made in order, however long', async () => {
    const place = await newPlace(at().store);
    const ids = Array.from({ length: 1_200 }, changeId);
    const answers = await Promise.all(
      ids.map((id, index) =>
        place.commit({
          id,
          puts: [putOf('thing', 'a', String(index), { version: ids[index - 1] ?? ABSENT })],
          events: [eventOf(String(index))],
        }),
      ),
    );
    expect(answers.every(({ kind }) => kind === 'done')).toBe(true);
    expect(answers.map((answer) => done(answer).seq)).toEqual(ids.map((_, index) => index + 1));
    expect((await place.row('thing', 'a'))?.text).toBe('1199');
  });

  test('a read of the same turn as a commit sees the state before it or after it, whole', async () => {
    const place = await newPlace(at().store);
    const reads: Promise<void>[] = [];
    let version = ABSENT;
    for (let round = 1; round <= 50; round += 1) {
      const id = changeId();
      const committed: Promise<Answer> = place.commit({
        id,
        puts: [putOf('thing', 'a', String(round), { version }), putOf('thing', 'b', String(round), { version })],
        sums: [sumOf('s', { spend: 1 })],
      });
      const wants = ['a', 'b'].map((name) => ({ kind: 'thing', id: name }));
      const sum = { name: 's', group: 'group', span: { kind: 'until', end: Number.MAX_SAFE_INTEGER } } as const;
      reads.push(
        place.store.read(place.workspace, wants, [sum]).then(({ rows, counters }) => {
          const a = rowIn(rows, 'thing', 'a')?.text ?? '0';
          expect(rowIn(rows, 'thing', 'b')?.text ?? '0').toBe(a);
          expect(String(counters[0]?.spent)).toBe(a);
        }),
      );
      done(await committed);
      version = id;
    }
    await Promise.all(reads);
  });

  test('two workspaces have nothing in common', async () => {
    const one = await newPlace(at().store);
    const two = await newPlace(at().store);
    const both = [one, two];
    for (const place of both) {
      const answer = done(
        await place.commit({
          puts: [putOf('thing', 'a', place.workspace, { enter: [{ list: 'l', at: 1 }] })],
          sums: [sumOf('s', { spend: 1, most: 1, limit: 1 })],
          events: [eventOf(place.workspace, 'a')],
        }),
      );
      expect(answer).toMatchObject({ seq: 1, counters: [{ spent: 1, held: 0, rows: 1 }] });
    }
    done(await one.commit({ resets: ['group'] }));
    expect(await one.store.sums(one.workspace, 10)).toHaveLength(0);
    expect(await two.store.sums(two.workspace, 10)).toHaveLength(1);
    for (const { workspace, store, ids, row } of both) {
      expect((await row('thing', 'a'))?.text).toBe(workspace);
      expect(await ids('l')).toEqual(['a']);
      const events = await store.ledger({ workspace, about: 'a', order: 'up', after: null, limit: 10 });
      expect(events.map(({ text }) => text)).toEqual([workspace]);
    }
  });

  for (const [name, text] of hostileTexts()) {
    test(`${name} comes back as it was, wherever it stands`, async () => {
      const id = text.slice(0, 512);
      const place = await newPlace(at().store, `${newWorkspace()}${text.slice(0, 64)}`);
      const version = changeId();
      const sum = { name: id, group: `g${id}`, span: { kind: 'until', end: Number.MAX_SAFE_INTEGER } } as const;
      const answer = done(
        await place.commit({
          id: version,
          puts: [
            putOf('key', `key ${id}`.slice(0, 512), id),
            putOf('thing', id, text, { enter: [{ list: `l${id}`, at: 1 }] }),
            putOf('thing', `${id.slice(1)}.`, 'neighbour', { enter: [{ list: `l${id}`, at: 1 }] }),
          ],
          sums: [{ ...sumOf(id, { spend: 2, text }), ...sum }],
          events: [eventOf(text, id), eventOf('neighbour', `${id.slice(1)}.`)],
        }),
      );
      expect(answer.counters).toEqual([{ spent: 2, held: 0, rows: 1 }]);
      const { workspace, store } = place;
      const wants = [{ kind: 'key', id: `key ${id}`.slice(0, 512), follow: 'thing' }];
      const seen = await store.read(workspace, wants, [sum]);
      expect(rowIn(seen.rows, 'thing', id)?.text === text).toBe(true);
      expect(seen.counters).toEqual([{ spent: 2, held: 0, rows: 1 }]);
      const refused = moved(await place.commit({ puts: [putOf('thing', id, 'other')] }));
      expect(rowIn(refused.rows, 'thing', id)?.text === text).toBe(true);
      const slices = [];
      for (let after: { at: number; id: string } | null = null; ; ) {
        const { entries, more } = await store.list(listOf(workspace, `l${id}`, { limit: 1, after }));
        slices.push(...entries);
        after = entries.at(-1) ?? null;
        if (!more) break;
      }
      expect(new Set(slices.map((entry) => entry.id))).toEqual(new Set([id, `${id.slice(1)}.`]));
      expect(slices).toHaveLength(2);
      expect(slices.find((entry) => entry.id === id)?.row.text === text).toBe(true);
      const [listed] = await store.sums(workspace, 10);
      expect([listed?.name, listed?.group, listed?.text === text]).toEqual([id, `g${id}`, true]);
      const events = await store.ledger({ workspace, about: id, order: 'up', after: null, limit: 10 });
      expect(events).toHaveLength(1);
      expect([events[0]?.about, events[0]?.text === text]).toEqual([id, true]);
      done(await place.commit({ resets: [`g${id}`] }));
      expect(await store.sums(workspace, 10)).toEqual([]);
    });
  }
}

function hostileTexts(): readonly (readonly [string, string])[] {
  return [
    ['NUL', 'a\0b\0'],
    ['a text that begins with NUL', '\0'],
    ['a lone high surrogate', 'x\ud800y'],
    ['a lone low surrogate', '\udc00'],
    ['surrogates the wrong way round', '\udc00\ud800'],
    ['what marks an escape', '\u0001"\\u0001"'],
    ['line ends and separators', 'a\nb\rc\u2028d\te,f:g;h|i{j}k'],
    ['quotes and brackets', `'"\`;--[]{}()*?\\`],
    ['a replacement character', '\ufffd\ufeff\uffff'],
    ['not normalised', 'e\u0301é'],
    ['512 characters beyond the first plane', '😀'.repeat(256)],
    ['512 characters of three bytes', '€'.repeat(512)],
    ['a number', '9007199254740993'],
    ['a JSON text', '{"a":[1,2,{"b":null}]}'],
    ['1.5 MB', `begin ${'0123456789abcdef'.repeat(98_304)} end`],
  ];
}

function missing(): never {
  throw new Error('an answer is missing');
}
