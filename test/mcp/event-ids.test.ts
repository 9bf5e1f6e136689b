import { createSecretKey } from 'node:crypto';
import { Readable } from 'node:stream';
import { text } from 'node:stream/consumers';
import { expect, test } from 'vitest';
import { EventIdMarks, type EventOwner, markedEvents, openEventId } from '../../src/mcp/gateway/event-ids.ts';
import { withMark, withoutMark } from '../../src/mcp/gateway/marks.ts';

const KEY = createSecretKey(Buffer.alloc(32, 1));
const OWNER: EventOwner = { upstream: 'crm', workspace: 'demo', agentId: 'bot', session: 's1' };

const STREAM =
  '\ufeffid: first\r\nretry: 5\r\ndata: one\r\n\r\n' +
  ': id: a comment\nevent: message\ndata: id: of the data\nid:two\n\n' +
  'data\rid:  three spaces \r\rid\nid:\nidea: 1\nid: ü\ndata: {"id:": "id: 1"}\n\n' +
  `id: ${'x'.repeat(3_000)}\n\nid: last\ndata: the end\n\n`;

function passed(pieces: readonly Buffer[]): string {
  const marks = new EventIdMarks(KEY, OWNER);
  return Buffer.concat([...pieces.map((piece) => marks.write(piece)), marks.rest()]).toString();
}

test('every id of an event gets a mark that opens for its owner, and nothing else changes, wherever the bytes are parted', () => {
  const bytes = Buffer.from(STREAM);
  const whole = passed([bytes]);
  const marked = /(?<=^\ufeff?)(id: (.+)\.([\w-]{43}))$/gm;
  expect([...whole.matchAll(marked)].map(([, , id]) => id)).toEqual(['first', 'two', ' three spaces ', 'last']);
  expect(whole.replaceAll(marked, 'id: $2').replace('id: two', 'id:two')).toBe(STREAM);
  for (const [, , id = '', mark = ''] of whole.matchAll(marked)) {
    expect(openEventId(KEY, OWNER, `${id}.${mark}`)).toBe(id);
    for (const other of [
      { session: 's2' },
      { session: null },
      { agentId: 'cat' },
      { workspace: 'other' },
      { upstream: 'x' },
    ])
      expect(openEventId(KEY, { ...OWNER, ...other }, `${id}.${mark}`)).toBeNull();
  }
  for (let at = 0; at <= bytes.length; at += 1) expect(passed([bytes.subarray(0, at), bytes.subarray(at)])).toBe(whole);
  expect(passed([...bytes].map((byte) => Buffer.of(byte)))).toBe(whole);
});

test('only the beginning of a line that may be one with an id waits', () => {
  const marks = new EventIdMarks(KEY, OWNER);
  const wait = (text: string): string => marks.write(Buffer.from(text)).toString();
  expect(wait('data: half')).toBe('data: half');
  expect(wait(' a line\ni')).toBe(' a line\n');
  expect(wait('d')).toBe('');
  expect(wait(': 1')).toBe('');
  expect(wait('2\n')).toMatch(/^id: 12\.[\w-]{43}\n$/);
  expect(wait(`id: ${'x'.repeat(5_000)}`).length).toBe(5_004);
  expect(wait('\n')).toBe('\n');
  expect(wait('id: 3')).toBe('');
  expect(marks.rest().toString()).toBe('id: 3');
});

test('a stream that ends in the middle of a line ends with that line', async () => {
  const pieces = Readable.from([Buffer.from('data: one\n\ni'), Buffer.from('d: 2')]);
  expect(await text(pieces.pipe(markedEvents(new EventIdMarks(KEY, OWNER))))).toBe('data: one\n\nid: 2');
});

test('an id has at most 1,024 characters, also where it comes with a mark that is ours', () => {
  for (const [length, opens] of [
    [1_024, true],
    [1_025, false],
  ] as const) {
    const id = 'i'.repeat(length);
    expect(withoutMark(KEY, ['x'], withMark(KEY, ['x'], id))).toBe(opens ? id : null);
  }
});
