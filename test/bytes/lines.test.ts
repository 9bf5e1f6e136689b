import fc from 'fast-check';
import { expect, test } from 'vitest';
import { lineSplitter } from '../../src/bytes/lines.ts';

function lines(chunks: readonly Buffer[], most: number): readonly (string | null)[] {
  const split = lineSplitter(most);
  return chunks.flatMap(split).map((line) => (line.kind === 'line' ? line.bytes.toString() : null));
}

test('lines come whole, however the bytes are cut', () => {
  fc.assert(
    fc.property(fc.array(fc.stringMatching(/^[aö€]{0,6}$/)), fc.array(fc.nat(9)), (texts, cuts) => {
      const whole = Buffer.from(texts.map((text) => `${text}\n`).join(''));
      const chunks: Buffer[] = [];
      let at = 0;
      for (const cut of cuts) chunks.push(whole.subarray(at, (at += cut)));
      chunks.push(whole.subarray(at));
      expect(lines(chunks, 18)).toEqual(texts);
    }),
  );
});

test('a line that is too long is told of once, at once, and the next one is whole', () => {
  const split = lineSplitter(4);
  expect(split(Buffer.from('12345'))).toEqual([{ kind: 'too_long' }]);
  expect(split(Buffer.from('6789'))).toEqual([]);
  expect(split(Buffer.from('0\nabcd\nx'))).toEqual([{ kind: 'line', bytes: Buffer.from('abcd') }]);
  expect(lines([Buffer.from('12345\n12345\n1\r\n\n')], 4)).toEqual([null, null, '1', '']);
  expect(lines([Buffer.from('1234'), Buffer.from('\n')], 4)).toEqual(['1234']);
});

test('a line that begins in a large chunk does not keep the chunk in memory', () => {
  const split = lineSplitter(16);
  const chunk = Buffer.concat([Buffer.alloc(1_000_000, 'x'), Buffer.from('\nrest')]);
  expect(split(chunk)).toEqual([{ kind: 'too_long' }]);
  const [line] = split(Buffer.from('\n'));
  expect(line).toEqual({ kind: 'line', bytes: Buffer.from('rest') });
  expect(line?.kind === 'line' ? line.bytes.buffer.byteLength : null).toBeLessThan(100_000);
});
