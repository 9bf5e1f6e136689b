import { expect, it } from 'vitest';
import { createEndedBoots } from '../../src/stores/redis/rows/ended.ts';
import { listedSums, type PageOfSums } from '../../src/stores/redis/rows/reads.ts';

it('what a boot that has ended left running may be declared, until there is none; with each that ends it is looked for anew', async () => {
  const loaded: string[] = [];
  const ended = createEndedBoots('own', async (workspace) => {
    loaded.push(workspace);
    ended.seen(workspace, '1', ['old']);
  });
  expect([ended.owner, ended.any('shop'), ended.count('shop')]).toEqual(['own', false, null]);
  await ended.known('shop');
  await ended.known('shop');
  expect(loaded).toEqual(['shop']);
  expect([ended.any('shop'), ended.any('other'), ended.count('shop')]).toEqual([true, false, '1']);
  const lease = { fence: { epoch: 1, n: 1, nonce: '' }, admittedAt: 0, dispatchBy: 0, leaseEnd: 0, quiesceUntil: 7 };
  const quietAt = (workspace: string, owner: string) => ended.quietAt(workspace, { owner, ...lease });
  expect([quietAt('shop', 'old'), quietAt('shop', 'own'), quietAt('other', 'old')]).toEqual([7, null, null]);
  ended.none('shop');
  expect([ended.any('shop'), quietAt('shop', 'old')]).toEqual([false, 7]);
  ended.seen('shop', '2', ['old', 'older']);
  expect([ended.any('shop'), ended.count('shop')]).toEqual([true, '2']);
  ended.seen('shop', '2', []);
  expect(ended.any('shop')).toBe(false);
});

it('counters of several pages are listed once each, and no page is read beyond the limit', async () => {
  const sum = (name: string) => ({ name, group: 'g', text: '', spent: 0, held: 0, rows: 1 });
  const pages = [['a', 'b'], ['b', 'c'], ['d']];
  const asked: string[] = [];
  const page: PageOfSums = async (_workspace, from) => {
    const at = from === null ? 0 : Number(from.place);
    asked.push(String(at));
    const next = at + 1 < pages.length ? { groups: ['g'], place: String(at + 1) } : null;
    return { sums: (pages[at] ?? []).map(sum), next };
  };
  const names = async (limit: number) => (await listedSums(page, 'shop', limit)).map(({ name }) => name);
  expect(await names(10)).toEqual(['a', 'b', 'c', 'd']);
  expect(asked.splice(0)).toEqual(['0', '1', '2']);
  expect([await names(1), await names(2), asked]).toEqual([['a'], ['a', 'b'], ['0', '0']]);
});
