import { Type, type Static } from 'typebox';
import type { Json, JsonObject } from '../json/value.ts';
import { SCOPES, type Scope } from '../effects/model/principal.ts';
import { LIMITS } from './limits.ts';
import { brain } from './schema-brain.ts';
import { mcp } from './schema-mcp.ts';
import { request } from './schema-request.ts';
import {
  duration,
  durationOr,
  filePath,
  flag,
  headerName,
  integer,
  later,
  list,
  oneOf,
  path,
  personId,
  personWords,
  record,
  role,
  roleName,
  section,
  size,
  slug,
  slugWords,
  text,
  toolName,
} from './schema-fields.ts';
import { serverTls, upstreamTls } from './schema-tls.ts';

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

const user = record('a user', 'A person: approver, owner of agents and keys.', {
  id: text(personId, personWords, 'Id of the user.'),
  roles: list('Roles of the user.', role('A role.')),
});

const roles = Type.Record(
  Type.String({ pattern: roleName }),
  record('a role', 'A role.', { includes: list('Roles that holders of this one have as well.', role('A role.')) }),
  { description: 'Roles that include others.', default: {}, additionalProperties: false, 'x-name': 'roles' },
);

const kindExpiry = (kind: string) =>
  durationOr('never', `How long new ${kind} keys are valid when nobody says.`, { min: '1s', max: '3650d' }, 'never');

const profile = record('a profile', 'A set of rights that keys can be made with.', {
  name: text(slug, slugWords, 'Name of the profile.'),
  description: Type.String({ description: 'What it is for.', default: '' }),
  scopes: Type.Array(Type.Unsafe<Scope>({ type: 'string', enum: SCOPES }), {
    description: 'What keys of this profile may do.',
  }),
  allowed_tools: Type.Optional(
    Type.Array(text(toolName, 'the name of a tool', 'A tool.'), {
      description: 'Tools that they may call or see. Default: no limit.',
    }),
  ),
  read_only: flag('They can never change anything, whatever their scopes say.', false),
});

const auth = section('auth', 'Keys of callers.', {
  query_key: oneOf(['allow', 'refuse'], 'Whether a key may come as the query parameter api_key.', 'allow'),
  default_expiry: section('auth.default_expiry', 'How long new keys are valid, by kind.', {
    account: kindExpiry('account'),
    agent: kindExpiry('agent'),
    administrative: kindExpiry('administrative'),
    profile: kindExpiry('profile'),
  }),
  profiles: list('Profiles beside mcp_readonly, mcp_operator and mcp_agent.', profile),
});

const attribute = Type.Unsafe<string | number | boolean>({
  type: ['string', 'number', 'boolean'],
  description: 'Text, a number or a boolean.',
});

const agent = record('an agent', 'An agent that may act in the workspace.', {
  id: text(personId, personWords, 'Id of the agent.'),
  team: Type.Optional(Type.String({ minLength: 1, description: 'Team; policies select by it.' })),
  owner: Type.Optional(
    text(personId, personWords, 'User who answers for the agent, and can never approve what it asks.'),
  ),
  roles: list('Roles of the agent; policies select by them.', role('A role.')),
  attributes: Type.Record(Type.String(), attribute, {
    description: 'Facts about the agent for policies.',
    default: {},
  }),
  disabled: flag('Its calls are refused.', false),
});

const workspace = record('a workspace', 'A workspace: keys, budgets and effects of one do not meet those of another.', {
  id: text(
    '^[a-z0-9][a-z0-9_-]{0,62}$',
    "an id of lower-case letters, digits, '_' and '-' (at most 63)",
    'Id, as in /v1/workspaces/{id}.',
  ),
  env: text(slug, slugWords, 'The fact env of its calls; an upstream may override it.', 'prod'),
  agents: list('Agents of the workspace.', agent),
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
});

const credentials = record('credentials', 'A header that the gateway sets on each request to the upstream.', {
  header: text(headerName, 'the name of a header', 'Name of the header.'),
  value: Type.Optional(
    Type.String({ minLength: 1, description: 'Its value; write secrets as ${NAME}. Either this or file.' }),
  ),
  file: Type.Optional(
    path('A file that holds the whole value. It is watched: a new value is in force without a restart.'),
  ),
});

const headerPattern = (description: string) =>
  text('^[A-Za-z0-9!#$%&+.^_|~-]{1,100}\\*?$', 'the name of a header, or the beginning of one and *', description);

const headers = section('headers', 'What becomes of the headers of requests; see [Headers](#headers).', {
  forward: list('Go on, though they would not by themselves.', headerPattern('A header, or x-internal-*.')),
  drop: list(
    'Do not go on. `forward` is stronger: `drop: ["*"]` makes a list of it.',
    text(
      '^([A-Za-z0-9!#$%&+.^_|~-]{1,100}\\*?|\\*)$',
      'the name of a header, or the beginning of one and *',
      'A header, x-internal-*, or * for all.',
    ),
  ),
  volatile: list(
    'Go on and are no part of the fingerprint: a retry may have other values.',
    headerPattern('A header, or x-internal-*.'),
  ),
  set: Type.Record(Type.String(), Type.String(), {
    description:
      'Headers that the gateway sets, whatever the caller sends. Their values may have {client_ip}, {host}, {proto}, {request_id} and {agent_id}.',
    default: {},
  }),
});

const upstream = record('an upstream', 'A service behind the gateway.', {
  id: text(slug, slugWords, 'Id of the upstream.'),
  url: Type.Optional(
    Type.String({ description: 'Its http or https origin, without a path. Required, but for MCP servers.' }),
  ),
  mcp: Type.Optional(mcp),
  timeout: duration(
    'How long an answer may take, unless the tool says otherwise. Of a read that streams through: how long each wait for its next bytes may take; the whole may take any time.',
    { min: '1ms', max: '1h' },
    '30s',
  ),
  connections: integer('Connections to it at once.', 1, 10_000, 128),
  network: oneOf(['any', 'public'], 'public: loopback and private addresses are refused.', 'any'),
  env: Type.Optional(text(slug, slugWords, 'The fact env of calls to it. Default: that of the workspace.')),
  credentials: Type.Optional(
    Type.Union([Type.Literal('caller'), credentials], {
      'x-expected': 'caller, or { header, value } or { header, file }',
      description:
        "A header that the gateway sets on each request. caller, or nothing: the caller's own credentials go on, where the key of the gateway came elsewhere.",
    }),
  ),
  tls: Type.Optional(upstreamTls),
  headers,
});

const status = Type.Integer({ minimum: 200, maximum: 599, description: 'An HTTP status.' });

const outcomes = section('outcomes', 'What answers mean, where it is not what the default table says.', {
  committed: list('Statuses after which it happened.', status),
  failed: list(
    'Statuses after which nothing changed. Where 503 or 529 is one of them, libraries may ask again, as they may after 429.',
    status,
  ),
  unknown: list('Statuses after which nobody knows.', status),
  body: list(
    'By a value in the JSON body; the first that is equal decides.',
    record('an entry of outcomes.body', 'One value.', {
      path: text('^[^\\u0000-\\u001f]+$', 'a path such as result.status', 'Path in the body.'),
      equals: Type.Unsafe<Json>({ description: 'The value.' }),
      outcome: oneOf(['committed', 'failed', 'unknown'], 'What it means.'),
    }),
  ),
  is_error: later('outcomes of MCP upstreams'),
});

const actualPath = text('^[^\\u0000-\\u001f]+$', 'a path such as usage.total_tokens', 'A path in the answer.');

const tool = record('a tool', 'Something that agents can have done.', {
  name: Type.String({
    pattern: toolName,
    maxLength: 128,
    'x-expected': "a name such as payments.refund: letters, digits, '_' and '-', parts joined by '.', '/' or ':'",
    description: 'Name, <upstream>.<tool> by convention.',
  }),
  title: Type.Optional(Type.String({ minLength: 1, description: 'Name for people.' })),
  upstream: Type.String({ description: 'Id of the upstream that does it.' }),
  kind: oneOf(['read', 'write'], 'read: repeating it changes nothing.'),
  action_type: text(
    '^[a-z][a-z0-9_.]{0,63}$',
    'a word such as mcp.tool_call',
    'Action type of its calls.',
    'mcp.tool_call',
  ),
  tags: list('Words that policies select by.', text(roleName, 'a word', 'A tag.')),
  risk: Type.Optional(oneOf(['low', 'medium', 'high', 'critical'], 'How much is at stake.')),
  request: request('The request that does it.'),
  params_schema: Type.Optional(
    Type.Unsafe<JsonObject>({
      type: 'object',
      description: 'JSON Schema (2020-12) of the params. Calls that break it are refused with every fault.',
    }),
  ),
  target: Type.Optional(
    Type.String({
      minLength: 1,
      description: 'What is acted on, from the params: payment:{payment_id}. Default: the caller says.',
    }),
  ),
  timeout: Type.Optional(
    duration(
      'How long an answer may take, as for the upstream. Of a stream: how long nothing may come. Default: that of the upstream.',
      { min: '1ms', max: '1h' },
    ),
  ),
  response: oneOf(
    ['whole', 'stream'],
    'How answers to writes go to callers of a route. whole: when they are complete. stream: as they come, unless they are JSON; see [streams.md](../upstreams/streams.md).',
    'whole',
  ),
  stream_time: Type.Optional(
    duration('With response: stream, how long the whole answer may take. Default: 10m.', { min: '1s', max: '6h' }),
  ),
  max_processing: duration(
    'How long the upstream may still be at it after the answer was given up.',
    { min: '0s', max: '7d' },
    '60s',
  ),
  idempotent: Type.Union(
    [
      Type.Literal(false),
      record('idempotent', 'How the upstream removes duplicates.', {
        header: text(headerName, 'the name of a header', 'Header that carries the key.'),
        for: duration('How long it remembers a key.', { min: '1s', max: '3650d' }),
      }),
    ],
    {
      'x-expected': 'false, or { header, for }',
      description: 'Whether the upstream itself removes duplicates.',
      default: false,
    },
  ),
  outcomes,
  state: Type.Optional(
    record('state', 'How to read the live state for state_check.', { request: request('A read request.') }),
  ),
  probe: later('probes'),
  actual: Type.Optional(
    Type.Record(
      Type.String({ minLength: 1 }),
      Type.Union([actualPath, Type.Array(actualPath, { minItems: 1, maxItems: 8 })], {
        'x-expected': 'a path such as usage.total_tokens, or a list of paths that are added up',
      }),
      {
        description:
          'Where answers say what was really spent, by the unit of the budgets: token: usage.total_tokens. In the JSON of the answer, or in the last event that has it. Several paths are added up. What was held is given back or overdrawn accordingly; an answer without it posts what was held.',
        'x-name': 'actual',
      },
    ),
  ),
});

const routeRule = record('a route rule', 'Requests that are calls of a tool.', {
  match: Type.String({ description: 'Method and path after the prefix: POST /v1/payments/:payment_id/refunds.' }),
  tool: Type.String({ description: 'The tool that they call.' }),
  idempotency: Type.Optional(
    Type.Union(
      [
        Type.Unsafe<'required' | 'none' | 'derive'>({ type: 'string', enum: ['required', 'none', 'derive'] }),
        record('idempotency', 'A derived key.', {
          derive: duration('Equal calls within this time are one.', { min: '1s', max: '30d' }),
        }),
      ],
      {
        'x-expected': 'required, none, derive or { derive: 10m }',
        description:
          'Idempotency-Key of writes: required; none; or derived from the call for a time (derive: 10m). Default: required for writes, none for reads.',
      },
    ),
  ),
  on_duplicate: oneOf(
    ['conflict', 'replay'],
    'Answer to a duplicate: 409 with the receipt, or the stored answer again.',
    'conflict',
  ),
  frames: Type.Optional(
    oneOf(
      ['ungoverned'],
      'ungoverned: WebSocket upgrades pass after the checks of the handshake; frames are not looked into.',
    ),
  ),
});

const route = record('a route', "A part of the gateway's addresses that stands for an upstream.", {
  upstream: Type.String({ description: 'Id of the upstream.' }),
  prefix: Type.String({
    description: "Agents' base URL is {gateway}{prefix}. With host or listen it can be /, which is everything there.",
  }),
  host: Type.Optional(
    text(
      '^[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?$',
      'a host name without a port',
      "The route is there for requests whose Host is this name, and for no others. None of the gateway's own addresses is under it.",
    ),
  ),
  listen: Type.Optional(
    text(
      '^(\\[[0-9A-Fa-f:.]{2,45}\\]|[A-Za-z0-9.-]{1,253}):[0-9]{1,5}$',
      'an address and a port, such as 127.0.0.1:8443',
      "A listener of its own for the route, at which none of the gateway's own addresses is. Routes may share one. Port 0 lets the system choose one, which the log says.",
    ),
  ),
  tls: Type.Optional(
    serverTls(
      'TLS on the listener that listen opens, as server.tls. Routes that share it say it once, or all the same.',
    ),
  ),
  undeclared: oneOf(
    ['deny', 'passthrough_reads'],
    'What happens to requests that no rule names. passthrough_reads has policy judge GET and HEAD, with the fact tool.declared: false.',
    'deny',
  ),
  undeclared_query: Type.Optional(
    oneOf(
      ['refuse', 'pass'],
      'Query params that the tool of a rule does not declare. pass: they are params of a group, params.query, of tools that name none in query_rest. refuse: whatever the tool says.',
    ),
  ),
  keys: Type.Array(
    text(
      '^(x-api-key|bearer|token|basic|api-key|query(:[a-z0-9_.-]{1,64})?|header:[A-Za-z0-9!#$%&+.^_|~-]{1,100})$',
      'x-api-key, bearer, token, basic, api-key, query, query:name or header:name',
      'A place of keys.',
    ),
    {
      description:
        'Where callers carry their key: x-api-key; bearer, token or basic (of Authorization; in basic as user or password); api-key; query (the parameter api_key, where auth.query_key allows it) or query:name; header:name.',
      default: ['x-api-key', 'bearer', 'query'],
    },
  ),
  headers,
  pending_status: Type.Union([Type.Literal(202), Type.Literal(409), Type.Literal(423), Type.Literal(503)], {
    'x-expected': '202, 409, 423 or 503',
    description:
      'Status of the answer that a call waits for approval. Client libraries take 202 for success; 409 makes them throw.',
    default: 202,
  }),
  error_format: oneOf(
    ['problem', 'stripe', 'openai', 'anthropic', 'github', 'slack', 'graphql'],
    'The form of errors in answers that are not the upstream’s: `error` and `message` beside the decision, as client libraries of the family read them. slack and graphql: with status 200, as these APIs say no.',
    'problem',
  ),
  final_status: Type.Optional(
    Type.Union([Type.Literal(409), Type.Literal(422)], {
      'x-expected': '409 or 422',
      description:
        'Status of answers that are final, in place of 402, 409, 413, 423, 502, 504 and others that some libraries repeat by themselves without looking at x-should-retry. Default: their own status; with error_format: github 422.',
    }),
  ),
  set_cookie: flag("Whether Set-Cookie of the upstream's answers is passed on.", false),
  foreign_links: oneOf(
    ['hide', 'pass'],
    "Addresses of other origins in Location, Content-Location and Link. hide: they stand in svc-foreign-location and so on, which no client follows; many send the gateway's key along where they follow one.",
    'hide',
  ),
  links: list(
    'Fields of JSON answers that hold addresses which clients follow, such as that of the next page: next, paging.next, _links.*.href. They lead to the gateway like those in Location; those of other origins begin with svc-foreign: unless foreign_links passes them.',
    text(
      String.raw`^([^.\\\u0000-\u001f]|\\[.\\])+(\.([^.\\\u0000-\u001f]|\\[.\\])+){0,15}$`,
      String.raw`names with dots between them; * for any member or element, \. for a dot in a name`,
      'A field.',
    ),
  ),
  rules: list(
    'Rules. A fixed segment comes before a param: /users/me before /users/:id. Two of which neither comes before the other may not match one request.',
    routeRule,
  ),
});

const pool = record('a pool', 'A resource of which only so many units may be in use at once.', {
  id: text(roleName, "an id of letters, digits and '_ . : -'", 'Id of the pool.'),
  units: integer('How many units there are.', 1, 1_000_000_000),
});

const limits = section('limits', 'Limits that can be set; all others are in limits.md.', {
  body: size(`${LIMITS.body.what}.`, { min: '1KiB', max: '64MiB' }, LIMITS.body.value),
  upload: size(`${LIMITS.upload.what}.`, { min: '1KiB', max: '16GiB' }, LIMITS.upload.value),
  upload_file: size(`${LIMITS.upload_file.what}.`, { min: '1KiB', max: '16GiB' }, LIMITS.upload_file.value),
  spool: size(`${LIMITS.spool.what}.`, { min: '1KiB', max: '1024GiB' }, LIMITS.spool.value),
  params_depth: integer(`${LIMITS.params_depth.what}.`, 1, 64, LIMITS.params_depth.value),
  params_values: integer(`${LIMITS.params_values.what}.`, 100, LIMITS.params_values.value, LIMITS.params_values.value),
  response_kept: size(`${LIMITS.response_kept.what}.`, { min: '0B', max: '16MiB' }, LIMITS.response_kept.value),
  response: size(`${LIMITS.response.what}.`, { min: '1KiB', max: '256MiB' }, LIMITS.response.value),
  stream: size(`${LIMITS.stream.what}.`, { min: '1KiB', max: '16GiB' }, LIMITS.stream.value),
  connections: integer(`${LIMITS.connections.what}.`, 16, 1_000_000, LIMITS.connections.value),
  brain_entities: integer(`${LIMITS.brain_entities.what}.`, 1, 1_000_000, LIMITS.brain_entities.value),
  brain_size: size(`${LIMITS.brain_size.what}.`, { min: '1KiB', max: '1GiB' }, LIMITS.brain_size.value),
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
    }),
    users: list('Approvers and owners; keys belong to users.', user),
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
    webhooks: later('webhooks'),
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
