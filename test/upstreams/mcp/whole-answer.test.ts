import { expect, test } from 'vitest';
import { readStrictly } from '../../../src/upstreams/mcp/whole-answer.ts';

/** A list of lists, with so many values in all. */
function textOf(values: number): string {
  const [inner, outer] = [values / 1_000, 1_000];
  const list = `[${Array.from({ length: inner - 1 }, () => '0').join()}]`;
  return `[${Array.from({ length: outer }, () => list).join()}]`;
}

const membersOf = (count: number) => `{${Array.from({ length: count }, (_, n) => `"m${n}":0`).join()}}`;

const read = async (text: string) => (await readStrictly(Buffer.from(text))).ok;

test('of one message of a server 200,000 values are read, and no more', async () => {
  expect(await read(textOf(199_000))).toBe(true);
  expect(await read(textOf(201_000))).toBe(false);
});

test('of one object in it 20,000 members are read, and no more', async () => {
  expect(await read(membersOf(20_000))).toBe(true);
  expect(await read(membersOf(20_001))).toBe(false);
});
