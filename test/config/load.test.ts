import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { unchangeable } from '../../src/config/changes.ts';
import type { Configuration } from '../../src/config/configuration.ts';
import { checkConfiguration, loadConfiguration } from '../../src/config/load.ts';
import { parseDuration, parseSize } from '../../src/config/units.ts';
import { InvalidFiles } from '../../src/diagnostics/render.ts';

const ROOT = join(import.meta.dirname, '..', '..');
let folder = '';
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'svc-config-'));
});
afterAll(() => rmSync(folder, { recursive: true }));

async function load(yaml: string, environment: Readonly<Record<string, string>> = {}): Promise<Configuration> {
  const file = join(folder, 'gateway.yaml');
  writeFileSync(file, yaml);
  return (await loadConfiguration(file, { environment })).configuration;
}

async function faultsOf(yaml: string): Promise<InvalidFiles> {
  try {
    await load(yaml);
  } catch (error) {
    if (error instanceof InvalidFiles) return error;
    throw error;
  }
  throw new Error('the file was accepted');
}

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

  it.each([
    ['happened: { status: done }', { happened: { status: 'done' }, notHappened: {} }],
    ['not_happened: { http_status: 404 }', { happened: {}, notHappened: { http_status: 404 } }],
  ])('a probe may show one side alone: %s', async (conditions, shown) => {
    const { tools } = await load(
      'upstreams: [{ id: a, url: "http://127.0.0.1:1/" }]\n' +
        'tools: [{ name: a.x, upstream: a, kind: write, request: { method: POST, path: /x, body: [n] }, ' +
        'params_schema: { type: object, properties: { n: {} }, additionalProperties: false }, ' +
        `probe: { request: { method: GET, path: /x }, accept_state_evidence: true, ${conditions} } }]\n`,
    );
    expect(tools[0]?.probe).toMatchObject(shown);
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
  it('is named', async () => {
    const before = await load('server: { port: 1 }\n');
    expect(unchangeable(before, await load('server: { port: 1 }\npools: [{ id: p, units: 1 }]\n'))).toEqual([]);
    const after = await load(
      'server: { host: 0.0.0.0, port: 2 }\nstore: { path: /x }\nreceipts: { issuer: "urn:x" }\n',
    );
    expect(unchangeable(before, after)).toEqual(['server.host', 'server.port', 'store', 'secrets', 'receipts']);
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
