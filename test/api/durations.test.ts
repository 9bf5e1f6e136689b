import fc from 'fast-check';
import { Histogram, Registry } from 'prom-client';
import { describe, expect, it } from 'vitest';
import { createDurations } from '../../src/telemetry/metrics.ts';

describe('durations', () => {
  it('are the text that prom-client makes of the same observations', async () => {
    const bounds = [0.001, 0.005, 0.025, 0.1, 0.5, 2.5, 10];
    const about = { name: 'svc_x_seconds', help: 'Time that x took', labelNames: ['route', 'status'] };
    const label = fc.constantFrom('/v1/:id', 'a "b"', 'c\\d', '200', '');
    const duration = fc.oneof(
      fc.constantFrom(0, 1, 5, 10_000, 10_001),
      fc.double({ min: 0, max: 20_000, noNaN: true }),
    );
    await fc.assert(
      fc.asyncProperty(fc.array(fc.tuple(label, label, duration), { minLength: 1 }), async (observed) => {
        const registry = new Registry();
        const peer = new Histogram({ ...about, buckets: bounds, registers: [registry] });
        const durations = createDurations({ ...about, bounds });
        for (const [route, status, ms] of observed) {
          peer.observe({ route, status }, ms / 1000);
          durations.observe(`${route}\n${status}`, ms);
        }
        expect(lines(`${durations.render()}\n`)).toEqual(lines(await registry.metrics()));
      }),
    );
  });
});

/** Sorted: the peer lists a label that looks like a number first. */
function lines(text: string): readonly string[] {
  return text.split('\n').toSorted();
}
