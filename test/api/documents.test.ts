import { existsSync, readFileSync } from 'node:fs';
import { Validator } from '@seriousme/openapi-schema-validator';
import { Ajv2020 } from 'ajv/dist/2020.js';
import fastify from 'fastify';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { pageToHtml } from '../../src/api/docs-pages.ts';
import { addOpenApi } from '../../src/api/openapi.ts';
import { CODES } from '../../src/effects/model/codes.ts';
import { ENDPOINTS } from '../../src/identity/permissions.ts';
import { type Rig, refund, startRig } from './rig.ts';

interface Operation {
  readonly operationId: string;
  readonly tags?: readonly string[];
  readonly security?: readonly unknown[];
  readonly parameters?: readonly { readonly name: string; readonly in: string }[];
  readonly requestBody?: { readonly content: Readonly<Record<string, { readonly schema: object }>> };
  readonly responses: Readonly<
    Record<string, { readonly content?: Readonly<Record<string, { readonly schema: object }>> }>
  >;
}
interface Document {
  readonly openapi: string;
  readonly paths: Readonly<Record<string, Readonly<Record<string, Operation>>>>;
  readonly components: { readonly schemas: Readonly<Record<string, object>> };
}

let rig: Rig;
let document: Document;
beforeAll(async () => {
  rig = await startRig();
  document = (await rig.send('GET', '/openapi.json', { key: null })).json as unknown as Document;
});
afterAll(() => rig.close());

describe('the OpenAPI document', () => {
  it('has every route of the permission table, and marks those that need no key', () => {
    expect(document.openapi).toMatch(/^3\.1/);
    const table = Object.values(ENDPOINTS)
      .flatMap(({ routes }): readonly string[] => routes)
      .filter((route) => /^[A-Z]+ \/[^ ]*$/.test(route));
    const inDocument = Object.entries(document.paths).flatMap(([path, operations]) =>
      Object.keys(operations).map((method) => `${method.toUpperCase()} ${path}`),
    );
    for (const route of table) expect(inDocument).toContain(route);
    const open = inDocument.filter((route) => !table.includes(route) && !/ \/(?:docs|approve)\b/.test(route));
    expect(open.toSorted()).toEqual(
      ['GET /.well-known/jwks.json', 'GET /livez', 'GET /metrics', 'GET /openapi.json', 'GET /readyz'].toSorted(),
    );
    for (const route of open) {
      const [method = '', path = ''] = route.split(' ');
      expect(document.paths[path]?.[method.toLowerCase()]?.security).toEqual([]);
    }
  });

  it('says which gateway it is of, and has health only where that is on the same port', async () => {
    const app = fastify();
    addOpenApi(app, () => 'https://other.example', '9.8.7', true);
    const { paths, ...others } = (await app.inject('/openapi.json')).json();
    await app.close();
    expect(others).toMatchObject({ info: { version: '9.8.7' }, servers: [{ url: 'https://other.example' }] });
    const shown = Object.keys(document.paths).filter((path) => !['/livez', '/metrics', '/readyz'].includes(path));
    expect(Object.keys(paths)).toEqual(shown);
  });

  it('lets the keys of receipts be kept for minutes, so that one that is new is known', async () => {
    const { headers } = await rig.send('GET', '/.well-known/jwks.json', { key: null });
    expect(headers['cache-control']).toBe('public, max-age=300');
  });

  it('is one as the standard says', async () => {
    const { valid, errors } = await new Validator().validate(JSON.parse(JSON.stringify(document)));
    expect(errors).toBeUndefined();
    expect(valid).toBe(true);
  });

  it('names each operation once, declares its path parameters, and problems for all that goes wrong', () => {
    const operations = Object.entries(document.paths).flatMap(([path, methods]) =>
      Object.values(methods).map((operation) => ({ path, operation })),
    );
    const ids = operations.map(({ operation }) => operation.operationId);
    expect(new Set(ids).size).toBe(ids.length);
    for (const { path, operation } of operations) {
      const declared = (operation.parameters ?? []).filter((one) => one.in === 'path').map(({ name }) => name);
      expect(declared.toSorted()).toEqual([...path.matchAll(/\{(\w+)\}/g)].map(([, name = '']) => name).toSorted());
      const { tags = [] } = operation;
      if (operation.security === undefined)
        // What an MCP server refuses may come as it gives answers: in a stream.
        expect(Object.keys(operation.responses['4XX']?.content ?? {})[0]).toBe(
          tags.includes('mcp') ? 'application/json' : 'application/problem+json',
        );
    }
  });

  it('holds schemas that compile, and that real bodies and problems fit', async () => {
    const ajv = new Ajv2020({ strict: false });
    ajv.addSchema({ ...document, $id: 'https://gateway.invalid/openapi' });
    const at = (...names: readonly string[]) => ({
      $ref: `https://gateway.invalid/openapi#/${names.map((name) => encodeURIComponent(name.replaceAll('~', '~0').replaceAll('/', '~1'))).join('/')}`,
    });
    for (const [path, methods] of Object.entries(document.paths))
      for (const [method, operation] of Object.entries(methods))
        if (operation.requestBody?.content['application/json'] !== undefined) {
          const schema = at('paths', path, method, 'requestBody', 'content', 'application/json', 'schema');
          expect(() => ajv.compile(schema)).not.toThrow();
        }
    const answered = at('components', 'schemas', 'McpAnswer');
    expect(ajv.validate(answered, { jsonrpc: '2.0', error: { code: -32_000, message: 'no key' } })).toBe(true);
    expect(ajv.validate(answered, { jsonrpc: '2.0', id: null, result: {} })).toBe(false);
    const message = at('components', 'schemas', 'McpMessage');
    expect(ajv.validate(message, { jsonrpc: '2.0', id: 1, method: 'tools/list', params: {} })).toBe(true);
    expect(ajv.validate(message, { jsonrpc: '2.0', id: null, method: 'tools/list' })).toBe(false);
    const run = ['paths', '/v1/workspaces/{ws}/effects', 'post'] as const;
    const body = refund();
    const answer = await rig.send('POST', '/v1/workspaces/demo/effects', { body });
    expect(ajv.validate(at(...run, 'requestBody', 'content', 'application/json', 'schema'), body)).toBe(true);
    expect(ajv.validate(at(...run, 'requestBody', 'content', 'application/json', 'schema'), { tool: 1 })).toBe(false);
    expect(ajv.validate(at(...run, 'responses', '200', 'content', 'application/json', 'schema'), answer.json)).toBe(
      true,
    );
    const { params } = refund();
    const unlikeOthers = [
      await rig.send('POST', '/v1/workspaces/demo/effects', { key: rig.keys.admin, raw: '{"tool":' }),
      await rig.send('POST', '/v1/workspaces/demo/effects', { key: rig.keys.admin, body }),
      await rig.send('POST', '/v1/workspaces/demo/effects', { body }),
      await rig.send('POST', '/v1/workspaces/demo/effects', {
        body: { ...body, params: { ...Object(params), amount: 2 } },
      }),
      await rig.send('POST', '/v1/workspaces/demo/effects', {
        body: refund({ params: { ...Object(params), amount: 60_002 } }),
      }),
    ];
    expect(unlikeOthers.map(({ status }) => status)).toEqual([403, 403, 409, 409, 202]);
    for (const { status, json } of unlikeOthers) {
      const schema = at(...run, 'responses', String(status), 'content', 'application/json', 'schema');
      expect(ajv.validate(schema, json), JSON.stringify(ajv.errors)).toBe(true);
    }
    const problem = await rig.send('GET', '/nowhere');
    const problems = at(...run, 'responses', '4XX', 'content', 'application/problem+json', 'schema');
    expect(ajv.validate(problems, problem.json)).toBe(true);
    expect(ajv.validate(problems, {})).toBe(false);
  });
});

describe('pages', () => {
  it('every code has a page here, and none other', async () => {
    for (const [code, { title }] of Object.entries(CODES)) {
      const page = await rig.send('GET', `/docs/errors/${code}`, { key: null });
      expect(page.status).toBe(200);
      expect(page.headers['content-type']).toBe('text/html; charset=utf-8');
      expect(page.text).toContain(code);
      expect(existsSync(new URL(`../../docs/errors/${code}.md`, import.meta.url)) || page.text.includes(title)).toBe(
        true,
      );
    }
    const index = await rig.send('GET', '/docs/errors', { key: null });
    for (const code of Object.keys(CODES))
      expect(index.text).toContain(`<a href="/docs/errors/${code}"><code>${code}</code></a>`);
    expect((await rig.send('GET', '/docs/errors/..%2f..%2fpackage', { key: null })).status).toBe(404);
    expect((await rig.send('GET', '/docs/errors/constructor', { key: null })).status).toBe(404);
  });

  it('about a code are Markdown for who asks for that, have its name as their title, and are there with a slash', async () => {
    const path = '/docs/errors/key_reused';
    const asked = { key: null, headers: { accept: 'text/markdown, */*;q=0.1' } };
    const { status, headers, text } = await rig.send('GET', path, asked);
    expect([status, headers['content-type']]).toEqual([200, 'text/markdown; charset=utf-8']);
    expect(text).toBe(readFileSync(new URL('../../docs/errors/key_reused.md', import.meta.url), 'utf8'));
    const inBrowser = await rig.send('GET', path, { key: null, headers: { accept: 'text/html' } });
    expect(inBrowser.text).toContain('<title>key_reused · svc-gateway</title>');
    // A cache in between gives neither the other's.
    expect([headers['vary'], inBrowser.headers['vary']]).toEqual(['accept', 'accept']);
    for (const same of ['/docs', '/docs/errors'])
      expect((await rig.send('GET', `${same}/`, { key: null })).text).toBe(
        (await rig.send('GET', same, { key: null })).text,
      );
  });

  it('are framed by nobody, and tell nobody where their reader came from', async () => {
    const markdown = { accept: 'text/markdown' };
    for (const [path, headers] of [
      ['/', {}],
      ['/docs', {}],
      ['/docs/start.js', {}],
      ['/docs/reference.js', {}],
      ['/docs/errors', {}],
      ['/docs/errors/key_reused', {}],
      ['/docs/errors/key_reused', markdown],
    ] as const) {
      const page = await rig.send('GET', path, { key: null, headers });
      expect([path, page.headers]).toMatchObject([
        path,
        {
          'content-security-policy': expect.stringMatching(
            /; base-uri 'none'; form-action 'none'; frame-ancestors 'none'$/,
          ),
          'x-content-type-options': 'nosniff',
          'referrer-policy': 'no-referrer',
          'cross-origin-opener-policy': 'same-origin',
        },
      ]);
    }
  });

  it('the bare address leads to it', async () => {
    const root = await rig.send('GET', '/', { key: null });
    expect([root.status, root.headers['location']]).toEqual([302, '/docs']);
  });

  it('the reference works without any other host', async () => {
    const page = await rig.send('GET', '/docs', { key: null });
    expect(page.status).toBe(200);
    const policy = String(page.headers['content-security-policy']);
    expect(policy).toContain("default-src 'none'");
    expect(policy).toContain("connect-src 'self'");
    expect(policy).not.toMatch(/https?:|\*|unsafe-eval|script-src[^;]*unsafe-inline/);
    const loaded = [...page.text.matchAll(/(?:src|href)="([^"]+)"/g)].map(([, url = '']) => url);
    expect(loaded).toEqual(['/openapi.json', '/docs/reference.js', '/docs/start.js']);
    for (const url of loaded) expect((await rig.send('GET', url, { key: null })).status).toBe(200);
    const start = await rig.send('GET', '/docs/start.js', { key: null });
    // Each of these would ask another host, or keep a key in the browser.
    expect(JSON.parse(/\{.*\}/.exec(start.text)?.[0] ?? '')).toEqual({
      url: '/openapi.json',
      withDefaultFonts: false,
      telemetry: false,
      hideClientButton: true,
      showDeveloperTools: 'never',
      agent: { disabled: true },
      mcp: { disabled: true },
      persistAuth: false,
    });
    expect(start.text).not.toMatch(/https?:/);
    const reference = await rig.send('GET', '/docs/reference.js', { key: null });
    expect(reference.text.length).toBeGreaterThan(1_000_000);
    // It is large: read once an hour, and whole, or seen to be cut off.
    expect(reference.headers).toMatchObject({
      'cache-control': 'public, max-age=3600',
      'content-length': String(Buffer.byteLength(reference.text)),
    });
    expect(reference.headers['content-security-policy']).toBe(policy);
  });
});

describe('pages about codes as HTML', () => {
  it.each([
    [
      '[p](not_found.md) [h](https://x.example/) [bad](javascript:alert) [b](//evil)',
      '<p><a href="/docs/errors/not_found">p</a> <a href="https://x.example/">h</a> bad b</p>',
    ],
    ['[`a_b`](a_b.md) `[c](d.md)`', '<p><a href="/docs/errors/a_b"><code>a_b</code></a> <code>[c](d.md)</code></p>'],
    ['<script>alert(1)</script>', '&lt;script&gt;alert(1)&lt;/script&gt;'],
    ['a <b onclick="x">b</b>', '<p>a &lt;b onclick=&quot;x&quot;&gt;b&lt;/b&gt;</p>'],
    ['[q](https://x.example/"onclick=x)', '<p><a href="https://x.example/&quot;onclick=x">q</a></p>'],
  ])('%j', (markdown, html) => {
    expect(pageToHtml(markdown).trim()).toBe(html);
  });
});
