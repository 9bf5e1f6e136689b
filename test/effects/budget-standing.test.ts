import { expect, it } from 'vitest';
import type { JsonObject } from '../../src/json/value.ts';
import type { LedgerEvent, LedgerFilter, LedgerKind } from '../../src/effects/model/ledger.ts';
import { takenOfBudgets } from '../../src/effects/upkeep/budget-standing.ts';

const DAY = 'c:0:86400000';
const hold = (amount: number, window = DAY, more: JsonObject = {}) => ({
  budget: 'day',
  unit: 'coin',
  bucket: 'all',
  window,
  amount,
  ...more,
});

/** A ledger of a workspace, as its pages are read. */
function ledger() {
  const events: LedgerEvent[] = [];
  let pages = 0;
  return {
    add(kind: LedgerKind, effectId: string | null, data: JsonObject): void {
      const seq = events.length + 1;
      events.push({ seq, id: `evt_${seq}`, at: seq, kind, effectId, actor: { type: 'gateway', id: 'g' }, data });
    },
    pages: () => pages,
    /** @param room events of a page */
    taken: (holds: ReturnType<typeof hold>[], room = 500) =>
      takenOfBudgets(
        {
          async ledgerPage(_workspace, filter: LedgerFilter) {
            pages += 1;
            const found = events
              .filter(({ effectId }) => filter.effectId === undefined || effectId === filter.effectId)
              .filter(
                ({ at }) =>
                  (filter.since === null || at >= filter.since) && (filter.until === null || at < filter.until),
              )
              .filter(({ seq }) => filter.cursor === null || seq < Number(filter.cursor))
              .toReversed();
            const items = found.slice(0, room);
            return { items, next: found.length > items.length ? String(items.at(-1)?.seq) : null };
          },
        },
        { workspace: 'demo', id: 'mine', holds },
      ),
  };
}

it('is what the ledger says just before the first hold and just after the last event, with others in between', async () => {
  const { add, taken } = ledger();
  add('budget.held', 'one', { holds: [hold(10)] });
  add('budget.posted', 'one', { holds: [hold(10, DAY, { posted: 7 })] });
  add('budget.held', 'other window', { holds: [hold(1_000, 'c:86400000:172800000')] });
  add('budget.held', 'mine', { holds: [hold(30)] });
  add('budget.held', 'three', { holds: [hold(5)] });
  add('budget.posted', 'mine', { holds: [hold(30)] });
  add('budget.overdraft', 'mine', { holds: [hold(2)] });
  add('budget.voided', 'three', { holds: [hold(5)] });
  expect(await taken([hold(30)])).toEqual([
    {
      hold: hold(30),
      spent: 32,
      around: {
        kind: 'known',
        before: { at: 4, spent: 7, held: 0 },
        after: { at: 7, spent: 39, held: 5 },
      },
    },
  ]);
});

it('counts a hold once that took over one from when it waited, and nothing of before a reset as spent', async () => {
  const { add, taken } = ledger();
  add('budget.held', 'one', { holds: [hold(10)] });
  add('budget.posted', 'one', { holds: [hold(10)] });
  add('budget.reset', null, { budgets: ['other', 'day'] });
  add('budget.held', 'two', { holds: [hold(5)] });
  add('budget.posted', 'two', { holds: [hold(5)] });
  add('budget.reset', null, { budgets: ['other'] });
  add('budget.held', 'mine', { holds: [hold(30)] });
  add('budget.held', 'mine', { holds: [hold(20)], taken_over: [hold(30)] });
  expect(await taken([hold(20)])).toMatchObject([
    { spent: 0, around: { before: { spent: 5, held: 0 }, after: { spent: 5, held: 20 } } },
  ]);
});

it('says that it is not known of rolling windows, and where more happened than is read', async () => {
  const { add, taken, pages } = ledger();
  for (let n = 0; n < 40; n += 1) add('budget.held', `e${n}`, { holds: [hold(1)] });
  add('budget.held', 'mine', { holds: [hold(2), hold(3, 'r:60000')] });
  expect(await taken([hold(2), hold(3, 'r:60000')], 4)).toMatchObject([
    { around: { kind: 'unknown', why: 'too_many' } },
    { around: { kind: 'unknown', why: 'rolling' } },
  ]);
  expect(pages()).toBe(8);
  expect(await taken([hold(2)], 10)).toMatchObject([{ around: { before: { held: 40 } } }]);
  expect(await taken([])).toEqual([]);
});
