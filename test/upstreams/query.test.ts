import fc from 'fast-check';
import qs from 'qs';
import { describe, expect, test } from 'vitest';
import { MOST_FAULTS } from '../../src/diagnostics/stop-at.ts';
import type { RequestTemplate } from '../../src/effects/model/tool.ts';
import type { Json, JsonObject } from '../../src/json/value.ts';
import { readQuery } from '../../src/proxy/arrival.ts';
import { createCatalog } from '../../src/upstreams/catalog.ts';
import { collectQuery, writeQuery } from '../../src/upstreams/http/url.ts';
import { planOf, renderRequest } from '../../src/upstreams/http/request-template.ts';
import '../property-seed.ts';
import { makeTool } from './tool.ts';

const LIMITS = { depth: 64, values: 10_000 };
const schema: JsonObject = {
  type: 'object',
  $defs: { count: { type: 'integer' } },
  properties: {
    dry: { type: 'boolean' },
    ids: { type: 'array', items: { $ref: '#/$defs/count' } },
    tags: { type: 'array', items: { type: 'string' } },
    expand: { type: 'array', items: { type: 'string' } },
    words: { type: 'array', items: { type: 'string' } },
    cells: { type: 'array', items: { type: 'string' } },
    items: { type: 'array', items: { type: 'object', properties: { n: { type: 'integer' } } } },
    created: {
      anyOf: [
        { type: 'integer' },
        { type: 'object', properties: { gte: { type: 'integer' }, at: { type: 'array', items: { type: 'string' } } } },
      ],
    },
    filter: { type: 'object' },
    more: { type: 'object', properties: { after: { $ref: '#/$defs/count' } } },
  },
};
const template: RequestTemplate = {
  method: 'POST',
  path: '/x/{id}',
  query: ['dry', 'page[size]', 'ids', 'tags', 'expand', 'words', 'cells', 'items', 'created', 'filter'],
  queryStyles: {
    ids: 'comma',
    tags: 'brackets',
    expand: 'indices',
    words: 'space',
    cells: 'pipe',
    items: 'repeat',
    created: 'repeat',
    filter: 'repeat',
  },
  queryRest: 'more',
  headers: {},
  body: '*',
};
const tool = makeTool({ name: 'x', request: template, paramsSchema: schema, target: null });
const closed = makeTool({
  name: 'y',
  request: { method: 'GET', path: '/y', query: ['tags'], queryStyles: { tags: 'repeat' }, headers: {}, body: [] },
  paramsSchema: schema,
  target: null,
});
const catalog = createCatalog([tool, closed]);

function read(text: string, of = tool): JsonObject | string {
  const { pairs, faults } = readQuery(text);
  const flat = (name: string, value: string): Json => catalog.textParam(of, name, value);
  const { query } = planOf(of.call.request);
  const collected = collectQuery(query, pairs, flat, { schema, limits: LIMITS });
  if (faults.length > 0) return faults.map(({ path, message }) => `${path} ${message}`).join('\n');
  return collected.ok ? collected.params : collected.faults.map(({ path, message }) => `${path} ${message}`).join('\n');
}

function write(params: JsonObject): string {
  return decodeURIComponent(writeQuery(planOf(template).query, params));
}

describe('a query is read as its writers mean it, and written in one way', () => {
  test.each<[string, JsonObject, string]>([
    ['', {}, ''],
    ['dry=true', { dry: true }, 'dry=true'],
    ['page[size]=5', { 'page[size]': '5' }, 'page[size]=5'],
    ['page[size]=', { 'page[size]': '' }, 'page[size]='],
    ['ids=1,2', { ids: [1, 2] }, 'ids=1,2'],
    ['ids=1%2C2', { ids: [1, 2] }, 'ids=1,2'],
    ['ids=7', { ids: [7] }, 'ids=7'],
    ['words=a+b%20c', { words: ['a', 'b', 'c'] }, 'words=a b c'],
    ['cells=a|b%7Cc', { cells: ['a', 'b', 'c'] }, 'cells=a|b|c'],
    ['tags[]=a&tags[]=b', { tags: ['a', 'b'] }, 'tags[]=a&tags[]=b'],
    ['tags[1]=b&tags[0]=a', { tags: ['a', 'b'] }, 'tags[]=a&tags[]=b'],
    ['expand[]=a&expand[]=b', { expand: ['a', 'b'] }, 'expand[0]=a&expand[1]=b'],
    ['expand%5B0%5D=a', { expand: ['a'] }, 'expand[0]=a'],
    ['items[0][n]=1&items[1][n]=2', { items: [{ n: 1 }, { n: 2 }] }, 'items[0][n]=1&items[1][n]=2'],
    ['created=5', { created: 5 }, 'created=5'],
    ['created[gte]=5', { created: { gte: 5 } }, 'created[gte]=5'],
    ['created[at]=a&created[at]=b', { created: { at: ['a', 'b'] } }, 'created[at]=a&created[at]=b'],
    ['filter[a][b][c]=d&filter[x]=y', { filter: { a: { b: { c: 'd' } }, x: 'y' } }, 'filter[a][b][c]=d&filter[x]=y'],
    ['after=2&x[y]=1&z=a&z=b', { more: { after: 2, x: { y: '1' }, z: ['a', 'b'] } }, 'after=2&x[y]=1&z=a&z=b'],
    ['0=a&1=b', { more: { 0: 'a', 1: 'b' } }, '0=a&1=b'],
    ['zip=a+b%2B&dry=no', { dry: 'no', more: { zip: 'a b+' } }, 'dry=no&zip=a b+'],
    ['flag', { more: { flag: '' } }, 'flag='],
  ])('%s', (text, params, written) => {
    expect(read(text)).toEqual(params);
    expect(write(params)).toBe(written);
  });

  test('what stands between the elements of a list is encoded as the documentation has it', () => {
    const params = { ids: [1, 2], words: ['a', 'b'], cells: ['a', 'b'] };
    expect(writeQuery(planOf(template).query, params)).toBe('ids=1,2&words=a%20b&cells=a%7Cb');
  });

  test('what a tool without a rest does not know stays a param of its own, for the check', () => {
    expect(read('tags=a&strange=1&deep[x]=1', closed)).toEqual({ tags: ['a'], strange: '1', 'deep[x]': '1' });
  });
});

describe('what servers read in different ways is refused, with its place', () => {
  test.each<[string, RegExp]>([
    ['dry=true&dry=false', /^\/query\/dry stands more than once.*type: array/],
    ['dry=true&dry=true', /^\/query\/dry stands more than once.*type: array/],
    ['dry=true&Dry=false', /^\/query\/Dry stands beside/],
    ['Dry=false', /^\/query\/Dry is what some servers take for a param/],
    ['dry[]=true', /^\/query\/dry\[\] is what some servers take for a param/],
    ['page[number]=1', /^\/query\/page\[number\] is what some servers take/],
    ['ids=1&ids=2', /^\/query\/ids is written once, as ids=…,…/],
    ['ids[]=1', /^\/query\/ids is written once/],
    ['expand=a&expand=b', /^\/query\/expand stands more than once.*query_lists: repeat/],
    ['expand=a&expand[]=b', /^\/query\/expand is written in two ways/],
    ['expand[1]=a', /^\/query\/expand has numbers with gaps/],
    ['tags[]=a&tags[0]=b', /^\/query\/tags is (?:a value and has parts|written in two ways)/],
    ['created=5&created[gte]=6', /^\/query\/created is a value and has parts/],
    ['created[gte]=5&created[GTE]=6', /^\/query\/created\/GTE stands beside/],
    ['created[gte]=5&Created[gte]=6', /^\/query\/Created stands beside/],
    ['created[__proto__][x]=1', /^\/query\/created\/__proto__\/x field 1: a part of the name is __proto__/],
    ['a=1&created[constructor]=1', /field 2: a part of the name is constructor/],
    [`filter${'[a]'.repeat(20)}=1`, /^\/query\/filter is nested deeper than 16 levels/],
    ['filter[a=1', /the brackets of the name do not match/],
    ['filter[a[b]=1', /the brackets of the name do not match/],
    ['created[at]=a&created[at][]=b', /^\/query\/created\/at is written in two ways/],
    ['created[at][]=a&created[at]=b', /^\/query\/created\/at is written in two ways/],
    ['filter[][a]=1', /^\/query\/filter has parts in a list without numbers/],
    ['a=1&a[b]=2', /^\/query\/a is a value and has parts/],
    ['a=1&A=2', /^\/query\/A stands beside/],
    ['a.b=1&a_b=2', /^\/query\/a_b stands beside/],
    ['a[]=1', /^\/query\/a\[\] is a list that is not written as a=…&a=….*query_lists/],
    ['a[0]=1&a[1]=2', /^\/query\/a\[0\] is a list that is not written/],
    ['a[]=1&a[]=2&b=1', /^\/query\/a\[\] is a list that is not written/],
    ['%20a=1', /begins or ends with a space/],
    ['toString=1', /is toString/],
    ['_method=DELETE', /^\/query\/_method changes for some servers/],
    ['_METHOD[]=DELETE', /changes for some servers/],
    ['_HttpMethod=DELETE', /changes for some servers/],
    ['$httpMethod=DELETE', /changes for some servers/],
    ['X-HTTP-Method-Override=DELETE', /changes for some servers/],
    ['_charset_=utf-16', /changes for some servers/],
    ['api.key=1', /is where callers carry their key/],
    ['a=%ff', /percent-encoded/],
    ['a=1;b=2', /";"/],
  ])('%s', (text, message) => {
    expect(read(text)).toMatch(message);
  });
});

test('of very many faults the first hundred are said', () => {
  const names = Array.from({ length: MOST_FAULTS + 1 }, (_, at) => `a${at}=1&A${at}=1`);
  const said = read(names.join('&'));
  expect(typeof said === 'string' ? said.split('\n') : said).toHaveLength(MOST_FAULTS);
});

describe('params of the effects API', () => {
  const faults = (params: JsonObject): string[] =>
    catalog.check(tool, { id: 'i', ...params }).map(({ path, message }) => `${path} ${message}`);
  test.each<JsonObject>([
    { ids: [1] },
    { tags: ['a', ''] },
    { created: 5 },
    { created: { at: ['a', 'b'] } },
    { filter: { a: { b: 1 } } },
    { more: { after: 1, z: ['a', 'b'], y: { x: true } } },
    { more: { more: 1 } },
  ])('%j is taken', (params) => {
    expect(faults(params)).toEqual([]);
  });
  test.each<[JsonObject, RegExp]>([
    [{ words: ['a b'] }, /^\/params\/words .*without " ", which stands between/],
    [{ ids: [] }, /a list that is not empty/],
    [{ ids: [[1]] }, /its elements are single values/],
    [{ tags: [] }, /no empty list/],
    [{ filter: {} }, /no empty object/],
    [{ filter: { a: null } }, /no null/],
    [{ filter: { 'a]': 1 } }, /has a bracket/],
    [{ filter: { a: 1, A: 2 } }, /equal but for case/],
    [{ filter: { a: ['only'] } }, /a list of one would be read as a single value/],
    [{ filter: { a: 'x'.repeat(8200) } }, /not take more than 8192/],
    [{ filter: nested(20) }, /nested deeper than 16/],
    [{ more: {} }, /no empty object/],
    [{ more: { a: null } }, /no null/],
    [{ more: { dry: 1 } }, /dry is what some servers take for a param/],
    [{ more: { 'filter[x]': 1 } }, /is what some servers take for a param/],
    [{ amount: 5, more: { Amount: 6 } }, /Amount is the name of another param too/],
    [{ Amount: 5, more: { amount: 6 } }, /amount is the name of another param too/],
    [{ 'cost.centre': 5, more: { cost_centre: 6 } }, /cost_centre is the name of another param too/],
    [{ more: { x: ['only'] } }, /a list of one/],
    [{ more: { api_key: 'k' } }, /where callers carry their key/],
    [{ more: { _method: 'PUT' } }, /changes for some servers/],
    [{ more: { a: 'x'.repeat(8200) } }, /not take more than 8192/],
  ])('params %#', (params, message) => {
    expect(faults(params).join('\n')).toMatch(message);
  });
  test.each<[string, number]>([
    ['filter', 'filter%5Ba%5D='.length],
    ['more', 'a='.length],
  ])('%s takes 8,192 characters in the query, and not one more', (name, before) => {
    const of = (length: number): JsonObject => ({ [name]: { a: 'x'.repeat(length - before) } });
    expect(faults(of(8_192))).toEqual([]);
    expect(faults(of(8_193)).join()).toContain('not take more than 8192');
  });
  test('a name that the schema declares for the body is no other param of the query', () => {
    const body = makeTool({
      name: 'z',
      request: { method: 'POST', path: '/z', query: [], queryRest: 'more', headers: {}, body: '*' },
      paramsSchema: { type: 'object', properties: { amount: { type: 'integer' } } },
      target: null,
    });
    const [fault] = createCatalog([body]).check(body, { more: { amount: '9' } });
    expect(fault?.message).toMatch(/amount is the name of another param too/);
    // That it is an object, no schema says here.
    const [odd] = createCatalog([body]).check(body, { more: 'a=1' });
    expect(odd?.message).toBe('goes into the query: it must be an object');
  });
});

function nested(levels: number): JsonObject {
  return levels === 0 ? { a: 1 } : { a: nested(levels - 1) };
}

test('property: what the check takes is read back as it is, by the gateway and by qs', () => {
  const word = fc.oneof(
    { weight: 4, arbitrary: fc.stringMatching(/^[a-z]{1,4}$/) },
    fc.string({ minLength: 1, maxLength: 4 }),
    fc.constantFrom('é', '€x', '😀'),
  );
  const leaf = fc.oneof(word, fc.constantFrom('', '1', 'true', 'a,b', 'a|b', '&=+%[]#?'));
  const value = fc.letrec((tie) => ({
    value: fc.oneof({ maxDepth: 3 }, leaf, fc.array(tie('value'), { minLength: 2, maxLength: 3 }), tie('object')),
    object: fc.dictionary(word, tie('value'), { minKeys: 1, maxKeys: 3 }),
  }));
  let made = 0;
  let taken = 0;
  fc.assert(
    fc.property(
      fc.record(
        {
          tags: fc.array(leaf, { minLength: 1, maxLength: 3 }),
          expand: fc.array(leaf, { minLength: 1, maxLength: 3 }),
          words: fc.array(word, { minLength: 1, maxLength: 3 }),
          filter: value.object,
          more: value.object,
        },
        { requiredKeys: [] },
      ),
      (drawn) => {
        made += 1;
        const params: JsonObject = JSON.parse(JSON.stringify(drawn));
        if (catalog.check(tool, { id: 'i', ...params }).length > 0) return;
        if (Object.keys(params).length > 0) taken += 1;
        const { pathAndQuery } = renderRequest(planOf(template), { id: 'i', ...params });
        const text = pathAndQuery.split('?')[1] ?? '';
        expect(read(text)).toEqual(params);
        const options = { depth: 20, arrayLimit: 1000, plainObjects: true };
        const { more, ...rest } = params;
        const joined = drawn.words === undefined ? {} : { words: drawn.words.join(' ') };
        expect(qs.parse(text, options)).toEqual(
          qs.parse(qs.stringify({ ...rest, ...joined, ...Object(more) }), options),
        );
      },
    ),
  );
  expect(taken).toBeGreaterThan(made / 5);
});
