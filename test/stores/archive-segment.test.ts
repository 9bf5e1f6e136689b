import { createHash } from 'node:crypto';
import fc from 'fast-check';
import { expect, it } from 'vitest';
import { readSegment, segmentText } from '../../src/stores/archive/segments.ts';
import { KEY_SEALS } from '../identity/key-seals.ts';
import '../property-seed.ts';

const NAME = { installId: 'install', workspace: 'demo', n: 7 };
const BEFORE = 'x'.repeat(43);
const rows = fc.array(fc.record({ id: fc.string(), text: fc.string({ unit: 'binary' }) }), { maxLength: 8 });

it('reads back what it wrote, whatever the rows say', () => {
  fc.assert(
    fc.property(rows, fc.constantFrom(null, BEFORE), (of, before) => {
      const { text, sha256 } = segmentText(NAME, { before, rows: of }, KEY_SEALS);
      expect(readSegment(Buffer.from(text), NAME, KEY_SEALS)).toEqual({ n: 7, sha256, before, rows: of });
    }),
  );
});

const ROWS = Array.from({ length: 5 }, (_, n) => ({ id: `eff_${n}`, text: `{"n":${n},"text":"ü\uFFFD\n"}` }));
const { text: TEXT } = segmentText(NAME, { before: BEFORE, rows: ROWS }, KEY_SEALS);
const BYTES = Buffer.from(TEXT);

it('is lines: which one it is and what stands before it, an effect in each further one, and the seal of all of them', () => {
  const lines = TEXT.trimEnd().split('\n');
  const [head, ...others] = lines.map((line) => JSON.parse(line));
  expect(head).toEqual({ v: 1, install: 'install', workspace: 'demo', n: 7, before: BEFORE, rows: ROWS.length });
  expect(others.slice(0, -1)).toEqual(ROWS.map(({ id, text }) => [id, text]));
  const content = `${lines.slice(0, -1).join('\n')}\n`;
  expect(others.at(-1)).toEqual({
    sha256: createHash('sha256').update(content).digest('base64url'),
    seal: expect.any(String),
  });
});

it('refuses a segment with any one byte of it changed, left out or put in, and any that breaks off', () => {
  const refused = (bytes: Buffer): void => expect(readSegment(bytes, NAME, KEY_SEALS)).toHaveProperty('wrong');
  for (let at = 0; at < BYTES.length; at += 1) {
    const [begin, end] = [BYTES.subarray(0, at), BYTES.subarray(at + 1)];
    for (const by of [1, 0x20, 0x80]) refused(Buffer.concat([begin, Buffer.of((BYTES[at] ?? 0) ^ by), end]));
    refused(Buffer.concat([begin, end]));
    refused(Buffer.concat([begin, Buffer.from(' '), BYTES.subarray(at)]));
    refused(begin);
  }
});

it('refuses a thousand edits of whole lines', () => {
  const lines = TEXT.split('\n');
  const line = fc.nat({ max: lines.length - 1 });
  fc.assert(
    fc.property(line, line, fc.constantFrom('swap', 'drop', 'double', 'empty'), (one, other, how) => {
      const edited = [...lines];
      if (how === 'swap') [edited[one], edited[other]] = [edited[other] ?? '', edited[one] ?? ''];
      if (how === 'drop') edited.splice(one, 1);
      if (how === 'double') edited.splice(other, 0, edited[one] ?? '');
      if (how === 'empty') edited[one] = '';
      fc.pre(edited.join('\n') !== TEXT);
      expect(readSegment(Buffer.from(edited.join('\n')), NAME, KEY_SEALS)).toHaveProperty('wrong');
    }),
    { numRuns: 1_000 },
  );
});

it('is of its store, its workspace and its number alone, and of a gateway that has the master secret', () => {
  for (const other of [{ installId: 'another' }, { workspace: 'other' }, { n: 8 }])
    expect(readSegment(BYTES, { ...NAME, ...other }, KEY_SEALS)).toMatchObject({
      wrong: expect.stringContaining('no gateway of this store sealed it'),
    });
  const foreign = { ...KEY_SEALS, sealRow: (row: string, text: string) => KEY_SEALS.sealRow(`${row} `, text) };
  const { text } = segmentText(NAME, { before: null, rows: ROWS }, foreign);
  expect(readSegment(Buffer.from(text), NAME, KEY_SEALS)).toHaveProperty('wrong');
});
