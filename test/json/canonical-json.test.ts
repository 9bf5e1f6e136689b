import { createSecretKey } from 'node:crypto';
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { canonicalJson } from '../../src/json/text.ts';
import type { Json } from '../../src/json/value.ts';
import { fingerprint, keyFor } from '../../src/effects/run/fingerprint.ts';

describe('canonical JSON', () => {
  test('the example of RFC 8785', () => {
    const input: Json = {
      numbers: [333333333.3333333, 1e30, 4.5, 2e-3, 0.000000000000000000000000001],
      string: '\u20ac$\u000F\u000aA\'\u0042\u0022\u005c\\"/',
      literals: [null, true, false],
    };
    expect(canonicalJson(input)).toBe(
      '{"literals":[null,true,false],"numbers":[333333333.3333333,1e+30,4.5,0.002,1e-27],' +
        '"string":"€$\\u000f\\nA\'B\\"\\\\\\\\\\"/"}',
    );
  });

  test('names are sorted by UTF-16 code units (RFC 8785, 3.2.3)', () => {
    const input: Json = {
      '\u20ac': 'Euro Sign',
      '\r': 'Carriage Return',
      '\ufb33': 'Hebrew Letter Dalet With Dagesh',
      '1': 'One',
      '\ud83d\ude00': 'Emoji: Grinning Face',
      '\u0080': 'Control',
      '\u00f6': 'Latin Small Letter O With Diaeresis',
    };
    const names = Object.keys(JSON.parse(canonicalJson(input)) as object);
    expect(names).toEqual(['1', '\r', '\u0080', '\u00f6', '\u20ac', '\ud83d\ude00', '\ufb33']);
  });

  test.each([2, 12, 13, 40])('%i names are sorted by UTF-16 code units, and not as people sort them', (count) => {
    // In a dictionary small letters stand among the large ones, and an underscore before both.
    const names = Array.from({ length: count }, (_, n) => `${['b', '_', 'A', 'a', 'B', 'é'][n % 6]}${n}`);
    const text = canonicalJson(Object.fromEntries(names.map((name) => [name, 0])));
    const inOrder = names.toSorted((one, other) => (one < other ? -1 : 1));
    expect(text).toBe(`{${inOrder.map((name) => `"${name}":0`).join(',')}}`);
  });

  test.each<[Json, string]>([
    [-0, '0'],
    [1e21, '1e+21'],
    [5e-324, '5e-324'],
    [1.7976931348623157e308, '1.7976931348623157e+308'],
    [9007199254740991, '9007199254740991'],
    [[], '[]'],
    [{}, '{}'],
    ['\u2028', '"\u2028"'],
  ])('%j', (value, text) => {
    expect(canonicalJson(value)).toBe(text);
  });

  test('what JSON cannot carry throws', () => {
    expect(() => canonicalJson(Number.NaN)).toThrow(TypeError);
    expect(() => canonicalJson({ a: Number.POSITIVE_INFINITY })).toThrow(TypeError);
    expect(() => canonicalJson(['\ud800'])).toThrow(TypeError);
    expect(() => canonicalJson({ '\udfff': 1 })).toThrow(TypeError);
  });

  test('the form keeps the value and does not depend on the order of names', () => {
    const reversed = (value: Json): Json => {
      if (typeof value !== 'object' || value === null) return value;
      if (Array.isArray(value)) return value.map((item: Json) => reversed(item));
      return Object.fromEntries(
        Object.entries(value)
          .reverse()
          .map(([name, member]) => [name, reversed(member as Json)]),
      );
    };
    fc.assert(
      fc.property(fc.jsonValue({ noUnicodeString: false }), (drawn) => {
        const value = JSON.parse(JSON.stringify(drawn)) as Json;
        if (/\p{Surrogate}/u.test(JSON.stringify(value)) || /\\ud[89a-f]/i.test(JSON.stringify(value))) return;
        const text = canonicalJson(value);
        expect(JSON.parse(text)).toEqual(JSON.parse(JSON.stringify(value)));
        expect(canonicalJson(reversed(value))).toBe(text);
        expect(canonicalJson(JSON.parse(text) as Json)).toBe(text);
      }),
    );
  });
});

describe('fingerprint', () => {
  const key = createSecretKey(Buffer.alloc(32, 7));
  const action = {
    workspace: 'demo',
    agentId: 'bot',
    actionType: 'mcp.tool_call',
    tool: 'payments.refund',
    target: 'payment:1',
    params: { amount: 1, note: 'x' },
    headers: {},
  };

  test('is stable, and changes with every part and with the key', () => {
    const base = fingerprint(key, action);
    expect(base).toBe('fp1:NOfO26NQeYxfEtKdHsL1AxpaYSN-kxze-WSjp5TX6jc');
    expect(fingerprint(key, { ...action, params: { note: 'x', amount: 1 } })).toBe(base);
    const others = [
      { ...action, workspace: 'demo2' },
      { ...action, agentId: 'bot2' },
      { ...action, actionType: 'http.request' },
      { ...action, tool: 'payments.get' },
      { ...action, target: 'payment:2' },
      { ...action, params: { amount: 2, note: 'x' } },
      { ...action, params: { amount: 1 } },
      { ...action, headers: { 'stripe-account': 'acct_1' } },
      { ...action, headers: { 'stripe-account': 'acct_2' } },
    ].map((other) => fingerprint(key, other));
    expect(new Set([base, fingerprint(createSecretKey(Buffer.alloc(32, 8)), action), ...others]).size).toBe(11);
  });

  test('a derived key lasts for its window', () => {
    const first = keyFor({ deriveWindowMs: 60_000 }, fingerprint(key, action), 120_000);
    expect(first).toMatch(/^[\x21-\x7e]{1,255}$/);
    expect(keyFor({ deriveWindowMs: 60_000 }, fingerprint(key, action), 179_999)).toBe(first);
    expect(keyFor({ deriveWindowMs: 60_000 }, fingerprint(key, action), 180_000)).not.toBe(first);
    expect(keyFor({ deriveWindowMs: 30_000 }, fingerprint(key, action), 120_000)).not.toBe(first);
  });
});
