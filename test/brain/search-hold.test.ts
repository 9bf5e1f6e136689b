import { expect, it } from 'vitest';
import { MOST_WORDS } from '../../src/brain/search-index.ts';
import { WorkspaceIndex } from '../../src/brain/workspace-index.ts';
import { longestHold } from '../longest-hold.ts';
import { shortest } from '../shortest.ts';

/** Words of one entity, two letters each: all together are as many as the index takes. */
const WORDS = 300;
const ENTITIES = MOST_WORDS / WORDS;

it('in an index that was filled to hold the thread, it is held for less than 50 ms', async () => {
  // Names of few letters that nothing in the index has: each neighbour of each word is looked at.
  const held = await shortest(50, () => {
    const index = new WorkspaceIndex();
    let at = 0;
    return longestHold(async () => {
      for (; at < ENTITIES; at += 1) {
        const texts = Array.from({ length: WORDS }, (_, word) =>
          String.fromCharCode(0xac00 + word * 37, 0xac00 + at * 3),
        );
        const links = Array.from({ length: 20 }, (_, link) => ({ rel: 'a', type: 'b', id: `${at}.${link}` }));
        index.put({ type: 'customer', id: `c${at}`, name: 'x', attributes: { t: texts.join(' ') }, links });
        await new Promise(setImmediate);
      }
      for (const query of [
        '가나다라마바사아 '.repeat(8).trim(),
        '가나다라 나다라마 다라마바 라마바사',
        'abcdefgh bcdefghi',
      ]) {
        await new Promise(setImmediate);
        index.search('customer', query, 50);
      }
      await new Promise(setImmediate);
    });
  });
  expect(held).toBeLessThan(50);
});
