import { expect, test } from 'vitest';
import { readQuery } from '../../src/proxy/arrival.ts';

test('names and values are decoded for policy, and the bytes go on as they came', () => {
  const text = 'a=1&b=x+y&c=%C3%A4&d&e=&f=%2B&&g=a=b';
  expect(readQuery(text)).toEqual({
    pairs: [
      ['a', '1'],
      ['b', 'x y'],
      ['c', 'ä'],
      ['d', ''],
      ['e', ''],
      ['f', '+'],
      ['g', 'a=b'],
    ],
    keys: [],
    forwarded: text,
    faults: [],
    repeated: [],
  });
  for (const nothing of [null, ''])
    expect(readQuery(nothing)).toEqual({ pairs: [], keys: [], forwarded: '', faults: [], repeated: [] });
});

test('a key is taken out, whatever its name is here, and goes on in no spelling; neither does api_key', () => {
  expect(readQuery('a=1&api_key=k1&b=2&api_key=k2')).toMatchObject({ keys: ['k1', 'k2'], forwarded: 'a=1&b=2' });
  expect(readQuery('api%5Fkey=k%31')).toMatchObject({ keys: ['k1'], forwarded: '' });
  expect(readQuery('API_KEY=k1&a=1')).toMatchObject({ keys: [], forwarded: 'a=1' });
  expect(readQuery('token=k1&api_key=k2&a=1', ['token'])).toMatchObject({ keys: ['k1'], forwarded: 'a=1' });
  expect(readQuery('Token=k1&a=1', ['token'])).toMatchObject({ keys: [], forwarded: 'a=1' });
  expect(readQuery('api_key=k1', [])).toMatchObject({ keys: [], forwarded: '' });
});

test.each([
  ['a=1;b=2', '/query/a'],
  ['a=1#b', '/query/'],
  ['a=ä', '/query/'],
  ['a=\u007f', '/query/'],
  ['a=1 2', '/query/'],
  ['a=%zz', '/query/'],
  ['a=%ff', '/query/'],
  ['%ff=1', '/query/'],
  ['=1', '/query/'],
  ['__proto__=1', '/query/__proto__'],
  ['%5F_proto__=1', '/query/__proto__'],
])('%j is read by servers in more than one way', (text, path) => {
  const { faults } = readQuery(text);
  expect(faults.map((fault) => fault.path)).toEqual([path]);
});

test('a name that stands twice is told apart, in whatever case, and only where it is not the first', () => {
  const { repeated, pairs, faults } = readQuery('a=1&B=2&A=3&b=4&c=5&a=6');
  expect(repeated.map(({ path }) => path)).toEqual(['/query/A', '/query/b', '/query/a']);
  expect([pairs.length, faults.length]).toEqual([6, 0]);
});
