import { expect, it } from 'vitest';
import { createReadingTurns, type ReadingTurns } from '../../src/effects/run/reading-turns.ts';
import { shownOf } from '../../src/records/lists.ts';
import { changeOf, putOf } from '../port/changes.ts';
import { emptyRows, mapStore } from '../port/map-rows.ts';

const ROWS = 130;

it('what people are shown is read and made in turns, in slices that a store answers at once', async () => {
  const rows = mapStore(emptyRows(), () => 1_000);
  const puts = Array.from({ length: ROWS }, (_, n) =>
    putOf('thing', `id${n}`, `text ${n}`, { enter: [{ list: 'l', at: n }] }),
  );
  await rows.commit(changeOf('w', 1, { puts }));
  let isTurn = false;
  const real = createReadingTurns();
  const turns: ReadingTurns = {
    ...real,
    run: (part) =>
      real.run(() => {
        isTurn = true;
        const made = part();
        isTurn = false;
        return made;
      }),
    map: (items, make) => {
      expect(items.length).toBeLessThanOrEqual(50);
      return real.map(items, make);
    },
  };
  const store: typeof rows = {
    ...rows,
    list(query) {
      expect(isTurn).toBe(true);
      expect(query).toMatchObject({ limit: 50, characters: 256 * 1024 });
      return rows.list(query);
    },
  };
  const shown = await shownOf({ store, turns }, { workspace: 'w', list: 'l', kind: 'thing' }, ({ row }) => row.text);
  expect(shown).toEqual(Array.from({ length: ROWS }, (_, n) => `text ${n}`));
});
