import { describe, expect, it } from 'vitest';
import { TextTree } from '../../src/brain/text-tree.ts';

function treeOf(texts: Iterable<string>): TextTree<string> {
  const tree = new TextTree<string>();
  for (const text of texts) tree.set(text, text);
  return tree;
}

let seed = 11;
function random(below: number): number {
  seed = (Math.imul(seed, 1_103_515_245) + 12_345) >>> 0;
  return Math.floor((seed / 4_294_967_296) * below);
}
const word = (most: number): string => Array.from({ length: random(most + 1) }, () => 'abé'[random(3)] ?? '').join('');

/** Insertions, removals and replacements between two texts: the definition, without any bound. */
function errorsBetween(one: string, other: string): number {
  let before = Array.from({ length: other.length + 1 }, (_, at) => at);
  for (let row = 1; row <= one.length; row += 1) {
    const next = [row];
    for (let at = 1; at <= other.length; at += 1)
      next.push(
        Math.min(
          (before[at] ?? 0) + 1,
          (next[at - 1] ?? 0) + 1,
          (before[at - 1] ?? 0) + (one[row - 1] === other[at - 1] ? 0 : 1),
        ),
      );
    before = next;
  }
  return before.at(-1) ?? 0;
}

it('is a map, whatever is put and deleted', () => {
  const tree = new TextTree<number>();
  const map = new Map<string, number>();
  // More first characters than a node has in one page.
  const anyText = (): string => `${random(4) === 0 ? String.fromCharCode(random(2_000)) : ''}${word(6)}`;
  for (let step = 0; step < 20_000; step += 1) {
    const text = anyText();
    if (random(3) === 0) {
      tree.delete(text);
      map.delete(text);
    } else {
      tree.set(text, step);
      map.set(text, step);
    }
    const other = anyText();
    expect(tree.get(other)).toBe(map.get(other));
  }
  expect(tree.beginningWith('', Infinity).toSorted((a, b) => a - b)).toEqual(
    [...map.values()].toSorted((a, b) => a - b),
  );
  expect(tree.size()).toBe(map.size);
});

describe('of random words', () => {
  const words = new Set(Array.from({ length: 400 }, () => word(8)));
  const tree = treeOf(words);

  it('finds those that begin so, all or as many as are wanted', () => {
    for (let times = 0; times < 200; times += 1) {
      const beginning = word(5);
      const expected = [...words].filter((one) => one.startsWith(beginning));
      expect(tree.beginningWith(beginning, 1000).toSorted()).toEqual(expected.toSorted());
      expect(tree.beginningWith(beginning, 3)).toHaveLength(Math.min(3, expected.length));
    }
  });

  it.each([1, 2] as const)('finds those with %s errors, and no others', (errors) => {
    for (let times = 0; times < 200; times += 1) {
      const text = word(9);
      const expected = [...words].filter((one) => errorsBetween(one, text) <= errors);
      expect(tree.like(text, errors, { left: 1e6 }).toSorted()).toEqual(expected.toSorted());
    }
  });
});

describe('a search for similar texts', () => {
  it('looks at no more than it may, at what has fewer errors first', () => {
    const wide = treeOf(
      Array.from({ length: 20_000 }, (_, at) => `${String.fromCharCode(0xac00 + (at % 10_000))}${at}`),
    );
    wide.set('similar', 'similar');
    wide.set('similer', 'similer');
    const budget = { left: 200 };
    expect(wide.like('similar', 2, budget).slice(0, 2)).toEqual(['similar', 'similer']);
    expect(budget.left).toBe(0);
  });

  it('does not try each of many children to find the one that goes on without an error', () => {
    const wide = treeOf(Array.from({ length: 10_000 }, (_, at) => String.fromCharCode(0x3000 + at).repeat(3)));
    wide.set('zebra', 'zebra');
    const budget = { left: 1 };
    expect(wide.like('zebra', 1, budget)).toEqual(['zebra']);
  });
});
