import fc from 'fast-check';
import qs from 'qs';
import { describe, expect, test } from 'vitest';
import type { Json, JsonObject } from '../../src/json/value.ts';
import type { FormLists } from '../../src/effects/model/tool.ts';
import { formMisfit, readForm, readFormInSlices, writeForm } from '../../src/upstreams/http/form.ts';
import '../property-seed.ts';
import { longestHold } from '../longest-hold.ts';

const LIMITS = { depth: 64, values: 10_000 };

const read = (text: string, schema: JsonObject | null = null, lists: FormLists = 'indices') =>
  readForm(Buffer.from(text), { lists, schema, limits: LIMITS });

describe('a form is read as its writers mean it', () => {
  test.each<[string, unknown]>([
    ['', {}],
    ['a=1', { a: '1' }],
    ['a=', { a: '' }],
    ['a', { a: '' }],
    ['a=1&&b=2&', { a: '1', b: '2' }],
    ['a=b=c', { a: 'b=c' }],
    ['a=x+y%20z%2B', { a: 'x y z+' }],
    ['a[b][c]=1&a[b][d]=2', { a: { b: { c: '1', d: '2' } } }],
    ['a%5Bb%5D=1', { a: { b: '1' } }],
    // Stripe
    [
      'items[0][price]=p1&items[0][quantity]=2&items[1][price]=p2',
      { items: [{ price: 'p1', quantity: '2' }, { price: 'p2' }] },
    ],
    ['expand[]=a&expand[]=b', { expand: ['a', 'b'] }],
    ['expand[0]=a&expand[1]=b', { expand: ['a', 'b'] }],
    ['items[1][price]=p2&items[0][price]=p1', { items: [{ price: 'p1' }, { price: 'p2' }] }],
    ['metadata[6735]=x', { metadata: { 6735: 'x' } }],
    ['metadata[1000]=x', { metadata: { 1000: 'x' } }],
    ['metadata[]=x', { metadata: ['x'] }],
    // Rails and PHP
    ['user[tags][]=a&user[tags][]=b&user[name]=n', { user: { tags: ['a', 'b'], name: 'n' } }],
    ['m[0][0]=1&m[0][1]=2', { m: [['1', '2']] }],
    ['a;b=1', { 'a;b': '1' }],
    ['a=1;b=2', { a: '1;b=2' }],
    ['%C3%A9=%C3%BC', { é: 'ü' }],
  ])('%s', (text, members) => {
    expect(read(text)).toEqual({ ok: true, members });
  });

  test('the schema says which texts are numbers, and which numbered names are those of an object', () => {
    const schema: JsonObject = {
      type: 'object',
      $defs: { money: { type: 'integer' } },
      properties: {
        amount: { $ref: '#/$defs/money' },
        ratio: { anyOf: [{ type: 'number' }, { type: 'string', enum: [''] }] },
        live: { type: 'boolean' },
        name: { type: 'string' },
        either: { type: ['string', 'integer'] },
        metadata: { type: 'object', additionalProperties: { type: 'string' } },
        items: { type: 'array', items: { type: 'object', properties: { quantity: { type: 'integer' } } } },
      },
    };
    expect(
      read(
        'amount=100&ratio=0.5&live=true&name=1&either=1&metadata[0]=x&items[0][quantity]=3&items[1][quantity]=03',
        schema,
      ),
    ).toEqual({
      ok: true,
      members: {
        amount: 100,
        ratio: 0.5,
        live: true,
        name: '1',
        either: '1',
        metadata: { 0: 'x' },
        items: [{ quantity: 3 }, { quantity: '03' }],
      },
    });
    expect(read('amount=1e2&ratio=', schema)).toEqual({ ok: true, members: { amount: '1e2', ratio: '' } });
  });

  test('a name again is a list where the tool says so', () => {
    const schema: JsonObject = { properties: { url: { type: 'array', items: { type: 'string' } } } };
    expect(read('url=a&url=b&to=x', schema, 'repeat')).toEqual({ ok: true, members: { url: ['a', 'b'], to: 'x' } });
    expect(read('url=a&to=x', schema, 'repeat')).toEqual({ ok: true, members: { url: ['a'], to: 'x' } });
  });

  test('qs reads what is written as it was meant, in each spelling of lists', () => {
    const name = fc.stringMatching(/^[a-z][a-z0-9 é.]{0,5}[a-z]$/);
    const value = fc.letrec<{ node: Json; leaf: string }>((tie) => ({
      leaf: fc.string({ unit: 'grapheme', maxLength: 8 }),
      node: fc.oneof(
        { maxDepth: 4 },
        tie('leaf'),
        fc.array(tie('node'), { minLength: 1, maxLength: 4 }),
        fc.dictionary(name, tie('node'), { minKeys: 1, maxKeys: 4 }),
      ),
    })).node;
    fc.assert(
      fc.property(fc.dictionary(name, value, { minKeys: 1, maxKeys: 4 }), (members) => {
        for (const lists of ['indices', 'brackets', 'repeat'] as const) {
          const options = { lists, schema: null, limits: LIMITS };
          if (Object.entries(members).some(([key, one]) => formMisfit(key, one, options) !== null)) continue;
          const folded = new Set(Object.keys(members).map((key) => key.toLowerCase().replaceAll(/[. ]/g, '_')));
          if (folded.size < Object.keys(members).length) continue;
          const text = writeForm(members, lists);
          expect(text).toMatch(/^[\x21-\x7e]+$/);
          if (lists === 'repeat') continue;
          expect(readForm(Buffer.from(text), options)).toEqual({ ok: true, members });
          const theirs = qs.parse(text, { depth: 64, parameterLimit: 10_000, arrayLimit: 1000, allowDots: false });
          expect(theirs).toEqual(members);
        }
      }),
    );
  });
});

describe('what servers read in different ways is refused, with its place', () => {
  test.each<[string, string]>([
    ['a=1&a=2', '/a'],
    ['a=1&A=2', '/A'],
    ['a.b=1&a_b=2', '/a_b'],
    ['a b=1', ''],
    ['a=1&a[b]=2', '/a'],
    ['a[b]=1&a=2', '/a'],
    ['a[]=1&a[0]=2', '/a'],
    ['a[]=1&a=2', '/a'],
    ['a[b]=1&a[b]=2', '/a/b'],
    ['a[b]=1&a[B]=2', '/a/B'],
    ['a[][b]=1', '/a'],
    ['a[1]=1', '/a'],
    ['a[999]=1', '/a'],
    ['a[b][0]=1&a[b][2]=2', '/a'],
    ['a%20b=1&a_b=2', '/a_b'],
    ['a%20=1', '/a '],
    ['a=\u007f', ''],
    ['a=\t', ''],
    ['a%7F=1', '/a\u007f'],
    ['constructor[a]=1', '/constructor'],
    ['a[toString]=1', '/a/toString'],
    ['a[b=1', '/a[b'],
    ['a]=1', '/a]'],
    ['a[b]c=1', '/a[b]c'],
    ['a[[b]]=1', '/a[[b]]'],
    ['[a]=1', '/'],
    ['=1', '/'],
    ['%20a=1', '/ a'],
    ['a%00b=1', '/a\u0000b'],
    ['a[%0a]=1', '/a'],
    ['__proto__=1', '/__proto__'],
    ['a[__proto__][x]=1', '/a/__proto__/x'],
    ['a=%ff', ''],
    ['a=%', ''],
    ['a=%zz', ''],
    ['a=1\nb=2', ''],
    [`${'a'.repeat(1025)}=1`, ''],
    [`a${'[b]'.repeat(16)}=1`, '/a'],
    ['a=1&'.repeat(10_001), ''],
  ])('%.40s', (text, path) => {
    expect(read(text)).toMatchObject({ ok: false, path });
  });

  test.each([
    ['a name of 1,024 characters', `${'a'.repeat(1024)}=1`],
    ['a name of 15 brackets', `a${'[b]'.repeat(15)}=1`],
    ['9,999 fields', Array.from({ length: 9_999 }, (_, at) => `a${at}=1`).join('&')],
  ])('but %s is what may be', (_, text) => {
    expect(read(text)).toMatchObject({ ok: true });
  });

  test.each<FormLists>(['indices', 'brackets', 'repeat'])(
    'numbers with gaps are refused however lists are written (%s), but for those of an object',
    (lists) => {
      expect(read('a[1]=x', null, lists)).toMatchObject({ ok: false, path: '/a' });
      const schema: JsonObject = { properties: { a: { type: 'object' } } };
      expect(read('a[1]=x', schema, lists)).toEqual({ ok: true, members: { a: { 1: 'x' } } });
      expect(formMisfit('a', { 1: 'x' }, { lists, schema: null })).toContain('numbers with gaps');
      expect(formMisfit('a', { 1: 'x' }, { lists, schema })).toBeNull();
    },
  );

  test('more fields, or deeper ones, than bodies may have; as many and as deep are taken', () => {
    const limits = { depth: 3, values: 4 };
    const fault = (text: string): string | null => {
      const form = readForm(Buffer.from(text), { lists: 'indices', schema: null, limits });
      return form.ok ? null : form.message;
    };
    expect(['a=1&b=2&c=3&d=4', 'a=1&b=2&c=3&d=4&e=5'].map(fault)).toEqual([null, 'has more than 4 fields']);
    expect(['a[b][c]=1', 'a[b][c][d]=1'].map(fault)).toEqual([null, 'is nested deeper than 3 levels']);
  });

  test('a text that stands for a list is one element where lists repeat their name alone', () => {
    const schema = { type: 'object', properties: { a: { type: 'array', items: { type: 'string' } } } };
    expect(read('a=1', schema, 'repeat')).toEqual({ ok: true, members: { a: ['1'] } });
    for (const lists of ['indices', 'brackets'] as const)
      expect(read('a=1', schema, lists)).toEqual({ ok: true, members: { a: '1' } });
  });

  test('bytes that are not UTF-8', () => {
    expect(readForm(Buffer.from([0x61, 0x3d, 0xff]), { lists: 'indices', schema: null, limits: LIMITS }).ok).toBe(
      false,
    );
  });

  test('a name twice names the line to add', () => {
    expect(read('a=1&a=2')).toMatchObject({ message: expect.stringContaining('form_lists: repeat') });
  });
});

test.each<[Json, JsonObject | null]>([
  [null, null],
  [[], null],
  [{}, null],
  [{ a: [null] }, null],
  [{ 0: 'x', 1: 'y' }, null],
  [['x'], { properties: { a: { type: 'object' } } }],
  [{ 'a[b': 'x' }, null],
  [{ '': 'x' }, null],
  [{ a: 'x', A: 'y' }, null],
])('%j cannot be written', (value, schema) => {
  expect(formMisfit('a', value, { lists: 'indices', schema })).not.toBeNull();
});

test('no form of the largest size holds the event loop over 50 ms', async () => {
  const size = 1024 * 1024;
  const shapes = [
    '&'.repeat(size),
    `a${'[b]'.repeat(size / 3)}=1`,
    'a[b]=1&'.repeat(size / 7),
    Array.from({ length: 9999 }, (_, index) => `a${'[b]'.repeat(13)}[k${index}]=v`).join('&'),
    Array.from({ length: 9999 }, (_, index) => `a[${index}]=${'%41'.repeat(28)}`).join('&'),
    `a=${'%41'.repeat(size / 3)}`,
    `a=${'+'.repeat(size)}`,
    `a${'['.repeat(size)}`,
    `${'%5B'.repeat(size / 3)}=1`,
  ];
  for (const text of shapes) {
    const bytes = Buffer.from(text.slice(0, size));
    const held: number[] = [];
    for (let tries = 0; tries < 3; tries += 1) {
      held.push(await longestHold(() => readFormInSlices(bytes, { lists: 'indices', schema: null, limits: LIMITS })));
    }
    expect(Math.min(...held), text.slice(0, 20)).toBeLessThan(50);
    expect(await readFormInSlices(bytes, { lists: 'indices', schema: null, limits: LIMITS })).toEqual(
      readForm(bytes, { lists: 'indices', schema: null, limits: LIMITS }),
    );
  }
});
