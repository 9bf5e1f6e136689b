import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import type { Tool } from '../../src/effects/model/tool.ts';
import type { JsonObject } from '../../src/json/value.ts';
import { MOST_FAULTS } from '../../src/diagnostics/stop-at.ts';
import { createCatalog, pinnedAt } from '../../src/upstreams/catalog.ts';
import { readPath } from '../../src/upstreams/http/url.ts';
import { planOf, renderRequest } from '../../src/upstreams/http/request-template.ts';
import { makeTool } from './tool.ts';
import { shortest } from '../shortest.ts';

const refund = makeTool({
  request: {
    method: 'POST',
    path: '/v1/payments/{payment_id}/refunds',
    query: ['dry', 'limit'],
    headers: { tenant: 'x-tenant' },
    body: ['amount', 'note'],
  },
  paramsSchema: {
    type: 'object',
    required: ['payment_id', 'amount'],
    properties: {
      payment_id: { type: 'string', pattern: '^[a-z0-9_]+$' },
      amount: { type: 'integer', minimum: 1, default: 5 },
      note: { type: 'string' },
      dry: { type: 'boolean' },
      limit: { type: 'integer' },
      tenant: { type: 'string' },
      strange: { type: 'string' },
    },
    additionalProperties: false,
  },
});
const free = makeTool({
  name: 'free',
  target: '{a}:{b}',
  request: { method: 'PUT', path: '/x/{a}', query: [], headers: {}, body: '*' },
});
const catalog = createCatalog([refund, free]);

function faults(params: JsonObject, tool = refund): string[] {
  return catalog.check(tool, params).map(({ path, message }) => `${path} ${message}`);
}

describe('params', () => {
  test('all faults at once; nothing is filled in or coerced', () => {
    const params = { payment_id: 'P 1', amount: '5', nots: 1, strange: 'x' };
    expect(faults(params)).toEqual([
      '/params/nots is not a param of this tool',
      '/params/payment_id must match pattern "^[a-z0-9_]+$"',
      '/params/amount must be integer',
      expect.stringMatching(/^\/params\/strange is a param that no part of the request uses; .* query of the request/),
    ]);
    expect(params).toEqual({ payment_id: 'P 1', amount: '5', nots: 1, strange: 'x' });
    expect(faults({})).toEqual(['/params/payment_id is required', '/params/amount is required']);
    expect(faults({ payment_id: 'p', amount: 1 })).toEqual([]);
  });

  test('that the path or the target needs are asked for, and are whole where they are numbers', () => {
    expect(faults({ b: '1' }, free)).toEqual(['/params/a is required: the path needs it']);
    const needed = 'names the target: it must be a string that is not empty, or an integer';
    for (const b of ['', 2 ** 53, 0.5, true, null])
      expect(faults({ a: 'x', b }, free)).toEqual([`/params/b ${needed}`]);
    for (const b of ['1', 2 ** 53 - 1]) expect(faults({ a: 'x', b }, free)).toEqual([]);
  });

  test.each(['form', 'multipart'] as const)(
    'a %s through the effects API has no names that it may not have in a request: none twice for some servers, none that changes what it is',
    (bodyType) => {
      const at = (body: '*' | readonly string[]) =>
        makeTool({ target: null, request: { method: 'POST', path: '/f', query: [], headers: {}, body, bodyType } });
      const of = (tool: ReturnType<typeof at>, params: JsonObject) =>
        createCatalog([tool])
          .check(tool, params)
          .map(({ path, message }) => `${path} ${message}`);
      for (const name of ['_method', '_METHOD', '_charset_', '$httpMethod'])
        expect(of(at('*'), { a: '1', [name]: 'x' })).toEqual([
          `/params/${name} changes for some servers what the request is; name it in request.body of the tool to let it go on`,
        ]);
      expect(of(at(['_method']), { _method: 'PUT' })).toEqual([]);
      for (const name of ['A.B', 'a b', 'a_B'])
        expect(of(at('*'), { 'a.b': '1', [name]: '2' })).toEqual([
          `/params/${name} stands beside a name that some servers take for the same`,
        ]);
      // JSON has one reading.
      const json = makeTool({ target: null, request: { ...at('*').call.request, bodyType: 'json' } });
      expect(of(json, { _method: 'x', 'a.b': 1, a_b: 2 })).toEqual([]);
    },
  );

  test('a computed target holds the length limit, with what is encoded in it', () => {
    const tool = makeTool({
      name: 'body',
      target: 'x:{a}:{b}',
      request: { method: 'PUT', path: '/x', query: [], headers: {}, body: '*' },
    });
    const bodies = createCatalog([tool]);
    const check = (a: string, b: string) =>
      bodies.check(tool, { a, b }).map(({ path, message }) => `${path} ${message}`);
    expect(check('a'.repeat(500), 'b'.repeat(521))).toEqual([]);
    expect(check('a'.repeat(500), 'b'.repeat(522))).toEqual([
      '/params/a names the target, which may have at most 1024 characters',
      '/params/b names the target, which may have at most 1024 characters',
    ]);
    expect(check('/'.repeat(341), 'b')).toHaveLength(2);
  });

  test('a param in the path, the query or a header has at most 4,096 characters', () => {
    const long = 'a'.repeat(4097);
    expect(faults({ payment_id: 'p', amount: 1, tenant: long })).toEqual([
      '/params/tenant goes into the header: it must not have more than 4096 characters',
    ]);
    expect(faults({ payment_id: long, amount: 1 })[0]).toContain('goes into the path');
    expect(faults({ payment_id: 'p', amount: 1, note: long, tenant: long.slice(1) })).toEqual([]);
  });

  test('members of the prototype are not params', () => {
    const tool = makeTool({
      name: 'proto',
      target: null,
      request: { ...refund.call.request, path: '/x', body: '*' },
      paramsSchema: { type: 'object', required: ['constructor'] },
    });
    expect(createCatalog([tool]).check(tool, {})).toEqual([{ path: '/params/constructor', message: 'is required' }]);
  });

  test.each(['', '.', '..', 'a/b', 'a\\b', '%2e%2e/\u0000', 'a\nb', 1.5, true, null, [1], { a: 1 }])(
    'a path param %j is refused',
    (value) => {
      expect(catalog.check(free, { a: value, b: 'x' }).some(({ path }) => path === '/params/a')).toBe(true);
      expect(() => renderRequest(planOf(free.call.request), { a: value })).toThrow();
    },
  );

  test('a single value of the query is one, though no schema says so', () => {
    const request = { method: 'GET', path: '/x', query: ['q'], headers: {}, body: [] };
    const tool = makeTool({ name: 'single', target: null, request, state: null });
    const of = (q: JsonObject[string]) => createCatalog([tool]).check(tool, { q });
    for (const q of ['', 'a', 0, false]) expect(of(q)).toEqual([]);
    const message = 'goes into the query: it must be a string, a number or a boolean';
    for (const q of [null, [1], { a: 1 }]) expect(of(q)).toEqual([{ path: '/params/q', message }]);
  });

  test('of very many params without a place the first hundred are named, and what the path needs with them', () => {
    const request = { method: 'GET', path: '/x/{id}', query: [], headers: {}, body: [] };
    const tool = makeTool({ name: 'many', target: null, request, state: null });
    const params = Object.fromEntries(Array.from({ length: 1_000 }, (_, at) => [`p${at}`, 1]));
    const found = createCatalog([tool]).check(tool, params);
    expect([found.length, found.at(-1)?.path]).toEqual([MOST_FAULTS + 1, '/params/id']);
  });

  test('a tool of a server is found by the name that the server has for it', () => {
    const calls = (name: string): Tool['call'] => ({
      kind: 'mcp',
      name,
      pinned: {},
      isError: 'unknown',
      onClientClose: 'finish',
    });
    const pinned = { ...makeTool({ name: 'crm.find', target: null }), call: calls('find') };
    const other = { ...makeTool({ name: 'crm.other', target: null }), call: calls('renamed') };
    const tools = createCatalog([pinned, other, makeTool({ name: 'crm.http', upstream: 'crm', target: null })]);
    expect(pinnedAt(tools, 'crm', 'find')?.tool).toBe(pinned);
    for (const name of ['other', 'http', 'none']) expect(pinnedAt(tools, 'crm', name)).toBeNull();
  });

  test('what a header or the query cannot carry', () => {
    const base = { payment_id: 'p', amount: 1 };
    expect(faults({ ...base, tenant: 'a\r\nx-evil: 1' })).toHaveLength(1);
    expect(faults({ ...base, tenant: ' a' })).toHaveLength(1);
    expect(faults({ ...base, tenant: '' })).toHaveLength(1);
    expect(faults({ ...base, tenant: 'ok value' })).toEqual([]);
    expect(faults({ ...base, limit: { $gt: 1 } })[0]).toMatch(/must be integer/);
  });

  test('a pattern is matched in linear time', async () => {
    const tool = makeTool({
      name: 'slow',
      target: null,
      request: { ...refund.call.request, path: '/x', body: '*' },
      paramsSchema: { type: 'object', properties: { text: { type: 'string', pattern: '^(a+)+$' } } },
    });
    const match = (): number => {
      const began = performance.now();
      expect(createCatalog([tool]).check(tool, { text: `${'a'.repeat(50_000)}b` })).toHaveLength(1);
      return performance.now() - began;
    };
    expect(await shortest(2000, match)).toBeLessThan(2000);
  });

  test('a schema that cannot be used is named', () => {
    const broken = makeTool({ paramsSchema: { type: 'objekt' } });
    expect(() => createCatalog([broken])).toThrow(/tool payments\.refund: .*type/);
    const unknown = makeTool({ paramsSchema: { typ: 'object' } });
    expect(() => createCatalog([unknown])).toThrow(/strict mode: unknown keyword: "typ"/);
    const twice = makeTool({ request: { ...refund.call.request, body: ['payment_id'] } });
    expect(() => createCatalog([twice])).toThrow(/payment_id has two places/);
  });
});

describe('requests', () => {
  test('params go to their places', () => {
    const params = { payment_id: 'p_1', amount: 5, dry: true, tenant: 'blue', note: 'ü' };
    expect(renderRequest(planOf(refund.call.request), params).pathAndQuery).toBe('/v1/payments/p_1/refunds?dry=true');
    const rendered = renderRequest(planOf(refund.call.request), params);
    expect(rendered.headers).toEqual({ 'x-tenant': 'blue', 'content-type': 'application/json' });
    expect(rendered.body).toEqual(Buffer.from('{"amount":5,"note":"ü"}'));
    const spaced = renderRequest(planOf(refund.call.request), { payment_id: 'p', tenant: 'a b%/' });
    expect(spaced.headers).toMatchObject({ 'x-tenant': 'a b%/' });
    const bare = { method: 'GET', path: '/x/{a}', query: ['b'], headers: {}, body: [] };
    expect(renderRequest(planOf(bare), { a: '1', b: '2' })).toMatchObject({ body: null, headers: {} });
    const rest = renderRequest(planOf(free.call.request), { a: 'x', b: 1, c: [2] });
    expect(rest.body).toEqual(Buffer.from('{"b":1,"c":[2]}'));
    expect(renderRequest(planOf(free.call.request), { a: 'é %?#&', b: 'x' }).pathAndQuery).toBe(
      '/x/%C3%A9%20%25%3F%23%26',
    );
  });

  test.each([null, false, 0, '', [], {}])('a body that is one param is sent where it is there, also as %j', (body) => {
    const plan = planOf({ method: 'POST', path: '/x', query: [], headers: {}, body: [], bodyAs: 'body' });
    const given = renderRequest(plan, { body });
    expect(given).toMatchObject({ body: Buffer.from(JSON.stringify(body)) });
    expect(given.headers).toEqual({ 'content-type': 'application/json' });
    const without = renderRequest(plan, {});
    expect([without.body, without.headers]).toEqual([null, {}]);
  });

  test('whatever is rendered reads back as the same param', () => {
    fc.assert(
      fc.property(fc.string({ unit: 'binary', minLength: 1 }), (text) => {
        const fits = catalog.check(free, { a: text, b: 'x' }).length === 0;
        if (!fits) {
          expect(() => renderRequest(planOf(free.call.request), { a: text })).toThrow();
          return;
        }
        const { pathAndQuery } = renderRequest(planOf(free.call.request), { a: text });
        expect(readPath(pathAndQuery)).toEqual({ ok: true, segments: ['x', text] });
        expect(new URL(pathAndQuery, 'http://u').pathname).toBe(pathAndQuery);
      }),
    );
  });
});

test('params that hold slashes: any text between them that all servers read alike', () => {
  const request = { ...free.call.request, path: '/x/{id}/{+a}', encodedSlashes: ['id'], body: [] };
  const tool = makeTool({ name: 'rest', target: null, request, state: null });
  const [plan, check] = [planOf(request), createCatalog([tool])];
  expect(renderRequest(plan, { id: 'g/p', a: 'src/é ?.ts' }).pathAndQuery).toBe('/x/g%2Fp/src/%C3%A9%20%3F.ts');
  for (const odd of [
    '',
    '/',
    'a/',
    '/a',
    'a//b',
    '..',
    'a/../b',
    'a/.',
    'a/b.',
    'a/%2e%2e/b',
    'a%2Fb',
    'a/;b',
    'a\\b',
    '．．/a',
    1.5,
  ])
    for (const name of ['id', 'a']) {
      const params = { id: 'p', a: 'q', [name]: odd };
      expect(check.check(tool, params), `${name} ${odd}`).toMatchObject([{ path: `/params/${name}` }]);
      expect(() => renderRequest(plan, params)).toThrow();
    }
});

describe('targets', () => {
  test('no two sets of params have one target', () => {
    expect(catalog.target(refund, { payment_id: 'p1' })).toBe('payment:p1');
    expect(catalog.target(refund, { payment_id: 'a:b/c' })).toBe('payment:a:b/c');
    fc.assert(
      fc.property(
        fc.tuple(fc.string({ minLength: 1 }), fc.string({ minLength: 1 })),
        fc.tuple(fc.string({ minLength: 1 }), fc.string({ minLength: 1 })),
        ([a, b], [c, d]) => {
          const same = a === c && b === d;
          expect(catalog.target(free, { a, b }) === catalog.target(free, { a: c, b: d })).toBe(same);
        },
      ),
    );
    expect(catalog.target(free, { a: 'x:y', b: 'z' })).not.toBe(catalog.target(free, { a: 'x', b: 'y:z' }));
    const untargeted = makeTool({ target: null });
    expect(createCatalog([untargeted]).target(untargeted, {})).toBeNull();
  });

  test('a target needs its params', () => {
    expect(catalog.check(free, { a: 'x' })).toEqual([
      { path: '/params/b', message: 'names the target: it must be a string that is not empty, or an integer' },
    ]);
  });
});

test('texts become what the schema says, where they are written as it would be', () => {
  const read = (name: string, text: string): unknown => catalog.textParam(refund, name, text);
  expect([
    read('limit', '10'),
    read('limit', '010'),
    read('limit', '1e1'),
    read('limit', '+1'),
    read('limit', '-0'),
  ]).toEqual([10, '010', '1e1', '+1', '-0']);
  expect([read('limit', '9007199254740993'), read('dry', 'true'), read('dry', 'True'), read('note', '7')]).toEqual([
    '9007199254740993',
    true,
    'True',
    '7',
  ]);
});
