import { once } from 'node:events';
import { createServer, type RequestListener } from 'node:http';
import type { AddressInfo } from 'node:net';
import { expect, test, vi } from 'vitest';
import { Allowance, sparing } from '../../src/cli/mcp/bounds.ts';
import { NOTHING_READ, readEvents } from '../../src/cli/mcp/events.ts';
import { type Answer, readText, Sender } from '../../src/cli/mcp/http.ts';

/** @returns the answers of a server that answers so, one after the other */
async function answersOf(answer: RequestListener) {
  const server = createServer(answer).listen(0, '127.0.0.1');
  await once(server, 'listening');
  const sender = new Sender(new URL(`http://127.0.0.1:${(server.address() as AddressInfo).port}`));
  return {
    next: (): Promise<Answer> =>
      sender.send({ method: 'GET', headers: {}, body: null, signal: AbortSignal.timeout(60_000) }),
    close(): void {
      sender.close();
      server.close();
    },
  };
}

test('an answer is read up to its own bound, whatever all of them may hold, and gives back what it held', async () => {
  const answers = await answersOf((_request, response) => response.end('x'.repeat(100)));
  const allowance = new Allowance(150);
  const read = async (most: number) => readText((await answers.next()).body, most, allowance);
  try {
    expect(await read(99)).toEqual({ kind: 'too_long' });
    for (const _ of [1, 2]) expect(await read(100)).toEqual({ kind: 'text', text: 'x'.repeat(100) });
    expect(allowance.take(51)).toBe(true);
    expect(await read(100)).toEqual({ kind: 'too_long' });
  } finally {
    answers.close();
  }
});

test('a stream gives back what it held: at its end, where it breaks within an event, and where that is too long', async () => {
  const texts = ['data: {}\n\n', 'data: {"half', `data: ${'x'.repeat(90)}`];
  const answers = await answersOf((_request, response) => {
    const text = texts.shift() ?? '';
    response.write(text, () => (text.endsWith('\n\n') ? response.end() : setTimeout(() => response.destroy(), 20)));
  });
  const allowance = new Allowance(150);
  const read: unknown[] = [];
  try {
    for (const isTooLong of [false, false, true]) {
      const { body } = await answers.next();
      const end = await readEvents(body, { most: 50, allowance }, NOTHING_READ, async (data) => void read.push(data));
      expect([end.isTooLong, allowance.take(150)]).toEqual([isTooLong, true]);
      allowance.giveBack(150);
    }
    expect(read).toEqual(['{}']);
  } finally {
    answers.close();
  }
});

test('a log takes twenty lines at once and one more each second, and says how many it left out', () => {
  vi.useFakeTimers({ toFake: ['Date'] });
  try {
    const lines: string[] = [];
    const log = sparing((line) => lines.push(line));
    for (let line = 1; line <= 23; line += 1) log(`${line}`);
    expect(lines).toEqual(Array.from({ length: 20 }, (_, at) => `${at + 1}`));
    vi.advanceTimersByTime(1_999);
    for (const line of ['24', '25']) log(line);
    vi.advanceTimersByTime(60_000);
    for (let line = 26; line <= 50; line += 1) log(`${line}`);
    expect(lines.slice(20, 23)).toEqual(['24 (and 3 lines more before)', '26 (and 1 lines more before)', '27']);
    expect(lines).toHaveLength(41);
  } finally {
    vi.useRealTimers();
  }
});
