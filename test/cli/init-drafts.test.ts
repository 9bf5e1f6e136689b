import { createServer } from 'node:http';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, onTestFinished, test } from 'vitest';
import { parse } from 'yaml';
import type { JsonObject } from '../../src/json/value.ts';
import { gatewayFile, policyFile } from '../../packages/init/src/files.ts';
import { type McpServer, mcpGatewayFile, mcpPolicyFile } from '../../packages/init/src/mcp-server-files.ts';
import { findDocument, readDocument } from '../../packages/init/src/openapi/read-document.ts';
import { choose, draftFrom, sourceOf, tagsOf } from '../../packages/init/src/source.ts';
import { groupOf } from '../../packages/init/src/tool-groups.ts';
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

  test('headers of the transport, credentials, tracing and what differs from try to try are none', () => {
    const names = [
      'Authorization',
      'X-Forwarded-For',
      'Range',
      'Traceparent',
      'X-Request-Id',
      'Content-Language',
      'Host',
    ];
    const headers = [...names, 'X-Account'].map((name) => query(name, { in: 'header' }));
    expect(toolOf({ '/x': get(...headers) }).headers).toEqual([['x_account', 'X-Account']]);
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

  test('an operation of a server whose address has a part that nobody says, or that reads and sends files', () => {
    const servers = [{ url: 'https://api.test/{tenant}', variables: { tenant: { description: 'Yours' } } }];
    expect(drafted({ '/a': get() }, { servers }).leftOut).toEqual([
      { operation: 'GET /{tenant}/a', why: 'the URL of its server has a variable without a default' },
    ]);
    for (const media of ['multipart/form-data', 'image/png']) {
      const { post: options } = post({ type: 'object' }, {}, media);
      expect(drafted({ '/a': { options } })).toEqual({
        tools: [],
        leftOut: [{ operation: 'OPTIONS /a', why: `its body is ${media}, and it is a read` }],
      });
    }
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
  test('are none where they are those of two services, or of two methods', () => {
    const paths = { '/a/{id}/c': get(), '/a/b/{id}': { ...get(), post: { responses: DONE } } };
    const document = documentOf({ paths });
    const drawn = (upstreamOf: (path: string) => string) => {
      const { tools, leftOut } = draftTools(document, operationsOf(document), ({ path }) => upstreamOf(path));
      return [tools.length, leftOut.length];
    };
    expect(drawn(() => 'shop')).toEqual([2, 1]);
    expect(drawn((path) => (path === '/a/{id}/c' ? 'shop' : 'other'))).toEqual([3, 0]);
  });

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

const HEAD = { workspace: 'default', agent: 'shop-bot', folder: '.', launcher: 'npx svc' };
const SHOP = { id: 'shop', url: 'https://api.shop.test', base: '' };

/** The two files for these paths, as text and as what they say. */
function filesOf(paths: object, upstreams = [SHOP]) {
  const choices = { ...HEAD, upstreams, diff: null };
  const draft = drafted(paths);
  const [gateway, policy] = [gatewayFile(choices, draft, 'schema'), policyFile(choices, draft, 'schema')];
  return { gateway, policy, said: parse(gateway), rules: parse(policy).rules };
}

describe('the configuration that is written', () => {
  const path = (name: string, more: object = {}) => ({
    name,
    in: 'path',
    required: true,
    schema: { type: 'string' },
    ...more,
  });
  const slashes = { description: 'The URL-encoded path' };

  test('has a rule for each tool: writes may be repeated without a key, and slashes are where the path has them', () => {
    const { said } = filesOf({
      '/orders/{id}': get(path('id')),
      '/orders': post({ type: 'object' }),
      '/files/{file}': get(path('file', slashes)),
      '/files/{file}/raw': get(path('file', slashes)),
    });
    expect(said.routes[0].rules).toEqual([
      { match: 'GET /orders/:id', tool: 'shop.get_orders' },
      { match: 'POST /orders', tool: 'shop.post_orders', idempotency: 'none' },
      { match: 'GET /files/*file', tool: 'shop.get_files' },
      { match: 'GET /files/:file/raw', tool: 'shop.get_files_raw', encoded_slashes: ['file'] },
    ]);
  });

  test('names what a call acts on by the last param of its path, and the word before it', () => {
    const { said } = filesOf({
      '/orders/{id}/lines': get(path('id')),
      '/shops/{shop}/orders/{id}': get(path('shop'), path('id')),
      '/files/{file}': get(path('file', slashes)),
      '/orders': get(),
    });
    expect(said.tools.map(({ target }: { target?: string }) => target)).toEqual([
      'orders:{id}',
      'orders:{id}',
      'files:{file}',
      undefined,
    ]);
  });

  test('holds back nothing that an agent does today, and would hold back what is grave', () => {
    const { rules } = filesOf({
      '/orders': post({ type: 'object' }),
      '/tokens': post({ type: 'object' }),
      '/refunds': post({ type: 'object' }),
    });
    const byId = new Map<string, JsonObject>(rules.map((rule: { id: string }) => [rule.id, rule]));
    expect([...byId.keys()]).toEqual([
      'reads',
      'writes-medium',
      'writes-high',
      'writes-critical',
      'write-rate',
      'grave-writes',
    ]);
    expect(byId.get('writes-high')).toMatchObject({
      effect: 'allow',
      match: { agents: { id: ['shop-bot'] }, kinds: ['write'], tools: ['shop.post_tokens'] },
    });
    expect(byId.get('grave-writes')).toMatchObject({
      effect: 'require_approval',
      mode: 'shadow',
      match: { tools: ['shop.post_tokens', 'shop.post_refunds'] },
    });
  });

  test('lets an agent write though the document declares no write, and asks nobody about it', () => {
    const { rules } = filesOf({ '/orders': get() });
    expect(rules.map(({ id }: { id: string }) => id)).toEqual(['reads', 'writes', 'write-rate']);
    expect(rules[1]).toMatchObject({ effect: 'allow', match: { agents: { id: ['shop-bot'] }, kinds: ['write'] } });
  });

  test('proposes a probe where a read shows all that was put, and nothing that it could not compare', () => {
    const id = path('id');
    const proposed = (...names: readonly string[]) => {
      const properties = Object.fromEntries(names.map((name) => [name, { type: 'string' }]));
      const put = post({ type: 'object', required: names, properties }).post;
      return / {4}# probe: /.test(filesOf({ '/notes/{id}': { parameters: [id], ...get(), put } }).gateway);
    };
    const eight = Array.from({ length: 8 }, (_, n) => `m${n}`);
    expect([proposed(...eight), proposed(...eight, 'm8')]).toEqual([true, false]);
    expect([proposed('http_status'), proposed('text', 'idempotency_key'), proposed('a-b')]).toEqual([
      false,
      false,
      false,
    ]);
  });

  test('names the operations that are left out, up to two thousand', () => {
    const of = (count: number) => {
      const paths = Object.fromEntries(Array.from({ length: count }, (_, n) => [`/a b${n}`, get()]));
      return filesOf({ ...paths, '/ok': get() })
        .gateway.split('\n')
        .slice(-3, -1);
    };
    expect(of(2_000)[1]).toMatch(/^# {3}GET \/a b1999: /);
    expect(of(2_003)).toEqual([of(2_000)[1], '#   and 3 more']);
  });

  test.each([
    ['https://api.openai.com', [503]],
    ['https://api.anthropic.com', [503, 529]],
    ['https://api.shop.test', [503]],
  ])('knows of %s what says "not now"', (url, failed) => {
    const responses = { ...DONE, 503: { description: 'Overloaded' } };
    const op = { ...post({ type: 'object' }, { responses }), get: { responses } };
    const { said } = filesOf({ '/x': op }, [{ id: 'shop', url, base: '' }]);
    expect(said.tools.map(({ outcomes }: { outcomes?: object }) => outcomes)).toEqual([undefined, { failed }]);
  });

  test.each([
    ['https://api.stripe.com', 'stripe'],
    ['https://api.openai.com', 'openai'],
    ['https://api.anthropic.com', 'anthropic'],
    ['https://api.github.com', 'github'],
    ['https://slack.com', 'slack'],
    ['https://shop.test', undefined],
  ])('refuses at the route to %s in the form that its client libraries know', (url, format) => {
    const { gateway } = filesOf({ '/x': get() }, [{ id: 'shop', url, base: '' }]);
    expect(parse(gateway).routes[0].error_format).toBe(format);
  });

  test('says once how a credential is put on, and what compares it with a new document only where there is one', () => {
    const { gateway } = filesOf({ '/x': get() }, [SHOP, { id: 'files', url: 'https://files.shop.test', base: '' }]);
    expect(gateway.match(/# credentials: /g)).toHaveLength(1);
    expect(gateway).not.toContain('What a new version of the document changes');
    expect(parse(gateway).routes.map(({ rules }: { rules: readonly object[] }) => rules.length)).toEqual([1, 0]);
  });
});

describe('the files for an MCP server', () => {
  const program = (...command: readonly string[]): McpServer => ({ kind: 'program', command, env: ['PATH'] });
  const choices = (server: McpServer) => ({ ...HEAD, upstream: 'crm', server });
  const tools = [
    { name: 'get_note', annotations: { readOnlyHint: true } },
    { name: 'press_button', title: 'Press it', annotations: { destructiveHint: false } },
    { name: 'list_notes' },
    { name: 'delete_note' },
    { name: 'drop_table' },
  ].map((tool) => groupOf(JSON.parse(JSON.stringify(tool))));

  test.each([
    [['npx', '-y', 'server'], true],
    [['/usr/local/bin/uvx', 'server'], true],
    [['bunx', 'server'], true],
    [['pnpx', 'server'], true],
    [['node', 'npx'], false],
    [['my-npx'], false],
  ])('say of %j whether another version may come tomorrow', (command, isSaid) => {
    const text = mcpGatewayFile(choices(program(...command)), tools, [], 'schema');
    expect(text.includes('may be a newer one tomorrow')).toBe(isSaid);
    expect(parse(text).upstreams[0].mcp).toMatchObject({ command, env: ['PATH'], pins: './mcp/crm.lock.json' });
  });

  test('say how a key is put on where none was named, and where its variable has to be set', () => {
    const text = (credential: { header: string; variable: string } | null) =>
      mcpGatewayFile(choices({ kind: 'address', url: 'https://crm.test/mcp', credential }), tools, [], 'schema');
    expect(text(null)).toMatch(/# credentials: \{ header: authorization, file: "\.\/data\/mcp-credential" \}/);
    const named = text({ header: 'authorization', variable: 'CRM_KEY' });
    expect(named).toContain('The variable has to be set where the gateway is started');
    expect(named).not.toContain('mcp-credential');
  });

  test('say of each tool what it was taken for', () => {
    const text = mcpGatewayFile(choices(program('node')), tools, [{ name: 'a b', why: 'no name' }], 'schema');
    expect(parse(text).upstreams[0].mcp.tools).toEqual([
      { name: 'get_note', kind: 'read' },
      { name: 'press_button', risk: 'medium', repeat_window: '0s' },
      { name: 'list_notes', risk: 'low', is_error: 'failed' },
      { name: 'delete_note', risk: 'high' },
      { name: 'drop_table', risk: 'high' },
    ]);
    expect(text).toMatch(/# -- 1 that only reads: never held back as a repetition$/m);
    expect(text).toContain('#   a b: no name');
  });

  test('ask a person about what may destroy something, and say what the server calls a tool', () => {
    const text = mcpPolicyFile(choices(program('node')), tools, 'schema');
    const [reads, writes, destructive] = parse(text).rules;
    expect(reads).toMatchObject({ id: 'reads', effect: 'allow', match: { tools: ['crm.get_note'] } });
    expect(writes).toMatchObject({
      effect: 'allow',
      match: { agents: { id: ['shop-bot'] }, tools: ['crm.press_button', 'crm.list_notes'] },
    });
    expect(destructive).toMatchObject({
      effect: 'require_approval',
      match: { agents: { id: ['shop-bot'] }, tools: ['crm.delete_note', 'crm.drop_table'] },
      approval: { approvers: { roles: ['approver'] }, quorum: 1 },
    });
    expect(text).toContain('- "crm.press_button"   # Press it\n');
  });
});

describe('operations are chosen', () => {
  const paths = {
    '/orders': { get: { tags: ['b'], operationId: 'list', responses: DONE }, ...post({}, { tags: ['a', 'b', 'b'] }) },
    '/notes': get(),
  };
  const operations = operationsOf(documentOf({ servers: [{ url: 'https://api.shop.test/v1' }], paths }));
  const chosen = (include: readonly string[], exclude: readonly string[] = []) =>
    choose(operations, { include, exclude }).map(({ method, path }) => `${method} ${path}`);

  test.each([
    ['POST /v1/orders', ['POST /orders']],
    ['POST /orders', ['POST /orders']],
    ['/v1/orders', ['GET /orders', 'POST /orders']],
    ['/notes', ['GET /notes']],
    ['list', ['GET /orders']],
    ['tag:a', ['POST /orders']],
  ])('by %s', (pattern, found) => {
    expect(chosen([pattern])).toEqual(found);
    const all = ['GET /orders', 'POST /orders', 'GET /notes'];
    expect(chosen([], [pattern])).toEqual(all.filter((one) => !found.includes(one)));
  });

  test('by tags, of which the most frequent come first; what has none is counted as well', () => {
    expect(tagsOf(operations)).toEqual([
      { tag: 'b', count: 2 },
      { tag: 'a', count: 1 },
      { tag: '', count: 1 },
    ]);
  });

  test('and where a tag fits none, twenty that there are are named', () => {
    const many = (count: number) =>
      operationsOf(
        documentOf({
          paths: Object.fromEntries(
            Array.from({ length: count }, (_, n) => [`/p${n}`, { get: { tags: [`t${n}`], responses: DONE } }]),
          ),
        }),
      );
    const refusal = (count: number) => () => choose(many(count), { include: ['tag:none'], exclude: [] });
    expect(refusal(20)).toThrow(/fits no tag of the document; it has t0, .*, t19$/);
    expect(refusal(23)).toThrow(/, t19, and 3 more$/);
    expect(() => chosen(['nothing'])).toThrow(/^--include nothing fits no operation of the document\./);
  });
});

describe('upstreams of a document', () => {
  const elsewhere = (url: string, more: object = {}) => ({ servers: [{ url }], ...get(), ...more });

  test('are one for each host that an operation is sent to', () => {
    const paths = {
      '/a': get(),
      '/b': elsewhere('https://files.shop.test'),
      '/c': elsewhere('https://files.shop.test/v2'),
      '/d': elsewhere('https://files.other.test'),
      // What is left out needs none.
      '/a b': elsewhere('https://gone.shop.test'),
    };
    const document = documentOf({ servers: [{ url: 'https://api.shop.test' }], paths });
    const found = { document, name: 'api.json', faults: [] };
    const from = { origin: 'https://api.shop.test', found, operations: operationsOf(document) };
    const { draft, upstreams } = draftFrom({ include: [], exclude: [] }, from, 'shop', null);
    expect(upstreams).toEqual([
      { id: 'shop', url: 'https://api.shop.test', base: '' },
      { id: 'shop-files', url: 'https://files.shop.test', base: '' },
      { id: 'shop-files-2', url: 'https://files.other.test', base: '' },
    ]);
    expect(draft.tools.map(({ upstream }) => upstream)).toEqual(['shop', 'shop-files', 'shop-files', 'shop-files-2']);
    const given = draftFrom({ include: [], exclude: [], upstream: 'http://127.0.0.1:9' }, from, 'shop', null);
    expect(new Set(given.draft.tools.map(({ upstream }) => upstream))).toEqual(new Set(['shop']));
    // Nothing here has a tag, and that can be chosen, too.
    const tagged = (tag: string) => draftFrom({ include: [], exclude: [] }, from, 'shop', [tag]).draft.tools.length;
    expect([tagged(''), tagged('a')]).toEqual([4, 0]);
  });
});

describe('a document', () => {
  const folder = mkdtempSync(join(tmpdir(), 'svc-drafts-'));
  afterAll(() => rmSync(folder, { recursive: true }));
  const OK = { openapi: '3.0.3', info: { title: 'T', version: '1' }, paths: { '/x': get() } };
  const written = (text: string | Buffer, name = 'api.json'): string => {
    writeFileSync(join(folder, name), text);
    return join(folder, name);
  };
  const read = (root: object) => readDocument(written(JSON.stringify(root)));

  test('with a mark of its encoding before it is read', async () => {
    expect((await readDocument(written(`\uFEFF${JSON.stringify(OK)}`))).faults).toEqual([]);
  });

  test('that is no UTF-8 is refused, not guessed', async () => {
    await expect(readDocument(written(Buffer.from([0x7b, 0xff, 0x7d])))).rejects.toThrow('is not UTF-8 text');
  });

  test('in YAML may begin as JSON does', async () => {
    const { document } = await readDocument(
      written("{openapi: 3.0.3, info: {title: T, version: '1'}, paths: {}}", 'a.yaml'),
    );
    expect(document.root['openapi']).toBe('3.0.3');
  });

  test.each(['3.3.0', '4.0.0', '1.2'])('of version %s is not read', async (openapi) => {
    await expect(read({ ...OK, openapi })).rejects.toThrow(new RegExp(`version ${openapi} is not read; OpenAPI 3\\.0`));
  });

  test('without operations is of no use', async () => {
    const openapi = written(JSON.stringify({ ...OK, paths: {} }));
    const upstream = 'http://127.0.0.1:9';
    const rest = { include: [], exclude: [], dir: folder, env: [], header: 'authorization' };
    await expect(sourceOf({ ...rest, upstream, openapi })).rejects.toThrow('has no operations under its paths');
  });

  test('is followed to files beside it: to no other host, and not from what is an extension of somebody', async () => {
    written('type: integer', 'kept.yaml');
    const properties = {
      a: { $ref: 'kept.yaml' },
      b: { $ref: 'https://schemas.test/b.yaml' },
      c: { $ref: 'file://schemas.test/c.yaml' },
    };
    const { document, faults } = await read({
      ...OK,
      components: { schemas: { It: { type: 'object', properties } } },
      'x-more': { $ref: 'extension.yaml' },
    });
    expect([...document.others.values()]).toEqual([{ type: 'integer' }]);
    expect(faults.toSorted()).toEqual([
      'file://schemas.test/c.yaml: references to another origin are not followed',
      'https://schemas.test/b.yaml: references to another origin are not followed',
    ]);
  });

  test('against the specification has the deepest of its faults named, not all that comes of them', async () => {
    const content = { 'application/json': { schema: { type: 'odd' } } };
    const { faults } = await read({
      ...OK,
      paths: { '/x': { get: { responses: { 200: { description: 'd', content } } } } },
    });
    expect(faults).toEqual([
      expect.stringMatching(/api\.json:1:\d+: type must be equal to one of the allowed values$/),
    ]);
  });

  /** An API that answers these paths so. */
  async function api(answers: Readonly<Record<string, readonly [status: number, body: string]>>) {
    const asked: string[] = [];
    const server = createServer(({ url = '' }, response) => {
      asked.push(url);
      const [status, body] = answers[url] ?? [404, ''];
      response.writeHead(status, status === 302 ? { location: body } : {}).end(body);
    });
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    onTestFinished(() => {
      server.closeAllConnections();
      server.close();
    });
    return { origin: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, asked };
  }

  test('that an address does not have is told by its status', async () => {
    const { origin } = await api({});
    await expect(readDocument(`${origin}/api.json`)).rejects.toThrow(`${origin}/api.json answers 404`);
  });

  test('is looked for where APIs have theirs: a page, another document and a redirect are none', async () => {
    const { origin, asked } = await api({
      '/openapi.json': [302, '/elsewhere'],
      '/elsewhere': [200, JSON.stringify(OK)],
      '/openapi.yaml': [200, 'name: another kind'],
      '/v3/api-docs': [200, '<!doctype html>'],
      '/swagger.json': [200, JSON.stringify({ ...OK, info: { title: 'Here', version: '1' } })],
    });
    expect((await findDocument(origin))?.name).toBe(`${origin}/swagger.json`);
    expect(asked).not.toContain('/elsewhere');
    expect(asked).not.toContain('/api/openapi.json');
  });

  test('that is broken where documents are is said to be; elsewhere it may be another thing', async () => {
    const broken = await api({ '/openapi.json': [200, '{"openapi": '] });
    await expect(findDocument(broken.origin)).rejects.toThrow('it is not JSON');
    const other = await api({ '/api-docs': [200, '{"openapi": '] });
    expect(await findDocument(other.origin)).toBeNull();
  });
});
