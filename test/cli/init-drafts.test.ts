import { describe, expect, test } from 'vitest';
import type { JsonObject } from '../../src/json/value.ts';
import type { ApiDocument } from '../../packages/init/src/openapi/document.ts';
import { draftTools } from '../../packages/init/src/openapi/draft.ts';
import { operationsOf, serverOf } from '../../packages/init/src/openapi/operations.ts';

const DONE = { 200: { description: 'Done' } };
const FILE = 'file:///work/api.json';

function documentOf(root: object, url = FILE): ApiDocument {
  const parsed: JsonObject = JSON.parse(JSON.stringify({ openapi: '3.1.0', ...root }));
  return { root: parsed, url, others: new Map() };
}

/** A document of version 2. */
const two = (root: object, url = FILE): ApiDocument => documentOf({ openapi: undefined, swagger: '2.0', ...root }, url);

function drafted(paths: object, root: object = {}) {
  const document = documentOf({ paths, ...root });
  return draftTools(document, operationsOf(document), () => 'shop');
}

/** The one tool of these paths. */
function toolOf(paths: object, root: object = {}) {
  const { tools, leftOut } = drafted(paths, root);
  const [tool] = tools;
  if (tool === undefined) throw new Error(JSON.stringify(leftOut));
  return tool;
}

const query = (name: string, more: object = {}) => ({ name, in: 'query', schema: { type: 'string' }, ...more });
const get = (...parameters: readonly object[]) => ({ get: { parameters, responses: DONE } });
const post = (schema: object, more: object = {}, media = 'application/json') => ({
  post: { requestBody: { required: true, content: { [media]: { schema } } }, responses: DONE, ...more },
});

/** The schema that is written for a body of this one member. */
function written(it: object, components: object = {}): unknown {
  const { schema } = toolOf({ '/x': post({ type: 'object', properties: { it } }) }, { components });
  const { properties }: { properties?: { it?: unknown } } = schema;
  return properties?.it;
}

describe('where operations are sent', () => {
  const at = (url: string, variables: object = {}) => [{ url, variables }];
  const op = (servers?: object) => ({ responses: DONE, ...(servers && { servers }) });

  test.each<[string, object, string]>([
    ['as the document says', { get: op() }, 'https://root.test'],
    ['as the path says', { servers: at('https://path.test'), get: op() }, 'https://path.test'],
    [
      'as the operation says itself',
      { servers: at('https://path.test'), get: op(at('https://own.test')) },
      'https://own.test',
    ],
    [
      'to the first value of a variable that has no default',
      { get: op(at('https://{region}.test', { region: { enum: ['eu', 'us'] } })) },
      'https://eu.test',
    ],
  ])('%s', (_, item, origin) => {
    const [operation] = operationsOf(documentOf({ servers: at('https://root.test'), paths: { '/x': item } }));
    expect(operation?.server).toEqual({ origin, base: '' });
  });

  test.each<[string, ApiDocument, string | null, string]>([
    ['a variable without any value', documentOf({ servers: at('https://{host}/v1') }), null, '/v1'],
    ['a path alone', documentOf({ servers: at('/v2/') }, 'https://h.test/docs/api.json'), 'https://h.test', '/v2'],
    [
      'a path beside the document',
      documentOf({ servers: at('v2') }, 'https://h.test/docs/a.json'),
      'https://h.test',
      '/docs/v2',
    ],
    ['a path in a file', documentOf({ servers: at('./v2') }), null, '/v2'],
    ['no server, at an address', documentOf({}, 'https://h.test/api.json'), 'https://h.test', ''],
    [
      'version 2, with TLS where it has it',
      two({ host: 'h.test', schemes: ['http', 'https'], basePath: '/b/' }),
      'https://h.test',
      '/b',
    ],
    ['version 2, without TLS', two({ host: 'h.test:81', schemes: ['http'] }), 'http://h.test:81', ''],
    [
      'version 2, by the address that it was read at',
      two({ basePath: '/b' }, 'http://h.test/api.json'),
      'http://h.test',
      '/b',
    ],
    ['version 2, in a file', two({}), null, ''],
  ])('%s', (_, document, origin, base) => {
    expect(serverOf(document)).toEqual({ origin, base });
  });
});

describe('what an operation takes', () => {
  test('its own params replace those of its path that have the same name and place', () => {
    const parameters = [query('limit', { schema: { type: 'integer' } }), query('q')];
    const { schema } = toolOf({ '/x': { parameters, ...get(query('limit', { schema: { type: 'boolean' } })) } });
    expect(schema).toMatchObject({ properties: { limit: { type: 'boolean' }, q: { type: 'string' } } });
  });

  test('what begins with x- beside the paths is none', () => {
    expect(drafted({ 'x-paths': get(), '/x': get() }).tools.map(({ path }) => path)).toEqual(['/x']);
    expect(drafted({ 'x-paths': get() }).leftOut).toEqual([]);
  });

  test.each<[readonly string[], string, string]>([
    [
      ['application/x-www-form-urlencoded', 'application/json; charset=utf-8'],
      'json',
      'application/json; charset=utf-8',
    ],
    [
      ['application/strategic-merge-patch+json', 'application/merge-patch+json'],
      'json',
      'application/merge-patch+json',
    ],
    [['application/json-patch+json', 'application/vnd.shop+json'], 'json', 'application/vnd.shop+json'],
    [['application/x-www-form-urlencoded', '*/*'], 'json', '*/*'],
    [['multipart/form-data', 'application/x-www-form-urlencoded'], 'form', 'application/x-www-form-urlencoded'],
    [['image/png', 'multipart/form-data'], 'multipart', 'multipart/form-data'],
    [['text/csv', 'image/png'], 'opaque', 'text/csv'],
  ])('of the bodies %j it is %s', (media, kind, chosen) => {
    const content = Object.fromEntries(media.map((type) => [type, { schema: { type: 'object' } }]));
    const [operation] = operationsOf(documentOf({ paths: { '/x': { post: { requestBody: { content } } } } }));
    expect(operation?.body).toMatchObject({ kind, media: chosen, required: false });
  });

  test.each<[string, object, object, object]>([
    ['a body', { consumes: ['application/x-www-form-urlencoded'] }, { in: 'body' }, { kind: 'form' }],
    ['a body, by the word for all', {}, { in: 'body' }, { kind: 'multipart' }],
    ['a field', { consumes: ['application/json'] }, { in: 'formData' }, { kind: 'form', required: false }],
    ['a field that is needed', { consumes: [] }, { in: 'formData', required: true }, { kind: 'form', required: true }],
    ['a field, by the word for all', {}, { in: 'formData' }, { kind: 'multipart' }],
    [
      'a field, in either form',
      { consumes: ['multipart/form-data', 'application/x-www-form-urlencoded'] },
      { in: 'formData' },
      { kind: 'form' },
    ],
    ['a file', { consumes: [] }, { in: 'formData', type: 'file' }, { kind: 'multipart' }],
  ])('in version 2, %s', (_, more, param, body) => {
    const parameters = [{ name: 'it', ...param }];
    const document = two({ consumes: ['multipart/form-data'], paths: { '/x': { post: { parameters, ...more } } } });
    expect(operationsOf(document)[0]?.body).toMatchObject(body);
  });

  test('a body that may be left out makes none of its members necessary', () => {
    const schema = {
      type: 'object',
      required: ['a'],
      properties: { a: {}, b: {}, c: {} },
      anyOf: [{ required: ['b'] }, { required: ['c'] }],
    };
    const of = (required: boolean) =>
      toolOf({ '/x': { post: { requestBody: { required, content: { 'application/json': { schema } } } } } }).schema;
    expect(of(true)).toMatchObject({ required: ['a'], anyOf: [{ required: ['b'] }, { required: ['c'] }] });
    expect(Object.keys(of(false))).toEqual(['type', 'properties']);
  });
});

describe('a schema', () => {
  const either = { type: 'object', properties: { a: { type: 'string' } } };
  test.each<[string, object, unknown]>([
    ['of Kubernetes', { type: 'string', format: 'int-or-string' }, { type: ['integer', 'string'] }],
    ['that may be null, as before OpenAPI 3', { type: 'string', 'x-nullable': true }, { type: ['string', 'null'] }],
    [
      'of parts, that may be null',
      { nullable: true, allOf: [{ minLength: 1 }, { maxLength: 2 }] },
      { anyOf: [{ type: 'null' }, { allOf: [{ minLength: 1 }, { maxLength: 2 }] }] },
    ],
    ['of alternatives of two kinds', { anyOf: [{ type: 'string' }], oneOf: [{ type: 'integer' }] }, {}],
    [
      'of parts of which one is closed',
      { allOf: [{ ...either, additionalProperties: false }, { properties: { b: {} } }] },
      { allOf: [either, { properties: { b: {} } }] },
    ],
    [
      'of a map',
      { type: 'object', additionalProperties: { type: 'integer' } },
      { type: 'object', additionalProperties: { type: 'integer' } },
    ],
    [
      'that is closed but for names of a form',
      { type: 'object', patternProperties: { '^x-': {} }, additionalProperties: false },
      { type: 'object' },
    ],
    [
      'that is closed',
      { type: 'object', additionalProperties: false },
      { type: 'object', additionalProperties: false },
    ],
    [
      'with a pattern of 256 characters',
      { type: 'string', pattern: 'a'.repeat(256) },
      { type: 'string', pattern: 'a'.repeat(256) },
    ],
    ['with a longer pattern', { type: 'string', pattern: 'a'.repeat(257) }, { type: 'string' }],
    [
      'with more values than a file should hold',
      { type: 'string', enum: Array.from({ length: 500 }, (_, n) => `value-${n}`) },
      { type: 'string' },
    ],
  ])('%s', (_, schema, expected) => {
    expect(written(schema)).toEqual(expected);
  });

  test('of the same name elsewhere in the document is another definition', () => {
    const of = (type: string) => ({ type: 'object', properties: { it: { type } } });
    const components = { schemas: { Order: of('string') }, responses: { Order: of('integer') } };
    const properties = {
      a: { $ref: '#/components/schemas/Order' },
      b: { $ref: '#/components/responses/Order' },
      c: { $ref: '#/components/schemas/Order' },
    };
    expect(toolOf({ '/x': post({ type: 'object', properties }) }, { components }).schema).toMatchObject({
      properties: { a: { $ref: '#/$defs/Order' }, b: { $ref: '#/$defs/Order_2' }, c: { $ref: '#/$defs/Order' } },
      $defs: { Order: of('string'), Order_2: of('integer') },
    });
  });

  test.each<[string, object, boolean]>([
    ['is closed', { additionalProperties: false }, true],
    ['is closed in one of its parts', { allOf: [{ properties: { b: {} } }], additionalProperties: false }, false],
    ['is open', {}, false],
  ])('of a body that %s', (_, more, isClosed) => {
    const { schema } = toolOf({ '/x': post({ type: 'object', properties: { a: {} }, ...more }) });
    expect('additionalProperties' in schema).toBe(isClosed);
  });

  test.each<[string, object, object]>([
    ['values and no type', { enum: ['a', 'b'] }, { type: 'string', enum: ['a', 'b'] }],
    ['two types', { type: ['integer', 'string'] }, { type: 'string' }],
    ['a number', { type: 'number', minimum: 1 }, { type: 'number', minimum: 1 }],
  ])('of a text in a query that has %s', (_, schema, expected) => {
    expect(toolOf({ '/x': get(query('it', { schema })) }).schema).toMatchObject({ properties: { it: expected } });
  });

  test('of a field that is bytes as text is no file', () => {
    const properties = {
      file: { type: 'string', contentMediaType: 'image/png' },
      text: { type: 'string', contentMediaType: 'image/png', contentEncoding: 'base64' },
    };
    const { schema } = toolOf({ '/x': post({ type: 'object', properties }, {}, 'multipart/form-data') });
    expect(schema).toMatchObject({ properties: { file: { type: 'object' }, text: { type: 'string' } } });
  });
});

describe('params that have something in common', () => {
  test('one of the query that stands in the body too is declared there, unless it has to be in the query', () => {
    const body = { type: 'object', properties: { id: { type: 'string' } } };
    const of = (required: boolean) => drafted({ '/x': post(body, { parameters: [query('id', { required })] }) });
    const [tool] = of(false).tools;
    expect(tool).toMatchObject({ query: [], notes: ['id stands in the query as well; it is declared in the body'] });
    expect(of(true)).toMatchObject({
      tools: [],
      leftOut: [{ operation: 'POST /x', why: 'the param id stands in the query and in the body' }],
    });
  });

  test('a header with the name of another is called so, and left out where that is taken as well', () => {
    const header = { name: 'X-Tenant', in: 'header', schema: { type: 'string' } };
    const tool = toolOf({ '/x': get(query('x_tenant'), header) });
    expect([tool.query, tool.headers]).toEqual([['x_tenant'], [['x_tenant_header', 'X-Tenant']]]);
    expect(drafted({ '/x': get(query('x_tenant'), query('x_tenant_header'), header) }).leftOut).toMatchObject([
      { why: 'the header X-Tenant has the name of another param' },
    ]);
  });

  test('a whole body takes a name that is free', () => {
    const list = { type: 'array', items: {} };
    const nameOf = (...names: readonly string[]) =>
      toolOf({ '/x': post(list, { parameters: names.map((name) => query(name)) }) }).body;
    expect(nameOf()).toMatchObject({ as: 'param', name: 'body' });
    expect(nameOf('body')).toMatchObject({ name: 'request_body' });
    expect(nameOf('body', 'request_body')).toMatchObject({ name: 'whole_body' });
  });

  test('a list in brackets is called without them, unless there is one that is', () => {
    const ids = { schema: { type: 'array', items: { type: 'string' } } };
    expect(toolOf({ '/x': get(query('ids[]', ids)) }).queryStyles).toEqual({ ids: 'brackets' });
    expect(toolOf({ '/x': get(query('ids', ids), query('ids[]', ids)) }).queryStyles).toEqual({ ids: 'repeat' });
  });

  test('a member that stands beside its object belongs to that', () => {
    const page = query('page', { style: 'deepObject', schema: { type: 'object' } });
    expect(toolOf({ '/x': get(page, query('page[size]')) }).query).toEqual(['page']);
    expect(toolOf({ '/x': get(query('page[size]')) }).query).toEqual(['page[size]']);
  });

  test('a cookie is none, and it is said what becomes of it', () => {
    const tool = toolOf({ '/x': get({ name: 'session', in: 'cookie', schema: {} }) });
    expect([tool.query, tool.notes.length]).toEqual([[], 1]);
  });
});

describe('the name of a tool', () => {
  test('that two would have is told apart by the last param of the path, and then by number', () => {
    const op = { get: { operationId: 'find', responses: DONE } };
    const paths = { '/a': op, '/b/{shop}/{id}': op, '/c/{id}': op, '/d': op };
    expect(drafted(paths).tools.map(({ name }) => name)).toEqual([
      'shop.find',
      'shop.find_by_id',
      'shop.find_by_id_2',
      'shop.find_2',
    ]);
  });

  test('without an id is that of the method and the words of the path, without its version', () => {
    expect(toolOf({ '/v2/orders/{id}/lines': get() }).name).toBe('shop.get_orders_lines');
  });

  test('has five tags at most, each once', () => {
    const tags = ['A b', 'a-b', 7, 'c', 'd', 'e', 'f', 'g'];
    expect(toolOf({ '/x': { get: { tags, responses: DONE } } }).tags).toEqual(['a-b', 'c', 'd', 'e', 'f']);
  });
});

describe('what cannot be declared is left out, and it is said why', () => {
  test.each([
    ['orders', "the path does not begin with '/'"],
    ['/a?b=1', 'the path has a query or a fragment'],
    ['/a//b', 'an empty segment'],
    ['/a/../b', 'a segment that is neither literal nor made of params'],
    ['/a/:id', 'a segment that is neither literal nor made of params'],
    ['/a b', 'a segment that is neither literal nor made of params'],
    ['/a/{b}/{b}', 'the param b stands in two places'],
  ])('%s', (path, why) => {
    expect(drafted({ [path]: get() })).toMatchObject({ tools: [], leftOut: [{ operation: `GET ${path}`, why }] });
  });

  test('a read with a body that has to be sent; one that may be left out is', () => {
    const of = (required: boolean) =>
      drafted({ '/x': { get: { requestBody: { required, content: { 'application/json': {} } } } } });
    expect(of(true).leftOut).toMatchObject([{ why: 'a GET with a body, which many servers drop' }]);
    expect(of(false).tools).toMatchObject([{ kind: 'read', body: null }]);
  });

  test('more than two hundred params', () => {
    const of = (count: number) => drafted({ '/x': get(...Array.from({ length: count }, (_, n) => query(`q${n}`))) });
    expect(of(200).leftOut).toEqual([]);
    expect(of(201).leftOut).toMatchObject([{ why: 'more than 200 params' }]);
  });
});

describe('paths beside each other', () => {
  const id = (type: string) => ({ name: 'id', in: 'path', required: true, schema: { type } });

  test('what only asks what may be asked is a read', () => {
    expect(toolOf({ '/x': { options: { responses: DONE } } })).toMatchObject({ kind: 'read', risk: null });
  });

  test('a number in a path is never a word that stands there in another; of a fraction that is not said', () => {
    const of = (type: string) => drafted({ '/{kind}/all': get(), '/users/{id}': get(id(type)) });
    expect(of('integer').tools.map(({ path }) => path)).toEqual(['/{kind}/all', '/users/{id}']);
    expect(of('string').tools.map(({ path }) => path)).toEqual(['/{kind}/all']);
    expect(toolOf({ '/x/{id}': get(id('number')) }).schema).toMatchObject({ properties: { id: { type: 'string' } } });
  });

  test('a value that would be another operation is none, where that can be said of one param', () => {
    const [one] = drafted({ '/users/{id}': get(), '/users/me': get() }).tools;
    expect(one?.schema).toMatchObject({ properties: { id: { not: { enum: ['me'] } } } });
    const [both] = drafted({ '/{a}/{b}': get(), '/users/me': get() }).tools;
    expect(JSON.stringify(both?.schema)).not.toContain('not');
  });
});
