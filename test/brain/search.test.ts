import { describe, expect, it, vi } from 'vitest';
import { WorkspaceIndex } from '../../src/brain/workspace-index.ts';
import { SearchIndex } from '../../src/brain/search-index.ts';
import { TextTree } from '../../src/brain/text-tree.ts';
import { wordsOf } from '../../src/brain/words.ts';
import type { Entity, EntityRef } from '../../src/effects/model/entity.ts';
import { longestHold } from '../longest-hold.ts';
import { shortest } from '../shortest.ts';

function entity(id: string, name: string, change: Partial<Entity> = {}): Entity {
  return { type: 'customer', id, name, attributes: {}, links: [], ...change };
}

function indexOf(...entities: readonly Entity[]): WorkspaceIndex {
  const index = new WorkspaceIndex();
  for (const one of entities) index.put(one);
  return index;
}

const ids = (index: WorkspaceIndex, query: string, limit = 10, type = 'customer'): string[] =>
  index.search(type, query, limit).found.map(({ id }) => id);

const linked = (index: WorkspaceIndex, of: EntityRef, type: string, limit: number) =>
  index.linked(of, type, limit, { left: 20_000 });

describe('what is found', () => {
  const index = indexOf(
    entity('c1', 'Müller Maschinenbau GmbH', { attributes: { city: 'Köln', tier: 'gold' } }),
    entity('c2', 'Miller Corporation', { attributes: { city: 'Boston', contact: { note: 'speaks to Müller' } } }),
    entity('c3', '株式会社日立製作所'),
    entity('c4', 'Ζεύς Ναυτιλία'),
    entity('c5', 'ООО Ромашка', { attributes: { numbers: [4711, 0.5] } }),
    entity('c6', 'مؤسسة النور'),
    entity('c7', '__proto__ constructor toString'),
    entity('c8', 'Speaks'),
    entity('c9', 'Zoë'),
    entity('o1', 'Müller', { type: 'order' }),
  );

  it.each([
    ['whole words', 'miller', ['c2']],
    ['other accents and cases', 'MULLER', ['c1', 'c2']],
    ['a wrong letter', 'maschinenbao', ['c1']],
    ['a letter too many', 'corrporation', ['c2']],
    ['a letter too few', 'bosto', ['c2']],
    ['two neighbours exchanged', 'bosotn', ['c2']],
    ['two errors in a long word', 'maschimenbao', ['c1']],
    ['the first letter wrong', 'noston', ['c2']],
    ['the beginning of a word', 'masch', ['c1']],
    ['numbers within attributes', '4711', ['c5']],
    ['an id', 'c4', ['c4']],
    ['an id among words', 'order c5 please', ['c5']],
    ['Chinese characters', '日立', ['c3']],
    ['Greek', 'ζευς', ['c4']],
    ['a short word without its accent', 'zoe', ['c9']],
    ['Cyrillic', 'ромашка', ['c5']],
    ['Arabic', 'النور', ['c6']],
    ['names that every object has', 'constructor', ['c7']],
    ['nothing', 'zzzzzzzz', []],
    ['no typing errors in short words', 'mue', []],
  ])('%s', (_what, query, expected) => {
    expect(ids(index, query)).toEqual(expected);
  });

  it('names count for more than attributes, and more words for more than one', () => {
    expect(ids(index, 'speaks')).toEqual(['c8', 'c2']);
    expect(ids(index, 'corporation boston gmbh')[0]).toBe('c2');
    const often = entity('d2', 'B', { attributes: { tier: 'gold gold', was: 'gold' } });
    expect(ids(indexOf(often, entity('d1', 'A', { attributes: { tier: 'gold' } })), 'gold')).toEqual(['d1', 'd2']);
  });

  it('of a query the first eight words are looked for, and no other', () => {
    const two = indexOf(entity('c1', 'Eighth'), entity('c2', 'Ninth'));
    expect(ids(two, 'aa bb cc dd ee ff gg eighth ninth')).toEqual(['c1']);
    expect(ids(two, 'aa bb cc dd ee ff eighth ninth')).toEqual(['c1', 'c2']);
    // A word that is said again is no other word.
    expect(ids(two, 'aa aa bb cc dd ee ff gg ninth')).toEqual(['c2']);
  });

  it('of a text so many words count, each with 32 letters; of an entity the first 300, whichever texts they are in', () => {
    expect(wordsOf('one two three', 2)).toEqual(['one', 'two']);
    expect(wordsOf('日立製作所', 2)).toEqual(['日立', '立製']);
    expect(wordsOf('𠮷野家 𠮷', 9)).toEqual(['𠮷野', '野家', '𠮷']);
    expect(wordsOf('x'.repeat(40), 9)).toEqual(['x'.repeat(32)]);
    const text = (...letters: readonly string[]): string =>
      letters
        .flatMap((letter) => Array.from({ length: 100 }, (_, at) => `${letter}${100 + at}`.replace('1', '')))
        .join(' ');
    const long = indexOf(entity('long', 'Long', { attributes: { first: text('a', 'b'), second: text('c', 'd') } }));
    const known = ['a99', 'b99', 'c99', 'd99'].map((word) => ids(long, word).length);
    expect(known.toSorted((one, other) => one - other)).toEqual([0, 1, 1, 1]);
  });

  it('a letter finds no words that begin with it, a word of four letters one with another letter', () => {
    const short = indexOf(entity('c1', 'Anna'), entity('c2', 'Bert'));
    expect([ids(short, 'a'), ids(short, 'an'), ids(short, 'anxa'), ids(short, 'bxt')]).toEqual([
      [],
      ['c1'],
      ['c1'],
      [],
    ]);
  });

  it('a word counts for what it is, although another of the entity begins with it; two errors where one finds none', () => {
    const both = indexOf(entity('z', 'Ann Annabel'), entity('a', 'Annabel Annalena'));
    expect(ids(both, 'ann')).toEqual(['z', 'a']);
    const near = indexOf(entity('one', 'Maschinenbax'), entity('two', 'Maschinenbxx'));
    expect(ids(near, 'maschinenbau')).toEqual(['one']);
  });

  it('two errors are looked for in two words of a query, and not in a third', () => {
    const farther = indexOf(entity('k', 'Konstantinopel'), entity('m', 'Maschinenbau'), entity('v', 'Versicherung'));
    const query = 'konstxntinxpel maschxnenbxu versichxrunx';
    expect(ids(farther, query).toSorted()).toEqual(['k', 'm']);
  });

  it('for words with errors a query looks at 10,000 branches, all of its words together', () => {
    const left: number[] = [];
    const like = vi.spyOn(TextTree.prototype, 'like').mockImplementation((_text, _errors, budget) => {
      left.push(budget.left);
      budget.left -= 4_000;
      return [];
    });
    const some = indexOf(entity('a', 'Anna'));
    for (let queries = 0; queries < 2; queries += 1) ids(some, 'anxa bernx clarx');
    like.mockRestore();
    expect(left).toEqual([10_000, 6_000, 2_000, 10_000, 6_000, 2_000]);
  });

  it('one error is looked for from four letters on, two from eight letters on', () => {
    const some = indexOf(
      entity('three', 'Tom'),
      entity('four', 'Anna'),
      entity('seven', 'Kanzlei'),
      entity('eight', 'Bergwerk'),
    );
    expect([ids(some, 'txm'), ids(some, 'anxa')]).toEqual([[], ['four']]);
    expect([ids(some, 'kxnzlxi'), ids(some, 'bxrgwxrk')]).toEqual([[], ['eight']]);
  });

  it('of a query the first eight words count', () => {
    const words = ['one', 'two', 'three', 'four', 'five', 'six', 'seven', 'eight', 'nine'];
    const some = indexOf(entity('e8', 'Eight'), entity('e9', 'Nine'));
    expect([ids(some, words.join(' ')), ids(some, words.toReversed().join(' '))]).toEqual([['e8'], ['e8', 'e9']]);
  });

  it('a rare word counts for more than a common one', () => {
    const common = Array.from({ length: 20 }, (_, n) => entity(`c${n}`, 'Common'));
    expect(ids(indexOf(...common, entity('z', 'Rare')), 'common rare')[0]).toBe('z');
  });

  it('names of attributes are not looked in', () => {
    const some = indexOf(
      entity('a', 'A', { attributes: { gold: 'x' } }),
      entity('b', 'B', { attributes: { tier: 'gold' } }),
    );
    expect(ids(some, 'gold')).toEqual(['b']);
  });

  it('an id is found with its blanks, and before what has its words', () => {
    const some = indexOf(entity('a', 'Desk Desk 17', { attributes: { was: 'desk 17' } }), entity('desk 17', 'Other'));
    expect(ids(some, 'desk 17')).toEqual(['desk 17', 'a']);
  });

  it.each([
    ['Thai', 'บริษัทไทยจำกัด', 'ไทย'],
    ['Hiragana', 'ひたちせいさくしょ', 'せいさく'],
    ['Katakana', 'トヨタモーター', 'モーター'],
    ['Chinese', '中国工商银行', '工商'],
  ])('%s, which is written without spaces, is found by what stands within', (_, name, query) => {
    expect(ids(indexOf(entity('a', name), entity('b', 'Other')), query)).toEqual(['a']);
  });

  it('what counts the same is in the order of the ids, whenever it was put', () => {
    expect(ids(indexOf(entity('b', 'Same'), entity('a', 'Same'), entity('c', 'Same')), 'same')).toEqual([
      'a',
      'b',
      'c',
    ]);
  });

  it('only one type, and only so many', () => {
    expect(ids(index, 'müller', 10, 'order')).toEqual(['o1']);
    expect(ids(index, 'müller', 10, 'person')).toEqual([]);
    expect(index.search('customer', 'müller', 1)).toMatchObject({ found: [{ id: 'c1' }], more: true });
  });

  it('an entity is found by what it says now, and not at all once it is gone', () => {
    const changing = indexOf(entity('a', 'First'), entity('b', 'Other'));
    changing.put(entity('a', 'Second'));
    expect([ids(changing, 'first'), ids(changing, 'second')]).toEqual([[], ['a']]);
    changing.remove({ type: 'customer', id: 'a' });
    changing.remove({ type: 'customer', id: 'a' });
    expect([ids(changing, 'second'), ids(changing, 'a')]).toEqual([[], []]);
    changing.put(entity('o', 'Order', { type: 'order' }));
    expect(changing.types()).toEqual(['customer', 'order']);
    changing.remove({ type: 'customer', id: 'b' });
    expect(changing.types()).toEqual(['order']);
  });

  it('a vocabulary that is full says that there may be more, and what it has is found still', () => {
    const full = new SearchIndex(3);
    full.put(entity('a', 'one two three'));
    expect(full.search('one', 10)).toMatchObject({ found: [{ id: 'a' }], more: false });
    full.put(entity('b', 'one four'));
    expect(full.search('one', 10).found.map(({ id }) => id)).toEqual(['a', 'b']);
    expect(full.search('four', 10)).toEqual({ found: [], more: true });
    expect(full.search('b', 10).found).toMatchObject([{ id: 'b' }]);
  });

  it('long texts are folded in pieces: words and characters stay whole, and a thousand marks hold up nobody', async () => {
    const word = 'Größe';
    expect(new Set(wordsOf(`${word} `.repeat(400), 1000))).toEqual(new Set(['große']));
    expect(wordsOf(`${'é'.repeat(511)}𝒜`, 10)).toEqual(['e'.repeat(32), 'a']);
    const marks = `e${'\u0301\u0323'.repeat(8000)}`;
    const held = await shortest(50, () => longestHold(async () => wordsOf(marks, 300)));
    expect(held).toBeLessThan(50);
  });

  it('counts what is there, and what is left over of what was', () => {
    const some = new SearchIndex();
    for (const id of ['a', 'b', 'c', 'a']) some.put(entity(id, 'Name'));
    some.remove('b');
    some.remove('b');
    expect(some.size()).toEqual({ live: 2, dead: 2 });
  });

  it('words are cut between characters, and hostile texts give few', () => {
    for (const text of [
      '🙂'.repeat(500),
      // Of another plane, and not folded into others.
      `${'𐐨'.repeat(15)}a${'𐐨'.repeat(20)}`,
      '日'.repeat(5000),
      'a '.repeat(5000),
    ]) {
      const words = wordsOf(text, 300);
      expect(words.length).toBeLessThanOrEqual(300);
      for (const word of words) expect(word.isWellFormed()).toBe(true);
    }
  });
});

describe('links', () => {
  const link = (rel: string, type: string, id: string) => ({ rel, type, id });
  const order = (id: string, customer: string): Entity =>
    entity(id, id, { type: 'order', links: [link('placed_by', 'customer', customer)] });

  it('are followed in both directions, and only to the type that is asked for', () => {
    const index = indexOf(
      entity('c', 'C', {
        links: [link('likes', 'order', 'o2'), link('knows', 'person', 'p'), link('x', 'order', 'gone')],
      }),
      order('o1', 'c'),
      order('o2', 'c'),
      order('o3', 'other'),
      entity('p', 'P', { type: 'person' }),
    );
    const { linked: found, more } = linked(index, { type: 'customer', id: 'c' }, 'order', 10);
    expect(found).toEqual([
      { rel: 'likes', type: 'order', id: 'o2', direction: 'outgoing' },
      { rel: 'placed_by', type: 'order', id: 'o1', direction: 'incoming' },
      { rel: 'placed_by', type: 'order', id: 'o2', direction: 'incoming' },
    ]);
    expect(more).toBe(false);
    expect(linked(index, { type: 'person', id: 'p' }, 'customer', 10).linked).toMatchObject([
      { id: 'c', rel: 'knows' },
    ]);
  });

  it('are those of now: what is put again without a link, or is gone, is not linked', () => {
    const index = indexOf(entity('c', 'C'), order('o1', 'c'), order('o2', 'c'));
    index.put(order('o1', 'other'));
    index.put(order('o2', 'c'));
    expect(linked(index, { type: 'customer', id: 'c' }, 'order', 10).linked).toMatchObject([{ id: 'o2' }]);
    index.remove({ type: 'order', id: 'o2' });
    expect(linked(index, { type: 'customer', id: 'c' }, 'order', 10).linked).toEqual([]);
  });

  it('are those with the entity, and not with one of another type that has its id', () => {
    const links = [link('placed_by', 'customer', 'c'), link('for', 'person', 'c')];
    const index = indexOf(entity('c', 'C'), entity('o', 'O', { type: 'order', links }));
    expect(linked(index, { type: 'customer', id: 'c' }, 'order', 10).linked).toMatchObject([{ rel: 'placed_by' }]);
  });

  it('are visited once, however often the entity was put, and its link stands in it', () => {
    const order = entity('o', 'Order', {
      type: 'order',
      links: [link('of', 'customer', 'c1'), link('of_too', 'customer', 'c1')],
    });
    const index = indexOf(entity('c1', 'One'), order, order, order);
    const { linked: found, more } = index.linked({ type: 'customer', id: 'c1' }, 'order', 10, { left: 3 });
    expect([found.map(({ rel }) => rel), more]).toEqual([['of', 'of_too'], false]);
  });

  it('in circles, and of an entity with itself, end', () => {
    const index = indexOf(
      entity('a', 'A', { links: [link('knows', 'customer', 'b'), link('is', 'customer', 'a')] }),
      entity('b', 'B', { links: [link('knows', 'customer', 'a')] }),
    );
    expect(linked(index, { type: 'customer', id: 'a' }, 'customer', 10).linked).toHaveLength(4);
  });

  it('of an entity that all others name are cut, and it is said', async () => {
    const index = indexOf(entity('c', 'C'), ...Array.from({ length: 30_000 }, (_, at) => order(`o${at}`, 'c')));
    let found: ReturnType<typeof linked> | null = null;
    const held = await shortest(50, () =>
      longestHold(async () => {
        found = linked(index, { type: 'customer', id: 'c' }, 'order', 20);
      }),
    );
    expect(found).toMatchObject({ more: true });
    expect(held).toBeLessThan(50);
  });
});

describe('links that are looked at', () => {
  it('are so many in all: more are not, and it is said', () => {
    const order = (id: string, customer: string): Entity => ({
      ...entity(id, id),
      type: 'order',
      links: [{ rel: 'placed_by', type: 'customer', id: customer }],
    });
    const index = indexOf(entity('c', 'C'), entity('d', 'D'), order('o1', 'c'), order('o2', 'c'), order('o3', 'd'));
    const budget = { left: 3 };
    // Each costs one for who names it and one for each of its links.
    expect(index.linked({ type: 'customer', id: 'c' }, 'order', 20, budget).linked).toHaveLength(2);
    expect(index.linked({ type: 'customer', id: 'd' }, 'order', 20, budget)).toEqual({ linked: [], more: true });
  });
});

describe('many entities', () => {
  const COUNT = 30_000;
  const index = new WorkspaceIndex();
  let seed = 7;
  const random = (below: number): number => {
    seed = (seed * 1_103_515_245 + 12_345) % 2_147_483_648;
    return Math.floor((seed / 2_147_483_648) * below);
  };
  const syllables = ['ka', 'lo', 'mi', 'ten', 'sar', 'vel', 'dor', 'an', 'bri', 'ech', 'ful', 'gor', 'hin', 'jal'];
  const word = (): string => Array.from({ length: 4 }, () => syllables[random(syllables.length)]).join('');
  for (let at = 0; at < COUNT; at += 1) {
    index.put(
      entity(`cus_${at}`, `${word()} ${word()}`, {
        attributes: { tier: 'gold', status: 'active', city: word(), note: `${word()} ${word()}`, at },
      }),
    );
  }

  it.each([
    ['one word', 'kalomiten'],
    ['what everybody has', 'gold active'],
    ['what everybody has, and a rare word', 'gold active cus_77 kalomiten'],
    ['eight words with errors', Array.from({ length: 8 }, (_, at) => `kalomiten${'qxzw'[at % 4]}x`).join(' ')],
    ['beginnings', 'ka lo mi te sa ve do an'],
    ['the longest query', 'kalomitensarveldorkalomitensarve '.repeat(7)],
  ])('are searched within 50 ms, whatever the query: %s', async (_what, query) => {
    const held = await shortest(50, () => longestHold(async () => index.search('customer', query, 50)));
    expect(held).toBeLessThan(50);
  });

  it('a word that nearly everybody has counts for those that a rare word finds', () => {
    const some = new WorkspaceIndex();
    for (let at = 0; at < 11_000; at += 1) some.put(entity(`c${at}`, 'usual'));
    some.put(entity('a', 'peculiar'));
    some.put(entity('z', 'peculiar', { attributes: { word: 'usual' } }));
    expect(ids(some, 'usual peculiar')).toEqual(['z', 'a']);
  });

  it('what everybody has still ranks what a rare word finds', () => {
    expect(index.search('customer', 'gold cus_77', 3).found[0]?.id).toBe('cus_77');
    expect(index.search('customer', 'gold', 10)).toMatchObject({ more: true });
  });
});
