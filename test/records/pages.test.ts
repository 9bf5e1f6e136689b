import { beforeEach, expect, it } from 'vitest';
import { createReadingTurns } from '../../src/effects/run/reading-turns.ts';
import { pageOf } from '../../src/records/pages.ts';
import { pageOfEffects } from '../../src/records/effect-pages.ts';
import { effectRows } from '../../src/records/effect-rows.ts';
import { createStepRunner } from '../../src/records/runner.ts';
import { decisionOf, type EffectRecord, type Life } from '../../src/effects/model/effect.ts';
import type { EffectFilter } from '../../src/effects/store.ts';
import type { ListQuery, RowStore } from '../../src/stores/port.ts';
import { ANY } from '../contract/requests.ts';
import { changeOf, putOf } from '../port/changes.ts';
import { ALONE, emptyRows, mapStore } from '../port/map-rows.ts';
import { EFFECT } from '../effects/records.ts';

const ROWS = 3_000;
const asked = { workspace: 'w', list: 'l', kind: 'thing' };
const turns = createReadingTurns();

let queries: ListQuery[] = [];
let store: RowStore;

beforeEach(async () => {
  queries = [];
  const rows = mapStore(emptyRows(), () => 1_000);
  const puts = Array.from({ length: ROWS }, (_, n) =>
    putOf('thing', `id${String(n).padStart(4, '0')}`, `text ${n}`, { enter: [{ list: 'l', at: n }] }),
  );
  await rows.commit(changeOf('w', 1, { puts }));
  store = {
    ...rows,
    list(query) {
      queries.push(query);
      return rows.list(query);
    },
  };
});

it('a filter that fits little is searched in small slices, and a page ends after so many entries with a cursor', async () => {
  const most = { items: 10, characters: 1_000 };
  const show = ({ text }: { readonly text: string }): string | null => (text === 'text 500' ? text : null);
  const first = await pageOf({ store, turns }, asked, null, most, show);
  expect(first.items).toEqual([]);
  expect(first.next).not.toBeNull();
  expect(queries).toHaveLength(41);
  for (const { limit, characters } of queries) {
    expect(limit).toBeLessThanOrEqual(50);
    expect(characters).toBeLessThanOrEqual(256 * 1024);
  }
  expect(await pageOf({ store, turns }, asked, first.next, most, show)).toEqual({ items: ['text 500'], next: null });
});

it('each entry is on one page, and a page has no more items and characters than asked for', async () => {
  const seen: string[] = [];
  let cursor: string | null = null;
  do {
    const page: Awaited<ReturnType<typeof pageOf<string>>> = await pageOf(
      { store, turns },
      { ...asked, limit: 71 },
      cursor,
      { items: 70, characters: 600 },
      ({ text }) => text,
    );
    expect(page.items.length).toBeLessThanOrEqual(70);
    expect(page.items.join('').length).toBeLessThanOrEqual(600);
    seen.push(...page.items);
    cursor = page.next;
  } while (cursor !== null);
  expect(seen).toEqual(Array.from({ length: ROWS }, (_, n) => `text ${ROWS - 1 - n}`));
});

it('an entry that is longer than a page may be has a page of its own, and the next one goes on behind it', async () => {
  const most = { items: 10, characters: 8 };
  const show = ({ text }: { readonly text: string }): string => text;
  const first = await pageOf({ store, turns }, asked, null, most, show);
  expect(first.items).toEqual(['text 2999']);
  expect((await pageOf({ store, turns }, asked, first.next, most, show)).items).toEqual(['text 2998']);
});

it('a store that says that more follow, and has nothing, is not asked for ever', async () => {
  const nothing: RowStore = {
    ...store,
    async list(query) {
      queries.push(query);
      if (queries.length > 2) throw new Error('asked again');
      return { entries: [], more: true };
    },
  };
  const most = { items: 10, characters: 1_000 };
  expect(await pageOf({ store: nothing, turns }, asked, null, most, ({ text }) => text)).toEqual({
    items: [],
    next: null,
  });
  expect(queries).toHaveLength(1);
});

it.each([
  [{ state: 'denied' }, 'denied'],
  [{ decision: 'denied_budget', agentId: 'bot' }, 'denied'],
  [{ decision: 'idempotency_conflict' }, 'denied'],
  [{ decision: 'failed' }, 'state:failed'],
  // Rejected effects have it too, and they are in another list.
  [{ decision: 'denied_policy' }, 'effects'],
  [{ agentId: 'bot' }, 'agent:bot'],
] as const)('effects by %o are looked for in the list %s', async (filter, list) => {
  const page = await pageOfEffects({ store, turns, ended: ALONE.ended }, 'w', { ...ANY, ...filter }, async (e) => e);
  expect(page).toEqual({ items: [], next: null });
  expect(queries.map((query) => query.list)).toEqual([list]);
});

const IN_STATES = ['pending_approval', 'unknown', 'rejected', 'failed'].map((state) => `state:${state}`);
const LEASE = {
  fence: { epoch: 1, n: 1, nonce: 'n' },
  owner: '',
  admittedAt: 1,
  dispatchBy: 2,
  leaseEnd: 3,
  quiesceUntil: 4,
};
const EVIDENCE = { code: 'c', message: 'm', answered: null, startedAt: null, endedAt: null };
const SAID = { at: 1, settledBy: { by: 'owner' }, evidence: EVIDENCE, result: null } as const;
const LIVES: readonly Life[] = [
  { state: 'pending_approval', approvalId: 'a' },
  { state: 'executing', lease: LEASE },
  { state: 'committed', ...SAID, receipt: { id: 'r', jws: 'j' }, accepted: false, responseTruncated: false },
  { state: 'failed', ...SAID },
  { state: 'unknown', at: 1, lease: LEASE, evidence: EVIDENCE },
  { state: 'rejected', at: 1, approvalId: 'a', until: 2 },
  ...(['denied_policy', 'denied_budget', 'idempotency_conflict'] as const).map(
    (decision): Life => ({
      state: 'denied',
      at: 1,
      decision,
      reason: { code: 'budget_exceeded', message: 'm' },
      mismatches: [],
    }),
  ),
];

const EFFECTS = LIVES.map(
  (life, n): EffectRecord => ({ ...EFFECT, workspace: 'w', id: `eff_${n}`, createdAt: n, life }),
);

it.each([
  ...EFFECTS.map(({ life }) => ({ state: life.state })),
  ...EFFECTS.map((effect) => ({ decision: decisionOf(effect) })),
  { tool: 'a.b' },
  { tool: 'a.c' },
])('%o finds each effect that fits, and reads few of the others', async (filter) => {
  const rows = mapStore(emptyRows(), () => 1_000);
  const runner = createStepRunner(rows);
  await runner.run('w', (draft) => {
    for (const effect of EFFECTS) effectRows.put(draft, effect.id, { kind: 'effect', effect });
  });
  const enter = ['effects', 'denied', 'leases', 'agent:bot', ...IN_STATES].map((list) => ({ list, at: 7 }));
  // To read it is an error.
  await rows.commit(changeOf('w', 1, { puts: [putOf('effect', 'unread', 'no words\n\n', { enter })] }));
  const page = await pageOfEffects(
    { store: rows, turns, ended: ALONE.ended },
    'w',
    { ...ANY, ...filter },
    async (e) => e,
  );
  const asked: Partial<EffectFilter> = filter;
  const fits = (effect: EffectRecord): boolean =>
    (asked.state ?? effect.life.state) === effect.life.state &&
    (asked.decision ?? decisionOf(effect)) === decisionOf(effect) &&
    (asked.tool ?? 'a.b') === effect.action.tool;
  const found = page.items.map(({ id }) => id).toSorted();
  expect(found).toEqual(EFFECTS.filter(fits).map(({ id }) => id));
});

it('an effect that its owner has left executing is found as unknown before anybody has declared it', async () => {
  const rows = mapStore(emptyRows(), () => 1_000);
  await createStepRunner(rows).run('w', (draft) => {
    for (const effect of EFFECTS) effectRows.put(draft, effect.id, { kind: 'effect', effect });
  });
  const unknown = EFFECTS.find(({ life }) => life.state === 'unknown');
  const declared = async (effect: EffectRecord): Promise<EffectRecord> =>
    effect.life.state === 'executing' && unknown !== undefined ? { ...effect, life: unknown.life } : effect;
  const from = { store: rows, turns, ended: { ...ALONE.ended, any: () => true } };
  for (const filter of [{ state: 'unknown' }, { decision: 'unknown_effect' }] as const)
    expect((await pageOfEffects(from, 'w', { ...ANY, ...filter }, declared)).items).toHaveLength(2);
});

it('a bound on creation does not end a list that has another order', async () => {
  await pageOfEffects({ store, turns, ended: ALONE.ended }, 'w', { ...ANY, since: 5, until: 9 }, async (e) => e);
  const denied: EffectFilter = { ...ANY, state: 'denied', since: 5, until: 9 };
  await pageOfEffects({ store, turns, ended: ALONE.ended }, 'w', denied, async (e) => e);
  const running: EffectFilter = { ...ANY, state: 'executing', since: 5, until: 9 };
  await pageOfEffects({ store, turns, ended: ALONE.ended }, 'w', running, async (e) => e);
  expect(queries.map(({ from, to }) => [from, to])).toEqual([
    [5, 8],
    // It was denied when or after it was made.
    [5, null],
    [null, null],
  ]);
});
