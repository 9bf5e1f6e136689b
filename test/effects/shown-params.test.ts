import { expect, it } from 'vitest';
import type { Json, JsonObject } from '../../src/json/value.ts';
import { shownParams } from '../../src/effects/run/shown-params.ts';

const none: ReadonlySet<string> = new Set();

it('shows every param as it is, and masks those that are redacted', () => {
  const params = { amount: 900, ok: true, nothing: null, list: [1, { a: 'b' }], card: { number: '4111' } };
  expect(shownParams(params, none)).toEqual({ params, truncated: false });
  expect(shownParams(params, new Set(['card', 'absent']))).toEqual({
    params: { ...params, card: '(redacted)' },
    truncated: false,
  });
});

it('a name that JavaScript knows is a name', () => {
  const params: JsonObject = JSON.parse('{"__proto__": {"a": 1}, "constructor": "x"}');
  const shown = shownParams(params, none);
  expect(JSON.stringify(shown.params)).toBe('{"__proto__":{"a":1},"constructor":"x"}');
});

it.each<readonly [string, JsonObject]>([
  ['a long text', { text: 'x'.repeat(1_000_000) }],
  ['many params', Object.fromEntries(Array.from({ length: 50_000 }, (_, n) => [`p${n}`, n]))],
  ['a long list', { list: Array.from({ length: 200_000 }, (_, n) => n) }],
  ['many long texts', Object.fromEntries(Array.from({ length: 150 }, (_, n) => [`p${n}`, 'y'.repeat(5_000)]))],
  ['a long name', { ['n'.repeat(500_000)]: 1 }],
  ['what is deep', { a: Array.from({ length: 40 }).reduce<Json>((inner) => [inner], 'x') }],
  ['lists of numbers', { a: Array.from({ length: 200 }, () => Array.from({ length: 200 }, (_, n) => 1e6 + n)) }],
  ['lists of lists', { a: Array.from({ length: 200 }, () => Array.from({ length: 200 }, () => 'z'.repeat(100))) }],
])('%s is cut, says so, and stays small', (_what, params) => {
  const shown = shownParams(params, none);
  expect(shown.truncated).toBe(true);
  expect(JSON.stringify(shown).length).toBeLessThan(80_000);
  expect(JSON.stringify(shown)).toContain('…');
});

const members = (count: number): JsonObject =>
  Object.fromEntries(Array.from({ length: count }, (_, n) => [`p${n}`, n]));

it.each<readonly [string, whole: Json, more: Json, shown: Json]>([
  ['a text', 'x'.repeat(2_000), 'x'.repeat(2_003), `${'x'.repeat(2_000)}… (3 more characters)`],
  [
    'a list',
    Array.from({ length: 200 }, (_, n) => n),
    Array.from({ length: 203 }, (_, n) => n),
    [...Array.from({ length: 200 }, (_, n) => n), '… (3 more)'],
  ],
  ['an object', members(200), members(203), { ...members(200), '…': '3 more' }],
])('%s is shown whole as long as it may be, and beyond that says how much more there is', (_, whole, more, shown) => {
  expect(shownParams({ it: whole }, none)).toEqual({ params: { it: whole }, truncated: false });
  expect(shownParams({ it: more }, none)).toEqual({ params: { it: shown }, truncated: true });
});

it('cuts no character in half', () => {
  const { params } = shownParams({ text: `${'x'.repeat(1_999)}😀😀` }, none);
  expect(JSON.stringify(params)).not.toMatch(/\\ud[89a-f]/i);
});
