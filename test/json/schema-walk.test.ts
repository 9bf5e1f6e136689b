import { describe, expect, it } from 'vitest';
import { readSteps, writeSteps } from '../../src/json/path-steps.ts';
import { itemSchema, memberSchema, placeInSchema, readTyped, typesOf } from '../../src/json/schema-walk.ts';
import { followSteps, type JsonObject } from '../../src/json/value.ts';

const at = (schema: JsonObject, root = schema) => ({ schema, root });
const types = (schema: JsonObject, root = schema): readonly string[] => [...typesOf(at(schema, root))].toSorted();

describe('the types that a schema allows', () => {
  it.each<[string, JsonObject, readonly string[]]>([
    ['one', { type: 'string' }, ['string']],
    ['a list', { type: ['integer', 'null'] }, ['integer', 'null']],
    [
      'branches of all kinds',
      { allOf: [{ type: 'a' }], anyOf: [{ type: 'b' }], oneOf: [{ oneOf: [{ type: 'c' }] }] },
      ['a', 'b', 'c'],
    ],
    ['what a reference names', { $ref: '#/$defs/a~1b~01', $defs: { 'a/b~1': { type: 'x' } } }, ['x']],
    ['not what an object inherits', { $ref: '#/constructor' }, []],
    ['not what another document has', { $ref: 'other.json#/$defs/a', $defs: { a: { type: 'x' } } }, []],
    [
      'a schema that names itself',
      { $ref: '#/$defs/a', $defs: { a: { type: 'x', anyOf: [{ $ref: '#/$defs/a' }] } } },
      ['x'],
    ],
  ])('%s', (_, schema, expected) => {
    expect(types(schema)).toEqual(expected);
  });

  it('are looked for in 32 schemas', () => {
    const listed = (count: number): JsonObject => ({
      anyOf: Array.from({ length: count }, (_, n) => ({ type: `t${n}` })),
    });
    expect(types(listed(31))).toHaveLength(31);
    expect(types(listed(100))).toHaveLength(31);
  });
});

describe('a place in a schema', () => {
  const item = { type: 'object', properties: { id: { type: 'string' } }, additionalProperties: false };
  const schema: JsonObject = {
    type: 'object',
    properties: { items: { type: 'array', items: item }, any: {}, map: { additionalProperties: { type: 'number' } } },
    required: ['items'],
  };

  it('has its type, and says whether it has to be there', () => {
    expect(placeInSchema(schema, ['items'])).toMatchObject({ isRequired: true, missing: null });
    expect(placeInSchema(schema, ['items', 0, 'id'])).toMatchObject({ isRequired: false, missing: null });
    expect([...placeInSchema(schema, ['items', 0, 'id']).types]).toEqual(['string']);
    expect([...placeInSchema(schema, ['map', 'x']).types]).toEqual(['number']);
    expect(placeInSchema(schema, ['any', 'thing']).missing).toBeNull();
    expect([...typesOf(itemSchema(memberSchema(at(schema), 'items')))]).toEqual(['object']);
    // What every object inherits is no member.
    expect([
      ...typesOf(memberSchema(at({ properties: {}, additionalProperties: { type: 'x' } }), '__proto__')),
    ]).toEqual(['x']);
  });

  it('is missing where a step cannot be taken, with what could be', () => {
    expect(placeInSchema(schema, ['items', 0, 'name']).missing).toEqual({ after: 2, names: ['id'], isClosed: true });
    expect(placeInSchema(schema, ['none']).missing).toEqual({
      after: 0,
      names: ['items', 'any', 'map'],
      isClosed: false,
    });
    expect(placeInSchema(schema, ['items', 'id']).missing).toEqual({ after: 1, names: [], isClosed: true });
    expect(placeInSchema(schema, [0]).missing).toEqual({ after: 0, names: [], isClosed: true });
  });

  it('may be where one of several schemas does not refuse what it does not name', () => {
    const open = { properties: { a: {} } };
    const closed = { properties: { b: {} }, additionalProperties: false };
    expect(placeInSchema({ anyOf: [open, closed] }, ['c']).missing).toMatchObject({ isClosed: false });
    expect(placeInSchema({ anyOf: [closed, closed] }, ['c']).missing).toMatchObject({ isClosed: true });
    for (const unknown of [{ if: {} }, { patternProperties: {} }, { $ref: '#/none' }, { additionalProperties: {} }])
      expect(placeInSchema({ anyOf: [closed, unknown] }, ['c']).missing).toBeNull();
  });
});

it.each<[JsonObject, string, unknown]>([
  [{ type: 'integer' }, '12', 12],
  [{ type: 'integer' }, '012', '012'],
  [{ type: 'number' }, '1e3', '1e3'],
  [{ type: 'number' }, '0.5', 0.5],
  [{ type: 'integer' }, '9007199254740991', 9_007_199_254_740_991],
  [{ type: 'integer' }, '9007199254740992', '9007199254740992'],
  [{ type: 'number' }, 'Infinity', 'Infinity'],
  [{ type: 'boolean' }, 'true', true],
  [{ type: 'boolean' }, 'false', false],
  [{ type: 'boolean' }, 'TRUE', 'TRUE'],
  [{ type: ['integer', 'string'] }, '12', '12'],
  [{ anyOf: [{ type: 'integer' }, { type: 'string', const: 'all' }] }, '12', 12],
  [{ anyOf: [{ type: 'integer' }, { type: 'string', enum: ['all'] }] }, '12', 12],
  [{}, '12', '12'],
])('by %j the text %j is read as the value that is written so', (schema, text, value) => {
  expect(readTyped(at(schema), text)).toEqual(value);
});

describe('paths', () => {
  it('are read as they are written', () => {
    const steps = ['a', 0, 'b c', 'd"'];
    expect(readSteps(writeSteps(steps), 0)).toEqual(steps);
  });

  it.each([
    ['.__proto__', /cannot be part/],
    ['["constructor"]', /cannot be part/],
    ['.a..b', /not a path \(at character 3\)/],
    ['[01]', /not a path/],
    ['.a'.repeat(33), /at most 32 steps/],
  ])('%s is refused', (text, message) => {
    expect(readSteps(text, 0)).toMatchObject({ message: expect.stringMatching(message) });
  });

  it('have 32 steps, and lead along own members only', () => {
    expect(readSteps('.a'.repeat(32), 0)).toHaveLength(32);
    expect(followSteps({ a: [1, { b: 2 }] }, ['a', 1, 'b'])).toBe(2);
    for (const steps of [['constructor'], ['a', 'length'], ['a', 2], ['a', 0, 'toFixed'], [0]])
      expect(followSteps({ a: [1] }, steps)).toBeUndefined();
  });
});
