import { expect, test } from 'vitest';
import type { Json } from '../../src/json/value.ts';
import { jsonInSlices, jsonParts } from '../../src/json/write.ts';

const VALUES: readonly Json[] = [
  null,
  -0,
  1e21,
  '',
  '"\\\n\u0001\ud800é😀',
  [],
  {},
  [[], {}, [null, [true]], { a: {}, b: [false], 7: 'x', 'é"': -1.5e-7 }],
  Array.from({ length: 20_000 }, (_, index) => ({ [`n${index % 9}`]: [index, String(index), null] })),
  'x'.repeat(100_000),
  ['"\u0001'.repeat(50_000), { a: '\n'.repeat(32_768) }],
  // Of a character in two halves, one is at the end of a part.
  `${'x'.repeat(32_767)}${'😀'.repeat(40_000)}`,
];

test('a value is written in parts as JSON.stringify writes it', async () => {
  for (const value of VALUES) expect((await jsonInSlices(value)).toString()).toBe(JSON.stringify(value));
});

test('no part is long, and none ends within a character', () => {
  for (const value of VALUES)
    for (const part of jsonParts(value)) {
      expect(part.byteLength).toBeLessThan(6 * 2 * 32_768);
      expect(Buffer.from(part.toString()).equals(part)).toBe(true);
    }
});
