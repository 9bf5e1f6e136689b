import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { once } from 'node:events';
import { createServer, type Server } from 'node:http';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { afterAll, afterEach, beforeEach, describe, expect, test } from 'vitest';
import { surroundingsOfPolicies } from '../../src/config/for-policies.ts';
import { loadConfiguration } from '../../src/config/load.ts';
import { undeclaredRead } from '../../src/config/stand-in-tools.ts';
import type { Tool } from '../../src/effects/model/tool.ts';
import { evaluatePolicies } from '../../src/policy/evaluate.ts';
import { loadPolicySets } from '../../src/policy/load.ts';
import { inputOfTool } from '../../src/policy/tool-index.ts';
import { storeFolder } from '../../src/config/resolve-store.ts';
import { svc } from './run.ts';
import { httpCall } from '../config/http-call.ts';

const DONE = { 200: { description: 'Done' } };
const LIMIT = { name: 'limit', in: 'query', schema: { type: 'integer', minimum: 1 } };
const ID = { name: 'order-id', in: 'path', required: true, schema: { type: 'string' } };
const NAME = { ...ID, name: 'name' };

const DOCUMENT = {
  openapi: '3.0.3',
  info: { title: 'Shop', version: '1' },
  servers: [{ url: 'https://api.example.com/v1/' }],
  paths: {
    '/orders': {
      get: {
        operationId: 'listOrders',
        parameters: [LIMIT, { $ref: '#/components/parameters/Page' }],
        responses: DONE,
      },
      post: {
        operationId: 'createOrder',
        summary: 'Make an order: "now"\n# and here',
        requestBody: { content: { 'application/json': { schema: { $ref: '#/components/schemas/Order' } } } },
        responses: DONE,
      },
    },
    '/orders/{order-id}': {
      parameters: [ID],
      get: { operationId: 'getOrder', responses: DONE },
      delete: { responses: DONE },
    },
    '/files/{name}.json': { get: { parameters: [NAME], responses: DONE } },
  },
  components: {
    parameters: { Page: { name: 'page', in: 'query', schema: {} } },
    schemas: {
      Order: {
        type: 'object',
        properties: { sku: { type: 'string' }, tags: { type: 'array', nullable: true, items: { type: 'string' } } },
      },
    },
  },
};

/** A document of an API is read up to here, bytes. */
const MOST_READ = 64 * 1024 * 1024;

const home = process.cwd();
const folders: string[] = [];
const servers: Server[] = [];
let seen: string[] = [];

beforeEach(() => {
  seen = [];
  const folder = mkdtempSync(join(tmpdir(), 'svc-init-'));
  folders.push(folder);
  process.chdir(folder);
});

afterEach(async () => {
  process.chdir(home);
  for (const server of servers.splice(0)) {
    server.closeAllConnections();
    server.close();
    await once(server, 'close');
  }
});

afterAll(() => {
  for (const folder of folders) rmSync(folder, { recursive: true, force: true });
});

async function api(answers: Readonly<Record<string, string>>): Promise<string> {
  const server = createServer((request, response) => {
    seen.push(`${request.method} ${request.url}`);
    const body = answers[request.url ?? ''];
    response.writeHead(body === undefined ? 404 : 200).end(body);
  });
  servers.push(server);
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const address = server.address();
  if (address === null || typeof address === 'string') throw new Error('no port');
  return `http://127.0.0.1:${address.port}`;
}

describe('in front of an API that documents itself', () => {
  test('its operations become tools, and the files hold without a finding', async () => {
    const url = await api({ '/openapi.json': JSON.stringify(DOCUMENT) });
    const { code, out, err } = await svc('init', '--upstream', url, '--yes', '--agent', 'shop-bot');
    expect(err).toBe('');
    expect(code).toBe(0);
    expect(out).toContain('5 tools from');
    const key = 'keys create --config gateway.yaml --kind agent --workspace default --agent shop-bot --user operator';
    expect(out).toContain(key);
    expect(out).toContain('point the agent at http://127.0.0.1:8080/api/v1 with the key in X-API-Key.');
    const checked = await svc('config', 'check', 'gateway.yaml', '--json');
    expect(JSON.parse(checked.out)).toEqual({ findings: [] });
    const { configuration } = await loadConfiguration('gateway.yaml');
    expect(configuration.policies.mode).toBe('observe');
    expect(
      configuration.tools.map((tool) => [
        tool.name,
        tool.kind,
        httpCall(tool).request.method,
        httpCall(tool).request.path,
      ]),
    ).toEqual([
      ['api.list_orders', 'read', 'GET', '/v1/orders'],
      ['api.get_order', 'read', 'GET', '/v1/orders/{order_id}'],
      ['api.get_files', 'read', 'GET', '/v1/files/{name_json}'],
      ['api.create_order', 'write', 'POST', '/v1/orders'],
      ['api.delete_orders', 'write', 'DELETE', '/v1/orders/{order_id}'],
    ]);
    expect(configuration.tools[2]?.paramsSchema?.['properties']).toEqual({
      name_json: { type: 'string', pattern: String.raw`^.+\.json$` },
    });
    expect(configuration.tools.map(({ target }) => target)).toEqual([
      null,
      'orders:{order_id}',
      'files:{name_json}',
      null,
      'orders:{order_id}',
    ]);
    expect(httpCall(configuration.tools[0]).request.query).toEqual(['limit', 'page']);
  });

  test('of two paths of which neither comes before the other one is declared, and the other named', async () => {
    const document = {
      paths: {
        '/users/me': { get: {}, put: {}, delete: {} },
        '/users/{id}': { get: {}, put: {} },
        '/{kind}/all': { get: {} },
        '/teams/{id}/users/{id}': { get: {} },
      },
    };
    const url = await api({ '/openapi.json': JSON.stringify(document) });
    expect((await svc('init', '--upstream', url, '--yes')).code).toBe(0);
    expect(JSON.parse((await svc('config', 'check', 'gateway.yaml', '--json')).out)).toEqual({ findings: [] });
    const { configuration } = await loadConfiguration('gateway.yaml');
    expect(configuration.tools.map(httpCall).map(({ request }) => `${request.method} ${request.path}`)).toEqual([
      'GET /users/me',
      'GET /users/{id}',
      'PUT /users/me',
      'PUT /users/{id}',
      'DELETE /users/me',
    ]);
    // Through the effects API that would be the other operation.
    const byId = configuration.tools.find((tool) => httpCall(tool).request.path === '/users/{id}')?.paramsSchema;
    expect(byId?.['properties']).toMatchObject({ id: { not: { enum: ['me'] } } });
    const text = readFileSync('gateway.yaml', 'utf8');
    expect(text).toContain('#   GET /{kind}/all: the same requests as /users/{id}');
    expect(text).toContain('#   GET /teams/{id}/users/{id}: the param id stands in two places');
  });

  test('a document in YAML is read as well', async () => {
    const url = await api({
      '/openapi.yaml': 'swagger: "2.0"\nbasePath: /b\npaths:\n  /x:\n    get: { operationId: readX }\n',
    });
    expect((await svc('init', '--upstream', url, '--yes')).code).toBe(0);
    const { configuration } = await loadConfiguration('gateway.yaml');
    expect(configuration.tools.map((tool) => [tool.name, httpCall(tool).request.path])).toEqual([
      ['api.read_x', '/b/x'],
    ]);
  });

  test('nothing is asked of the API but its document', async () => {
    const url = await api({ '/openapi.json': JSON.stringify(DOCUMENT) });
    await svc('init', '--upstream', url, '--yes');
    expect(seen).toEqual(['GET /openapi.json']);
  });

  test('names that could break out of the YAML do not', async () => {
    const hostile = {
      paths: {
        '/a"b': { get: {} },
        '/x': {
          get: { operationId: 'a: [b\n- c', summary: '"}\nusers: []', parameters: [{ in: 'query', name: 'q"\n] }' }] },
        },
      },
    };
    const url = await api({ '/openapi.json': JSON.stringify(hostile) });
    await svc('init', '--upstream', url, '--yes');
    const { findings } = JSON.parse((await svc('config', 'check', 'gateway.yaml', '--json')).out);
    const text = readFileSync('gateway.yaml', 'utf8');
    expect(text.split('\n').filter((line) => line.startsWith('users:'))).toHaveLength(1);
    expect(findings.filter(({ code }: { code: string }) => code === 'yaml_syntax')).toEqual([]);
  });
});

describe('what a hostile document says', () => {
  const HOSTILE = [
    '${HOME}',
    '${NOT_SET_ANYWHERE}',
    '${HOME:-x}',
    '$${HOME}',
    '$$${HOME}',
    '${',
    '${HOME',
    '${A${HOME}}',
    '$${A${HOME}',
    '{{ $x }}',
    '"}, evil: [',
    "' # no comment",
    'a: b',
    '- x',
    '*alias &anchor !!tag',
    '!!binary |',
    '<<: *x',
    '%YAML 1.1',
    '---',
    'null',
    '~',
    '0x10',
    '|',
    '>-',
    '`rm -rf`',
    String.raw`\x00\u0000\N`,
    '\u202egnp.exe',
    'tab\tand\nnewline\r\u2028\u2029\u0085\u0000\u001b[2Jend',
    `${'x'.repeat(75)}\u{1f600}\u{1f600}\u{1f600}`,
    '\ud800 half',
  ];
  /** As the file has to give it back. */
  const plain = (text: string): string =>
    text
      .replace(/\s+/g, ' ')
      .replace(/[\p{Cc}\p{Cf}\p{Cs}]/gu, '')
      .trim()
      .slice(0, 80)
      .replace(/\p{Cs}/gu, '');

  const isName = (text: string): boolean => text === plain(text) && !/[{}]/.test(text);

  test('stands in the files as text, and nothing of the environment is put in', async () => {
    const paths = Object.fromEntries(
      HOSTILE.map((text, index) => [
        `/things${index}/{id}`,
        {
          post: {
            operationId: `${text}-${index}`,
            summary: text,
            parameters: [
              { name: 'id', in: 'path', required: true, description: text },
              ...(isName(text) ? [{ name: text, in: 'query', schema: { type: text, enum: [text] } }] : []),
            ],
            requestBody: {
              content: {
                'application/json': {
                  schema: {
                    properties: {
                      [`p ${plain(text)}`]: { type: text, enum: [text], default: text, description: text },
                    },
                  },
                },
              },
            },
          },
        },
      ]),
    );
    const url = await api({ '/openapi.json': JSON.stringify({ paths }) });
    const { code } = await svc('init', '--upstream', url, '--yes');
    expect(code).toBe(0);
    const checked = await svc('config', 'check', 'gateway.yaml', '--json');
    expect(JSON.parse(checked.out)).toEqual({ findings: [] });
    const { configuration } = await loadConfiguration('gateway.yaml');
    expect(configuration.tools).toHaveLength(HOSTILE.length);
    for (const [index, text] of HOSTILE.entries()) {
      const tool = configuration.tools[index];
      expect(tool?.title).toBe(plain(text) === '' ? `POST /things${index}/{id}` : plain(text));
      expect(httpCall(tool).request.query).toEqual(isName(text) ? [text] : []);
      expect(Object.keys(tool?.paramsSchema?.['properties'] ?? {})).toContain(`p ${plain(text)}`);
    }
  });

  test('about paths and servers neither ends a comment nor adds to the file', async () => {
    const paths = {
      ...Object.fromEntries(
        HOSTILE.map((text, index) => [`/p${index}/${text}\nusers: [{ id: evil }]`, { get: {}, delete: {} }]),
      ),
      '/../up': { get: {} },
      '/ok': { get: {} },
      '/many': { get: { parameters: Array.from({ length: 300 }, (_, index) => ({ name: `q${index}`, in: 'query' })) } },
      '/proto': { get: { parameters: [JSON.parse('{"name":"__proto__","in":"query"}')] } },
      '/long': { get: { parameters: [{ name: 'n'.repeat(2000), in: 'query' }] } },
    };
    const url = await api({ '/openapi.json': JSON.stringify({ paths, info: { title: '${HOME}' } }) });
    const { code, err, out } = await svc('init', '--upstream', url, '--yes');
    expect(code).toBe(0);
    expect(err).toBe(`svc: ${url}/openapi.json: it does not say its version (openapi: 3.…); it is read as OpenAPI 3.0`);
    expect(out).toContain('1 tool from');
    const { configuration } = await loadConfiguration('gateway.yaml');
    expect(configuration.users.map(({ id }) => id)).toEqual(['operator', 'reviewer']);
    expect(configuration.tools.map((tool) => httpCall(tool).request.path)).toEqual(['/ok']);
    const comments = readFileSync('gateway.yaml', 'utf8').split('\n');
    expect(comments.filter((line) => /\p{Cc}|\p{Cf}|.{210}/u.test(line))).toEqual([]);
  });

  test('is not read to its end where it is too long', async () => {
    let sent = 0;
    const server = createServer((request, response) => {
      if (request.url !== '/openapi.json') {
        response.writeHead(404).end();
        return;
      }
      const chunk = 'x'.repeat(65_536);
      const more = (): void => {
        let goesOn = true;
        while (goesOn && !response.destroyed) {
          goesOn = response.write(chunk);
          sent += chunk.length;
        }
      };
      response.on('drain', more);
      more();
    });
    servers.push(server);
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    const address = server.address();
    const url = `http://127.0.0.1:${typeof address === 'object' && address !== null ? address.port : 0}`;
    const found = await svc('init', '--upstream', url, '--yes');
    expect(found.code).toBe(0);
    expect(found.out).toContain('No OpenAPI document was found');
    // What stands in buffers was sent as well, and not read.
    expect(sent).toBeGreaterThan(MOST_READ);
    expect(sent).toBeLessThan(1.5 * MOST_READ);

    sent = 0;
    const named = await svc('init', '--upstream', url, '--openapi', `${url}/openapi.json`, '--yes', '--force');
    expect(named.err).toContain(`is larger than ${MOST_READ} bytes`);
    expect(named.code).toBe(2);
    expect(sent).toBeLessThan(1.5 * MOST_READ);
  });
});

test('in front of an API without a document reads pass, and the files hold', async () => {
  const url = await api({});
  const { code, out } = await svc('init', '--upstream', url, '--yes', '--name', 'shop');
  expect(code).toBe(0);
  expect(out).toContain('No OpenAPI document was found');
  expect(JSON.parse((await svc('config', 'check', 'gateway.yaml', '--json')).out)).toEqual({ findings: [] });
  const { configuration } = await loadConfiguration('gateway.yaml');
  expect(configuration.routes).toMatchObject([
    { upstream: 'shop', prefix: '/shop', undeclared: 'passthrough_reads', pendingStatus: 409 },
  ]);
});

test.each(['observe', 'enforce'] as const)('its policy on reads, in %s', async (mode) => {
  const url = await api({ '/openapi.json': JSON.stringify({ paths: { '/users/{id}': { get: {} } } }) });
  await svc('init', '--upstream', url, '--yes', '--name', 'shop');
  const { configuration } = await loadConfiguration('gateway.yaml');
  const { set } = await loadPolicySets(surroundingsOfPolicies(configuration));
  const [declared] = configuration.tools;
  if (declared === undefined) throw new Error('the document declares a read');
  const judge = (tool: Tool) => evaluatePolicies(set, { ...inputOfTool(tool), mode });
  expect(judge(declared)).toMatchObject({ kind: 'permit', trace: { observed: null } });
  expect(judge(undeclaredRead('shop'))).toMatchObject(
    mode === 'enforce'
      ? { kind: 'deny', reason: { code: 'no_rule_allows' } }
      : { kind: 'permit', trace: { observed: { would: 'denied_policy' } } },
  );

  const file = join('policies', 'first.yaml');
  const text = readFileSync(file, 'utf8');
  writeFileSync(
    file,
    text.replace(/^ {2}# (- id: undeclared-reads(?:\n {2}# .*)*)/m, (rule) => rule.replaceAll('  # ', '  ')),
  );
  const opened = await loadPolicySets(surroundingsOfPolicies(configuration));
  expect(evaluatePolicies(opened.set, { ...inputOfTool(undeclaredRead('shop')), mode: 'enforce' }).kind).toBe('permit');
});

test.each(['my-gateway', './my-gateway/', '../svc-init-beside', '/absolute'])(
  'with --dir %s the paths in the file hold where svc runs',
  async (dir) => {
    const folder = dir === '/absolute' ? join(process.cwd(), 'absolute') : dir;
    folders.push(resolve(folder));
    const { code, out } = await svc('init', '--upstream', await api({}), '--yes', '--dir', folder);
    const file = join(folder, 'gateway.yaml');
    expect(out).toContain(`node ${resolve(import.meta.dirname, '../../bin/svc.mjs')} start --config ${file}\n`);
    expect(out).not.toContain('npx');
    expect(code).toBe(0);
    const { configuration } = await loadConfiguration(file);
    expect(resolve(storeFolder(configuration.store))).toBe(resolve(folder, 'data'));
    expect(readFileSync(join(folder, 'data', '.gitignore'), 'utf8')).toBe('*\n');
    // It will hold the master secret.
    expect(statSync(join(folder, 'data')).mode & 0o777).toBe(0o700);
    expect(JSON.parse((await svc('config', 'check', file, '--json')).out)).toEqual({ findings: [] });
  },
);

test.each([
  ['--agent', '007'],
  ['--agent', 'null'],
  ['--agent', 'a:'],
  ['--agent', 'bot@example.com'],
  ['--workspace', 'true'],
  ['--workspace', '1_0'],
  ['--name', 'null'],
])('%s %s stands in the files as it was given', async (option, id) => {
  const { code } = await svc('init', '--upstream', await api({}), '--yes', option, id);
  expect(code).toBe(0);
  expect(JSON.parse((await svc('config', 'check', 'gateway.yaml', '--json')).out)).toEqual({ findings: [] });
  const { configuration } = await loadConfiguration('gateway.yaml');
  const [workspace] = configuration.workspaces;
  expect([workspace?.agents[0]?.id, workspace?.id, configuration.upstreams[0]?.id]).toContain(id);
});

describe('what it refuses', () => {
  test.each(['svc', 'docs', 'V1'])("an upstream called as the gateway's own: %s", async (name) => {
    const { code, err } = await svc('init', '--upstream', await api({}), '--yes', '--name', name);
    expect(err).toMatch(/gateway's own; name the upstream otherwise with --name/);
    expect(code).toBe(2);
    expect(existsSync('gateway.yaml')).toBe(false);
  });

  test.each([
    ['a URL with a path', 'http://127.0.0.1:9/v1', /origin: http:\/\/127\.0\.0\.1:9/],
    ['a URL with credentials', 'http://u:p@127.0.0.1:9', /without credentials/],
    ['another scheme', 'ftp://127.0.0.1', /http or https/],
    ['an API that is not there', 'http://127.0.0.1:1', /nothing answers at/],
  ])('%s', async (_, url, words) => {
    const { code, err } = await svc('init', '--upstream', url, '--yes');
    expect(err).toMatch(words);
    expect(code).toBe(2);
    expect(existsSync('gateway.yaml')).toBe(false);
  });

  test('to overwrite, unless told so', async () => {
    const url = await api({});
    await svc('init', '--upstream', url, '--yes');
    const second = await svc('init', '--upstream', url, '--yes');
    expect(second.err).toMatch(/gateway\.yaml is there already; --force/);
    expect(second.code).toBe(2);
    expect((await svc('init', '--upstream', url, '--yes', '--force')).code).toBe(0);
  });

  test('to put in force what somebody wrote for another configuration', async () => {
    mkdirSync('policies');
    writeFileSync(join('policies', 'theirs.yaml'), 'kind: PolicySet\n');
    const { code, err } = await svc('init', '--upstream', await api({}), '--yes');
    expect(err).toMatch(/theirs\.yaml is there already and would be in force too; .*--dir my-gateway/);
    expect(code).toBe(2);
    expect(existsSync('gateway.yaml')).toBe(false);
  });
});
