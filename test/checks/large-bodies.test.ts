import { describe, expect, it } from 'vitest';
import { conditionFaults, judgeCondition } from '../../src/effects/conditions.ts';
import type { Json, JsonObject } from '../../src/effects/json.ts';
import { compareState } from '../../src/effects/verify-state.ts';

/** Anybody with a key may send a body of this length: it must not keep the gateway from everybody else. */
const BODY_BYTES = 1024 * 1024;
/** A second at most on a quiet machine; what each of these took before was from 20 s to more than an hour. */
const MOST_MS = 8000;

function timed<T>(work: () => T): { readonly result: T; readonly ms: number } {
  const begun = performance.now();
  return { result: work(), ms: performance.now() - begun };
}

function fields(count: number, prefix: string, value: Json): JsonObject {
  return Object.fromEntries(Array.from({ length: count }, (_, index) => [`${prefix}${index}`, value]));
}

describe('checks of a body as long as one may be', () => {
  it('compile no more expressions than are allowed', () => {
    const conditions = fields(BODY_BYTES / 40, 'f', { $regex: '(a{1,100}){1,10}' });
    const { result, ms } = timed(() => conditionFaults(conditions, '/conditions'));
    expect(result.map(({ path }) => path)).toContain('/conditions');
    expect(ms).toBeLessThan(MOST_MS);
  });

  it.each([
    '(?:(?:a|b|cd|e?){1000})'.repeat(20),
    '(?:(?:a?){31}){31}'.repeat(25),
    '(?P<name>[a-z]|\\pL){999}'.repeat(15),
  ])('compile no expression that is far too large: %s', (expression) => {
    const conditions = fields(16, 'f', { $regex: expression });
    const { result, ms } = timed(() => conditionFaults(conditions, '/conditions'));
    expect(result).toHaveLength(16);
    expect(result[0]?.message).toContain('too large an expression');
    expect(ms).toBeLessThan(MOST_MS / 8);
  });

  it('look up a field of very many segments', () => {
    const field = 'a.'.repeat(BODY_BYTES / 2);
    const state = { a: { a: 1 }, 'a.a.a': { b: 1 } };
    const { result, ms } = timed(() =>
      compareState({ requiredFields: [field], assumed: state, current: state, conditions: {} }),
    );
    expect(result).toEqual([{ field, assumed: null, current: null }]);
    expect(ms).toBeLessThan(MOST_MS);
  });

  it('compare very many fields and conditions', () => {
    const conditions = fields(BODY_BYTES / 26, 'f', 1);
    const names = Object.keys(conditions);
    const { result, ms } = timed(() =>
      compareState({ requiredFields: names, assumed: conditions, current: {}, conditions }),
    );
    expect(result).toEqual(names.map((field) => ({ field, assumed: 1, current: null })));
    expect(ms).toBeLessThan(MOST_MS);
  });

  it('look for a large value in a long list', () => {
    const state = { large: fields(BODY_BYTES / 24, 'k', 1) };
    const list = Array.from({ length: BODY_BYTES / 8 }, () => ({}));
    const { result, ms } = timed(() => [
      judgeCondition(state, 'large', { $in: list }),
      judgeCondition(state, 'large', { $nin: list }),
      judgeCondition(state, 'large', { $in: [...list, state.large] }),
    ]);
    expect(result).toEqual(['refuted', 'holds', 'holds']);
    expect(ms).toBeLessThan(MOST_MS);
  });
});
