import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { parseObject, readJson } from '../../src/json/text.ts';
import type { Json } from '../../src/json/value.ts';
import { parseStrictJsonInSlices } from '../../src/json/strict-in-slices.ts';
import { parseStrictJson } from '../../src/json/strict.ts';

const LIMITS = { depth: 64, values: 5_000 };

/** Has V8 expect a name behind `currency`, as anybody can with a call of his own. */
function expectAnother(name: string): void {
  for (let turn = 0; turn < 3; turn += 1) JSON.parse(`{"currency":"EUR",${JSON.stringify(name)}:0}`);
}

describe('a name with an escape is the one that everybody else reads', () => {
  // As long as the name, and as its escaped form begins.
  test.each([
    [String.raw`\u0061mount`, String.raw`\u0061`, 'amount'],
    [String.raw`\u0071`, '\\', 'q'],
    [String.raw`\n`, '\\', '\n'],
    [String.raw`am\u006funt`, String.raw`am\u00`, 'amount'],
  ])('%s', async (written, other, name) => {
    const text = `{"currency":"EUR","${written}":5000000}`;
    const expected = ['currency', name];
    const large = Buffer.from(`[${text},${'1,'.repeat(20_000)}${text}]`);
    expectAnother(other);
    expect(Object.keys(parseObject(text) ?? {})).toEqual(expected);
    expectAnother(other);
    const strict = parseStrictJson(text, LIMITS);
    expect(strict.ok ? Object.keys(strict.value ?? {}) : strict).toEqual(expected);
    expectAnother(other);
    const sliced = await parseStrictJsonInSlices(large, { depth: 64, values: 50_000 });
    const list = sliced.ok && Array.isArray(sliced.value) ? sliced.value : [];
    expect([list[0], list.at(-1)].map((one: Json | undefined) => Object.keys(one ?? {}))).toEqual([expected, expected]);
  });
});

const name = fc.oneof(
  fc.string({ maxLength: 4 }),
  fc.constantFrom('__proto__', '"', '\\', '\\u0061', 'constructor', '7'),
);
const { value: values } = fc.letrec<{ value: Json }>((of) => ({
  value: fc.oneof(
    { maxDepth: 4 },
    fc.constantFrom(null, true, false, 0, -1.5e-7, 1e21, '', 'a"b\\c', ':', ',]}', '\ud800'),
    fc.string({ maxLength: 5 }),
    fc.array(of('value'), { maxLength: 4 }),
    fc
      .array(fc.tuple(name, of('value')), { maxLength: 4 })
      .map((members) => JSON.parse(`{${members.map(([key, one]) => `${plain(key)}:${JSON.stringify(one)}`).join()}}`)),
  ),
}));

/** A text without escapes of V8's own: each character of some names is escaped. */
function escaped(text: string): string {
  const units = Array.from({ length: text.length }, (_, at) => text.charCodeAt(at).toString(16).padStart(4, '0'));
  return `"${units.map((unit) => `\\u${unit}`).join('')}"`;
}

/** So that the generator itself does not depend on what is tested. */
function plain(key: string): string {
  const text = JSON.stringify(key);
  return text.includes('\\') ? '"odd"' : text;
}

function written(value: Json, space: string): string {
  if (Array.isArray(value))
    return `[${space}${value.map((one: Json) => written(one, space)).join(`${space},`)}${space}]`;
  if (typeof value !== 'object' || value === null) return JSON.stringify(value);
  const members = Object.entries(value).map(
    ([key, one]) => `${space}${escaped(key)}${space}:${space}${written(one, space)}`,
  );
  return `{${members.join(`${space},`)}${space}}`;
}

test('what has escaped names is read as it was written', () => {
  fc.assert(
    fc.property(values, fc.constantFrom('', ' ', '\n\t '), (value, space) => {
      const read = readJson(written(value, space));
      expect(JSON.stringify(read)).toBe(JSON.stringify(value));
    }),
  );
  expect(readJson(String.raw`{"\u0061":1,"b":2,"a":3}`)).toEqual({ a: 3, b: 2 });
  expect(() => readJson(String.raw`{"\u0061":1,}`)).toThrow(SyntaxError);
  expect(parseObject(String.raw`{"\u0061":${'['.repeat(100_000)}${']'.repeat(100_000)}}`)).toBeNull();
});
