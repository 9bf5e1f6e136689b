import { setTimeout as delay } from 'node:timers/promises';
import { afterAll, beforeAll, expect, it, vi } from 'vitest';
import { takenInTime } from '../../src/api/export.ts';
import { type Rig, startRig } from './rig.ts';

const WS = '/v1/workspaces/demo';

let rig: Rig;
beforeAll(async () => {
  rig = await startRig();
});
afterAll(() => rig.close());

it.each([
  // There it is an effect of that name, which is not there.
  [`${WS}/effects/stream`, 404],
  [`${WS}/export`, 405],
])('HEAD opens no stream that nobody reads: %s', async (path, status) => {
  expect((await rig.send('GET', path)).status).toBe(200);
  expect((await rig.send('HEAD', path)).status).toBe(status);
});

it('an export that is over makes room for the next: only two at a time are made', async () => {
  for (let made = 0; made < 4; made += 1)
    expect((await rig.send('GET', `${WS}/export?format=bundle`)).status, `export ${made + 1}`).toBe(200);
});

it('an export breaks off when its key is revoked, and not while the store cannot say it', async () => {
  let made = 0;
  async function* lines(): AsyncGenerator<string> {
    for (;;) {
      made += 1;
      yield `${made}\n`;
      await delay(20);
    }
  }
  const answers = [Promise.reject(new Error('the store is away')), Promise.resolve(true), Promise.resolve(false)];
  for (const answer of answers) answer.catch(() => undefined);
  const stream = takenInTime(lines(), () => answers.shift() ?? Promise.resolve(false));
  const closed = new Promise((resolve) => stream.once('close', resolve));
  stream.resume();
  await closed;
  expect(answers).toEqual([]);
  const before = made;
  await delay(100);
  expect(made).toBeLessThanOrEqual(before + 1);
}, 20_000);

it('an export that is taken, however slowly, lasts for longer than a minute', async () => {
  vi.useFakeTimers({ toFake: ['setInterval', 'clearInterval', 'performance'] });
  async function* lines(): AsyncGenerator<string> {
    for (;;) yield 'x'.repeat(100_000);
  }
  const stream = takenInTime(lines(), () => Promise.resolve(true));
  for (let taken = 0; taken < 8; taken += 1) {
    await expect.poll(() => stream.read() !== null).toBe(true);
    vi.advanceTimersByTime(30_000);
    expect(stream.destroyed).toBe(false);
  }
  stream.destroy();
  vi.useRealTimers();
});

it('an export of which nobody takes anything is broken off after a minute', async () => {
  vi.useFakeTimers({ toFake: ['setInterval', 'clearInterval', 'performance'] });
  let ended = false;
  async function* lines(): AsyncGenerator<string> {
    try {
      for (;;) yield 'x'.repeat(100_000);
    } finally {
      ended = true;
    }
  }
  let asked = 0;
  const stream = takenInTime(lines(), () => {
    asked += 1;
    return Promise.resolve(true);
  });
  stream.read(0);
  await delay(20);
  vi.advanceTimersByTime(60_000);
  expect([asked, stream.destroyed]).toEqual([30, false]);
  vi.advanceTimersByTime(2_000);
  expect(stream.destroyed).toBe(true);
  await expect.poll(() => ended).toBe(true);
  expect(vi.getTimerCount()).toBe(0);
  vi.useRealTimers();
});
