import { Type, type Static } from 'typebox';
import {
  duration,
  durationOr,
  filePath,
  flag,
  integer,
  later,
  list,
  oneOf,
  path,
  record,
  roleName,
  section,
  size,
  slug,
  slugWords,
  text,
} from './schema-fields.ts';
import { auth, roles, user, workspace } from './schema-people.ts';
import { route } from './schema-route.ts';
import { serverTls } from './schema-tls.ts';
import { tool } from './schema-tool.ts';
import { upstream } from './schema-upstream.ts';
import { webhook } from './schema-webhooks.ts';

/**
 * The one definition of `gateway.yaml`. It checks the file (through Ajv, see `shape.ts`), fills in the defaults, and
 * gives the type {@link GatewayFile}. `schemas/gateway.schema.json` for editors and the reference in
 * `docs/operating/configuration.md` are rendered from it. A field with a `default` is always present in the type, but
 * optional in the file.
 *
 * Our annotations: `x-expected` (what a value must be, in words; completes "… has to be"), `x-later` (what is not
 * supported yet), `x-name` (what an object is, in words), `x-duration` and `x-size` (bounds).
 */

const server = section('server', 'Where the gateway listens, and under which names it is known.', {
  host: text('^[A-Za-z0-9.:\\[\\]-]+$', 'a host name or an address', 'Address to bind.', '127.0.0.1'),
  port: integer('Port to bind; 0 lets the system choose one.', 0, 65_535, 8080),
  public_url: Type.Optional(
    Type.String({ description: 'URL under which agents and people reach the gateway. Default: the bound address.' }),
  ),
  allowed_hosts: list(
    'Names that a Host header may carry beside the bound address (and, on loopback, localhost).',
    text('^[A-Za-z0-9.-]+$', 'a host name without a port', 'A host name without a port.'),
  ),
  admin_port: Type.Union([Type.Integer({ minimum: 0, maximum: 65_535 }), Type.Null()], {
    'x-expected': 'a port, or null',
    description: 'A port of its own for health and metrics, without TLS; null: they are on the main port.',
    default: null,
  }),
  tls: Type.Optional(
    serverTls(
      'TLS on the main port. The files are watched: a new pair is in force without a restart. Default: no TLS.',
    ),
  ),
});

const store = section('the store', 'Where effects, keys, budgets and receipts are kept.', {
  kind: oneOf(
    ['embedded', 'redis'],
    'embedded: SQLite in a folder of this machine, for one gateway. redis: for several gateways.',
    'embedded',
  ),
  path: Type.Optional(path('embedded: folder of the store. Default: ./data.')),
  fence: Type.Optional(
    path(
      'embedded: folder outside store.path where the gateway notes how far the store has come, so that a store that was set back is noticed also if its whole folder was. If it cannot be written, nothing is admitted. Default: svc-gateway below XDG_STATE_HOME or ~/.local/state; if that cannot be written, only /readyz says so.',
    ),
  ),
  archive: Type.Optional(
    Type.Union(
      [
        Type.String({ pattern: filePath }),
        record('a bucket', 'A bucket that speaks Amazon’s S3.', {
          // No patterns here: a message about one would show the value.
          url: Type.String({ description: 'Bucket, and what keys in it begin with: https://host/bucket/prefix.' }),
          region: Type.Optional(text('^[a-z0-9-]{1,40}$', 'the name of a region', 'Its region. Default: us-east-1.')),
          access_key: Type.String({ description: 'Id of the key; write it as ${NAME}.' }),
          secret_key: Type.String({ description: 'The key; write it as ${NAME}.' }),
          network: Type.Optional(
            oneOf(['any', 'public'], 'public: loopback and private addresses are refused. Default: any.'),
          ),
        }),
      ],
      {
        description:
          'embedded: folder or bucket for records of effects that are older than `retention.effects`; see [archive.md](archive.md). Without it they are removed.',
        'x-expected': 'a folder, or { url, access_key, secret_key }',
      },
    ),
  ),
  backup_every: Type.Optional(
    duration(
      'embedded: how old the last backup (`svc backup`) may be. An older one, or none, is an alert in the log and a note of `/readyz`. Default: nobody asks.',
      { min: '1m', max: '366d' },
    ),
  ),
  lock_wait: Type.Optional(
    duration('embedded: how long a start waits for another process to let go of the store. Default: 10s.', {
      min: '0s',
      max: '10m',
    }),
  ),
  max_clock_jump: Type.Optional(
    duration(
      'How far the clock of the machine, or of the Redis servers, may be ahead of the last time that is known. Further, nothing is admitted until it is set right or accepted (`svc store accept-time`). Longer than all gateways are ever off. Default: 7d.',
      { min: '1h', max: '366d' },
    ),
  ),
  url: Type.Optional(
    // No pattern: a message about it would show the value, which can contain a password.
    Type.String({
      'x-expected': 'a redis:// or rediss:// URL',
      description:
        'redis: `redis://[user:password@]host[:port][/database]`, `rediss://` for TLS. With Sentinel the host is the name of the primary.',
    }),
  ),
  mode: Type.Optional(
    oneOf(['standalone', 'sentinel', 'cluster'], 'redis: how the primary is found. Default: standalone.'),
  ),
  nodes: Type.Optional(
    Type.Array(
      text('^[A-Za-z0-9.:\\[\\]_-]+:[0-9]{1,5}$', 'host:port', 'host:port of a sentinel, or of a node of the cluster.'),
      {
        description: 'redis: the sentinels, or some nodes of the cluster.',
      },
    ),
  ),
  durability: Type.Optional(
    oneOf(
      ['local', 'replica', 'fsync'],
      'redis: what an answered step survives; see [redis.md](redis.md). Default: fsync for standalone, else replica.',
    ),
  ),
  journal: Type.Optional(
    path(
      "redis: folder of this gateway's own journal, of no other gateway, kept over restarts. Default: ./data/journal.",
    ),
  ),
  max_freeze: Type.Optional(
    duration(
      'redis: no gateway is frozen longer than this between its last check and the write to the socket. Default: 10m.',
      { min: '1s', max: '24h' },
    ),
  ),
  allow_weak_durability: Type.Optional(
    Type.Boolean({
      description: 'redis: accepts a durability that can lose answered steps. Default: false.',
    }),
  ),
});

const retention = section('retention', 'How long things are kept. Effects that are not settled are never removed.', {
  keys: durationOr(
    'forever',
    'Idempotency keys and receipts. A key that is forgotten can run again.',
    { min: '1h', max: '36500d' },
    '365d',
  ),
  effects: duration('Whole records of settled effects.', { min: '1h', max: '36500d' }, '30d'),
  denials: duration('Records of calls that were refused.', { min: '1h', max: '36500d' }, '7d'),
});

const resolve = section('resolve', 'Settling outcomes that are not known.', {
  allow_force: flag('Whether a second user may say `not_happened` before an effect is quiet (`force`).', false),
});

const secrets = section('secrets', 'Key material of the gateway.', {
  master: Type.Optional(
    record('secrets.master', 'The master secret.', {
      file: path(
        'File of the master secret, made on the first start. Default: keys/master under store.path, or beside store.journal.',
      ),
    }),
  ),
  previous: list('Files of earlier master secrets, while rotating.', path('A file.')),
});

const policies = section('policies', 'What agents may do.', {
  paths: list(
    'Policy files and folders.',
    Type.Union(
      [
        Type.String({ pattern: filePath }),
        record('a policy path', 'A path.', { path: path('A file or folder.'), scope: later('scope of policy paths') }),
      ],
      {
        'x-expected': 'a path, or { path }',
      },
    ),
  ),
  mode: oneOf(
    ['enforce', 'observe'],
    'observe: decide and record, but let what policy alone would stop go through.',
    'enforce',
  ),
  second_person: flag(
    'Policies that take the place of others come in force only when a second person has confirmed them, also those of edited files. Changes at a start only.',
    false,
  ),
  second_opinion: durationOr(
    'never',
    "Time between two decisions about which json-rules-engine's own engine is asked as well, after they were made. Where it says something else of a rule, that is an alert, a metric, and a note in `/readyz`.",
    { min: '100ms', max: '1d' },
    '1s',
  ),
});

const brain = section('brain', 'The company brain: what agents and policies may know of the organisation.', {
  files: list(
    'Files of entities, and folders of them: YAML (a list) and JSON Lines (*.jsonl, *.ndjson). What a file names belongs to the file; the API changes nothing of it.',
    Type.Union(
      [
        Type.String({ pattern: filePath }),
        record('a path of entities', 'A path.', {
          path: path('A file or folder.'),
          workspace: Type.Optional(
            text(slug, slugWords, 'The workspace that the entities belong to. Default: the only one there is.'),
          ),
        }),
      ],
      { 'x-expected': 'a path, or { path, workspace }' },
    ),
  ),
});

const pool = record('a pool', 'A resource of which only so many units may be in use at once.', {
  id: text(roleName, "an id of letters, digits and '_ . : -'", 'Id of the pool.'),
  units: integer('How many units there are.', 1, 1_000_000_000),
});

const limits = section('limits', 'Limits that can be set; all others are in limits.md.', {
  body: size(
    'Body of a request to the gateway and, on write routes, through it.',
    { min: '1KiB', max: '64MiB' },
    '1MiB',
  ),
  upload: size(
    'Body of a proxied request of a tool with `body_type: multipart` or `opaque`.',
    { min: '1KiB', max: '16GiB' },
    '256MiB',
  ),
  upload_file: size('One file in it.', { min: '1KiB', max: '16GiB' }, '256MiB'),
  spool: size(
    'Files of all requests that are under way; of it, one agent gets three quarters of what the others leave.',
    { min: '1KiB', max: '1024GiB' },
    '2GiB',
  ),
  params_depth: integer('Nesting of a JSON body.', 1, 64, 64),
  // So many values hold the event loop for 25 ms at worst, half of what a request may take: test/hostile/loop-held.test.ts.
  params_values: integer('Values in a JSON body: members, elements and what holds them.', 100, 10_000, 10_000),
  response_kept: size(
    "Part of an upstream's answer that is kept for duplicates.",
    { min: '0B', max: '16MiB' },
    '64KiB',
  ),
  response: size(
    "Part of an upstream's answer to a governed call that is read; of an MCP server, an answer in JSON to anything, and one event of a stream.",
    { min: '1KiB', max: '256MiB' },
    '8MiB',
  ),
  stream: size(
    'Part of the answer to a governed call that is passed on as it comes (`response: stream`).',
    { min: '1KiB', max: '16GiB' },
    '256MiB',
  ),
  connections: integer(
    'Connections of callers at once; fewer where the process may open few files (`ulimit -n`).',
    16,
    1_000_000,
    10_000,
  ),
  brain_entities: integer('Entities of the company brain in one workspace.', 1, 1_000_000, 100_000),
  brain_size: size(
    'All of them as JSON: names, attributes and links, without type and id. The index of a workspace takes about three times as much memory.',
    { min: '1KiB', max: '1GiB' },
    '64MiB',
  ),
});

const telemetry = section('telemetry', 'Logs.', {
  log_level: oneOf(
    ['trace', 'debug', 'info', 'warn', 'error', 'fatal', 'silent'],
    'The least important lines that are logged.',
    'info',
  ),
  access_log: flag(
    'Whether each request through the proxy or to an MCP server is a line of the log, of level info.',
    true,
  ),
  budget_near_percent: integer(
    'From this share of its limit on, spent and held together, people are told of a budget (`budget.near_limit`).',
    1,
    100,
    90,
  ),
  otlp: Type.Null({ 'x-later': 'telemetry.otlp', description: 'Not yet supported.', default: null }),
});

export const GATEWAY_FILE = Type.Object(
  {
    server,
    store,
    retention,
    resolve,
    secrets,
    receipts: section('receipts', 'Signed receipts.', {
      keys: Type.Optional(
        path(
          'Folder of the signing keys, made on the first start. Default: keys under store.path, or beside store.journal.',
        ),
      ),
      issuer: Type.Optional(
        text('^[\\u0021-\\u007e]+$', 'a URI', 'Issuer in receipts. Default: urn:svc-gateway:<install id>.'),
      ),
      params: oneOf(
        ['together', 'each'],
        'How receipts commit to the params of a call. each: one param can be disclosed, and the others stay closed; it costs two hashes for each.',
        'together',
      ),
    }),
    users: list('Approvers and owners; keys belong to users. Keys of a user who is taken out end at once.', user),
    roles,
    auth,
    workspaces: list('Workspaces and their agents.', workspace),
    policies,
    upstreams: list('Services behind the gateway.', upstream),
    tools: list('What agents can have done; everything else is refused.', tool),
    routes: list(
      "Parts of the gateway's addresses that stand for an upstream, for agents that use its own API.",
      route,
    ),
    pools: list('Resources that policies reserve.', pool),
    limits,
    telemetry,
    brain,
    webhooks: list('Who is told of what happens.', webhook),
  },
  {
    additionalProperties: false,
    'x-name': 'gateway.yaml',
    title: 'gateway.yaml',
    description: 'Configuration of svc-gateway.',
  },
);

/** `gateway.yaml` after expansion and defaults, before names are looked up. */
export type GatewayFile = Static<typeof GATEWAY_FILE>;
