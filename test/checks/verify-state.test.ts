import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import type { JsonObject } from '../../src/json/value.ts';
import { CHECK_LIMITS } from '../../src/effects/checks/state-fields.ts';
import { type VerifyStateRequest, verifyState } from '../../src/effects/checks/verify-state.ts';
import { checkState } from '../../src/effects/run/check-state.ts';
import type { StateReading } from '../../src/effects/upstream.ts';
import { makeTool } from '../upstreams/tool.ts';

function verify(change: Partial<VerifyStateRequest>) {
  const result = verifyState({
    intent: 'refund',
    requiredFields: [],
    assumedState: {},
    currentState: {},
    conditions: {},
    onMismatch: 'replan',
    ...change,
  });
  if (result === null) throw new Error('it took too many steps');
  return result;
}

describe('verifyState', () => {
  it('proceeds when the required fields match and the conditions hold', () => {
    expect(
      verify({
        requiredFields: ['amount', 'order.lines.0.sku'],
        assumedState: { amount: 1, order: { lines: [{ sku: 'A' }] }, ignored: 1 },
        currentState: { amount: 1.0, order: { lines: [{ sku: 'A', n: 3 }] }, ignored: 2 },
        conditions: { amount: { $lte: 5 } },
      }),
    ).toEqual({ status: 'verified', decision: 'proceed', mismatches: [] });
  });

  it.each(['replan', 'block'] as const)('answers drift with on_mismatch: %s', (onMismatch) => {
    expect(verify({ requiredFields: ['a'], assumedState: { a: 1 }, currentState: { a: 2 }, onMismatch })).toEqual({
      status: 'mismatch_detected',
      decision: onMismatch,
      mismatches: [{ field: 'a', assumed: 1, current: 2 }],
    });
  });

  it.each<[string, JsonObject, JsonObject]>([
    ['in the assumed state', {}, { a: 1 }],
    ['in the live state', { a: 1 }, {}],
    ['on both sides', {}, {}],
    ['and null is not absent', { a: null }, {}],
  ])('takes an absent required field for a mismatch %s', (_what, assumedState, currentState) => {
    const { mismatches } = verify({ requiredFields: ['a'], assumedState, currentState });
    expect(mismatches).toEqual([
      { field: 'a', assumed: assumedState['a'] ?? null, current: currentState['a'] ?? null },
    ]);
  });

  it('null equals null', () => {
    expect(verify({ requiredFields: ['a'], assumedState: { a: null }, currentState: { a: null } }).status).toBe(
      'verified',
    );
  });

  it('lists a condition that does not hold with what was expected', () => {
    expect(
      verify({ currentState: { status: 'open' }, conditions: { status: 'paid', total: { $gt: 1 } } }).mismatches,
    ).toEqual([
      { field: 'status', assumed: 'paid', current: 'open' },
      { field: 'total', assumed: { $gt: 1 }, current: null },
    ]);
  });

  it('lists a field once where field and condition say the same, and twice where they do not', () => {
    const state = { requiredFields: ['a', 'a'], assumedState: { a: 1 }, currentState: { a: 2 } };
    expect(verify({ ...state, conditions: { a: 1 } }).mismatches).toHaveLength(1);
    expect(verify({ ...state, conditions: { a: 3 } }).mismatches).toHaveLength(2);
  });

  it('cuts what is long, each value and all of them together, and names every field', () => {
    const large = { text: 'x'.repeat(500_000), list: Array.from({ length: 500 }, (_, index) => `item ${index}`) };
    const fields = Array.from({ length: 1000 }, (_, index) => `f${index}`);
    const of = (value: JsonObject) => Object.fromEntries(fields.map((field) => [field, value]));
    const { mismatches } = verify({ requiredFields: fields, assumedState: of(large), currentState: of({ small: 1 }) });
    expect(mismatches.map(({ field }) => field)).toEqual(fields);
    expect(mismatches[0]).toEqual({
      field: 'f0',
      assumed: expect.stringMatching(/^\{"text":"x{1000,1024}…$/),
      current: { small: 1 },
      truncated: true,
    });
    expect(mismatches.at(-1)).toEqual({ field: 'f999', assumed: null, current: null, truncated: true });
    expect(JSON.stringify(mismatches).length).toBeLessThan(32_768 * 1.2 + 1000 * 80);
  });

  it('shows a value of up to 1,024 characters of JSON whole', () => {
    const fits = { a: 'x'.repeat(1024 - 8) };
    const over = { a: 'x'.repeat(1024 - 7) };
    const shown = (assumedState: JsonObject) =>
      verify({ requiredFields: ['v'], assumedState: { v: assumedState }, currentState: {} }).mismatches[0];
    expect(JSON.stringify(fits)).toHaveLength(1024);
    expect(shown(fits)).toEqual({ field: 'v', assumed: fits, current: null });
    expect(shown(over)).toMatchObject({ truncated: true });
  });

  it('shows no more than 32,768 characters of JSON of all values together, wherever they end', () => {
    const requiredFields = Array.from({ length: 40 }, (_, index) => `f${index}`);
    const assumedState = Object.fromEntries(requiredFields.map((field) => [field, 'x'.repeat(1_000)]));
    const { mismatches } = verify({ requiredFields, assumedState, currentState: {} });
    const shown = mismatches.flatMap(({ assumed, current }) => [assumed, current]).filter((value) => value !== null);
    // A text that is cut ends with a sign of its own.
    expect(shown.map((value) => JSON.stringify(value).length).reduce((sum, length) => sum + length)).toBeLessThan(
      32_772,
    );
    expect(shown).toHaveLength(33);
  });

  it('a condition that cannot be judged does not hold', () => {
    expect(verify({ currentState: { a: 'x' }, conditions: { a: { $regex: '(' } } }).status).toBe('mismatch_detected');
  });

  it('a state always matches itself, and one changed field is always found', () => {
    const states = fc.dictionary(fc.string({ minLength: 1 }), fc.jsonValue(), { minKeys: 1, maxKeys: 8 });
    fc.assert(
      fc.property(states, fc.nat(), (raw, pick) => {
        const state = raw as JsonObject;
        const fields = Object.keys(state);
        expect(verify({ requiredFields: fields, assumedState: state, currentState: state }).status).toBe('verified');
        const field = fields[pick % fields.length] ?? '';
        const changed: JsonObject = { ...state, [field]: { changed: state[field] ?? null } };
        const result = verify({ requiredFields: fields, assumedState: state, currentState: changed });
        expect(result.mismatches.map((mismatch) => mismatch.field)).toContain(field);
        expect(result.decision).toBe('replan');
      }),
    );
  });
});

describe('the live state before a call is sent', () => {
  const large = (): JsonObject => ({ a: Array.from({ length: CHECK_LIMITS.effort + 1 }, () => 1) });
  const read = (state: JsonObject): StateReading => ({ kind: 'read', state });
  it.each<[string, JsonObject, StateReading, string | null, string]>([
    ['is as it was assumed', { a: 1 }, read({ a: 1 }), null, 'passed'],
    ['is another', { a: 1 }, read({ a: 2 }), 'state_drift', 'refused'],
    ['cannot be read', { a: 1 }, { kind: 'unreadable', message: 'status 500' }, 'state_unreadable', 'refused'],
    ['cannot be compared', large(), read(large()), 'state_unreadable', 'refused'],
  ])('%s', async (_, assumedState, reading, code, status) => {
    const ends: unknown[] = [];
    const found = await checkState(
      {
        ports: { upstream: { readState: async () => reading } },
        tool: makeTool(),
        params: {},
        begins: () => undefined,
        ends: (_stage, ended) => ends.push(ended),
      },
      {
        intent: 'refund',
        requiredFields: ['a'],
        assumedState,
        conditions: {},
        onMismatch: 'block',
      },
    );
    expect([found?.reason.code ?? null, found?.reason.next ?? 'block', ends]).toEqual([code, 'block', [status]]);
  });

  it.each(['replan', 'block'] as const)(
    'is told with the next step that the caller chose, %s, and with what differs',
    async (onMismatch) => {
      const found = async (assumedState: JsonObject, reading: StateReading) =>
        checkState(
          {
            ports: { upstream: { readState: async () => reading } },
            tool: makeTool(),
            params: {},
            begins: () => undefined,
            ends: () => undefined,
          },
          { intent: 'refund', requiredFields: ['a'], assumedState, conditions: {}, onMismatch },
        );
      expect(await found({ a: 1 }, read({ a: 2 }))).toMatchObject({
        reason: { code: 'state_drift', next: onMismatch },
        mismatches: [{ field: 'a', assumed: 1, current: 2 }],
      });
      for (const reading of [{ kind: 'unreadable', message: 'status 500' } as const, read(large())])
        expect(await found(large(), reading)).toMatchObject({
          reason: { code: 'state_unreadable', next: onMismatch },
          mismatches: [],
        });
    },
  );
});
