import { execFileSync } from 'node:child_process';
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { autocompleteMultiselect } from '@clack/prompts';
import { afterAll, afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { stringify } from 'yaml';
import { loadConfiguration } from '../../src/config/load.ts';
import { judgeProbe } from '../../src/effects/checks/judge-probe.ts';
import type { Json } from '../../src/json/value.ts';
import { type Ran, svc, svcAtTerminal } from './run.ts';
import { httpCall } from '../config/http-call.ts';

// There is no terminal here: what a person chooses is given.
vi.mock('@clack/prompts', async (actual) => ({ ...(await actual()), autocompleteMultiselect: vi.fn() }));

const home = process.cwd();
const folders: string[] = [];

beforeEach(() => {
  const folder = mkdtempSync(join(tmpdir(), 'svc-init-'));
  folders.push(folder);
  process.chdir(folder);
});
afterEach(() => process.chdir(home));
afterAll(() => {
  for (const folder of folders) rmSync(folder, { recursive: true, force: true });
});

const DONE = { 200: { description: 'Done' } };

/** A document with these paths and schemas. */
function documentOf(paths: object, schemas: object = {}, more: object = {}): object {
  return {
    openapi: '3.0.3',
    info: { title: 'Shop', version: '1' },
    servers: [{ url: 'https://api.shop.example/v1' }],
    paths,
    components: { schemas },
    ...more,
  };
}

function post(schema: object, more: object = {}): object {
  return { requestBody: { required: true, content: { 'application/json': { schema } } }, responses: DONE, ...more };
}

async function init(document: object | string, ...more: readonly string[]): Promise<Ran> {
  const isText = typeof document === 'string';
  writeFileSync('api.json', isText ? document : JSON.stringify(document));
  return svc('init', '--openapi', 'api.json', '--yes', ...more);
}

/** The tools that were written; the files hold without a finding. */
async function toolsOf(document: object, ...more: readonly string[]) {
  const { code, err } = await init(document, ...more);
  expect([code, err]).toEqual([0, '']);
  expect(JSON.parse((await svc('config', 'check', 'gateway.yaml', '--json')).out)).toEqual({ findings: [] });
  return (await loadConfiguration('gateway.yaml')).configuration.tools;
}

/** Runs the command that a file names to see what a new version of its document changes. */
function compared(file: string): Promise<Ran> {
  const [, words = ''] = /changes: .*?(init --openapi .*)$/m.exec(readFileSync(file, 'utf8')) ?? [];
  // As a shell takes it apart.
  return svc(
    ...execFileSync('sh', ['-c', `printf '%s\\0' ${words}`], { encoding: 'utf8' })
      .split('\0')
      .slice(0, -1),
  );
}

/** The schema that is written for a body of one member. */
async function written(schema: object, schemas: object = {}): Promise<Json | undefined> {
  const body = { type: 'object', properties: { it: schema } };
  const [tool] = await toolsOf(documentOf({ '/x': { post: post(body) } }, schemas), '--force');
  const properties: Json | undefined = tool?.paramsSchema?.['properties'];
  return typeof properties === 'object' && properties !== null && 'it' in properties ? properties.it : undefined;
}

describe('a schema says what the document says', () => {
  test.each([
    ['ranges', { type: 'integer', minimum: 1, maximum: 9 }, { type: 'integer', minimum: 1, maximum: 9 }],
    [
      'bounds that are flags in version 3.0',
      { type: 'number', minimum: 0, exclusiveMinimum: true },
      { type: 'number', exclusiveMinimum: 0 },
    ],
    ['null', { type: 'string', enum: ['a'], nullable: true }, { type: ['string', 'null'], enum: ['a', null] }],
    [
      'formats and lengths',
      { type: 'string', format: 'uuid', maxLength: 36 },
      { type: 'string', maxLength: 36, format: 'uuid' },
    ],
    ['a format that nobody knows', { type: 'string', format: 'phone' }, { type: 'string' }],
    ['a bound that no file can hold', { type: 'integer', maximum: 2 ** 63 }, { type: 'integer' }],
    ['a pattern', { type: 'string', pattern: '^[a-z]+$' }, { type: 'string', pattern: '^[a-z]+$' }],
    ['a pattern that does not match in linear time', { type: 'string', pattern: '(a)\\1(?=b)' }, { type: 'string' }],
    ['values of another type', { type: 'integer', enum: ['a'] }, { type: 'integer' }],
    ['values of which some have another type', { type: 'integer', enum: [1, 'a'] }, { type: 'integer' }],
    [
      'what only answers have',
      { type: 'object', required: ['id', 'a'], properties: { id: { type: 'string', readOnly: true }, a: {} } },
      { type: 'object', properties: { id: { type: 'string' }, a: {} }, required: ['a'] },
    ],
    [
      'one of',
      { oneOf: [{ type: 'string' }, { type: 'integer' }] },
      { anyOf: [{ type: 'string' }, { type: 'integer' }] },
    ],
    [
      'lists',
      { type: 'array', items: { type: 'string' }, maxItems: 3 },
      { type: 'array', maxItems: 3, items: { type: 'string' } },
    ],
    [
      'text that looks like a reference',
      { type: 'string', enum: ['${HOME}', '$${X}'] },
      { type: 'string', enum: ['${HOME}', '$${X}'] },
    ],
  ])('%s', async (_what, schema, expected) => {
    expect(await written(schema)).toEqual(expected);
  });

  test('each keyword and each format that can be checked, and none whose value is none', async () => {
    const texts = ['date', 'date-time', 'email', 'hostname', 'ipv4', 'ipv6', 'uri', 'uuid'];
    const lists = { type: 'array', items: { type: 'string' } };
    const said = {
      ...Object.fromEntries(texts.map((format) => [format, { type: 'string', format }])),
      minLength: { type: 'string', minLength: 2 },
      maxLength: { type: 'string', maxLength: 5 },
      minItems: { ...lists, minItems: 1 },
      maxItems: { ...lists, maxItems: 3 },
      uniqueItems: { ...lists, uniqueItems: true },
      minProperties: { type: 'object', minProperties: 1 },
      maxProperties: { type: 'object', maxProperties: 9 },
      minimum: { type: 'integer', minimum: 1 },
      maximum: { type: 'integer', maximum: 9 },
      exclusiveMinimum: { type: 'integer', exclusiveMinimum: 0 },
      exclusiveMaximum: { type: 'integer', exclusiveMaximum: 10 },
      multipleOf: { type: 'number', multipleOf: 0.5 },
      const: { type: 'string', enum: ['a'] },
    };
    const none = { multipleOf: 0, minimum: '1', maxLength: -1, minItems: 1.5, uniqueItems: false };
    const properties = { ...said, const: { type: 'string', const: 'a' }, none };
    const paths = { '/x': { post: post({ type: 'object', properties }) } };
    const [tool] = await toolsOf(documentOf(paths, {}, { openapi: '3.1.0' }));
    expect(tool?.paramsSchema).toEqual({ type: 'object', properties: { ...said, none: {} } });
  });

  test('schemas that hold themselves end', async () => {
    const Node = {
      type: 'object',
      properties: { next: { $ref: '#/components/schemas/Node' }, at: { type: 'integer' } },
    };
    const [tool] = await toolsOf(documentOf({ '/x': { post: post({ $ref: '#/components/schemas/Node' }) } }, { Node }));
    expect(tool?.paramsSchema).toEqual({
      type: 'object',
      properties: { next: { $ref: '#/$defs/Node' }, at: { type: 'integer' } },
      $defs: { Node: { type: 'object', properties: { next: { $ref: '#/$defs/Node' }, at: { type: 'integer' } } } },
    });
  });

  test('a body that is put together of parts has the members of all', async () => {
    const body = {
      allOf: [
        { type: 'object', required: ['a'], properties: { a: { type: 'string' } }, additionalProperties: false },
        { anyOf: [{ required: ['b'] }, { required: ['c'] }], properties: { b: {}, c: {} } },
      ],
    };
    const [tool] = await toolsOf(documentOf({ '/x': { post: post(body) } }));
    expect(tool?.paramsSchema).toEqual({
      type: 'object',
      required: ['a'],
      properties: { a: { type: 'string' }, b: {}, c: {} },
      anyOf: [
        { required: ['b'], properties: { b: {} } },
        { required: ['c'], properties: { c: {} } },
      ],
    });
  });

  test('a member that forms of a body have each in its own way takes any of these', async () => {
    const forms = [{ type: 'string' }, { type: 'string' }, { type: 'integer' }].map((to) => ({
      type: 'object',
      properties: { to },
    }));
    const [tool] = await toolsOf(documentOf({ '/x': { post: post({ type: 'object', oneOf: forms }) } }));
    expect(tool?.paramsSchema).toMatchObject({
      properties: { to: { anyOf: [{ type: 'string' }, { type: 'integer' }] } },
    });
  });

  test('a schema of any size is written as far as there is room, the nearest first', async () => {
    const wide = (level: number): object => ({
      type: 'object',
      properties: Object.fromEntries(
        Array.from({ length: 8 }, (_, index) => [`m${index}`, level === 0 ? { type: 'string' } : wide(level - 1)]),
      ),
    });
    const [tool] = await toolsOf(documentOf({ '/x': { post: post(wide(5)) } }));
    expect(JSON.stringify(tool?.paramsSchema).length).toBeLessThan(60_000);
    expect(readFileSync('gateway.yaml', 'utf8')).toContain('# the schema goes deeper in the document');
  });
});

describe('params beside the body', () => {
  test('stand where the document has them, as texts that are read as what they are', async () => {
    const parameters = [
      { name: 'X-Tenant', in: 'header', required: true, schema: { type: 'string' } },
      { name: 'x-tenant', in: 'header', schema: { type: 'integer' } },
      { name: 'Accept', in: 'header', schema: { type: 'string' } },
      { name: 'Idempotency-Key', in: 'header', schema: { type: 'string' } },
      { name: 'session', in: 'cookie', schema: { type: 'string' } },
      { name: 'limit', in: 'query', schema: { type: 'integer', nullable: true, maximum: 100 } },
      { name: 'ids', in: 'query', schema: { type: 'array', items: { type: 'integer' } } },
      {
        name: 'created',
        in: 'query',
        style: 'deepObject',
        schema: { anyOf: [{ type: 'object', properties: { gte: { type: 'integer' } } }, { type: 'integer' }] },
      },
      { name: 'id', in: 'path', required: true, schema: { $ref: '#/components/schemas/Id' } },
    ];
    const [tool] = await toolsOf(
      documentOf({ '/x/{id}': { get: { parameters, responses: DONE } } }, { Id: { type: 'integer', minimum: 1 } }),
    );
    expect(httpCall(tool).request).toMatchObject({
      path: '/v1/x/{id}',
      query: ['limit', 'ids', 'created'],
      queryStyles: { ids: 'repeat', created: 'indices' },
      headers: { x_tenant: 'x-tenant' },
    });
    expect(tool?.paramsSchema).toEqual({
      type: 'object',
      required: ['id', 'x_tenant'],
      properties: {
        id: { type: 'integer', minimum: 1 },
        limit: { type: 'integer', maximum: 100 },
        ids: { type: 'array', items: { type: 'integer' } },
        created: { anyOf: [{ type: 'object', properties: { gte: { type: 'integer' } } }, { type: 'integer' }] },
        x_tenant: { type: 'string' },
      },
    });
    const said = readFileSync('gateway.yaml', 'utf8');
    expect(said).toContain('# the cookie session of the document is no param');
    expect(said).toContain('# the API takes an Idempotency-Key');
  });

  const words = { type: 'array', items: { type: 'string' } };
  const written: readonly (readonly [string, object, object, object])[] = [
    ['form', { schema: words }, { p: 'repeat' }, { p: words }],
    ['form, not exploded', { schema: words, explode: false }, { p: 'comma' }, { p: words }],
    ['spaceDelimited', { schema: words, style: 'spaceDelimited' }, { p: 'space' }, { p: words }],
    ['pipeDelimited', { schema: words, style: 'pipeDelimited', explode: false }, { p: 'pipe' }, { p: words }],
    ['deepObject of a list', { schema: words, style: 'deepObject', explode: true }, { p: 'indices' }, { p: words }],
    [
      'deepObject of anything',
      { schema: { type: 'object' }, style: 'deepObject' },
      { p: 'indices' },
      { p: { type: 'object' } },
    ],
    ['brackets in the name', { name: 'p[]', schema: words }, { p: 'brackets' }, { p: words }],
    [
      'a list that may be null',
      { schema: { ...words, nullable: true }, explode: false },
      { p: 'comma' },
      { p: { ...words, type: ['array', 'null'] } },
    ],
    [
      'members by their own names',
      { schema: { type: 'object', properties: { a: { type: 'integer' }, b: words } } },
      { b: 'repeat' },
      { a: { type: 'integer' }, b: words },
    ],
    ['a list of objects', { schema: { type: 'array', items: { type: 'object' } } }, {}, { p: { type: 'string' } }],
    ['JSON', { content: { 'application/json': { schema: words } } }, {}, { p: { type: 'string' } }],
  ];
  test.each(written)('of the query: %s', async (_what, param, styles, properties) => {
    const parameters = [{ name: 'p', in: 'query', ...param }];
    const [tool] = await toolsOf(documentOf({ '/x': { get: { parameters, responses: DONE } } }));
    expect(httpCall(tool).request.queryStyles ?? {}).toEqual(styles);
    expect(tool?.paramsSchema?.['properties']).toEqual(properties);
  });

  test.each([
    ['multi', 'repeat'],
    ['csv', 'comma'],
    [undefined, 'comma'],
    ['ssv', 'space'],
    ['pipes', 'pipe'],
    ['tsv', undefined],
  ])('of the query in Swagger 2.0: %s', async (collectionFormat, style) => {
    const parameters = [{ name: 'p', in: 'query', type: 'array', items: { type: 'string' }, collectionFormat }];
    const paths = { '/x': { get: { parameters, responses: { 200: { description: 'Done' } } } } };
    const [tool] = await toolsOf({
      swagger: '2.0',
      info: { title: 'T', version: '1' },
      host: 'api.example.com',
      paths,
    });
    expect(httpCall(tool).request.queryStyles?.['p']).toBe(style);
  });

  test('a param of the path that has the name of a member is called otherwise', async () => {
    const parameters = [{ name: 'name', in: 'path', required: true, schema: { type: 'string' } }];
    const body = { type: 'object', properties: { name: { type: 'string' } } };
    const [tool] = await toolsOf(documentOf({ '/x/{name}': { put: post(body, { parameters }) } }));
    expect(httpCall(tool).request.path).toBe('/v1/x/{path_name}');
  });

  test('params that hold slashes, as GitHub, GitLab, Kubernetes, gateways and OpenAPI 3.2 write them', async () => {
    const of = (path: string, ...more: Record<string, unknown>[]): Record<string, unknown> => {
      const names = [...path.matchAll(/\{([^{}]+)\}/g)].map(([, name]) => name);
      const parameters = names.map((name, at) => ({
        name,
        in: 'path',
        required: true,
        schema: { type: 'string' },
        ...more[at],
      }));
      return { [path]: { get: { parameters, responses: DONE } } };
    };
    const tools = await toolsOf(
      documentOf({
        ...of('/contents/{path}', { 'x-multi-segment': true }),
        ...of('/contents/readme'),
        ...of(
          '/projects/{id}/files/{file}/raw',
          { description: 'The ID or URL-encoded path of the project' },
          { description: 'The url encoded path' },
        ),
        ...of('/pods/{name}/proxy/{path}', {}, { description: 'path to the resource' }),
        ...of('/functions/{proxy+}'),
        ...of('/pages/{page}', { allowReserved: true }),
        ...of('/users/{id}', { description: 'Its path' }),
      }),
    );
    const found = tools.map((tool) => httpCall(tool).request);
    expect(found.map(({ path, encodedSlashes = [] }) => [path, ...encodedSlashes])).toEqual([
      ['/v1/contents/{+path}'],
      ['/v1/contents/readme'],
      ['/v1/projects/{id}/files/{file}/raw', 'id', 'file'],
      ['/v1/pods/{name}/proxy/{+path}'],
      ['/v1/functions/{+proxy}'],
      ['/v1/pages/{+page}'],
      ['/v1/users/{id}'],
    ]);
    expect(tools[0]?.paramsSchema).toMatchObject({ properties: { path: { not: { enum: ['readme'] } } } });
  });

  test('segments with a literal part are params with a pattern', async () => {
    const parameters = ['a', 'b'].map((name) => ({ name, in: 'path', required: true, schema: { type: 'string' } }));
    const [tool] = await toolsOf(documentOf({ '/compare/{a}...{b}': { get: { parameters, responses: DONE } } }));
    expect(httpCall(tool).request.path).toBe('/v1/compare/{a_b}');
    expect(tool?.paramsSchema?.['properties']).toEqual({ a_b: { type: 'string', pattern: '^.+\\.\\.\\..+$' } });
  });
});

describe('bodies', () => {
  const schema = { type: 'object', properties: { a: { type: 'array', items: { type: 'string' } } } };
  const bodies: readonly (readonly [string, object, object | string])[] = [
    [
      'a form',
      { 'application/x-www-form-urlencoded': { schema } },
      { body: '*', bodyType: 'form', formLists: 'repeat' },
    ],
    [
      'a form with nested names',
      { 'application/x-www-form-urlencoded': { schema, encoding: { a: { style: 'deepObject', explode: true } } } },
      { body: '*', bodyType: 'form', formLists: 'indices' },
    ],
    [
      'JSON before forms',
      { 'application/x-www-form-urlencoded': { schema }, 'application/json': { schema } },
      { body: '*' },
    ],
    ['files', { 'multipart/form-data': { schema } }, { body: '*', bodyType: 'multipart', formLists: 'repeat' }],
    ['bytes', { 'application/octet-stream': {} }, { body: [], bodyAs: 'body', bodyType: 'opaque' }],
    [
      'an image',
      { 'image/png': { schema: { type: 'string', format: 'binary' } } },
      { bodyAs: 'body', bodyType: 'opaque' },
    ],
    ['a list', { 'application/json': { schema: { type: 'array', items: {} } } }, { body: [], bodyAs: 'body' }],
    ['parts with an order', { 'multipart/related': { schema } }, 'multipart/related'],
  ];
  test.each(bodies)('%s', async (_what, content, expected) => {
    const document = documentOf({ '/x': { post: { requestBody: { content }, responses: DONE } } });
    const [tool] = await toolsOf(document);
    if (typeof expected === 'object') expect(httpCall(tool).request).toMatchObject(expected);
    else expect(readFileSync('gateway.yaml', 'utf8')).toContain(`#   POST /v1/x: its body is ${expected}`);
  });
});

test('files among the fields are params that hold what is known of them', async () => {
  const properties = {
    file: { type: 'string', format: 'binary' },
    newer: { contentMediaType: 'image/png' },
    images: { type: 'array', items: { type: 'string', format: 'binary' } },
    either: { anyOf: [{ type: 'string' }, { type: 'string', format: 'binary' }] },
    purpose: { type: 'string', enum: ['a', 'b'] },
    n: { type: 'integer' },
    about: { type: 'object', properties: { a: { type: 'string' } } },
  };
  const content = { 'multipart/form-data': { schema: { type: 'object', required: ['file'], properties } } };
  const paths = { '/x': { post: { requestBody: { required: true, content }, responses: DONE } } };
  const [tool] = await toolsOf(documentOf(paths, {}, { openapi: '3.1.0' }));
  expect(tool?.paramsSchema).toMatchObject({
    required: ['file'],
    properties: {
      file: { type: 'object' },
      newer: { type: 'object' },
      images: { type: 'array', items: { type: 'object' } },
      either: {},
      purpose: { enum: ['a', 'b'] },
      n: { type: 'integer' },
      about: {},
    },
  });
});

test('the files of version 2 are fields of formData', async () => {
  const document = {
    swagger: '2.0',
    info: { title: 'x', version: '1' },
    host: 'h.example',
    consumes: ['multipart/form-data'],
    paths: {
      '/x': {
        post: {
          parameters: [
            { name: 'file', in: 'formData', type: 'file', required: true },
            { name: 'n', in: 'formData', type: 'integer' },
          ],
          responses: DONE,
        },
      },
    },
  };
  const [tool] = await toolsOf(document);
  expect(tool).toMatchObject({
    call: { request: { body: '*', bodyType: 'multipart' } },
    paramsSchema: { required: ['file'], properties: { file: { type: 'object' }, n: { type: 'integer' } } },
  });
});

describe('where the API is', () => {
  const paths = { '/x': { get: { responses: DONE } } };
  test.each([
    [
      'a server with variables',
      [{ url: 'https://{host}/{base}', variables: { host: { default: 'h.example' }, base: { default: 'v2' } } }],
      'https://h.example',
      '/v2/x',
    ],
    ['a server with a path', [{ url: 'http://h.example:81/a/b/' }], 'http://h.example:81', '/a/b/x'],
  ])('%s', async (_what, servers, url, path) => {
    const [tool] = await toolsOf(documentOf(paths, {}, { servers }));
    const { configuration } = await loadConfiguration('gateway.yaml');
    expect([configuration.upstreams[0]?.url, httpCall(tool).request.path]).toEqual([url, path]);
  });

  test('a relative server needs --upstream', async () => {
    const document = documentOf(paths, {}, { servers: [{ url: '/api' }] });
    const { code, err } = await init(document);
    expect([code, err]).toEqual([2, 'svc: api.json does not name a server; say where the API is with --upstream']);
    const [tool] = await toolsOf(document, '--upstream', 'http://127.0.0.1:9');
    expect(httpCall(tool).request.path).toBe('/api/x');
  });

  test('operations of another host have an upstream of their own', async () => {
    const servers = [{ url: 'https://files.shop.example' }];
    const tools = await toolsOf(documentOf({ ...paths, '/y': { servers, get: { responses: DONE } } }));
    expect(tools.map(({ name, upstream }) => [name, upstream])).toEqual([
      ['shop.get_x', 'shop'],
      ['shop-files.get_y', 'shop-files'],
    ]);
    const { configuration } = await loadConfiguration('gateway.yaml');
    expect(configuration.upstreams.map(({ url }) => url)).toEqual([
      'https://api.shop.example',
      'https://files.shop.example',
    ]);
    expect(configuration.routes.map(({ prefix }) => prefix)).toEqual(['/shop', '/shop-files']);
  });

  test('the base URL for the agent has the path of the server, as the one that its client had before', async () => {
    const servers = [{ url: 'https://files.shop.example/raw/' }];
    const { out } = await init(documentOf({ ...paths, '/y': { servers, get: { responses: DONE } } }));
    expect(out.match(/http:\S+/g)).toEqual(['http://127.0.0.1:8080/shop/v1', 'http://127.0.0.1:8080/shop-files/raw']);
    const written = readFileSync('gateway.yaml', 'utf8').match(/\{gateway\}\S+/g);
    expect(written).toEqual(['{gateway}/shop/v1', '{gateway}/shop-files/raw']);
  });

  test('Swagger 2.0 in YAML, with a body, an aliased part and a file of its own for schemas', async () => {
    mkdirSync('schemas');
    writeFileSync(
      'schemas/order.yaml',
      'Order: { type: object, required: [sku], properties: { sku: { $ref: "#/Sku" } } }\nSku: { type: string, maxLength: 9 }\n',
    );
    writeFileSync(
      'api.yaml',
      stringify({
        swagger: 2,
        info: { title: 'Shop', version: '1' },
        host: 'shop.example',
        basePath: '/b',
        schemes: ['http', 'https'],
        paths: {
          '/orders': {
            post: {
              parameters: [
                { name: 'order', in: 'body', required: true, schema: { $ref: 'schemas/order.yaml#/Order' } },
              ],
              responses: DONE,
            },
          },
        },
      }),
    );
    expect((await svc('init', '--openapi', 'api.yaml', '--yes')).err).toBe('');
    const { configuration } = await loadConfiguration('gateway.yaml');
    const [tool] = configuration.tools;
    expect(configuration.upstreams[0]?.url).toBe('https://shop.example');
    expect(httpCall(tool).request).toMatchObject({ path: '/b/orders', body: '*' });
    expect(tool?.paramsSchema).toEqual({
      type: 'object',
      required: ['sku'],
      properties: { sku: { type: 'string', maxLength: 9 } },
    });
  });
});

test.each([
  ['https://api.github.com', 'github'],
  ['https://api.stripe.com', 'stripe'],
  ['https://slack.com', 'slack'],
  ['http://127.0.0.1:9090', 'problem'],
])('refusals before %s have the form of its client libraries: %s', async (origin, format) => {
  await toolsOf(documentOf({ '/x': { get: { responses: DONE } } }), '--upstream', origin);
  const [route] = (await loadConfiguration('gateway.yaml')).configuration.routes;
  expect(route).toMatchObject({
    errorFormat: format,
    pendingStatus: 409,
    finalStatus: format === 'github' ? 422 : null,
  });
});

test('what says "not now" is declared for writes: documented, or known of the API', async () => {
  const waits = { description: 'Unavailable', headers: { 'Retry-After': { schema: { type: 'integer' } } } };
  const paths = {
    '/waits': {
      post: post({ type: 'object' }, { responses: { ...DONE, 503: waits } }),
      get: { responses: { 503: waits } },
    },
    '/busy': {
      post: post({ type: 'object' }, { responses: { 503: { description: 'Overloaded' }, 529: { description: '?' } } }),
    },
    '/breaks': { post: post({ type: 'object' }, { responses: { 503: { description: 'Service unavailable' } } }) },
  };
  const failedOf = async (origin: string): Promise<Record<string, readonly number[]>> => {
    await toolsOf(documentOf(paths), '--upstream', origin, '--force');
    const { tools } = (await loadConfiguration('gateway.yaml')).configuration;
    return Object.fromEntries(
      tools.map((tool) => [`${tool.kind} ${httpCall(tool).request.path}`, httpCall(tool).outcomes.failed]),
    );
  };
  const documented = { 'read /v1/waits': [], 'write /v1/waits': [503], 'write /v1/busy': [503, 529] };
  expect(await failedOf('http://127.0.0.1:9090')).toEqual({ ...documented, 'write /v1/breaks': [] });
  expect(await failedOf('https://api.openai.com')).toEqual({ ...documented, 'write /v1/breaks': [503] });
});

describe('what is chosen', () => {
  const paths = Object.fromEntries(
    ['refunds', 'orders', 'zebras'].flatMap((noun) => [
      [
        `/${noun}`,
        {
          get: { tags: [noun], responses: DONE },
          post: post({ type: 'object' }, { tags: [noun], operationId: `make_${noun}` }),
        },
      ],
    ]),
  );
  test.each([
    [
      ['--include', 'POST /v1/**'],
      ['make_orders', 'make_refunds', 'make_zebras'],
    ],
    [
      ['--include', 'tag:zebras'],
      ['get_zebras', 'make_zebras'],
    ],
    [['--include', '/ref*', '--exclude', 'GET **'], ['make_refunds']],
    [['--exclude', 'make_*', '--exclude', 'tag:{orders,refunds}'], ['get_zebras']],
  ])('%s', async (options, names) => {
    const tools = await toolsOf(documentOf(paths), ...options);
    expect(tools.map(({ name }) => name.replace('shop.', '')).toSorted()).toEqual(names);
    expect(await compared('gateway.yaml')).toMatchObject({ code: 0, out: 'api.json changes nothing in gateway.yaml.' });
  });

  test('the command that compares later names the folder and the address as well', async () => {
    const folder = join('of the', 'shop');
    const { code, err } = await init(documentOf(paths), '--dir', folder, '--upstream', 'https://b.test');
    expect([code, err]).toEqual([0, '']);
    const file = join(folder, 'gateway.yaml');
    expect(await compared(file)).toMatchObject({ code: 0, out: `api.json changes nothing in ${file}.` });
  });

  test.each([
    [['--include', 'POST /v9/**'], /fits no operation/],
    [['--exclude', 'tag:zebra'], /fits no tag of the document; it has refunds, orders, zebras/],
    [['--include', '{'], /braces/],
  ])('%s is refused', async (options, words) => {
    const { code, err } = await init(documentOf(paths), ...options);
    expect(err).toMatch(words);
    expect(code).toBe(2);
  });

  test('by tag at a terminal, beyond sixty operations; the command that compares later names the same', async () => {
    const many = Object.fromEntries(
      Array.from({ length: 61 }, (_, index) => [
        `/z${index}`,
        { get: { tags: index === 2 ? [] : [index < 2 ? 'few' : 'many'], responses: DONE } },
      ]),
    );
    writeFileSync('api.json', JSON.stringify(documentOf(many)));
    const asked = vi.mocked(autocompleteMultiselect).mockResolvedValue(['few']);
    const ran = await svcAtTerminal('init', '--openapi', 'api.json', '--agent', 'bot');
    expect([ran.code, ran.err]).toEqual([0, '']);
    expect(asked.mock.calls.map(([{ options }]) => options)).toEqual([
      [
        { value: 'many', label: 'many (58)' },
        { value: 'few', label: 'few (2)' },
        { value: '', label: 'without a tag (1)' },
      ],
    ]);
    expect(ran.out).toContain('2 tools from api.json, 59 not chosen');
    expect((await loadConfiguration('gateway.yaml')).configuration.tools).toHaveLength(2);
    expect(readFileSync('gateway.yaml', 'utf8')).toContain('--include tag:few');
    vi.mocked(autocompleteMultiselect).mockResolvedValue(['few', 'many', '']);
    const all = await svcAtTerminal('init', '--openapi', 'api.json', '--agent', 'bot', '--force');
    expect(all.out).toContain('61 tools from api.json.');
    // What the document gets later is then chosen, too.
    expect(readFileSync('gateway.yaml', 'utf8')).not.toContain('--include');
  });

  test('as JSON, what was left out stands there with its reason, and what is wrong with the document', async () => {
    const odd = documentOf({ '/a b': { get: { responses: DONE } }, '/x': { get: { responses: { 200: {} } } } });
    const { code, out } = await init(odd, '--json');
    expect([code, JSON.parse(out)]).toMatchObject([
      0,
      {
        files: { gateway: 'gateway.yaml', policy: 'policies/first.yaml' },
        openapi: 'api.json',
        tools: 1,
        skipped: ['GET /v1/a b: a segment that is neither literal nor made of params'],
        faults: [
          expect.stringMatching(/^api\.json:1:\d+: 200 must have required property/),
          expect.anything(),
          expect.anything(),
        ],
        findings: [],
      },
    ]);
  });

  test('no number of operations is cut', async () => {
    const many = Object.fromEntries(
      Array.from({ length: 700 }, (_, index) => [`/z${700 - index}`, { get: { responses: DONE } }]),
    );
    expect(await toolsOf(documentOf(many))).toHaveLength(700);
  });
});

test('writes are grouped by what is at stake, and policy names each', async () => {
  await toolsOf(
    documentOf({
      '/refunds': { post: post({ type: 'object' }) },
      // Its path says nothing, its id does.
      '/batches': { post: post({ type: 'object' }, { operationId: 'purgeBatches' }) },
      '/orders/search': { post: post({ type: 'object' }) },
      '/orders': { get: { responses: DONE }, post: post({ type: 'object' }) },
      '/orders/{id}': {
        delete: { parameters: [{ name: 'id', in: 'path', required: true, schema: {} }], responses: DONE },
      },
    }),
  );
  const { configuration } = await loadConfiguration('gateway.yaml');
  expect(configuration.tools.map(({ name, risk }) => [name, risk])).toEqual([
    ['shop.get_orders', null],
    ['shop.post_orders_search', 'low'],
    ['shop.post_orders', 'medium'],
    ['shop.purge_batches', 'high'],
    ['shop.delete_orders', 'high'],
    ['shop.post_refunds', 'critical'],
  ]);
  const policy = readFileSync(join('policies', 'first.yaml'), 'utf8');
  for (const { name, kind } of configuration.tools) expect(policy.includes(`- "${name}"`)).toBe(kind === 'write');
});

describe('a document that is broken', () => {
  test.each([
    ['JSON that ends', '{\n  "openapi": "3.0.0",\n', /^svc: api\.json:3:1: it is not JSON: /],
    ['JSON with a comma', '{\n  "openapi": "3.0.0",,\n}', /^svc: api\.json:2:22: it is not JSON: /],
    ['a page', '<!doctype html>\n<html></html>', /HTML page/],
    ['nothing', '  \n', /api\.json is empty/],
    ['something else', '{"name":"x"}', /is no OpenAPI document: it says neither `openapi: 3/],
    ['a version of before', '{\n "swagger": "1.2", "apis": [] }', /api\.json:2:13: version 1\.2 is not read/],
    ['a document without paths', '{"openapi":"3.0.0","info":{}}', /api\.json:1:1: the document has no paths/],
    ['a tower', `{"openapi":"3.0.0","paths":${'['.repeat(1000)}${']'.repeat(1000)}}`, /nests deeper than 300 levels/],
  ])('%s', async (_what, text, words) => {
    const { code, err } = await init(text);
    expect(err).toMatch(words);
    expect(code).toBe(2);
  });

  test('YAML: with line and column', async () => {
    writeFileSync('api.yaml', 'openapi: 3.0.0\npaths:\n  /x: {get: [}\n');
    const { code, err } = await svc('init', '--openapi', 'api.yaml', '--yes');
    expect(err).toMatch(/^svc: api\.yaml:3:\d+: it is not YAML: /);
    expect(code).toBe(2);
  });

  test('YAML: an alias within what it names', async () => {
    writeFileSync('api.yaml', 'openapi: 3.0.0\npaths: &a\n  /x: *a\n');
    expect((await svc('init', '--openapi', 'api.yaml', '--yes')).code).toBe(2);
  });

  test('against the specification: it is told where, and the rest is used', async () => {
    const document = documentOf({
      '/x': { get: { parameters: [{ name: 'a', in: 'query' }], responses: { 200: {} } } },
      '/y': { get: { parameters: [{ $ref: '#/components/parameters/None' }], responses: DONE } },
    });
    writeFileSync('api.json', JSON.stringify(document, null, 2));
    const { code, err, out } = await svc('init', '--openapi', 'api.json', '--yes');
    expect(code).toBe(0);
    expect(err).toMatch(/^svc: api\.json:\d+:\d+: \S+ must have required property/);
    expect(out).toContain('1 tool from api.json, 1 left out');
    expect(readFileSync('gateway.yaml', 'utf8')).toContain(
      '#   GET /v1/y: $ref #/components/parameters/None leads nowhere',
    );
  });

  test.each([
    ['a file that is not there', 'none.json', /There is no file none\.json/],
    ['a folder', '.', /is a folder/],
    ['a URL where nothing answers', 'http://127.0.0.1:1/openapi.json', /cannot be fetched/],
  ])('%s', async (_what, name, words) => {
    const { code, err } = await svc('init', '--openapi', name, '--yes');
    expect(err).toMatch(words);
    expect(code).toBe(2);
  });

  test.each([
    ['for people', []],
    ['as JSON', ['--json']],
  ])('what is written beside files that cannot be used is written, and the exit code says so (%s)', async (_, more) => {
    const document = documentOf({ '/a': { post: post({ type: 'object' }) } });
    mkdirSync('policies');
    writeFileSync('policies/mine.yaml', 'rules: 7\n');
    const { code, out, err } = await init(document, '--force', ...more);
    expect(code).toBe(1);
    expect(more.length === 0 ? err : JSON.stringify(JSON.parse(out).findings)).toContain('policies/mine.yaml');
    expect(existsSync('gateway.yaml')).toBe(true);
  });

  test('of what it refers to and cannot be read, only what needs it is left out; texts are not followed', async () => {
    const operations = {
      '/a': { post: post({ type: 'object', properties: { description: { $ref: 'kept.yaml' } } }) },
      '/b': { post: post({ $ref: 'gone.yaml' }) },
    };
    writeFileSync('kept.yaml', 'type: integer');
    const tags = [{ name: 'x', description: { $ref: 'markdown/tag.md' } }];
    const { code, err, out } = await init(documentOf(operations, {}, { tags }));
    expect(code).toBe(0);
    expect(err).toMatch(/There is no file \S+gone\.yaml$/);
    expect(err).not.toContain('There is no file markdown');
    expect(out).toContain('2 tools from api.json.');
    const { tools } = (await loadConfiguration('gateway.yaml')).configuration;
    expect(JSON.stringify(tools)).toContain('"description":{"type":"integer"}');
  });

  test('it reads no file beyond its folder', async () => {
    const schema = { $ref: '../../../../../../etc/hostname' };
    const { code, err } = await init(documentOf({ '/x': { post: post(schema) } }));
    expect(code).toBe(0);
    expect(err).toContain('/etc/hostname: references are followed within the folder of the document');
  });
});

describe('--diff', () => {
  const before = documentOf({
    '/a': { get: { responses: DONE } },
    '/b/{id}': {
      put: post(
        {
          type: 'object',
          required: ['x', 'v'],
          properties: { x: { type: 'string', enum: ['1', '2'] }, v: {}, w: {}, y: {} },
        },
        { parameters: [{ name: 'id', in: 'path', required: true, schema: {} }] },
      ),
    },
  });
  const after = documentOf({
    '/b/{key}': {
      put: post(
        {
          type: 'object',
          required: ['x', 'w', 'z'],
          properties: { x: { type: 'string', enum: ['1'] }, v: {}, w: {}, z: { type: 'integer' } },
        },
        { parameters: [{ name: 'key', in: 'path', required: true, schema: {} }] },
      ),
    },
    '/c': { post: post({ type: 'object' }) },
  });

  test('the same document changes nothing', async () => {
    await toolsOf(before);
    expect(await init(before, '--diff')).toMatchObject({ code: 0, out: 'api.json changes nothing in gateway.yaml.' });
  });

  test('another one: what is new, gone and changed; nothing is written', async () => {
    await toolsOf(before);
    const text = readFileSync('gateway.yaml', 'utf8');
    const { code, out } = await init(after, '--diff');
    expect(code).toBe(1);
    expect(out.split('\n')).toEqual([
      '~ PUT /v1/b/{key}  shop.put_b',
      '    x: enum ["1","2"] → ["1"]',
      '    v: no longer required',
      '    w: now required',
      '    z: new, required',
      '    y: gone',
      '+ POST /v1/c  shop.post_c',
      '- GET /v1/a  shop.get_a',
      '1 new, 1 gone, 1 changed. Nothing was written.',
    ]);
    expect(readFileSync('gateway.yaml', 'utf8')).toBe(text);
    const { changes } = JSON.parse((await init(after, '--diff', '--json')).out);
    expect(changes.map(({ change }: { change: string }) => change)).toEqual(['changed', 'new', 'gone']);
  });

  test('belongs to the upstream at its address, or to the one that is named', async () => {
    await toolsOf(before, '--upstream', 'http://127.0.0.1:9', '--name', 'shop');
    const other = await init(before, '--diff');
    expect(other).toMatchObject({
      code: 2,
      err: 'svc: gateway.yaml has no upstream https://api.shop.example; name the one that the document belongs to with --name ID',
    });
    const named = await init(before, '--diff', '--name', 'shop');
    expect(named).toMatchObject({ code: 0, out: 'api.json changes nothing in gateway.yaml.' });
  });

  test('goes into definitions, names headers that are spelt otherwise, and forty changes of a tool', async () => {
    const of = (type: string, header: string, count: number): object => {
      const Node = { type: 'object', properties: { next: { $ref: '#/components/schemas/Node' }, at: { type } } };
      const more = Object.fromEntries(Array.from({ length: count }, (_, n) => [`m${n}`, { type }]));
      const body = { type: 'object', properties: { node: { $ref: '#/components/schemas/Node' }, ...more } };
      const parameters = [{ name: header, in: 'header', schema: { type: 'string' } }];
      return documentOf({ '/x': { post: post(body, { parameters }) } }, { Node });
    };
    const details = async (document: object): Promise<readonly string[]> =>
      JSON.parse((await init(document, '--diff', '--json')).out).changes[0].details;
    await toolsOf(of('string', 'X-Tenant', 0));
    expect(await details(of('integer', 'xTenant', 0))).toEqual([
      'Node.at: type "string" → "integer"',
      'x_tenant: is sent as the header xTenant',
    ]);
    await toolsOf(of('string', 'X-Tenant', 60), '--force');
    const many = await details(of('integer', 'X-Tenant', 60));
    expect(many).toHaveLength(41);
    expect(many.at(-1)).toBe('and 21 more');
  });

  const get = { get: { responses: DONE } };
  test.each([
    ['new', { '/a': get }, { '/a': get, '/c': get }],
    ['gone', { '/a': get, '/c': get }, { '/a': get }],
    [
      'changed',
      { '/a': get },
      { '/a': { get: { parameters: [{ name: 'q', in: 'query', schema: {} }], responses: DONE } } },
    ],
  ])('its exit code says that something differs, also where all of it is %s', async (change, was, is) => {
    await toolsOf(documentOf(was));
    const { code, out } = await init(documentOf(is), '--diff', '--json');
    const found = JSON.parse(out).changes.map((one: { change: string }) => one.change);
    expect([code, found]).toEqual([1, [change]]);
  });

  describe('where params are sent', () => {
    const listed = { type: 'array', items: { type: 'string' } };
    const tenant = (place: 'header' | 'query'): object => ({
      name: place === 'header' ? 'X-Tenant' : 'x_tenant',
      in: place,
      schema: { type: 'string' },
    });
    const ids = (explode: boolean): object => ({ name: 'ids', in: 'query', explode, schema: listed });

    test.each([
      ['as before', [tenant('header'), ids(true)], []],
      ['in the query in place of a header', [tenant('query'), ids(true)], ['x_tenant: is sent in the query']],
      [
        'a list in one text',
        [tenant('header'), ids(false)],
        ['ids: is written in the query as query_styles: comma says'],
      ],
    ])('%s', async (_, parameters, details) => {
      const of = (params: readonly object[]): object =>
        documentOf({ '/a': { get: { parameters: params, responses: DONE } } });
      await toolsOf(of([tenant('header'), ids(true)]));
      const { code, out } = await init(of(parameters), '--diff', '--json');
      const { changes } = JSON.parse(out);
      expect(changes.flatMap((change: { details: readonly string[] }) => change.details)).toEqual(details);
      expect(code).toBe(details.length === 0 ? 0 : 1);
    });
  });
});

describe('probes that are proposed', () => {
  const ID = { name: 'id', in: 'path', required: true, schema: { type: 'string' } };
  const body = (schema: object, type = 'application/json'): object => ({
    requestBody: { required: true, content: { [type]: { schema } } },
    responses: DONE,
  });
  const text = { type: 'string' };
  const WHOLE = { type: 'object', required: ['text'], properties: { text } };
  const DOCUMENT = documentOf({
    '/notes/{id}': {
      parameters: [ID],
      get: { operationId: 'getNote', responses: DONE },
      delete: { operationId: 'deleteNote', responses: DONE },
      put: { operationId: 'putNote', ...body(WHOLE) },
      patch: { operationId: 'patchNote', ...body(WHOLE) },
    },
    '/notes/{id}/star': {
      parameters: [ID],
      get: { operationId: 'isStarred', responses: DONE },
      put: { operationId: 'star', responses: DONE },
    },
    '/pages/{id}': {
      parameters: [ID],
      get: { operationId: 'getPage', responses: DONE },
      // A read cannot tell a text that was left out from one that was not taken.
      put: {
        operationId: 'putPage',
        ...body({ type: 'object', required: ['text'], properties: { text, title: text } }),
      },
    },
    // Nor, of what stands outside of the body or is no JSON, whether it is so.
    ...Object.fromEntries(
      Object.entries({
        query: { parameters: [{ name: 'mode', in: 'query', required: true, schema: text }], ...body(WHOLE) },
        header: { parameters: [{ name: 'X-Mode', in: 'header', required: true, schema: text }], ...body(WHOLE) },
        form: body(WHOLE, 'application/x-www-form-urlencoded'),
      }).map(([name, put]) => [`/${name}/{id}`, { parameters: [ID], get: { responses: DONE }, put }]),
    ),
    '/files/{id}': {
      parameters: [ID],
      get: { parameters: [{ name: 'v', in: 'query', required: true, schema: text }], responses: DONE },
      delete: { operationId: 'deleteFile', responses: DONE },
    },
    '/jobs/{id}': { parameters: [ID], delete: { operationId: 'deleteJob', responses: DONE } },
    '/notes': {
      post: post({ type: 'object', properties: { text } }),
      get: { responses: DONE },
      delete: { responses: DONE },
    },
  });

  test('are comments that name the read of the same path; a configuration with them holds', async () => {
    expect((await toolsOf(DOCUMENT)).filter(({ probe }) => probe !== undefined)).toEqual([]);
    const written = readFileSync('gateway.yaml', 'utf8');
    expect(written).toContain('It does not show that this call did it');
    writeFileSync('gateway.yaml', written.replaceAll('    # probe: {', '    probe: {'));
    expect(JSON.parse((await svc('config', 'check', 'gateway.yaml', '--json')).out)).toEqual({ findings: [] });
    const { tools } = (await loadConfiguration('gateway.yaml')).configuration;
    const probed = tools.flatMap(({ name, probe }) =>
      probe === undefined ? [] : [[name.split('.')[1], probe] as const],
    );
    expect(Object.fromEntries(probed.map(([name, { happened }]) => [name, happened]))).toEqual({
      delete_note: { http_status: { $in: [404, 410] } },
      put_note: { text: '{text}' },
      star: { http_status: { $in: [200, 204] } },
    });
    for (const [, probe] of probed) {
      expect(probe.notHappened).toEqual({});
      for (const status of [200, 204, 401, 403, 404, 410, 429, 500, 503])
        expect(
          judgeProbe(probe, 'http', { http_status: status, text: 'old' }, { id: '1', text: 'new' }).finding,
        ).not.toBe('not_happened');
    }
    const deleted = Object.fromEntries(probed)['delete_note'];
    if (deleted === undefined) throw new Error('it is not proposed');
    const said = [200, 403, 404].map(
      (http_status) => judgeProbe(deleted, 'http', { http_status }, { id: '1' }).finding,
    );
    expect(said).toEqual(['unknown', 'unknown', 'happened']);
  });
});
