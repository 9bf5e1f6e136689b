import { expect, test } from 'vitest';
import { type ServerEvent, serverEvents } from '../../src/upstreams/mcp/server-events.ts';
import { TooLong } from '../../src/upstreams/mcp/whole-answer.ts';

async function read(bytes: Buffer, size: number, most = 1_000): Promise<readonly ServerEvent[]> {
  async function* pieces(): AsyncGenerator<Buffer> {
    for (let at = 0; at < bytes.length; at += size) yield bytes.subarray(at, at + size);
  }
  const events: ServerEvent[] = [];
  for await (const event of serverEvents(pieces(), most)) events.push(event);
  return events;
}

test.each([
  ['LF', '\n'],
  ['CR and LF', '\r\n'],
  ['CR', '\r'],
])('events are the same however their pieces fall, with %s', async (_name, end) => {
  const lines = [
    'id: 7',
    'data: {"a":',
    'data: 1}',
    '',
    ': nothing',
    '',
    'retry: 250',
    'data: 2',
    '',
    'data: never over',
  ];
  const bytes = Buffer.from(lines.join(end));
  for (let size = 1; size <= bytes.length; size += 1) {
    const events = await read(bytes, size);
    // Half of a line's end, in a piece of its own, says nothing.
    const said = events.filter(({ bytes: own }) => own.length > 1);
    expect(said.map(({ data, id, retryMs, rest }) => ({ data: data?.toString() ?? null, id, retryMs, rest }))).toEqual([
      { data: '{"a":\n1}', id: '7', retryMs: null, rest: 'id: 7\n' },
      { data: null, id: null, retryMs: null, rest: ': nothing\n' },
      { data: '2', id: null, retryMs: 250, rest: 'retry: 250\n' },
    ]);
    const whole = lines.slice(0, -1).join(end) + end;
    expect(Buffer.concat(events.map((event) => event.bytes)).toString()).toBe(whole);
  }
});

test('an event of very many lines is not read: each takes time', async () => {
  const lines = (count: number) => read(Buffer.from(`${'data: 1\n'.repeat(count)}\n`), 1_000, 1_000_000);
  expect((await lines(10_000)).map(({ data }) => data?.byteLength)).toEqual([19_999]);
  await expect(lines(10_001)).rejects.toThrow('an event is longer than the 10000 lines that are read');
});

test('of the ids of an event the last counts; an event of many is not read, since each gets a mark', async () => {
  const ids = (count: number) => {
    const lines = Array.from({ length: count }, (_, n) => `id: ${n + 1}\n`).join('');
    return read(Buffer.from(`${lines}data: 1\n\n`), 1_000, 1_000_000);
  };
  expect((await ids(16)).map(({ id }) => id)).toEqual(['16']);
  await expect(ids(17)).rejects.toThrow('an event is longer than the 16 ids that are read');
});

test('what is no UTF-8 is read as clients read it', async () => {
  const [event] = await read(
    Buffer.concat([Buffer.from('\ufeffdata:"'), Buffer.from([0xff]), Buffer.from('"\n\n')]),
    3,
  );
  expect(event?.data).toEqual(Buffer.from('"\ufffd"'));
});

test('an event that is too long is not read to its end', async () => {
  await expect(read(Buffer.from(`data: ${'x'.repeat(100)}\n\n`), 10, 50)).rejects.toThrow(TooLong);
  const one = 'data: 12345\n\n';
  expect(await read(Buffer.from(one.repeat(50)), 10, one.length)).toHaveLength(50);
});

test('an id with a NUL, a time that is no number and an empty name say nothing, as the standard has it', async () => {
  const lines = ['id: 7', 'id: a\0b', 'retry: 250', 'retry: 12x', 'retry: 1234567890', 'event: x', 'event:', 'data: 1'];
  const [event] = await read(Buffer.from(`${lines.join('\n')}\n\n`), 1_000);
  expect(event).toMatchObject({ id: '7', retryMs: 250, name: null });
});

test('of many events at once some are read in each turn of the event loop, and the rest waits', async () => {
  let events = 0;
  let before = 0;
  let most = 0;
  let isOver = false;
  const look = (): void => {
    most = Math.max(most, events - before);
    before = events;
    if (!isOver) setImmediate(look);
  };
  setImmediate(look);
  async function* pieces(): AsyncGenerator<Buffer> {
    yield Buffer.from('data: 1\n\n'.repeat(10_000));
  }
  for await (const _event of serverEvents(pieces(), 1_000)) events += 1;
  isOver = true;
  look();
  expect(events).toBe(10_000);
  expect(most).toBeLessThan(300);
});
