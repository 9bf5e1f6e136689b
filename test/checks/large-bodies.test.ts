import { describe, expect, it } from 'vitest';
import {
  conditionFaults,
  judgeCondition,
  newConditionJudge,
  requiredFieldFaults,
} from '../../src/effects/checks/conditions.ts';
import type { Json, JsonObject } from '../../src/json/value.ts';
import { reconcile } from '../../src/effects/checks/reconcile.ts';
import { newEffort, spend } from '../../src/effects/checks/state-fields.ts';
import { compareState } from '../../src/effects/checks/verify-state.ts';

/** Anybody with a key may send a body of this length: it must not keep the gateway from everybody else. */
const BODY_BYTES = 1024 * 1024;
/** A second at most on a quiet machine; what each of these took before was from 20 s to more than an hour. */
const MOST_MS = 8000;

function timed<T>(work: () => T): { readonly result: T; readonly ms: number } {
  // CPU time: others who work on the machine do not count.
  const begun = process.cpuUsage();
  const result = work();
  const { user, system } = process.cpuUsage(begun);
  return { result, ms: (user + system) / 1000 };
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

  it('compile no expressions that are too large together', () => {
    const conditions = fields(16, 'f', { $regex: '[^a]{100}' });
    expect(conditionFaults(conditions, '/conditions')).toHaveLength(12);
  });

  it('refuse a field of very many segments, and do not look it up', () => {
    const field = 'a.'.repeat(BODY_BYTES / 2);
    const state = { a: { a: 1 }, 'a.a.a': { b: 1 } };
    const { result, ms } = timed(() =>
      compareState({ requiredFields: [field], assumed: state, current: state, conditions: {} }),
    );
    expect(result).toEqual([{ field, assumed: null, current: null }]);
    expect(ms).toBeLessThan(MOST_MS);
    expect(requiredFieldFaults(['a.'.repeat(99), 'a.'.repeat(100)], '/f')).toEqual([
      { path: '/f/1', message: 'a path has at most 100 segments' },
    ]);
    expect(conditionFaults({ ['a.'.repeat(100)]: 1 }, '/c')).toHaveLength(1);
    expect(conditionFaults({ ['a'.repeat(1001)]: 1 }, '/c')).toHaveLength(1);
    expect(conditionFaults({ ['a'.repeat(1000)]: 1 }, '/c')).toEqual([]);
  });

  it('may take all of the steps that there are, and no step more', () => {
    const effort = newEffort();
    spend(effort, 100_000);
    expect(() => spend(effort, 1)).toThrow('takes more than 100000 steps');
    // A text of n characters is compiled to n + 2 steps.
    expect(conditionFaults({ a: { $regex: 'a'.repeat(248) }, b: { $regex: 'b'.repeat(248) } }, '/c')).toEqual([]);
    expect(conditionFaults({ a: { $regex: 'a'.repeat(248) }, b: { $regex: 'b'.repeat(249) } }, '/c')).toHaveLength(1);
    const judge = newConditionJudge(newEffort());
    const judged = (length: number) =>
      judgeCondition({ a: 'a'.repeat(length) }, 'a', { $regex: 'b'.repeat(98) }, judge);
    expect([judged(600), judged(400), judged(1)]).toEqual(['refuted', 'refuted', 'undecidable']);
  });

  it('give up where names with dots give each field very many readings', () => {
    const state = ambiguous(15);
    const names = Array.from({ length: 1000 }, (_, index) => `${'a.'.repeat(15)}b${index}`);
    const conditions = Object.fromEntries(names.map((name) => [name, 1]));
    const { result, ms } = timed(() => [
      compareState({ requiredFields: names, assumed: state, current: state, conditions: {} }),
      compareState({ requiredFields: [], assumed: {}, current: state, conditions }),
      reconcile({ action: { intent: '', tool: '', params: {} }, currentState: state, conditions }),
    ]);
    expect(result).toEqual([null, null, null]);
    expect(ms).toBeLessThan(MOST_MS / 8);
    // One such field alone is looked up.
    const one = names.slice(0, 1);
    expect(compareState({ requiredFields: one, assumed: state, current: state, conditions: {} })).toHaveLength(1);
  });

  it('give up where fields within one another are compared again and again', () => {
    let state: JsonObject = fields(4000, 'k', 1);
    for (let depth = 0; depth < 60; depth += 1) state = { d: state };
    const names = Array.from({ length: 60 }, (_, depth) => 'd.'.repeat(depth) + 'd');
    const other = JSON.parse(JSON.stringify(state)) as JsonObject;
    expect(compareState({ requiredFields: names, assumed: state, current: other, conditions: {} })).toBeNull();
    const conditions = Object.fromEntries(names.map((name) => [name, { $in: [{}] }]));
    const { result, ms } = timed(() =>
      reconcile({ action: { intent: '', tool: '', params: {} }, currentState: state, conditions }),
    );
    expect(result).toBeNull();
    expect(ms).toBeLessThan(MOST_MS / 8);
  });

  it('make no path of a long name anew for each member below it', () => {
    const large = { ['n'.repeat(BODY_BYTES / 2)]: fields(5000, 'k', 1) };
    const live = { ['n'.repeat(BODY_BYTES / 2)]: fields(5000, 'k', 2) };
    const { result, ms } = timed(() =>
      reconcile({
        action: { intent: '', tool: '', params: large },
        currentState: { ...live, c: 1 },
        conditions: { c: 2 },
      }),
    );
    expect(result?.decision).toBe('replan');
    expect(result?.reason.length).toBeLessThan(2000);
    expect(ms).toBeLessThan(MOST_MS / 8);
  });

  it('compare as many fields and conditions as may be', () => {
    const conditions = fields(1000, 'f', 1);
    const names = Object.keys(conditions);
    const result = compareState({ requiredFields: names, assumed: conditions, current: {}, conditions });
    expect(result).toEqual(names.map((field) => ({ field, assumed: 1, current: null })));
    expect(conditionFaults(conditions, '/c')).toEqual([]);
    expect(conditionFaults(fields(1001, 'f', 1), '/c')).toHaveLength(1);
  });

  it('look for a large value in a long list', () => {
    const state = { large: fields(2000, 'k', 1) };
    const list = Array.from({ length: 2000 }, () => ({}));
    const judged = (condition: Json) => judgeCondition(state, 'large', condition, newConditionJudge(newEffort()));
    const { result, ms } = timed(() => [
      judged({ $in: list }),
      judged({ $nin: list }),
      judged({ $in: [...list, state.large] }),
    ]);
    expect(result).toEqual(['refuted', 'holds', 'holds']);
    expect(ms).toBeLessThan(MOST_MS / 8);
  });
});

/** A state in which `a.a.a.….` leads to as many places as there are ways to write the dots into names. */
function ambiguous(depth: number): JsonObject {
  const made = new Map<number, JsonObject>();
  for (let level = 0; level <= depth; level += 1)
    made.set(level, {
      ...(level >= 1 ? { a: made.get(level - 1) ?? {} } : {}),
      ...(level >= 2 ? { 'a.a': made.get(level - 2) ?? {} } : {}),
    });
  return made.get(depth) ?? {};
}
