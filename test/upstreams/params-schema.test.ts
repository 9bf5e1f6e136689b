import { Ajv2020 } from 'ajv/dist/2020.js';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { MOST_FAULTS, stopAt } from '../../src/diagnostics/stop-at.ts';
import type { Json, JsonObject } from '../../src/json/value.ts';
import { createParamsSchemas, TEXT_STEPS } from '../../src/upstreams/catalog.ts';

const check = (schema: JsonObject, params: JsonObject) => createParamsSchemas()(schema)(params);
const list = (items: JsonObject): JsonObject => ({ type: 'object', properties: { list: { type: 'array', items } } });

describe('the faults of params', () => {
  const WRONG = Array.from({ length: 10_000 }, () => 'x');

  it.each<[string, JsonObject]>([
    ['of items', list({ type: 'integer' })],
    ['of items behind a reference', { ...list({ $ref: '#/$defs/n' }), $defs: { n: { type: 'integer' } } }],
    ['of items with branches', list({ anyOf: [{ type: 'integer' }, { type: 'boolean' }] })],
  ])('%s end at the hundredth', (_what, schema) => {
    const faults = check(schema, { list: WRONG });
    expect(faults).toHaveLength(MOST_FAULTS);
    expect(faults[0]?.path).toBe('/params/list/0');
    const began = performance.now();
    for (let times = 0; times < 10; times += 1) check(schema, { list: WRONG });
    expect(performance.now() - began).toBeLessThan(5_000);
  });

  it('are all there below that, together', () => {
    const schema = { type: 'object', required: ['a', 'b'], additionalProperties: false, properties: { a: {}, b: {} } };
    expect(check(schema, { c: 1, d: 2 }).map(({ path }) => path)).toEqual([
      '/params/a',
      '/params/b',
      '/params/c',
      '/params/d',
    ]);
  });

  it.each<[JsonObject, JsonObject, string]>([
    [{ properties: { a: { const: 'x' } } }, { a: 'y' }, '/params/a must be "x"'],
    [{ properties: { a: { enum: ['x', 1] } } }, { a: 'y' }, '/params/a must be one of ["x",1]'],
    [{ properties: { a: {} }, unevaluatedProperties: false }, { b: 1 }, '/params/b is not a param of this tool'],
    [{ properties: { a: {} }, additionalProperties: false }, { b: 1 }, '/params/b is not a param of this tool'],
    // What every object inherits is no param that was given.
    [{ properties: { toString: {} }, required: ['toString'] }, {}, '/params/toString is required'],
  ])('of %j, %j is told so that it can be mended', (schema, params, said) => {
    const faults = check({ type: 'object', ...schema }, params);
    expect(faults.map(({ path, message }) => `${path} ${message}`)).toEqual([said]);
  });

  it('show neither a long name nor a long list whole', () => {
    const schema = { type: 'object', additionalProperties: false, properties: { e: { enum: WRONG.map((_, n) => n) } } };
    for (const { path, message } of check(schema, { ['n'.repeat(500_000)]: 1, e: 'x' })) {
      expect(path.length).toBeLessThan(310);
      expect(message.length).toBeLessThan(310);
    }
  });

  it('a branch with very many faults does not hide one that holds', () => {
    const branches = { anyOf: [{ items: { type: 'string' } }, { items: { type: 'integer' } }] };
    const schema = { type: 'object', properties: { list: branches } };
    expect(check(schema, { list: WRONG.map((_, n) => n) })).toEqual([]);
    expect(check(schema, { list: WRONG.map(() => null) }).length).toBeGreaterThan(0);
  });

  it('names that look like the code of a validator change nothing', () => {
    const name = 'errors++;errors = vErrors.length;"';
    const schema = { type: 'object', required: [name], properties: { [name]: { type: 'integer' } } };
    expect(check(schema, { [name]: 'x' })).toEqual([{ path: `/params/${name}`, message: 'must be integer' }]);
    expect(check(schema, {})[0]?.message).toBe('is required');
  });

  it('stopping early finds a fault exactly where there is one', () => {
    const value = fc.oneof(fc.integer(), fc.string(), fc.array(fc.oneof(fc.integer(), fc.string()), { maxLength: 12 }));
    const schema = {
      type: 'object',
      additionalProperties: { type: ['integer', 'array'], items: { $ref: '#/$defs/n' } },
      $defs: { n: { type: 'integer' } },
    };
    const whole = new Ajv2020({ allErrors: true, allowUnionTypes: true }).compile(schema);
    const short = new Ajv2020({ allErrors: true, allowUnionTypes: true, code: { process: stopAt(3) } }).compile(schema);
    fc.assert(
      fc.property(fc.dictionary(fc.stringMatching(/^[a-z]{1,3}$/), value), (params) => {
        expect(short(params)).toBe(whole(params));
        expect((short.errors ?? []).length).toBeGreaterThanOrEqual(Math.min(3, (whole.errors ?? []).length));
        expect((short.errors ?? []).length).toBeLessThan(3 + 3);
      }),
    );
  });
});

describe('texts under patterns and formats', () => {
  const FULL = 'a'.repeat(TEXT_STEPS.most / TEXT_STEPS.format);

  it('are bounded together, and what is beyond is refused where failing would let it pass', () => {
    const held: JsonObject = { type: 'object', additionalProperties: { not: { format: 'uri' } } };
    expect(check(held, { a: FULL })).toEqual([]);
    expect(check(held, { a: FULL, b: 'a' })[0]?.message).toContain('more text');
    const pattern: JsonObject = {
      type: 'object',
      additionalProperties: { not: { type: 'string', pattern: '[0-9]z' } },
    };
    expect(check(pattern, { a: 'a'.repeat(10_000) })).toEqual([]);
    expect(check(pattern, { a: `${'a'.repeat(300_000)}1z` })[0]?.message).toContain('more text');
  });

  it('a new call has all its steps again', () => {
    const checkOne = createParamsSchemas()({ type: 'object', additionalProperties: { format: 'uri-reference' } });
    for (let times = 0; times < 5; times += 1) expect(checkOne({ a: FULL })).toEqual([]);
  });
});

it('items are compared by their canonical form: in time linear in the list, and with the same result', () => {
  const schema = list({});
  const unique = { ...schema, properties: { list: { type: 'array', uniqueItems: true } } };
  const items = (count: number): Json[] => Array.from({ length: count }, (_, n) => ({ n, deep: [{ n }] }));
  const began = performance.now();
  expect(check(unique, { list: items(9_000) })).toEqual([]);
  expect(performance.now() - began).toBeLessThan(3_000);
  expect(check(unique, { list: [...items(50), { deep: [{ n: 7 }], n: 7 }] })).toEqual([
    { path: '/params/list', message: 'must not have the same item twice' },
  ]);
  expect(check(unique, { list: [1, '1', true, 'true', null, 'null', 0] })).toEqual([]);
  expect(check(unique, { list: [0, -0] })).toHaveLength(1);
});
