import { appendFileSync, copyFileSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { unchangeable } from '../../src/config/changes.ts';
import type { Configuration } from '../../src/config/configuration.ts';
import { checkConfiguration, loadConfiguration } from '../../src/config/load.ts';
import { parseDuration, parseSize } from '../../src/config/units.ts';
import { InvalidFiles } from '../../src/diagnostics/render.ts';
import { lockOf } from '../system/mcp/lenient-server.ts';

const ROOT = join(import.meta.dirname, '..', '..');
let folder = '';
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'svc-config-'));
});
afterAll(() => rmSync(folder, { recursive: true }));

function written(yaml: string): string {
  const file = join(folder, 'gateway.yaml');
  writeFileSync(file, yaml);
  return file;
}

async function load(yaml: string, environment: Readonly<Record<string, string>> = {}): Promise<Configuration> {
  return (await loadConfiguration(written(yaml), { environment })).configuration;
}

async function faultsOf(yaml: string, environment: Readonly<Record<string, string>> = {}): Promise<InvalidFiles> {
  try {
    await load(yaml, environment);
  } catch (error) {
    if (error instanceof InvalidFiles) return error;
    throw error;
  }
  throw new Error('the file was accepted');
}

it.each([
  ['${PORT}', '18080', 18_080],
  ['${PORT:-9090}', '', 9090],
  ['1${PORT}', '8080', 18_080],
])('the number %s may come from a variable', async (text, value, port) => {
  expect((await load(`server: { port: "${text}" }\n`, { PORT: value })).server.port).toBe(port);
});

it.each(['18e3', '0x50', '80 ', '8080.5', 'many'])('the text %j of a variable is no number', async (value) => {
  const { findings } = await faultsOf('server: { port: "${PORT}" }\n', { PORT: value });
  expect(findings.map(({ code }) => code)).toEqual(['wrong_type']);
});

describe('the files that are shipped', () => {
  it('config/demo.yaml loads without a finding, as it is on record', async () => {
    const environment = { DEMO_PAYMENTS_URL: 'http://127.0.0.1:41234' };
    const { configuration, warnings } = await loadConfiguration(join(ROOT, 'config', 'demo.yaml'), { environment });
    expect(warnings).toEqual([]);
    const golden = { ...configuration, rolesOf: Object.fromEntries(configuration.rolesOf) };
    await expect(`${JSON.stringify(golden, null, 2)}\n`).toMatchFileSnapshot(
      join(ROOT, 'test/config/golden/demo.json'),
    );
  });

  it('what the pages on the archive, notifications and Redis show loads, and means what they say', async () => {
    const shown = async (page: string) => {
      const text = readFileSync(join(ROOT, 'docs', 'operating', `${page}.md`), 'utf8');
      const secret = `whsec_${Buffer.alloc(24, 1).toString('base64')}`;
      const environment = {
        S3_ACCESS_KEY: 'a',
        S3_SECRET_KEY: 's',
        WEBHOOK_SECRET: secret,
        SLACK_WEBHOOK_URL: 'https://hooks.example/x',
        MAIL_PASSWORD: 'p',
      };
      const loaded: Configuration[] = [];
      for (const [, yaml = ''] of text.matchAll(/```yaml\n([\s\S]*?)```/g)) loaded.push(await load(yaml, environment));
      return loaded;
    };
    expect((await shown('archive')).map(({ store }) => store)).toMatchObject([
      { archive: { kind: 'folder', path: './archive' } },
      {
        archive: { kind: 'bucket', url: 'https://s3.eu-central-1.amazonaws.com/my-bucket/svc', region: 'eu-central-1' },
      },
    ]);
    expect((await shown('notifications')).map(({ webhooks }) => webhooks)).toMatchObject([
      [
        { format: 'standard', events: ['approval.requested', 'execution.lost'], workspaces: null },
        { format: 'slack', workspaces: ['payments'] },
        { format: 'mail', server: { tls: 'implicit', user: 'svc', password: 'p' }, to: ['oncall@example.com'] },
      ],
    ]);
    expect((await shown('redis')).map(({ store }) => store)).toMatchObject([
      { kind: 'redis', mode: 'standalone', nodes: [], durability: 'fsync', maxFreezeMs: 600_000 },
    ]);
  });

  it('config/minimal.yaml loads without a finding', async () => {
    const report = await checkConfiguration(join(ROOT, 'config', 'minimal.yaml'));
    expect(report).toMatchObject({ exit: 0, findings: [] });
  });

  it.each(['demo.yaml', 'minimal.yaml'])('%s names its schema', (name) => {
    expect(readFileSync(join(ROOT, 'config', name), 'utf8')).toMatch(
      /^# yaml-language-server: \$schema=\.\.\/schemas\/gateway\.schema\.json\n/,
    );
  });
});

describe('defaults', () => {
  it('fill in all that is not written', async () => {
    const configuration = await load('users: []\n');
    expect(configuration).toMatchObject({
      server: { host: '127.0.0.1', port: 8080, publicUrl: null, allowedHosts: [], adminPort: null },
      store: { kind: 'embedded', path: './data', lockWaitMs: 10_000 },
      retention: { keysMs: 365 * 86_400_000, effectsMs: 30 * 86_400_000, denialsMs: 7 * 86_400_000 },
      secrets: { masterFile: 'data/keys/master', previous: [] },
      receipts: { keysDir: 'data/keys', issuer: null },
      policies: { paths: [], mode: 'enforce', secondOpinionMs: 1000 },
      limits: {
        bodyBytes: 1_048_576,
        paramsDepth: 64,
        paramsValues: 10_000,
        responseKeptBytes: 65_536,
        responseBytes: 8_388_608,
      },
      telemetry: { logLevel: 'info' },
    });
  });

  it('keys stand under the path of the store', async () => {
    const { secrets, receipts } = await load('store: { path: /var/lib/svc }\n');
    expect([secrets.masterFile, receipts.keysDir]).toEqual(['/var/lib/svc/keys/master', '/var/lib/svc/keys']);
  });

  it('a tool takes time-out and env of its upstream', async () => {
    const { tools } = await load(
      'upstreams: [{ id: a, url: "http://127.0.0.1:1/", timeout: 7s, env: staging }]\n' +
        'tools: [{ name: a.x, upstream: a, kind: read, request: { method: GET, path: / } }]\n',
    );
    expect(tools[0]).toMatchObject({ title: 'a.x', timeoutMs: 7000, env: 'staging', maxProcessingMs: 60_000 });
  });

  async function probeOf(members: string) {
    const { tools } = await load(
      'upstreams: [{ id: a, url: "http://127.0.0.1:1/" }]\n' +
        'tools: [{ name: a.x, upstream: a, kind: write, request: { method: POST, path: /x, body: [n] }, ' +
        'params_schema: { type: object, properties: { n: {} }, additionalProperties: false }, ' +
        `probe: { request: { method: GET, path: /x }, accept_state_evidence: true, ${members} } }]\n`,
    );
    return tools[0]?.probe;
  }

  it.each([
    ['happened: { status: done }', { happened: { status: 'done' }, notHappened: {} }],
    ['not_happened: { http_status: 404 }', { happened: {}, notHappened: { http_status: 404 } }],
  ])('a probe may show one side alone: %s', async (conditions, shown) => {
    expect(await probeOf(conditions)).toMatchObject(shown);
  });

  it.each([
    ['happened: { a: 1 }', { afterMs: 2_000, everyMs: 5_000, forMs: 3_600_000 }],
    ['happened: { a: 1 }, after: 3s, every: 7s, for: 2h', { afterMs: 3_000, everyMs: 7_000, forMs: 7_200_000 }],
  ])('a probe first reads after some time, then every so often, and for so long: %s', async (members, times) => {
    expect(await probeOf(members)).toMatchObject(times);
  });

  it('a write rule wants a key, a read rule none', async () => {
    const { routes } = await load(`
upstreams: [{ id: a, url: "http://127.0.0.1:1" }]
tools:
  - { name: a.w, upstream: a, kind: write, request: { method: POST, path: /x } }
  - { name: a.r, upstream: a, kind: read, request: { method: GET, path: /x } }
routes:
  - upstream: a
    prefix: /a
    rules:
      - { match: "POST /x", tool: a.w }
      - { match: "GET /x", tool: a.r }
  - upstream: a
    prefix: /b
    rules:
      - { match: "POST /x", tool: a.w, idempotency: derive }
  - upstream: a
    prefix: /c
    rules:
      - { match: "POST /x", tool: a.w, idempotency: { derive: 1h } }
`);
    expect(routes.flatMap(({ rules }) => rules.map(({ idempotency }) => idempotency))).toEqual([
      { kind: 'required' },
      { kind: 'none' },
      { kind: 'derive', windowMs: 600_000 },
      { kind: 'derive', windowMs: 3_600_000 },
    ]);
  });
});

describe('a store on Redis', () => {
  it.each([
    ['standalone', '', 'fsync'],
    ['sentinel', ', nodes: ["127.0.0.1:26379"]', 'replica'],
    ['cluster', ', nodes: ["127.0.0.1:6379"]', 'replica'],
  ])('%s keeps what was answered when nothing is said', async (mode, more, durability) => {
    const url = mode === 'sentinel' ? 'redis://mymaster' : 'redis://127.0.0.1:6379';
    const { store } = await load(`store: { kind: redis, url: "${url}", mode: ${mode}${more} }\n`);
    expect(store).toMatchObject({ kind: 'redis', mode, durability });
  });
});

it.each(['standalone', 'sentinel', 'cluster'])(
  'a store on Redis, %s, that can lose answered steps is taken where somebody accepts that in the file, and else not',
  async (mode) => {
    const nodes = mode === 'standalone' ? '' : ', nodes: ["127.0.0.1:26379"]';
    const store = (more: string) =>
      `store: { kind: redis, url: "redis://primary", mode: ${mode}${nodes}, durability: local${more} }\n`;
    for (const more of ['', ', allow_weak_durability: false'])
      expect((await faultsOf(store(more))).findings.map(({ code }) => code)).toContain('weak_durability');
    const accepted = await load(store(', allow_weak_durability: true'));
    expect(accepted.store).toMatchObject({ durability: 'local', allowWeakDurability: true });
  },
);

it('names that a Host header may carry are the same in any case', async () => {
  const { server } = await load('server: { allowed_hosts: [Gateway.Example, other.example] }\n');
  expect(server.allowedHosts).toEqual(['gateway.example', 'other.example']);
});

describe('what stands beside a store', () => {
  it('on Redis is by default where its journal is, for ten minutes of freeze and a week of clock', async () => {
    const { store, secrets, receipts } = await load('store: { kind: redis, url: "redis://127.0.0.1:6379" }\n');
    expect(store).toMatchObject({ journal: './data/journal', maxFreezeMs: 600_000, maxClockJumpMs: 7 * 86_400_000 });
    expect([secrets.masterFile, receipts.keysDir]).toEqual(['data/keys/master', 'data/keys']);
    const other = await load('store: { kind: redis, url: "redis://127.0.0.1:6379", journal: /var/svc/journal }\n');
    expect([other.secrets.masterFile, other.receipts.keysDir]).toEqual(['/var/svc/keys/master', '/var/svc/keys']);
  });

  it('is an archive in a folder, or in a bucket of the usual region and at any address', async () => {
    const archiveOf = async (archive: string) => {
      const { store } = await load(`store: { archive: ${archive} }\n`);
      return store.kind === 'embedded' ? store.archive : null;
    };
    expect(await archiveOf('/var/archive')).toEqual({ kind: 'folder', path: '/var/archive' });
    const bucket = 'url: "https://s3.example.com/bucket/svc/", access_key: k, secret_key: "${K:-s}"';
    expect(await archiveOf(`{ ${bucket} }`)).toEqual({
      kind: 'bucket',
      url: 'https://s3.example.com/bucket/svc',
      region: 'us-east-1',
      accessKey: 'k',
      secretKey: 's',
      network: 'any',
    });
    expect(await archiveOf(`{ ${bucket}, region: eu-north-1, network: public }`)).toMatchObject({
      region: 'eu-north-1',
      network: 'public',
    });
  });
});

describe('addresses', () => {
  const UPSTREAM = 'upstreams: [{ id: a, url: "http://127.0.0.1:1" }]\n';
  const TLS = 'tls: { cert: test/system/tls/one.pem, key: test/system/tls/one.key.pem }';
  const routes = (...all: readonly string[]) =>
    `${UPSTREAM}routes:\n${all.map((one) => `  - { upstream: a, ${one} }\n`).join('')}`;
  const codesOf = async (yaml: string) =>
    (await faultsOf(yaml)).findings.filter(({ severity }) => severity === 'error').map(({ code }) => code);

  it.each([
    ['server: { public_url: "https://gw.example.com/?a=b" }', 'bad_url'],
    ['server: { public_url: "https://gw.example.com/#a" }', 'bad_url'],
    ['server: { public_url: "https://me@gw.example.com" }', 'bad_url'],
    ['server: { public_url: "https://:word@gw.example.com" }', 'bad_url'],
    ['server: { port: 8080, admin_port: 8080 }', 'same_port'],
  ])('%s is refused', async (yaml, code) => {
    expect(await codesOf(`${yaml}\n`)).toEqual([code]);
  });

  it('two ports that the system chooses are not the same', async () => {
    expect((await load('server: { port: 0, admin_port: 0 }\n')).server).toMatchObject({ port: 0, adminPort: 0 });
  });

  it('a listener of a route is at no port of the gateway, not at that for health either', async () => {
    const at = (port: number) =>
      `server: { port: 8080, admin_port: 8081 }\n${routes(`prefix: /, listen: "127.0.0.1:${port}"`)}`;
    for (const port of [8080, 8081]) expect([port, await codesOf(at(port))]).toEqual([port, ['same_port']]);
    expect((await load(at(8082))).listeners).toMatchObject([{ at: '127.0.0.1:8082', port: 8082, tls: null }]);
  });

  it('routes share a listener, and say its tls once, in whichever of them, or all the same', async () => {
    const listen = 'listen: "127.0.0.1:8443"';
    const two = (first: string, second: string) =>
      routes(`prefix: /a, ${listen}${first}`, `prefix: /b, ${listen}${second}`);
    for (const [first, second] of [
      [`, ${TLS}`, ''],
      ['', `, ${TLS}`],
      [`, ${TLS}`, `, ${TLS}`],
    ] as const) {
      const { listeners } = await load(two(first, second));
      expect(listeners.map(({ tls }) => tls !== null)).toEqual([true]);
    }
    const other = `, ${TLS.replaceAll('one', 'two')}`;
    expect(await codesOf(two(`, ${TLS}`, other))).toEqual(['listener_differs']);
  });

  it.each([
    ['localhost', ''],
    ['gw.example.com', 'server: { public_url: "https://GW.example.com/base" }\n'],
    ['also.example.com', 'server: { allowed_hosts: [Also.example.com] }\n'],
    ['inner.example.com', 'server: { host: inner.example.com }\n'],
  ])('%s, by which the gateway is known, is no host of a route, but at a listener of its own', async (host, server) => {
    const upper = host.toUpperCase();
    expect(await codesOf(server + routes(`prefix: /, host: ${upper}`))).toEqual(['reserved_host']);
    const { routes: found } = await load(server + routes(`prefix: /, host: ${upper}, listen: "127.0.0.1:8443"`));
    // As requests are looked up, which name it in any case.
    expect(found.map((route) => route.host)).toEqual([host]);
  });

  it('each host and each listener has prefixes of its own, and those that the gateway has at its own port', async () => {
    const listen = 'listen: "127.0.0.1:8443"';
    const apart = ['host: a.example.com', 'host: b.example.com', listen, `host: a.example.com, ${listen}`];
    const { routes: found } = await load(
      routes('prefix: /a', ...apart.map((one) => `prefix: /v1, ${one}`), 'prefix: /, host: c.example.com'),
    );
    expect(found).toHaveLength(6);
    for (const one of apart)
      expect(await codesOf(routes(`prefix: /, ${one}`, `prefix: /v1, ${one}`))).toEqual(['overlapping_prefixes']);
    expect(await codesOf(routes('prefix: /'))).toEqual(['bad_prefix']);
  });
});

describe('what a family of APIs needs', () => {
  const routeOf = async (more: string) => {
    const yaml = `upstreams: [{ id: a, url: "http://127.0.0.1:1" }]\nroutes: [{ upstream: a, prefix: /a, ${more} }]\n`;
    return (await load(yaml)).routes[0];
  };

  it('final_status is 422 for libraries of GitHub, and none for others, where nothing else is said', async () => {
    const finalOf = async (more: string) => (await routeOf(more))?.finalStatus;
    expect(await finalOf('error_format: github')).toBe(422);
    expect(await finalOf('error_format: github, final_status: 409')).toBe(409);
    expect(await finalOf('error_format: openai')).toBeNull();
    expect(await finalOf('error_format: openai, final_status: 422')).toBe(422);
  });

  it('links of Slack have the address of an upload; a dot in a name is written \\.', async () => {
    const linksOf = async (more: string) => (await routeOf(more))?.links;
    expect(await linksOf('error_format: slack, links: [next]')).toEqual([['upload_url'], ['next']]);
    expect(await linksOf("error_format: openai, links: ['_links.*.href', 'odata\\.next', 'a.b\\.c.d']")).toEqual([
      ['_links', '*', 'href'],
      ['odata.next'],
      ['a', 'b.c', 'd'],
    ]);
  });
});

describe('a tool', () => {
  const toolOf = async (more: string) => {
    const { tools } = await load(
      'upstreams: [{ id: a, url: "http://127.0.0.1:1" }]\n' +
        `tools: [{ name: a.x, upstream: a, kind: write, request: { method: POST, path: /x, body: "*" }, ${more} }]\n`,
    );
    return tools[0];
  };

  it('may stream for ten minutes, up to limits.stream, where nothing else is said', async () => {
    expect((await toolOf('response: stream'))?.streams).toEqual({ totalMs: 600_000, bytes: 256 * 1024 * 1024 });
    expect((await toolOf('response: stream, stream_time: 30s'))?.streams).toMatchObject({ totalMs: 30_000 });
    expect(await toolOf('response: whole')).not.toHaveProperty('streams');
  });

  it('adds up what an answer says was spent, and of a list in place of a path takes the first that is there', async () => {
    const actual = async (written: string) => (await toolOf(`actual: { token: ${written} }`))?.actual;
    expect(await actual('usage.total')).toEqual({ token: [['usage.total']] });
    expect(await actual('[usage.in, usage.out]')).toEqual({ token: [['usage.in'], ['usage.out']] });
    expect(await actual('[[usage.in, message.in], usage.out]')).toEqual({
      token: [['usage.in', 'message.in'], ['usage.out']],
    });
  });
});

describe('what would be ignored is a fault', () => {
  const codes = async (yaml: string) =>
    (await checkConfiguration(written(`policies: { paths: [./src] }\n${yaml}\n`))).findings.map(({ code }) => code);
  const REDIS = 'kind: redis, url: "redis://127.0.0.1:6379"';

  it.each([
    ['path: ./x', 'redis'],
    ['fence: ./x', 'redis'],
    ['archive: ./x', 'redis'],
    ['backup_every: 1d', 'redis'],
    ['lock_wait: 1s', 'redis'],
    ['url: "redis://127.0.0.1:6379"', 'embedded'],
    ['mode: standalone', 'embedded'],
    ['nodes: ["127.0.0.1:6379"]', 'embedded'],
    ['durability: fsync', 'embedded'],
    ['journal: ./x', 'embedded'],
    ['max_freeze: 1m', 'embedded'],
    ['allow_weak_durability: true', 'embedded'],
  ])('store.%s with kind: %s', async (field, kind) => {
    expect(await codes(`store: { ${kind === 'redis' ? REDIS : 'kind: embedded'}, ${field} }`)).toEqual(['other_store']);
    // The documentation says of each which store it is for.
    const page = readFileSync(join(ROOT, 'docs', 'operating', 'configuration.md'), 'utf8');
    const row = page.split('\n').find((line) => line.startsWith(`| \`store.${field.split(':')[0]}\` |`));
    expect(row).toContain(kind === 'redis' ? ' | embedded: ' : ' | redis: ');
  });

  it('a port of the primary, which Sentinel names', async () => {
    const sentinel = (url: string) =>
      `store: { kind: redis, mode: sentinel, nodes: ["127.0.0.1:26379"], url: "${url}" }`;
    expect(await codes(sentinel('redis://mymaster'))).toEqual([]);
    for (const port of [6379, 6380]) expect(await codes(sentinel(`redis://mymaster:${port}`))).toEqual(['bad_url']);
  });

  it.each(['Host', 'TE', 'Trailer', 'Upgrade', 'Expect', 'Keep-Alive', 'Transfer-Encoding', 'Content-Type', 'Svc-Key'])(
    'credentials as the header %s',
    async (header) => {
      const yaml = `upstreams: [{ id: a, url: "https://a.example", credentials: { header: ${header}, value: "\${K:-v}" } }]`;
      expect(await codes(yaml)).toEqual(['forbidden_header']);
    },
  );

  it.each([
    ['kind: read, request: { method: PUT, path: /x }', ['read_that_writes']],
    ['kind: read, request: { method: PATCH, path: /x }', ['read_that_writes']],
    ['kind: read, request: { method: POST, path: /x }', []],
    ['kind: write, request: { method: POST, path: /x, body: "*", body_type: multipart, form_lists: repeat }', []],
    ['kind: write, request: { method: POST, path: /x, body: "*", form_lists: repeat }', ['unused_field']],
    [
      'kind: write, request: { method: POST, path: /x }, state: { request: { method: GET, path: /x, body: "*", body_type: multipart } }',
      ['body_on_read', 'files_of_read'],
    ],
  ])('of a tool: %s', async (tool, expected) => {
    const yaml = `upstreams: [{ id: a, url: "http://127.0.0.1:1" }]\ntools: [{ name: a.x, upstream: a, ${tool} }]`;
    expect((await codes(yaml)).toSorted()).toEqual(expected);
  });
});

describe('headers that a tool sets', () => {
  const codes = async (more: string, request = '') => {
    const yaml =
      'policies: { paths: [./src] }\nupstreams: [{ id: a, url: "http://127.0.0.1:1" }]\n' +
      `tools: [{ name: a.x, upstream: a, kind: write, request: { method: POST, path: /x${request} }${more} }]\n`;
    return (await checkConfiguration(written(yaml))).findings.map(({ code }) => code);
  };
  const page = readFileSync(join(ROOT, 'docs', 'operating', 'configuration.md'), 'utf8');
  const [, never = ''] = /\*\*Never sent on\*\*: (.+?), and what/.exec(page) ?? [];
  const names = [...never.matchAll(/`([^`]+)`/g)].map(([, name = '']) => name.replace('*', 'any'));

  it.each([
    ...names,
    'authorization',
    'cookie',
    'content-type',
    'forwarded',
    'x-forwarded-for',
    'x_http_method_override',
  ])('no param, and no key but an Idempotency-Key, is sent as %s', async (name) => {
    expect(await codes('', `, headers: { p: ${name} }`)).toEqual(['forbidden_header']);
    const ofKey = await codes(`, idempotent: { header: ${name}, for: 24h }`);
    expect(ofKey).toEqual(name === 'idempotency-key' ? [] : ['forbidden_header']);
  });

  it('all others are', async () => {
    expect(names.length).toBeGreaterThan(20);
    for (const name of ['x-tenant', 'stripe-account', 'if-match', 'x-request-id'])
      expect(await codes('', `, headers: { p: ${name} }`)).toEqual([]);
  });
});

describe('the query of a tool', () => {
  const templateOf = async (request: string, schema: string, route: string | null = null) => {
    const { tools } = await load(
      'upstreams: [{ id: a, url: "http://127.0.0.1:1" }]\n' +
        `tools: [{ name: a.x, upstream: a, kind: read, request: { method: GET, path: /x, ${request} }, params_schema: { type: object, ${schema} } }]\n` +
        (route === null
          ? ''
          : `routes: [{ upstream: a, prefix: /a, undeclared_query: ${route}, rules: [{ match: "GET /x", tool: a.x }] }]\n`),
    );
    const [tool] = tools;
    return { properties: tool?.paramsSchema?.['properties'], ...(tool?.call.kind === 'http' ? tool.call.request : {}) };
  };

  it.each([
    ['query: [a]', null, undefined],
    ['query: [a]', 'refuse', undefined],
    ['query: [a]', 'pass', 'query'],
    ['query: [a], query_rest: more', 'pass', 'more'],
    ['query: [a], query_rest: more', 'refuse', 'more'],
  ])('%s, where a route says %s, takes what is not declared as %s', async (request, route, rest) => {
    const found = await templateOf(request, 'properties: { a: {} }, additionalProperties: false', route);
    expect(found.queryRest).toBe(rest);
    // A schema that is closed lets the group in that was asked for.
    expect(found.properties).toEqual(rest === undefined ? { a: {} } : { a: {}, [rest]: { type: 'object' } });
  });

  it('has the group as the schema says it is, where it does', async () => {
    const more = 'more: { type: object, properties: { after: { type: string } }, additionalProperties: false }';
    const found = await templateOf('query_rest: more', `properties: { ${more} }, additionalProperties: false`);
    expect(found.properties).toMatchObject({ more: { properties: { after: {} }, additionalProperties: false } });
  });

  it('is written as it says: what may be a list as query_lists, single params as query_styles', async () => {
    const properties =
      'properties: { one: { type: string }, some: { type: array }, maybe: { type: [array, "null"] }, both: { anyOf: [{ type: integer }, { type: object }] } }';
    const styles = async (more: string) =>
      (await templateOf(`query: [one, some, maybe, both]${more}`, properties)).queryStyles;
    expect(await styles('')).toEqual({ some: 'repeat', maybe: 'repeat', both: 'repeat' });
    expect(await styles(', query_lists: indices, query_styles: { maybe: comma }')).toEqual({
      some: 'indices',
      maybe: 'comma',
      both: 'indices',
    });
  });
});

describe('what files are watched', () => {
  it('are those of certificates, credentials and pins too, whose new content is another configuration', async () => {
    const tls = (name: string) => `{ cert: test/system/tls/${name}.pem, key: test/system/tls/${name}.key.pem }`;
    const token = join(folder, 'token');
    const pins = join(folder, 'pins.json');
    const own = [join(folder, 'own.pem'), join(folder, 'own.key.pem')] as const;
    const file = join(folder, 'watched.yaml');
    writeFileSync(token, 'one');
    writeFileSync(pins, lockOf('m', [{ name: 'put', inputSchema: { type: 'object' } }]));
    const ownPair = (name: string): void => {
      copyFileSync(`test/system/tls/${name}.pem`, own[0]);
      copyFileSync(`test/system/tls/${name}.key.pem`, own[1]);
    };
    ownPair('one');
    writeFileSync(
      file,
      `server: { tls: ${tls('one')} }\n` +
        'upstreams:\n' +
        `  - { id: a, url: "https://127.0.0.1:1", tls: { ca: test/system/tls/ca.pem, cert: "${own[0]}", key: "${own[1]}" }, credentials: { header: x, file: "${token}" } }\n` +
        `  - { id: m, mcp: { url: "http://127.0.0.1:1/mcp", pins: "${pins}" } }\n` +
        `routes: [{ upstream: a, prefix: /, listen: "127.0.0.1:8443", tls: ${tls('two')} }]\n`,
    );
    const { files, configuration } = await loadConfiguration(file);
    const pems = ['ca', 'one', 'one.key', 'two', 'two.key'].map((name) => `test/system/tls/${name}.pem`);
    expect(files.toSorted()).toEqual([token, pins, ...own, file, ...pems].toSorted());
    const digests = [configuration.digest];
    for (const change of [
      () => writeFileSync(token, 'two'),
      () => ownPair('two'),
      () => writeFileSync(pins, lockOf('m', [{ name: 'put', inputSchema: { type: 'object', title: 'Put' } }])),
    ]) {
      change();
      const { digest, sharedDigest } = (await loadConfiguration(file)).configuration;
      expect(digests).not.toContain(digest);
      digests.push(digest);
      expect(sharedDigest).toBe(configuration.sharedDigest);
    }
  });
});

describe('a renewed certificate', () => {
  it.each([
    ['of the gateway', (pair: string) => `server: { tls: ${pair} }\n`],
    [
      'of a listener',
      (pair: string) =>
        'upstreams: [{ id: a, url: "http://127.0.0.1:1" }]\n' +
        `routes: [{ upstream: a, prefix: /, listen: "127.0.0.1:8443", tls: ${pair} }]\n`,
    ],
  ])('%s is another configuration, though its key is the same', async (_whose, text) => {
    const cert = join(folder, 'renewed.pem');
    copyFileSync('test/system/tls/one.pem', cert);
    const file = join(folder, 'renewed.yaml');
    writeFileSync(file, text(`{ cert: "${cert}", key: test/system/tls/one.key.pem }`));
    const before = (await loadConfiguration(file)).configuration;
    // With its issuer's, as a renewed one often comes.
    appendFileSync(cert, readFileSync('test/system/tls/ca.pem'));
    const after = (await loadConfiguration(file)).configuration;
    expect(after.digest).not.toBe(before.digest);
    expect(after.sharedDigest).toBe(before.sharedDigest);
  });
});

describe('references to the environment', () => {
  it('are replaced, once, in values alone', async () => {
    const { users, server, workspaces } = await load(
      'server: { host: "${HOST}", public_url: "http://${HOST}:${PORT:-81}" }\n' +
        'users: [{ id: "${A}-${B:-b}" }]\n' +
        'workspaces: [{ id: w, agents: [{ id: x, attributes: { literal: "$${A}", nested: "${C}", "${A}": 1 } }] }]\n',
      { HOST: 'localhost', A: 'a', C: '${A}' },
    );
    expect(server).toMatchObject({ host: 'localhost', publicUrl: 'http://localhost:81' });
    expect(users[0]?.id).toBe('a-b');
    expect(workspaces[0]?.agents[0]?.attributes).toEqual({ literal: '${A}', nested: '${A}', '${A}': 1 });
  });

  it('become numbers and booleans where the schema wants them', async () => {
    const { server, auth } = await load(
      'server: { port: "${PORT}" }\nauth: { profiles: [{ name: p, scopes: [], read_only: "${RO}" }] }\n',
      { PORT: '9100', RO: 'true' },
    );
    expect(server.port).toBe(9100);
    expect(auth.profiles[0]?.readOnly).toBe(true);
  });

  it.each([
    ['an empty one', { A: '' }, 'b'],
    ['one that is not set', {}, 'b'],
    ['one with a value', { A: 'a' }, 'a'],
  ])('of %s, the default is taken where there is no value', async (_, environment, id) => {
    expect((await load('users: [{ id: "${A:-b}" }]\n', environment)).users[0]?.id).toBe(id);
    expect((await load('users: [{ id: "x${A:-}" }]\n', environment)).users[0]?.id).toBe(id === 'a' ? 'xa' : 'x');
  });

  it.each(['1', 'yes', 'True', ''])('are no boolean where they hold %j', async (text) => {
    const yaml = 'auth: { profiles: [{ name: p, scopes: [], read_only: "${RO:-no}" }] }\n';
    await expect(load(yaml, { RO: text })).rejects.toThrow(InvalidFiles);
  });

  it('stay text where text is wanted', async () => {
    const { users } = await load('users: [{ id: "${N}" }]\n', { N: '42' });
    expect(users[0]?.id).toBe('42');
  });

  it('each missing one is told, with its line', async () => {
    const { findings } = await faultsOf('users:\n  - id: ${SVC_NO_1}\n  - id: ${SVC_NO_2}\n');
    expect(findings.map(({ at }) => at?.line)).toEqual([2, 3]);
  });

  it('of credentials do not reach the digest, all else does', async () => {
    const yaml = (port: number) =>
      `server: { port: ${port} }\nupstreams: [{ id: a, url: "https://x", credentials: { header: x, value: "\${T}" } }]\n`;
    const [one, two, other] = [
      await load(yaml(1), { T: 'a' }),
      await load(yaml(1), { T: 'b' }),
      await load(yaml(2), { T: 'a' }),
    ];
    expect(one.upstreams[0]?.credentials?.value).toBe('a');
    expect(one.digest).toBe(two.digest);
    expect(one.digest).not.toBe(other.digest);
    // Where a gateway listens is its own.
    expect(one.sharedDigest).toBe(other.sharedDigest);
    const more = await load(`${yaml(1)}users: [{ id: maria }]\n`, { T: 'a' });
    expect(more.sharedDigest).not.toBe(one.sharedDigest);
  });
});

describe('what gateways of one store have to have alike', () => {
  const ON_REDIS = 'store: { kind: redis, url: "redis://127.0.0.1:6379", journal: ./one }';
  const digestOf = async (yaml: string) => (await load(yaml)).sharedDigest;

  it.each([
    ['server', 'server: { port: 81 }'],
    ['secrets', 'secrets: { master: { file: ./elsewhere } }'],
    ['receipts', 'receipts: { keys: ./elsewhere }'],
    ['telemetry', 'telemetry: { access_log: false }'],
    ['policies.paths', 'policies: { paths: [./policies] }'],
  ])('%s is a gateway’s own', async (_, own) => {
    expect(await digestOf(`${ON_REDIS}\n${own}\n`)).toBe(await digestOf(`${ON_REDIS}\n`));
  });

  it('so is the journal, and nothing else of the store', async () => {
    const one = await digestOf(ON_REDIS);
    expect(await digestOf(ON_REDIS.replace('./one', './two'))).toBe(one);
    expect(await digestOf(ON_REDIS.replace('6379', '6380'))).not.toBe(one);
    expect(await digestOf(ON_REDIS.replace('./one', './one, durability: fsync, max_freeze: 1m'))).not.toBe(one);
  });

  it.each([
    ['who there is', 'users: [ { id: maria } ]'],
    ['where calls go', 'upstreams: [ { id: a, url: "http://127.0.0.1:1" } ]'],
    ['how long records are kept', 'retention: { effects: 1d }'],
    ['whether policy is in force', 'policies: { mode: observe }'],
    ['what is let in', 'limits: { connections: 100 }'],
  ])('%s is not', async (_, shared) => {
    expect(await digestOf(`${ON_REDIS}\n${shared}\n`)).not.toBe(await digestOf(`${ON_REDIS}\n`));
  });
});

describe('what comes out', () => {
  it('is frozen all the way down', async () => {
    const { configuration } = await loadConfiguration(join(ROOT, 'config', 'demo.yaml'));
    const look = (value: unknown): void => {
      if (typeof value !== 'object' || value === null) return;
      expect(Object.isFrozen(value)).toBe(true);
      for (const item of Object.values(value)) look(item);
    };
    look(configuration);
  });

  it('holds all roles of a user, included ones too', async () => {
    const { rolesOf, roles } = await load(
      'roles: { lead: { includes: [clerk, auditor] }, clerk: { includes: [reader] } }\nusers: [{ id: m, roles: [lead] }, { id: n }]\n',
    );
    expect(rolesOf.get('m')).toEqual(['lead', 'clerk', 'auditor', 'reader']);
    expect(rolesOf.get('n')).toEqual([]);
    expect(roles).toEqual(['lead', 'clerk', 'auditor', 'reader']);
  });

  it("changes a tool's digest with all that decides where a call goes, and with nothing else", async () => {
    const digest = async (upstream: string, tool: string): Promise<string | undefined> => {
      const { tools } = await load(
        `upstreams: [{ id: a, ${upstream} }]\ntools: [{ name: a.x, upstream: a, kind: write, ${tool} }]\n`,
      );
      return tools[0]?.digest;
    };
    const url = 'url: "http://127.0.0.1:1"';
    const request = 'request: { method: POST, path: "/x/{id}", body: [b] }';
    const base = await digest(url, request);
    expect(base).toMatch(/^[A-Za-z0-9_-]{43}$/);
    for (const same of [`${request}, title: T, timeout: 1s, tags: [t]`, request])
      expect(await digest(`${url}, timeout: 9s`, same)).toBe(base);
    const others = [
      await digest('url: "http://127.0.0.1:2"', request),
      await digest(`${url}, credentials: { header: x-token, value: "\${HOME:-x}" }`, request),
      await digest(url, request.replace('POST', 'PUT')),
      await digest(url, request.replace('/x/', '/y/')),
      await digest(url, request.replace('body: [b]', 'query: [b]')),
      await digest(`${url}, credentials: { header: x-other, value: "\${HOME:-x}" }`, request),
      await digest(url, request.replace('body: [b]', 'headers: [b]')),
      await digest(url, request.replace('body: [b]', 'headers: { b: x-b }')),
      await digest(url, request.replace('body: [b]', 'body: "*"')),
    ];
    expect(new Set([base, ...others]).size).toBe(1 + others.length);
    // The secret itself may change.
    const secret = (value: string) => `${url}, credentials: { header: x-token, value: "\${NONE:-${value}}" }`;
    expect(await digest(secret('a'), request)).toBe(await digest(secret('b'), request));
    // How params are written decides what the upstream reads.
    const written = [
      'body: [b]',
      'body: [b], body_type: form',
      'body: [b], body_type: form, form_lists: brackets',
      'body: [b], body_type: multipart',
      'body_as: b',
      'body_as: more',
      'query: [b]',
      'query: [b], query_lists: brackets',
      'query: [b], query_styles: { b: pipe }',
      'query: [b], query_rest: more',
      'query: [c], query_rest: more',
      'query: [c], query_rest: more, query_lists: indices',
    ];
    const schema =
      'params_schema: { type: object, properties: { id: { type: string }, b: { type: array }, c: { type: string }, more: { type: object } } }';
    const digests: (string | undefined)[] = [];
    for (const how of written) digests.push(await digest(url, `${request.replace('body: [b]', how)}, ${schema}`));
    expect(digests).not.toContain(undefined);
    expect(new Set(digests).size).toBe(written.length);
  });
});

describe('faults', () => {
  it.each(['body: [b]', 'query: [b]', 'headers: [b]', 'body_as: b'])(
    'name a param that the schema does not have, in %s',
    async (placed) => {
      const schema =
        'params_schema: { type: object, additionalProperties: false, properties: { a: { type: object } } }';
      const tool = `name: api.x, upstream: api, kind: write, request: { method: POST, path: /x, ${placed} }, ${schema}`;
      const { findings } = await faultsOf(
        `upstreams: [{ id: api, url: "http://127.0.0.1:1" }]\ntools:\n  - { ${tool} }\n`,
      );
      expect(findings.map(({ code }) => code)).toContain('unknown_param');
    },
  );

  it('come all at once, from every layer, each in its place', async () => {
    const { findings, message } = await faultsOf(
      [
        'server: { prot: 1 }', // shape
        'store: { lock_wait: "${SVC_NOT_SET}" }', // environment
        'users: [{ id: maria }, { id: maria }]', // meaning
        'limits: { body: 010 }', // YAML
        'upstreams:',
        '  - { id: api, url: "http://127.0.0.1:1", timeout: 5 }', // shape, in an item
        '  - { id: web, url: "ftp://x" }', // meaning
        'tools:',
        '  - { name: api.x, upstream: api, kind: write, request: { method: POST, path: /x, body: [a, a] } }',
        '  - { name: api.y, upstream: apo, kind: write, request: { method: GET, path: /x, body: "*" } }',
        'routes: [{ upstream: web, prefix: /mcp, rules: [{ match: "GET /x", tool: api.z }] }]',
        'policies: { paths: [{ path: ., scope: demo }] }',
      ].join('\n'),
    );
    const found = findings.filter(({ severity }) => severity === 'error').map(({ code, at }) => `${at?.line} ${code}`);
    expect(found).toEqual([
      '1 unknown_field',
      '2 bad_reference',
      '3 duplicate_user',
      '4 number_zeros',
      '6 wrong_type',
      '7 bad_url',
      '9 param_twice',
      '10 unknown_upstream',
      '10 body_on_read',
      '11 reserved_prefix',
      '11 unknown_tool',
      '12 not_yet_supported',
    ]);
    for (const { at } of findings) expect(message).toContain(`gateway.yaml:${at?.line}:${at?.column}`);
  });

  it('a file that is not there, a folder and text that is not UTF-8 are told apart', async () => {
    const binary = join(folder, 'binary.yaml');
    writeFileSync(binary, Buffer.from([0x61, 0x3a, 0x20, 0xff, 0xfe]));
    const reports = [join(folder, 'no.yaml'), folder, binary].map(async (file) => await checkConfiguration(file));
    const [missing, isFolder, notText] = await Promise.all(reports);
    expect(missing).toMatchObject({ exit: 2, findings: [{ code: 'file_unreadable' }] });
    expect(isFolder).toMatchObject({ exit: 2, findings: [{ code: 'file_unreadable' }] });
    expect(notText).toMatchObject({ exit: 1, findings: [{ code: 'not_utf8' }] });
  });

  it('never touch the prototypes', async () => {
    await faultsOf('__proto__: { port: 1 }\nroles: { __proto__: { includes: [a] } }\n');
    const { rolesOf } = await load(
      'users: [{ id: constructor, roles: [toString] }]\nroles: { toString: { includes: [valueOf] } }\n',
    );
    expect(rolesOf.get('constructor')).toEqual(['toString', 'valueOf']);
    expect(Object.keys(Object.prototype)).toEqual([]);
  });
});

describe("the gateway's own addresses", () => {
  it.each([
    '/v1',
    '/state',
    '/outcomes',
    '/mcp',
    '/console',
    '/docs',
    '/openapi.json',
    '/.well-known',
    '/log',
    '/approve',
    '/livez',
    '/readyz',
    '/metrics',
  ])('%s is no prefix of a route, nor is anything below it', async (prefix) => {
    for (const taken of [prefix, `${prefix}/x`, prefix.toUpperCase()]) {
      const { findings } = await faultsOf(
        `upstreams: [{ id: a, url: "http://127.0.0.1:1" }]\nroutes: [{ upstream: a, prefix: ${taken} }]\n`,
      );
      expect(findings.map(({ code }) => code)).toEqual(['reserved_prefix']);
    }
    const { routes } = await load(
      `upstreams: [{ id: a, url: "http://127.0.0.1:1" }]\nroutes: [{ upstream: a, prefix: "${prefix.replace('.', '')}s" }]\n`,
    );
    expect(routes).toHaveLength(1);
  });
});

describe('what cannot change while running', () => {
  const TLS = '{ cert: test/system/tls/one.pem, key: test/system/tls/one.key.pem }';
  const route = (more: string) =>
    `upstreams: [{ id: a, url: "http://127.0.0.1:1" }]\nroutes: [{ upstream: a, prefix: /a, ${more} }]\n`;
  const changes: readonly (readonly [name: string, before: string, after: string])[] = [
    ['server.host', '', 'server: { host: 0.0.0.0 }'],
    ['server.port', '', 'server: { port: 1 }'],
    ['server.admin_port', 'server: { admin_port: 1 }', 'server: { admin_port: 2 }'],
    ['server.tls (with or without)', '', `server: { tls: ${TLS} }`],
    ['routes.listen', route('listen: "127.0.0.1:1"'), route('listen: "127.0.0.1:2"')],
    ['routes.listen', route('listen: "127.0.0.1:1"'), route(`listen: "127.0.0.1:1", tls: ${TLS}`)],
    ['policies.second_person', '', 'policies: { second_person: true }'],
    ['store', '', 'store: { lock_wait: 1s }'],
    ['secrets', '', 'secrets: { master: { file: other } }'],
    ['receipts', '', 'receipts: { issuer: "urn:x" }'],
    ['retention', '', 'retention: { denials: 8d }'],
    ['limits.body', '', 'limits: { body: 2MiB }'],
    ['limits.connections', '', 'limits: { connections: 100 }'],
    ['telemetry.log_level', '', 'telemetry: { log_level: debug }'],
    ['telemetry.access_log', '', 'telemetry: { access_log: false }'],
  ];

  it.each(changes)('%s is named, and nothing else', async (name, before, after) => {
    const [one, other] = [await load(`users: []\n${before}\n`), await load(`users: []\n${after}\n`)];
    expect(unchangeable(one, other)).toEqual([name]);
    expect(unchangeable(other, other)).toEqual([]);
  });

  it('is what the documentation says', () => {
    const page = readFileSync(join(ROOT, 'docs', 'operating', 'configuration.md'), 'utf8');
    const [, listed = ''] = /What cannot change while running\s+\((.+?)\)\s+stays/s.exec(page) ?? [];
    const names = new Set(
      [...listed.matchAll(/`([a-z._]+)`(?: \(with or without\))?/g)].map(([all]) => all.replaceAll('`', '')),
    );
    expect(names).toEqual(new Set(changes.map(([name]) => name)));
  });

  it('is not what may change: tools, people, other limits, and certificates', async () => {
    const before = await load(`server: { tls: ${TLS} }\n`);
    const after = await load(
      `server: { tls: ${TLS.replaceAll('one', 'two')}, allowed_hosts: [a.example] }\nlimits: { upload: 1MiB, upload_file: 1MiB }\n` +
        'users: [{ id: maria }]\npools: [{ id: p, units: 1 }]\ntelemetry: { budget_near_percent: 50 }\n',
    );
    expect(unchangeable(before, after)).toEqual([]);
  });
});

describe('the least and the most that the documentation names', () => {
  const codes = async (yaml: string) => {
    const report = await checkConfiguration(written(`${yaml}\n`));
    return report.findings.map(({ code }) => code);
  };

  it.each([
    ['retention: { denials: VALUE }', ['1h', '60m', '36500d'], ['59m', '36501d', '0s']],
    ['retention: { keys: VALUE }', ['30d', '36500d', 'forever'], ['36501d', 'never']],
    ['auth: { default_expiry: { agent: VALUE } }', ['1s', '3650d', 'never'], ['999ms', '3651d', 'forever']],
    ['limits: { response_kept: VALUE, response: 256MiB }', ['0B', '16MiB'], ['17MiB', '16777217B']],
    ['limits: { response_kept: VALUE, response: 1KiB }', ['1KiB'], ['1025B']],
    ['limits: { upload: VALUE, spool: 1MiB, upload_file: 1KiB }', ['1MiB'], ['1048577B']],
    ['limits: { upload_file: VALUE, upload: 1MiB }', ['1MiB'], ['1048577B']],
    ['limits: { body: VALUE }', ['1KiB', '1024B', '64MiB'], ['1023B', '65MiB']],
    ['limits: { spool: VALUE, upload: 1KiB, upload_file: 1KiB }', ['1KiB', '1024GiB'], ['1025GiB']],
    ['limits: { connections: VALUE }', ['16', '1000000'], ['15', '1000001']],
    ['server: { port: VALUE }', ['0', '65535'], ['-1', '65536']],
    ['telemetry: { budget_near_percent: VALUE }', ['1', '100'], ['0', '101']],
  ])('%s', async (yaml, taken, refused) => {
    for (const value of taken) expect([value, await codes(yaml.replace('VALUE', value))]).toEqual([value, []]);
    for (const value of refused)
      expect([value, (await codes(yaml.replace('VALUE', value))).length]).toEqual([value, 1]);
  });

  it.each([
    ['server.admin_port', 'server: { admin_port: 2 }'],
    ['policies.second_person', 'policies: { second_person: true }\nusers: [{ id: ada }, { id: bob }]'],
    ['retention', 'retention: { effects: 90d }'],
    ['limits.body', 'limits: { body: 64KiB }'],
    ['limits.connections', 'limits: { connections: 20 }'],
  ])('is named: %s', async (name, setting) => {
    expect(unchangeable(await load('pools: []\n'), await load(`${setting}\n`))).toEqual([name]);
  });
});

describe('units', () => {
  it.each([
    ['250ms', 250],
    ['5s', 5000],
    ['10m', 600_000],
    ['4h', 14_400_000],
    ['30d', 2_592_000_000],
    ['0s', 0],
    ['1.5s', null],
    ['-1s', null],
    ['5', null],
    ['5 s', null],
    ['5w', null],
    ['999999999d', null],
  ])('%s is %s ms', (text, expected) => {
    // 999,999,999 days are more ms than a number holds exactly.
    expect(parseDuration(text)).toBe(expected);
  });

  it.each([
    ['512B', 512],
    ['64KiB', 65_536],
    ['1MiB', 1_048_576],
    ['2GiB', 2_147_483_648],
    ['1MB', null],
    ['1', null],
  ])('%s is %s bytes', (text, expected) => {
    expect(parseSize(text)).toBe(expected);
  });
});
