import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { surroundingsOfPolicies } from '../../src/config/for-policies.ts';
import { checkConfiguration, loadConfiguration } from '../../src/config/load.ts';

/*
 * docs/operating/configuration.md, row by row: what a file says of a setting is what is in force. Each value differs from
 * the default, and from its neighbours.
 */

let folder = '';
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'svc-settings-'));
  for (const name of ['policies', 'entities']) mkdirSync(join(folder, name));
  for (const name of ['old-master', 'older-master']) writeFileSync(join(folder, name), 'x');
});
afterAll(() => rmSync(folder, { recursive: true }));

const file = (yaml: string): string => {
  const path = join(folder, 'gateway.yaml');
  writeFileSync(path, yaml.replaceAll('FOLDER', folder));
  return path;
};
const load = async (yaml: string) => (await loadConfiguration(file(yaml))).configuration;
const faults = async (yaml: string): Promise<readonly string[]> =>
  (await checkConfiguration(file(yaml))).findings.map(({ code }) => code);

const DAY = 86_400_000;

test.each([
  [`a${'_.@:-'.repeat(25)}bc`, []],
  [`a${'_.@:-'.repeat(25)}bcd`, ['wrong_value', 'wrong_value']],
  ['.maria', ['wrong_value', 'wrong_value']],
  ['@maria', ['wrong_value', 'wrong_value']],
  ['maria smith', ['wrong_value', 'wrong_value']],
])(
  'a user, and the owner of an agent, has at most 128 letters, digits and some marks, a letter or digit first: %s',
  async (id, expected) => {
    const written = JSON.stringify(id);
    const yaml = `users: [ { id: ${written} } ]\nworkspaces: [ { id: demo, agents: [ { id: bot, owner: ${written} } ] } ]\n`;
    expect(await faults(yaml)).toEqual(expected);
  },
);

describe('each setting is in force as it is written', () => {
  test('server, store, retention, resolve, secrets, receipts', async () => {
    const configuration = await load(`
server: { host: 127.0.0.2, port: 9000, public_url: "https://gateway.example.com/svc/", allowed_hosts: [A.example], admin_port: 9001 }
store: { path: /var/lib/svc, fence: /var/lib/fence, archive: /var/lib/archive, backup_every: 2h, lock_wait: 3s, max_clock_jump: 4h }
retention: { keys: 40d, effects: 20d, denials: 10d }
resolve: { allow_force: true }
secrets: { master: { file: /etc/svc/master }, previous: ["FOLDER/old-master", "FOLDER/older-master"] }
receipts: { keys: /etc/svc/signing, issuer: "https://gateway.example.com", params: each }
`);
    expect(configuration).toMatchObject({
      server: {
        host: '127.0.0.2',
        port: 9000,
        publicUrl: 'https://gateway.example.com/svc',
        allowedHosts: ['a.example'],
        adminPort: 9001,
      },
      store: {
        path: '/var/lib/svc',
        fence: '/var/lib/fence',
        archive: { kind: 'folder', path: '/var/lib/archive' },
        backupEveryMs: 7_200_000,
        lockWaitMs: 3_000,
        maxClockJumpMs: 14_400_000,
      },
      retention: { keysMs: 40 * DAY, effectsMs: 20 * DAY, denialsMs: 10 * DAY },
      resolve: { allowForce: true },
      secrets: { masterFile: '/etc/svc/master', previous: [`${folder}/old-master`, `${folder}/older-master`] },
      receipts: { keysDir: '/etc/svc/signing', issuer: 'https://gateway.example.com', params: 'each' },
    });
  });

  test('a bucket, and a store on Redis', async () => {
    const bucket = await load(
      'store: { archive: { url: "https://s3.example.com/bucket/a/b", region: eu-central-1, access_key: a, secret_key: "${S3:-s}", network: public } }\n',
    );
    expect(bucket.store).toMatchObject({
      archive: {
        kind: 'bucket',
        url: 'https://s3.example.com/bucket/a/b',
        region: 'eu-central-1',
        accessKey: 'a',
        secretKey: 's',
        network: 'public',
      },
    });
    const redis = await load(
      'store: { kind: redis, url: "redis://main", mode: sentinel, nodes: ["10.0.0.1:26379", "10.0.0.2:26379"], ' +
        'durability: local, journal: /var/journal, max_freeze: 5m, max_clock_jump: 2d, allow_weak_durability: true }\n',
    );
    expect(redis.store).toEqual({
      kind: 'redis',
      url: 'redis://main',
      mode: 'sentinel',
      nodes: ['10.0.0.1:26379', '10.0.0.2:26379'],
      durability: 'local',
      journal: '/var/journal',
      maxFreezeMs: 300_000,
      maxClockJumpMs: 2 * DAY,
      allowWeakDurability: true,
    });
  });

  test('users, roles, auth, workspaces, pools', async () => {
    const configuration = await load(`
users: [{ id: maria, roles: [lead] }, { id: otto }]
roles: { lead: { includes: [clerk] } }
auth:
  query_key: refuse
  default_expiry: { account: 1d, agent: 2d, administrative: 3d, profile: 4d }
  profiles: [{ name: auditor, description: Reads., scopes: [traces:read], allowed_tools: [a.x], read_only: true }]
workspaces:
  - id: demo
    env: staging
    agents: [{ id: bot, team: support, owner: maria, roles: [clerk], attributes: { trust: 2 }, disabled: true }]
pools: [{ id: gpu, units: 4 }]
`);
    expect(configuration).toMatchObject({
      users: [
        { id: 'maria', roles: ['lead'] },
        { id: 'otto', roles: [] },
      ],
      roles: ['lead', 'clerk'],
      auth: {
        queryKey: 'refuse',
        defaultExpiryMs: { account: DAY, agent: 2 * DAY, administrative: 3 * DAY, profile: 4 * DAY },
        profiles: [
          { name: 'auditor', description: 'Reads.', scopes: ['traces:read'], allowedTools: ['a.x'], readOnly: true },
        ],
      },
      workspaces: [
        {
          id: 'demo',
          env: 'staging',
          agents: [
            {
              id: 'bot',
              workspace: 'demo',
              team: 'support',
              owner: 'maria',
              roles: ['clerk'],
              attributes: { trust: 2 },
              disabled: true,
            },
          ],
        },
      ],
      pools: [{ id: 'gpu', units: 4 }],
    });
    expect(Object.fromEntries(configuration.rolesOf)).toEqual({ maria: ['lead', 'clerk'], otto: [] });
  });

  test('roles need no declaration, and their names may have colons, dots and hyphens', async () => {
    const yaml = 'users: [{ id: maria, roles: ["team:lead.eu-1"] }]\n';
    expect((await load(yaml)).roles).toEqual(['team:lead.eu-1']);
    expect(await faults(yaml)).toEqual([]);
  });

  test('policies, limits, telemetry, brain', async () => {
    const configuration = await load(`
users: [{ id: maria }, { id: otto }]
workspaces: [{ id: demo }]
policies: { paths: [{ path: "FOLDER/policies" }], mode: observe, second_person: true, second_opinion: 2s }
limits: { body: 2KiB, upload: 5KiB, upload_file: 4KiB, spool: 6KiB, params_depth: 7, params_values: 800, response_kept: 9KiB,
  response: 10KiB, stream: 11KiB, connections: 120, brain_entities: 13, brain_size: 14KiB }
telemetry: { log_level: warn, access_log: false, budget_near_percent: 50 }
brain: { files: ["FOLDER/entities"] }
`);
    expect(configuration).toMatchObject({
      policies: { paths: [`${folder}/policies`], mode: 'observe', isOfTwo: true, secondOpinionMs: 2_000 },
      limits: {
        bodyBytes: 2_048,
        uploadBytes: 5_120,
        uploadFileBytes: 4_096,
        spoolBytes: 6_144,
        paramsDepth: 7,
        paramsValues: 800,
        responseKeptBytes: 9_216,
        responseBytes: 10_240,
        connections: 120,
      },
      telemetry: { logLevel: 'warn', accessLog: false, budgetNearPercent: 50 },
      brain: {
        files: [{ path: `${folder}/entities`, workspace: 'demo' }],
        limits: { entities: 13, characters: 14_336 },
      },
    });
    const never = await load('policies: { second_opinion: never }\n');
    expect(never.policies.secondOpinionMs).toBeNull();
  });

  test('upstreams and tools', async () => {
    const { upstreams, tools } = await load(`
limits: { stream: 11KiB }
upstreams:
  - id: a
    url: "https://api.example.com"
    timeout: 3s
    connections: 4
    network: public
    env: staging
    credentials: { header: X-Token, value: "\${TOKEN:-t}" }
    tls: { server_name: Inner.example.com, min_version: TLSv1.3 }
    headers: { forward: [Cookie], drop: ["X-*"], volatile: [X-Try], set: { X-Env: "{host}" } }
tools:
  - name: a.ask
    title: Ask
    upstream: a
    kind: write
    action_type: model.call
    tags: [model]
    risk: critical
    request: { method: POST, path: "/ask/{id}", body: [n] }
    target: "thing:{id}"
    timeout: 5s
    max_processing: 6s
    response: stream
    stream_time: 7s
    idempotent: { header: X-Once, for: 8h }
    outcomes: { committed: [409], failed: [503], unknown: [404] }
`);
    expect(upstreams[0]).toMatchObject({
      id: 'a',
      url: 'https://api.example.com',
      timeoutMs: 3_000,
      connections: 4,
      network: 'public',
      env: 'staging',
      credentials: { header: 'x-token', value: 't' },
      tls: { serverName: 'inner.example.com', minVersion: 'TLSv1.3' },
      headers: { forward: ['cookie'], drop: ['x-*'], volatile: ['x-try'], set: { 'x-env': '{host}' } },
    });
    expect(tools[0]).toMatchObject({
      name: 'a.ask',
      title: 'Ask',
      upstream: 'a',
      kind: 'write',
      actionType: 'model.call',
      tags: ['model'],
      risk: 'critical',
      env: 'staging',
      call: { outcomes: { committed: [409], failed: [503], unknown: [404] } },
      target: 'thing:{id}',
      timeoutMs: 5_000,
      maxProcessingMs: 6_000,
      streams: { totalMs: 7_000, bytes: 11_264 },
      idempotent: { kind: 'header', header: 'x-once', forMs: 28_800_000 },
    });
  });

  test('routes and webhooks', async () => {
    const { routes, webhooks } = await load(`
upstreams: [{ id: a, url: "http://127.0.0.1:1" }]
tools:
  - { name: a.read, upstream: a, kind: read, request: { method: GET, path: "/x/{n}" } }
  - { name: a.write, upstream: a, kind: write, request: { method: POST, path: /x } }
routes:
  - upstream: a
    prefix: /
    host: A.example
    undeclared: passthrough_reads
    undeclared_query: pass
    pending_status: 423
    error_format: stripe
    final_status: 409
    set_cookie: true
    foreign_links: pass
    rules:
      - { match: "GET /x/:n", tool: a.read, frames: ungoverned, encoded_slashes: [n] }
      - { match: "POST /x", tool: a.write, idempotency: derive, on_duplicate: replay }
  - { upstream: a, prefix: /b, rules: [{ match: "POST /x", tool: a.write, idempotency: { derive: 20m } }] }
webhooks:
  - { name: ops, format: slack, url: "https://hooks.example.com/x", events: [pause.set], workspaces: [demo], network: public, retry_first: 7s, retry_for: 2d }
`);
    expect(routes).toMatchObject([
      {
        prefix: '',
        host: 'a.example',
        undeclared: 'passthrough_reads',
        undeclaredQuery: 'pass',
        pendingStatus: 423,
        errorFormat: 'stripe',
        finalStatus: 409,
        setCookie: true,
        foreignLinks: 'pass',
        rules: [
          { tool: 'a.read', frames: 'ungoverned' },
          { tool: 'a.write', idempotency: { kind: 'derive', windowMs: 600_000 }, onDuplicate: 'replay' },
        ],
      },
      { prefix: '/b', rules: [{ idempotency: { kind: 'derive', windowMs: 1_200_000 } }] },
    ]);
    expect(webhooks).toMatchObject([
      {
        name: 'ops',
        format: 'slack',
        url: 'https://hooks.example.com/x',
        events: ['pause.set'],
        workspaces: ['demo'],
        network: 'public',
        retryFirstMs: 7_000,
        retryForMs: 2 * DAY,
      },
    ]);
  });
});

describe('what cannot be in force is told', () => {
  const UPSTREAM = 'upstreams: [{ id: a, url: "http://127.0.0.1:1" }, { id: b, url: "http://127.0.0.1:2" }]';
  const tool = (request: string, more = ''): string =>
    `policies: {}\n${UPSTREAM}\ntools: [{ name: a.x, upstream: a, ${more || 'kind: write'}, request: { ${request} } }]\n`;
  const routed = (route: string, rule: string, tools: string): string =>
    `${tools}routes: [{ upstream: ${route}, prefix: /a, rules: [${rule}] }]\n`;
  const GET = tool('method: GET, path: "/x/{n}"', 'kind: read');

  test.each<[what: string, yaml: string, codes: readonly string[]]>([
    [
      'two profiles of one name',
      'auth: { profiles: [{ name: p, scopes: [tools:read] }, { name: p, scopes: [tools:read] }] }\n',
      ['duplicate_profile'],
    ],
    ...['mcp_readonly', 'mcp_operator', 'mcp_agent'].map((name): [string, string, readonly string[]] => [
      `a profile called ${name}, which is shipped`,
      `auth: { profiles: [{ name: ${name}, scopes: [tools:read] }] }\n`,
      ['reserved_name'],
    ]),
    ['a folder for a master secret', 'secrets: { previous: [FOLDER/policies] }\n', ['file_missing']],
    [
      'an archive in a bucket of this machine over plain HTTP: nothing',
      'store: { archive: { url: "http://localhost:9000/bucket", access_key: a, secret_key: "${S3:-s}" } }\n',
      [],
    ],
    [
      'an archive in a bucket elsewhere over plain HTTP',
      'store: { archive: { url: "http://s3.example.com/bucket", access_key: a, secret_key: "${S3:-s}" } }\n',
      ['plain_archive'],
    ],
    [
      'a route to a read of another upstream',
      routed('b', '{ match: "GET /x/:n", tool: a.x }', GET),
      ['wrong_upstream'],
    ],
    [
      'a match that is at another path than the request of the tool',
      routed('a', '{ match: "GET /y/:n", tool: a.x }', GET),
      ['route_differs'],
    ],
    [
      'a match with OPTIONS: nothing',
      routed(
        'a',
        '{ match: "OPTIONS /x", tool: a.x, idempotency: none }',
        tool('method: OPTIONS, path: /x', 'kind: read'),
      ),
      [],
    ],
    ['body_as beside a body', tool('method: POST, path: /x, body: [m], body_as: n'), ['body_twice']],
    ['body_as beside the rest as body', tool('method: POST, path: /x, body: "*", body_as: n'), ['body_twice']],
    ['body_as of a form', tool('method: POST, path: /x, body_as: n, body_type: form'), ['body_twice']],
    [
      'a text whose query has pipes',
      tool(
        'method: GET, path: /x, query: [n], query_styles: { n: pipe }',
        'kind: read, params_schema: { type: object, properties: { n: { type: string } } }',
      ),
      ['bad_query_style'],
    ],
    [
      'a target that is named by what the schema does not have',
      tool(
        'method: POST, path: /x, body: [metadata]',
        'kind: write, target: "x:{metadata.nam}", params_schema: { type: object, properties: { metadata: { type: object, properties: { name: { type: string } } } } }',
      ),
      ['unknown_param'],
    ],
    [
      'a param that a pattern of the schema allows: nothing',
      tool(
        'method: POST, path: /x, body: [x_a]',
        'kind: write, params_schema: { type: object, patternProperties: { "^x_": {} }, additionalProperties: false }',
      ),
      [],
    ],
    [
      'an empty file of credentials',
      'upstreams: [{ id: a, url: "https://api.example.com", credentials: { header: x, file: FOLDER/empty } }]\n',
      ['bad_header_value'],
    ],
  ])('%s', async (_, yaml, codes) => {
    writeFileSync(join(folder, 'empty'), '');
    expect(await faults(yaml)).toEqual(codes);
  });
});

test('a listener is at the address that an IPv6 literal in brackets means', async () => {
  const { listeners } = await load(
    'upstreams: [{ id: a, url: "http://127.0.0.1:1" }]\nroutes: [{ upstream: a, prefix: /, listen: "[::1]:8443" }]\n',
  );
  expect(listeners).toMatchObject([{ at: '[::1]:8443', host: '::1', port: 8443 }]);
});

test('Redis may be spoken to over TLS', async () => {
  const { store } = await load('store: { kind: redis, url: "rediss://redis.example.com" }\n');
  expect(store).toMatchObject({ url: 'rediss://redis.example.com', durability: 'fsync' });
});

test('params that may hold slashes are those of all rules that lead to a tool', async () => {
  const { tools } = await load(
    'upstreams: [{ id: a, url: "http://127.0.0.1:1" }]\n' +
      'tools: [{ name: a.x, upstream: a, kind: read, request: { method: GET, path: "/x/{n}/{m}" } }]\n' +
      'routes:\n' +
      '  - { upstream: a, prefix: /a, rules: [{ match: "GET /x/:n/:m", tool: a.x, encoded_slashes: [n] }] }\n' +
      '  - { upstream: a, prefix: /b, rules: [{ match: "GET /x/:n/:m", tool: a.x, encoded_slashes: [m] }] }\n',
  );
  expect(tools[0]?.call).toMatchObject({ request: { encodedSlashes: ['n', 'm'] } });
});

describe('two rules of which neither comes before the other', () => {
  /** Two matches, each with a tool of its own; the param n is what the schema says. */
  const rules = (one: string, other: string, n = '{ type: integer }'): string => {
    const matches = [one, other];
    const path = (match: string): string => match.replaceAll(/:([a-z]+)/g, '{$1}').replaceAll(/\*([a-z]+)/g, '{+$1}');
    const tools = matches.map(
      (match, at) =>
        `  - { name: a.t${at}, upstream: a, kind: read, request: { method: GET, path: "${path(match)}" }, ` +
        `params_schema: { type: object, properties: { n: ${n}, x: { type: string }, r: { type: string } }, required: [n, x, r] } }\n`,
    );
    const written = matches.map((match, at) => `{ match: "GET ${match}", tool: a.t${at} }`).join(', ');
    return `policies: {}\nupstreams: [{ id: a, url: "http://127.0.0.1:1" }]\ntools:\n${tools.join('')}routes: [{ upstream: a, prefix: /a, rules: [${written}] }]\n`;
  };
  const areRefused = async (...of: Parameters<typeof rules>): Promise<boolean> =>
    (await faults(rules(...of))).includes('overlapping_rules');

  test('are refused, but for those that a whole number tells apart', async () => {
    expect(await areRefused('/:n/comments', '/comments/:x')).toBe(false);
    expect(await areRefused('/:x/comments', '/comments/:n')).toBe(false);
    expect(await areRefused('/:x/comments', '/comments/:r')).toBe(true);
    // A whole number may be below zero.
    expect(await areRefused('/:n/comments', '/-1/:x')).toBe(true);
    for (const schema of ['{ type: string }', '{ type: number }', '{ type: [integer, "null"] }', '{}'])
      expect([schema, await areRefused('/:n/comments', '/comments/:x', schema)]).toEqual([schema, true]);
  });

  test('are none where one is of the rest, and the other ends with a slash', async () => {
    expect(await areRefused('/first/*r', '/:x/second/')).toBe(false);
    expect(await areRefused('/first/*r', '/:x/second')).toBe(true);
  });
});

test('policies are checked against the names that the configuration has', async () => {
  const { declared, pools, tools, upstreams } = surroundingsOfPolicies(
    await load(`
users: [{ id: maria }]
workspaces: [{ id: demo, env: staging, agents: [{ id: bot, team: support, roles: [clerk] }, { id: other }] }, { id: beta }]
upstreams: [{ id: a, url: "http://127.0.0.1:1", env: test }, { id: b, url: "http://127.0.0.1:2" }]
routes: [{ upstream: a, prefix: /a, undeclared: passthrough_reads }, { upstream: b, prefix: /b }]
pools: [{ id: gpu, units: 4 }]
`),
  );
  expect(Object.fromEntries(declared)).toEqual({
    env: ['staging', 'prod', 'test'],
    workspace: ['demo', 'beta'],
    'agent.id': ['bot', 'other'],
    'agent.team': ['support'],
    'agent.roles': ['clerk'],
    'key.user': ['maria'],
  });
  expect([[...pools], upstreams, tools.map(({ name }) => name)]).toEqual([
    [['gpu', 4]],
    ['a', 'b'],
    // A read that nobody declared is judged only where a route lets it pass.
    ['a.(undeclared)'],
  ]);
});
