import fc from 'fast-check';
import { expect, it } from 'vitest';
import { passingMap } from '../../src/stores/passing-map.ts';

it('behaves as a map, whatever comes and goes', () => {
  const step = fc.oneof(
    { weight: 10, arbitrary: fc.tuple(fc.constant('set'), fc.integer({ min: 0, max: 40 })) },
    { weight: 10, arbitrary: fc.tuple(fc.constant('delete'), fc.integer({ min: 0, max: 40 })) },
    { weight: 1, arbitrary: fc.tuple(fc.constant('clear'), fc.constant(0)) },
  );
  fc.assert(
    fc.property(fc.array(step, { minLength: 300, maxLength: 600 }), (steps) => {
      const map = passingMap<number, number>();
      const model = new Map<number, number>();
      for (const [at, [kind, key]] of steps.entries()) {
        if (kind === 'set') {
          map.set(key, at);
          model.set(key, at);
        } else if (kind === 'delete') expect(map.delete(key)).toBe(model.delete(key));
        else {
          map.clear();
          model.clear();
        }
        expect(map.get(key)).toBe(model.get(key));
        expect(map.size).toBe(model.size);
      }
      expect([...map]).toEqual([...model]);
      expect([...map.values()]).toEqual([...model.values()]);
    }),
    { numRuns: 50 },
  );
});
