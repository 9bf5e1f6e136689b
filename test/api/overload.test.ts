import { once } from 'node:events';
import { connect } from 'node:net';
import { text } from 'node:stream/consumers';
import { afterEach, beforeEach, expect, it, onTestFinished, vi } from 'vitest';
import { measureOverload } from '../../src/api/front.ts';
import { createServer } from '../../src/api/server.ts';
import { createLogger } from '../../src/telemetry/logger.ts';

/** What is measured of the event loop; `null`: what Node measures. */
const measured = vi.hoisted(() => ({ meanMs: null as number | null }));
vi.mock('node:perf_hooks', async (original) => {
  const real = await original<typeof import('node:perf_hooks')>();
  return {
    ...real,
    monitorEventLoopDelay(options: { readonly resolution: number }) {
      const histogram = real.monitorEventLoopDelay(options);
      const { resolution } = options;
      return {
        enable: () => histogram.enable(),
        disable: () => histogram.disable(),
        reset: () => histogram.reset(),
        get mean() {
          return measured.meanMs === null ? histogram.mean : (measured.meanMs + resolution) * 1e6;
        },
      };
    },
  };
});

beforeEach(() => {
  vi.useFakeTimers({ toFake: ['setInterval', 'clearInterval', 'performance'] });
});
afterEach(() => {
  measured.meanMs = null;
  vi.useRealTimers();
});

it('the work of the start is no load; what comes two seconds later is', () => {
  // The event loop does not turn in this test: each sample finds that it stood still.
  const overload = measureOverload({ size: 0 });
  vi.advanceTimersByTime(10_000);
  expect([overload.isOverloaded(), overload.wasLate()]).toEqual([true, true]);
  overload.started();
  expect(overload.isOverloaded()).toBe(false);
  vi.advanceTimersByTime(2_000);
  expect(overload.isOverloaded()).toBe(false);
  vi.advanceTimersByTime(1);
  expect(overload.isOverloaded()).toBe(true);
  overload.close();
});

it('with 128 requests under way, what arrives after 100 ms of one turn is refused, and what arrives within a second', async () => {
  // Time goes on, and no sample is taken.
  vi.useFakeTimers({ toFake: ['performance'] });
  const underWay = { size: 128 };
  const overload = measureOverload(underWay);
  vi.advanceTimersByTime(2_001);
  const after = (ms: number): boolean => {
    vi.advanceTimersByTime(ms);
    return overload.isOverloaded();
  };
  expect([after(0), after(100), after(1)]).toEqual([false, false, true]);
  underWay.size = 127;
  expect(after(0)).toBe(false);
  underWay.size = 128;
  await new Promise(setImmediate);
  expect([after(999), after(1)]).toEqual([true, false]);
  // A turn that is long before anything arrives in it is none that new requests make long.
  await new Promise(setImmediate);
  expect([after(500), overload.wasLate()]).toEqual([false, false]);
  overload.close();
});

it('an event loop that was late is remembered for fifteen seconds: what arrived meanwhile may have waited unread', () => {
  const overload = measureOverload({ size: 0 });
  expect(overload.wasLate()).toBe(false);
  // A sample that finds that the loop stood still; from then on none is taken.
  vi.advanceTimersByTime(1_000);
  overload.close();
  expect(overload.wasLate()).toBe(true);
  vi.advanceTimersByTime(14_999);
  expect(overload.wasLate()).toBe(true);
  vi.advanceTimersByTime(1);
  expect(overload.wasLate()).toBe(false);
});

it('once it stands still, whoever arrives is refused, however few there are; nothing is sampled after it is closed', () => {
  const overload = measureOverload({ size: 0 });
  vi.advanceTimersByTime(3_000);
  expect(overload.isOverloaded()).toBe(true);
  overload.close();
  expect(vi.getTimerCount()).toBe(0);
});

it.each([
  [750, 0, false],
  [751, 0, true],
  [100, 128, false],
  [101, 127, false],
  [101, 128, true],
])(
  'where it is %i ms late with %i requests under way, one that arrives is refused: %s',
  async (meanMs, size, isRefused) => {
    measured.meanMs = meanMs;
    const overload = measureOverload({ size });
    vi.advanceTimersByTime(3_000);
    expect(overload.isOverloaded()).toBe(isRefused);
    await new Promise(setImmediate);
    // What is over is over with the next sample.
    measured.meanMs = 0;
    vi.advanceTimersByTime(1_000);
    expect(overload.isOverloaded()).toBe(false);
    overload.close();
  },
);

it('a request that did not arrive in time is told so, and where the gateway was late itself, that it was', async () => {
  measured.meanMs = 0;
  const app = createServer({
    logger: createLogger({ level: 'silent', sink: process.stdout }),
    settings: () => ({
      publicUrl: 'http://127.0.0.1',
      allowedHosts: [],
      queryKey: 'refuse',
      jsonLimits: { depth: 8, values: 100 },
    }),
    bodyLimit: 1_000,
    connections: 10,
  });
  onTestFinished(() => app.close());
  const { port } = new URL(await app.listen({ host: '127.0.0.1', port: 0 }));
  const answer = async (): Promise<readonly [head: string, body: unknown]> => {
    const accepted = once(app.server, 'connection');
    const socket = connect(Number(port), '127.0.0.1');
    const [served] = await accepted;
    const late = Object.assign(new Error('Request timeout'), { code: 'ERR_HTTP_REQUEST_TIMEOUT' });
    app.server.emit('clientError', late, served);
    const [head = '', body = ''] = (await text(socket)).split('\r\n\r\n');
    return [head, JSON.parse(body)];
  };
  const earlier = 'An earlier request for the same action may have run.';
  const said = { did_it_happen: 'maybe', safe_to_retry: true, next: 'retry' };
  for (const [meanMs, status, code, detail] of [
    [100, 408, 'invalid_request', `The request did not arrive whole in time. ${earlier}`],
    [101, 503, 'not_ready', `did not read the request in time. Nothing was done with it. ${earlier}`],
  ] as const) {
    measured.meanMs = meanMs;
    vi.advanceTimersByTime(1_000);
    const [head, body] = await answer();
    expect(head).toMatch(new RegExp(`^HTTP/1\\.1 ${status} `));
    expect(head).toMatch(/^x-should-retry: true\r\nretry-after: 1\r$/m);
    expect(body).toMatchObject({ ...said, status, code, detail: expect.stringContaining(detail) });
  }
});
