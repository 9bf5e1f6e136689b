import fc from 'fast-check';
import { expect, test } from 'vitest';
import { Gathered } from '../../src/bytes/gathered.ts';

test('all that is added comes out, in order, however it was parted, and then nothing', () => {
  const pieces = fc.array(fc.uint8Array({ maxLength: 3_000 }), { maxLength: 80 });
  fc.assert(
    fc.property(pieces, fc.nat(80), (parted, cut) => {
      const buffers = parted.map((piece) => Buffer.from(piece));
      const gathered = new Gathered();
      for (const [index, piece] of buffers.entries()) {
        gathered.add(piece);
        if (index === cut) expect(gathered.whole()).toEqual(Buffer.concat(buffers.slice(0, index + 1)));
      }
      const all = Buffer.concat(buffers);
      expect(gathered.byteLength).toBe(all.byteLength);
      expect(gathered.takenWith(Buffer.from('end'))).toEqual(Buffer.concat([all, Buffer.from('end')]));
      expect([gathered.byteLength, gathered.take().byteLength]).toEqual([0, 0]);
    }),
  );
});

test('a text in one piece is not copied; a small part of a larger piece is, or all of that would stay', () => {
  const gathered = new Gathered();
  const whole = Buffer.alloc(1_000, 'a');
  gathered.add(whole);
  expect(gathered.take()).toBe(whole);
  // Of which pool a block is, is Node's: it is not the memory of the larger piece.
  const larger = Buffer.alloc(100_000);
  gathered.add(larger.subarray(0, 1_000));
  expect(gathered.take().buffer).not.toBe(larger.buffer);
});
