import { expect, test } from 'vitest';
import { ABSENT, type Change, type Put, type Span, type SumChange } from '../../src/stores/port.ts';
import { changeId, changeOf, eventOf, listOf, newPlace, type PortFixture, sumOf } from './changes.ts';
import { emptyModel } from './model.ts';

/** Whole numbers below `bound`, the same ones for a seed. */
type Pick = (bound: number) => number;

function picks(seed: number): Pick {
  let state = seed;
  return (bound) => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    return Math.floor((state / 2 ** 32) * bound);
  };
}

const LISTS = ['one', 'two'];

/** What a caller knows of a row: what it would guard, and where it stands. */
interface Known {
  version: string;
  places: Map<string, number>;
}

/**
 * The store and the model of the port do the same, change by change, whatever comes. Several changes go in one turn; where
 * time can be set it moves between the turns, else spans are those that do not end.
 */
export function promisesOfRandomChanges(at: () => PortFixture, seeds: number): void {
  for (let seed = 1; seed <= seeds; seed += 1) {
    test(`random changes are what the model says (seed ${seed})`, async () => {
      const { store, setClock } = at();
      const place = await newPlace(store);
      const { workspace, epoch } = place;
      const model = emptyModel(epoch);
      const pick = picks(seed);
      const known = new Map<string, Known>();
      let clock = store.now();
      const start = clock;
      for (let turn = 0; turn < 60; turn += 1) {
        if (setClock !== null) setClock((clock += pick(3) === 0 ? pick(2_000) : pick(20)));
        const changes = Array.from({ length: 1 + pick(6) }, () =>
          randomChange(pick, workspace, epoch, known, setClock === null ? null : start),
        );
        const answers = await Promise.all(changes.map((change) => store.commit(change)));
        for (const [index, change] of changes.entries()) {
          const answer = answers[index];
          const now = answer?.now ?? 0;
          const expected = model.commit(change, now);
          expect(answer).toEqual(expected);
          if (expected.kind === 'done') learn(known, change);
          else for (const { kind, id, row } of expected.rows) see(known, kind, id).version = row?.version ?? ABSENT;
        }
        const sums = sumsFrom(setClock === null ? null : start);
        const seen = await store.read(workspace, WANTS, sums);
        expect(seen).toEqual(model.read(WANTS, sums, seen.now));
        if (turn % 10 !== 9) continue;
        for (const list of LISTS) {
          for (const order of ['up', 'down'] as const) {
            const query = listOf(workspace, list, { order, limit: 1 + pick(6), from: pick(2) === 0 ? null : pick(5) });
            expect(await store.list(query)).toEqual(model.list(query));
          }
        }
        for (const about of [null, 'a', 'c']) {
          const entries = await store.ledger({ workspace, about, order: 'up', after: null, limit: 1_000 });
          expect(entries).toEqual(model.ledger(about));
        }
        if (setClock === null) continue;
        const listed = (await store.sums(workspace, 100)).map(
          ({ name, spent, held, text }) => `${name} ${spent} ${held} ${text}`,
        );
        expect(listed.toSorted((a, b) => (a < b ? -1 : 1))).toEqual(
          model.sums(clock).toSorted((a, b) => (a < b ? -1 : 1)),
        );
        expect(await store.prune(workspace, 100)).toBe(model.prune(clock));
      }
    });
  }
}

const KINDS = ['key', 'thing'];
const IDS = ['a', 'b', 'c', 'd'];
const WANTS = IDS.flatMap((id) => [
  { kind: 'key', id, follow: 'thing' },
  { kind: 'thing', id },
]);

/** Figures of two groups: for ever, until a time soon, and rolling. `null`: no span ends. */
function spansFrom(start: number | null): readonly Span[] {
  const ever: Span = { kind: 'until', end: Number.MAX_SAFE_INTEGER };
  return start === null
    ? [ever, ever, { kind: 'rolling', ms: 3_600_000_000 }]
    : [ever, { kind: 'until', end: start + 5_000 }, { kind: 'rolling', ms: 2_500 }];
}

function sumsFrom(start: number | null): readonly SumChange[] {
  return ['s0', 's1', 's2', 's3', 's4', 's5'].map((name, index) =>
    sumOf(name, { group: `g${index % 2}`, span: spansFrom(start)[index % 3] ?? { kind: 'rolling', ms: 1 } }),
  );
}

function randomChange(
  pick: Pick,
  workspace: string,
  epoch: number,
  known: Map<string, Known>,
  start: number | null,
): Change {
  const id = changeId();
  const free = KINDS.flatMap((kind) => IDS.map((name) => ({ kind, name })));
  const take = (): { readonly kind: string; readonly name: string } => free.splice(pick(free.length), 1)[0] ?? FIRST;
  const guards = Array.from({ length: pick(3) === 0 ? 1 + pick(2) : 0 }, () => {
    const { kind, name } = take();
    const { version } = see(known, kind, name);
    return {
      kind,
      id: name,
      version: pick(12) === 0 ? ABSENT : version,
      ...(kind === 'key' ? { follow: 'thing' } : {}),
    };
  });
  const puts = Array.from({ length: pick(3) }, () => randomPut(pick, take(), known));
  const spans = spansFrom(start);
  const first = pick(6);
  const sums = Array.from({ length: pick(3) }, (_, index) => {
    const which = (first + index) % 6;
    return sumOf(`s${which}`, {
      group: `g${which % 2}`,
      span: spans[which % 3] ?? { kind: 'rolling', ms: 1 },
      hold: pick(2) === 0 ? 0 : pick(9) - 4,
      spend: pick(2) === 0 ? 0 : pick(5),
      limit: pick(2) === 0 ? null : pick(40),
      most: pick(3) === 0 ? 1 + pick(3) : null,
      text: pick(4) === 0 ? id : null,
    });
  });
  const events = Array.from({ length: pick(3) }, () => eventOf(id, pick(3) === 0 ? null : (IDS[pick(4)] ?? null)));
  const resets = pick(15) === 0 ? [`g${pick(2)}`] : [];
  return changeOf(workspace, pick(40) === 0 ? epoch + 1 : epoch, { id, guards, puts, sums, events, resets });
}

const FIRST = { kind: 'thing', name: 'a' };

function randomPut(
  pick: Pick,
  { kind, name }: { readonly kind: string; readonly name: string },
  known: Map<string, Known>,
): Put {
  const { version, places } = see(known, kind, name);
  const text = pick(5) === 0 ? null : (IDS[pick(4)] ?? '');
  const leave = LISTS.flatMap((list) => {
    const at = places.get(list);
    return kind === 'thing' && at !== undefined && (text === null || pick(2) === 0) ? [{ list, at }] : [];
  });
  const enter = LISTS.flatMap((list) => {
    const isFree = !places.has(list) || leave.some((place) => place.list === list);
    return kind === 'thing' && text !== null && isFree && pick(2) === 0 ? [{ list, at: pick(6) }] : [];
  });
  return { kind, id: name, version, text, enter, leave, ...(kind === 'key' ? { follow: 'thing' } : {}) };
}

function see(known: Map<string, Known>, kind: string, id: string): Known {
  const name = `${kind} ${id}`;
  const there = known.get(name);
  if (there !== undefined) return there;
  const made: Known = { version: ABSENT, places: new Map() };
  known.set(name, made);
  return made;
}

function learn(known: Map<string, Known>, change: Change): void {
  for (const { kind, id, text, enter, leave } of change.puts) {
    const row = see(known, kind, id);
    row.version = text === null ? ABSENT : change.id;
    for (const { list } of leave) row.places.delete(list);
    for (const { list, at } of enter) row.places.set(list, at);
  }
}
