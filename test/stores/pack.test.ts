import { afterAll, beforeAll, expect, it } from 'vitest';
import { Packer, type Word } from '../../src/stores/redis/rows/words.ts';
import { type RedisServer, startRedis } from '../redis/servers.ts';

let server: RedisServer;
beforeAll(async () => {
  server = await startRedis();
});
afterAll(() => server.stop());

/** What a script reads. */
async function unpacked(packer: Packer, ...lists: readonly (readonly Word[])[]): Promise<unknown> {
  return server.client.eval('return cmsgpack.unpack(ARGV[1])', 0, packer.pack(...lists));
}

it('texts of every length and all characters are read by the server as they were, one packer after the other', async () => {
  const packer = new Packer();
  const lengths = [0, 1, 15, 16, 31, 32, 255, 256, 21_845, 21_846, 65_535, 65_536, 400_000];
  const words = lengths.flatMap((length) => [
    'x'.repeat(length),
    'é'.repeat(length),
    '€'.repeat(length),
    '😀'.repeat(length),
  ]);
  expect(await unpacked(packer, words)).toEqual(words);
  expect(await unpacked(packer, ['a', '\0\n'], [], ['b'])).toEqual(['a', '\0\n', 'b']);
  expect(await unpacked(packer, [])).toEqual([]);
  const many = Array.from({ length: 70_000 }, (_, n) => String(n));
  expect(await unpacked(packer, many)).toEqual(many);
});

it('two texts become one', async () => {
  const pairs = [
    ['', ''],
    ['v ', ''],
    ['', 't'],
    ['v ', 't'.repeat(40)],
    ['é ', '€'.repeat(30_000)],
  ] as const;
  expect(await unpacked(new Packer(), pairs)).toEqual(pairs.map(([start, rest]) => start + rest));
});

it('is another Buffer each time', () => {
  const packer = new Packer();
  const first = packer.pack(['first']);
  const kept = Buffer.from(first);
  packer.pack(['other']);
  expect(first).toEqual(kept);
});
