import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, it, vi } from 'vitest';
import { SCOPES } from '../../src/effects/model/principal.ts';
import { type LenientServer, lockOf, startLenientServer } from '../system/mcp/lenient-server.ts';
import { makeApiKey, send } from '../system/gateway.ts';
import { freshKey, refund, startWorld, type World, worldFiles } from '../system/world.ts';

const GOLDEN = new URL('../golden/permission-matrix.txt', import.meta.url);
const WS = '/v1/workspaces/demo';

/** A name that no other tool has: `crm.echo`. */
const PINNED = [{ name: 'echo', inputSchema: { type: 'object', additionalProperties: true } }];

let folder: string;
let crm: LenientServer;
let world: World;
let keys: Readonly<Record<string, string | null>>;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'svc-matrix-'));
  crm = await startLenientServer();
  crm.tools = [...PINNED];
  const pins = join(folder, 'crm.json');
  await writeFile(pins, lockOf('crm', PINNED));
  const server = `{ id: crm, timeout: 10s, mcp: { url: "${crm.url}", pins: "${pins}" } }`;
  world = await startWorld({
    files(url) {
      const { config, policies } = worldFiles(url);
      // Room for everybody: a full pool and a spent budget say nothing about who may.
      return {
        config:
          config
            .replace('id: deploy-slot, units: 1 }', 'id: deploy-slot, units: 50 }')
            .replace('timeout: 10s } ]', `timeout: 10s }, ${server} ]`) + PROFILES,
        policies: {
          'world.yaml': (policies['world.yaml'] ?? '').replace('limit: 100000 }', 'limit: 100000000 }') + CRM_RULE,
        },
      };
    },
  });
  keys = await keysOfEveryKind();
});
afterAll(async () => {
  await world.close();
  await crm.close();
  await rm(folder, { recursive: true });
});

/** Keys in the order of the columns. `elsewhere`: of the other workspace. */
async function keysOfEveryKind(): Promise<Readonly<Record<string, string | null>>> {
  const { gateway } = world;
  const demo = { workspace: 'demo' };
  const make = (user: string, body: Record<string, unknown>): Promise<string> => makeApiKey(gateway, user, body);
  const revoked = await make('tom', { kind: 'account', ...demo, name: 'to-revoke' });
  const rotated = await make('tom', { kind: 'account', ...demo, name: 'to-rotate' });
  const expired = await make('tom', { kind: 'account', ...demo, expires_in: 1 });
  const idOf = async (name: string): Promise<string> => {
    const { body } = await administer('GET', '/v1/beta/users/tom/keys');
    return body.keys.find((key: { name: string }) => key.name === name).id;
  };
  await administer('DELETE', `/v1/beta/users/tom/keys/${await idOf('to-revoke')}`);
  await administer('POST', `/v1/beta/users/tom/keys/${await idOf('to-rotate')}/rotate`, { overlap: 0 });
  for (const key of [revoked, rotated, expired]) {
    const isRefused = async (): Promise<void> =>
      expect((await send(gateway.url, key, 'GET', '/v1/mcp/key-profiles')).status).toBe(401);
    await vi.waitFor(isRefused, { timeout: 40_000 });
  }
  const { account } = world.keys;
  return {
    none: null,
    malformed: 'not-a-key',
    'wrong checksum': `${account.slice(0, -1)}${account.endsWith('0') ? '1' : '0'}`,
    expired,
    revoked,
    'rotated out': rotated,
    account,
    'account of the approver': world.keys.approver,
    agent: world.keys.bot,
    'another agent': world.keys.otherBot,
    administrative: gateway.administrativeKey,
    mcp_readonly: world.keys.readonly,
    mcp_operator: await make('tom', { profile: 'mcp_operator', ...demo }),
    mcp_agent: await make('tom', { profile: 'mcp_agent', ...demo }),
    auditor: await make('tom', { profile: 'auditor', ...demo }),
    'auditor of the agent': await make('tom', { profile: 'auditor', ...demo, agent_id: 'bot' }),
    'auditor elsewhere': await make('tom', { profile: 'auditor', workspace: 'elsewhere' }),
    'mcp_agent of the agent': await make('tom', { profile: 'mcp_agent', ...demo, agent_id: 'bot' }),
    'mcp_agent without scopes': await make('tom', { profile: 'mcp_agent', ...demo, scopes: [] }),
    'profile with every scope': await make('maria', { profile: 'everything', ...demo }),
    'read-only with every scope': await make('maria', { profile: 'looker', ...demo }),
    'profile without workspace': await make('tom', { profile: 'mcp_agent' }),
    'account elsewhere': await make('tom', { kind: 'account', workspace: 'elsewhere' }),
    'agent elsewhere': world.keys.stranger,
    'mcp_agent elsewhere': await make('tom', { profile: 'mcp_agent', workspace: 'elsewhere' }),
  };
}

function administer(method: string, path: string, body?: unknown): ReturnType<typeof send> {
  return send(world.gateway.url, world.gateway.administrativeKey, method, path, body);
}

/** Profiles that nobody ships: all scopes, and all scopes on a key that changes nothing. */
const PROFILES = `
auth:
  profiles:
    - { name: everything, scopes: [${SCOPES.join(', ')}] }
    - { name: looker, scopes: [${SCOPES.join(', ')}], read_only: true }
`;

const CRM_RULE = '  - { id: mcp, effect: allow, match: { tools: [crm.echo, "crm.(resources/read)"] } }\n';

interface Prepared {
  readonly path: string;
  readonly body?: unknown;
  readonly headers?: Record<string, string>;
}

/** Columns whose keys name no agent: they say in the request who acts. */
const NAMES_AGENT: ReadonlySet<string> = new Set([
  'account',
  'account of the approver',
  'administrative',
  'mcp_readonly',
  'mcp_operator',
  'mcp_agent',
  'auditor',
  'auditor elsewhere',
  'mcp_agent without scopes',
  'profile with every scope',
  'read-only with every scope',
  'profile without workspace',
  'account elsewhere',
  'mcp_agent elsewhere',
]);

function acting(column: string): { readonly agent_id?: string } {
  return NAMES_AGENT.has(column) ? { agent_id: 'bot' } : {};
}

/** Things that requests are about, all of the agent `bot`; made anew where an earlier request has used them up. */
const things = {
  async committed(): Promise<string> {
    return (await world.run(refund())).body.effect_id;
  },
  async lost(): Promise<string> {
    const { body } = await world.run(refund({ reason: 'mode:drop_after' }));
    expect(body.decision).toBe('unknown_effect');
    return body.effect_id;
  },
  async waiting(): Promise<string> {
    return (await world.run(refund({ amount: 50_001 }))).body.approval.id;
  },
  async claim(): Promise<string> {
    const target = `payment:${freshKey()}`;
    return (await world.post('/claims', { target, ttl_s: 600 }, world.keys.bot)).body.id;
  },
  async reservation(): Promise<string> {
    return (await world.post('/reservations', { pool: 'deploy-slot', units: 1, ttl_s: 600 }, world.keys.bot)).body.id;
  },
  async pause(): Promise<string> {
    return (await world.post('/pauses', { scope: { tool: 'nothing.like.this' }, reason: 'test' })).body.id;
  },
  async entity(): Promise<string> {
    const id = `team_${freshKey()}`;
    await administer('PUT', `${WS}/brain/entities`, { entities: [{ type: 'team', id, name: 'A team' }] });
    return id;
  },
  async key(): Promise<string> {
    return (await administer('POST', '/v1/beta/users/olga/keys', { name: 'spare', kind: 'account', workspace: 'demo' }))
      .body.id;
  },
};

const live = new Map<keyof typeof things, string>();

async function thing(kind: keyof typeof things): Promise<string> {
  const known = live.get(kind);
  if (known !== undefined) return known;
  const made = await things[kind]();
  expect(made, `a ${kind} was made`).toMatch(/^[a-z]+_/);
  live.set(kind, made);
  return made;
}

const CHECK = {
  intent: 'refund',
  required_fields: ['status'],
  assumed_state: { status: 'paid' },
  current_state: { status: 'paid' },
  conditions: {},
  on_mismatch: 'replan',
};
const RECONCILE = {
  action: { intent: 'refund', tool: 'payments.refund', params: {} },
  outcome: 'UNKNOWN',
  current_state: { status: 'refunded' },
  conditions: { status: 'refunded' },
};

/** For each operation a request that holds: what a permitted key gets is what the operation does. */
const OPERATIONS: Readonly<Record<string, (column: string) => Prepared | Promise<Prepared>>> = {
  runEffect: (column) => ({ path: `${WS}/effects`, body: { ...refund({ amount: 10 }), ...acting(column) } }),
  previewEffect: (column) => ({
    path: `${WS}/effects/preview`,
    body: { ...refund({ amount: 10 }), ...acting(column) },
  }),
  listEffects: () => ({ path: `${WS}/effects?limit=1` }),
  listObservedReads: () => ({ path: `${WS}/observed-reads?limit=1` }),
  listLedger: () => ({ path: `${WS}/ledger?limit=1` }),
  exportLedger: () => ({ path: `${WS}/export?format=csv&what=receipts&until=2020-01-01T00:00:00Z` }),
  listInstallationLedger: () => ({ path: '/v1/beta/ledger?kind=user&limit=1' }),
  getEffect: async () => ({ path: `${WS}/effects/${await thing('committed')}` }),
  getReceipt: async () => ({ path: `${WS}/effects/${await thing('committed')}/receipt` }),
  streamEffects: () => ({ path: `${WS}/effects/stream` }),
  createConsoleLink: () => ({ path: '/v1/beta/console/links', body: {} }),
  getRun: async () => ({ path: `${WS}/effects/${await thing('committed')}/run` }),
  probeEffect: async () => ({ path: `${WS}/effects/${await thing('lost')}/probe` }),
  resolveEffect: async () => ({ path: `${WS}/effects/${await thing('lost')}/resolve`, body: { outcome: 'happened' } }),
  eraseEffect: async () => ({ path: `${WS}/effects/${await thing('committed')}/params` }),
  listApprovals: () => ({ path: `${WS}/approvals` }),
  getApproval: async () => ({ path: `${WS}/approvals/${await thing('waiting')}` }),
  approve: async () => ({ path: `${WS}/approvals/${await thing('waiting')}/approve`, body: {} }),
  reject: async () => ({ path: `${WS}/approvals/${await thing('waiting')}/reject`, body: {} }),
  listAllowances: () => ({ path: `${WS}/allowances` }),
  // What it would end is nothing that this world's policy lets anybody give.
  revokeAllowance: () => ({ path: `${WS}/allowances/alw_nothing` }),
  takeClaim: (column) => ({
    path: `${WS}/claims`,
    body: { target: `payment:${freshKey()}`, ttl_s: 1, ...acting(column) },
  }),
  listClaims: () => ({ path: `${WS}/claims` }),
  renewClaim: async () => ({ path: `${WS}/claims/${await thing('claim')}/renew`, body: {} }),
  releaseClaim: async () => ({ path: `${WS}/claims/${await thing('claim')}` }),
  makeReservation: (column) => ({
    path: `${WS}/reservations`,
    body: { pool: 'deploy-slot', units: 1, ttl_s: 600, ...acting(column) },
  }),
  listReservations: () => ({ path: `${WS}/reservations` }),
  releaseReservation: async () => ({ path: `${WS}/reservations/${await thing('reservation')}` }),
  setPause: () => ({ path: `${WS}/pauses`, body: { scope: { tool: 'nothing.like.this' }, reason: 'test' } }),
  listPauses: () => ({ path: `${WS}/pauses` }),
  liftPause: async () => ({ path: `${WS}/pauses/${await thing('pause')}` }),
  listBudgets: () => ({ path: `${WS}/budgets` }),
  putEntities: () => ({ path: `${WS}/brain/entities`, body: { entities: [{ type: 'team', id: 'one', name: 'One' }] } }),
  listEntities: () => ({ path: `${WS}/brain/entities` }),
  getEntity: async () => ({ path: `${WS}/brain/entities/team/${await thing('entity')}` }),
  deleteEntity: async () => ({ path: `${WS}/brain/entities/team/${await thing('entity')}` }),
  searchEntities: () => ({ path: `${WS}/brain/search?query=team&entity_type=team` }),
  listPolicies: () => ({ path: `${WS}/policies` }),
  listPolicySuggestions: () => ({ path: `${WS}/policies/suggestions` }),
  listPolicyActivations: () => ({ path: '/v1/beta/policies/activations' }),
  getPolicyVersion: () => ({ path: `/v1/beta/policies/versions/${'A'.repeat(43)}` }),
  activatePolicies: () => ({ path: '/v1/beta/policies/activations', body: {} }),
  listNotifications: () => ({ path: '/v1/beta/notifications' }),
  resendNotification: () => ({ path: '/v1/beta/notifications/dlv_none/resend' }),
  rollBackPolicies: () => ({ path: '/v1/beta/policies/rollback', body: {} }),
  getEffectBudgets: async () => ({ path: `${WS}/effects/eff_none/budgets` }),
  listPolicyProposals: () => ({ path: '/v1/beta/policies/proposals' }),
  confirmPolicies: () => ({ path: '/v1/beta/policies/proposals/ppl_none/confirm', body: {} }),
  withdrawPolicies: () => ({ path: '/v1/beta/policies/proposals/ppl_none' }),
  listTools: () => ({ path: `${WS}/tools` }),
  listPins: () => ({ path: `${WS}/pins` }),
  comparePins: () => ({ path: `${WS}/pins/payments` }),
  listAgents: () => ({ path: `${WS}/agents` }),
  registerAgent: () => ({ path: `${WS}/agents`, body: { id: freshKey() } }),
  createKey: () => ({ path: '/v1/beta/users/olga/keys', body: { name: 'made', profile: 'mcp_readonly' } }),
  listKeys: () => ({ path: '/v1/beta/users/olga/keys' }),
  revokeKey: async () => ({ path: `/v1/beta/users/olga/keys/${await thing('key')}` }),
  rotateKey: async () => ({ path: `/v1/beta/users/olga/keys/${await thing('key')}/rotate`, body: {} }),
  listPasskeys: () => ({ path: '/v1/beta/users/olga/passkeys' }),
  removePasskey: () => ({ path: '/v1/beta/users/olga/passkeys/psk_none' }),
  listAllKeys: () => ({ path: '/v1/beta/keys?agent_id=bot' }),
  revokeAnyKey: async () => ({ path: `/v1/beta/keys/${await thing('key')}` }),
  rotateAnyKey: async () => ({ path: `/v1/beta/keys/${await thing('key')}/rotate`, body: {} }),
  createWorkspace: () => ({ path: '/v1/workspaces', body: { id: freshKey() } }),
  listWorkspaces: () => ({ path: '/v1/workspaces' }),
  listKeyProfiles: () => ({ path: '/v1/mcp/key-profiles' }),
  verifyState: () => ({ path: '/state/verify', body: CHECK }),
  reconcileOutcome: () => ({ path: '/outcomes/reconcile', body: RECONCILE }),
  getReceiptKeys: () => ({ path: '/.well-known/jwks.json' }),
  openapi: () => ({ path: '/openapi.json' }),
  live: () => ({ path: '/livez' }),
  ready: () => ({ path: '/readyz' }),
  metrics: () => ({ path: '/metrics' }),
};

/** Requests that stand in no document: variants of an operation whose right differs, and the other door. */
const BESIDE: readonly {
  readonly name: string;
  readonly method: string;
  readonly prepare: (column: string) => Prepared | Promise<Prepared>;
}[] = [
  {
    name: 'registerAgent with a team',
    method: 'POST',
    prepare: () => ({ path: `${WS}/agents`, body: { id: freshKey(), team: 'support' } }),
  },
  {
    name: 'runEffect in a workspace that does not exist',
    method: 'POST',
    prepare: (column) => ({
      path: '/v1/workspaces/nowhere/effects',
      body: { ...refund({ amount: 10 }), ...acting(column) },
    }),
  },
  {
    name: 'listEffects in a workspace that does not exist',
    method: 'GET',
    prepare: () => ({ path: '/v1/workspaces/nowhere/effects' }),
  },
  {
    name: 'listPauses in a workspace that does not exist',
    method: 'GET',
    prepare: () => ({ path: '/v1/workspaces/nowhere/pauses' }),
  },
  {
    name: 'a write through the proxy',
    method: 'POST',
    prepare: (column) => ({
      path: '/payments/v1/notes',
      body: { text: 'x' },
      headers: { 'idempotency-key': freshKey(), ...proxied(column) },
    }),
  },
  {
    name: 'a read through the proxy',
    method: 'GET',
    prepare: (column) => ({ path: '/payments/v1/payments/pay_1', headers: proxied(column) }),
  },
  {
    name: 'a route of the proxy that is not declared',
    method: 'GET',
    prepare: (column) => ({ path: '/payments/v1/undeclared', headers: proxied(column) }),
  },
];

/** What agents send to MCP servers, by the door and the method. */
const MCP_DOORS = ['/mcp', '/mcp/crm'].flatMap((path) => {
  const name = path === '/mcp' ? 'crm__echo' : 'echo';
  const messages: Readonly<Record<string, () => object>> = {
    initialize: () => ({ protocolVersion: '2025-11-25', capabilities: {}, clientInfo: { name: 'test', version: '1' } }),
    'tools/list': () => ({}),
    'tools/call': () => ({ name, arguments: { key: freshKey() } }),
    ...(path === '/mcp' ? {} : { 'resources/read': () => ({ uri: 'file:///plain' }) }),
  };
  return [
    ...Object.entries(messages).map(([method, params]) => ({
      title: `POST ${path}, ${method}`,
      method: 'POST',
      prepare: (column: string) => ({
        path,
        body: { jsonrpc: '2.0', id: 1, method, params: params() },
        headers: proxied(column),
      }),
    })),
    { title: `DELETE ${path}`, method: 'DELETE', prepare: (column: string) => ({ path, headers: proxied(column) }) },
  ];
});

/** Tools of the MCP control plane, each with arguments that hold. */
const MCP_TOOLS: Readonly<Record<string, (column: string) => object | Promise<object>>> = {
  'svc.tools.search': () => ({}),
  'svc.tools.describe': () => ({ tool: 'payments.refund' }),
  'svc.preflight.check': (column) => {
    const { tool, params } = refund({ amount: 10 });
    return { tool, params, ...acting(column) };
  },
  'svc.policy.simulate': () => ({ agent_id: 'bot', action: 'notes.add', params: { text: 'x' } }),
  'svc.policy.explain': async () => ({ effect_id: await thing('committed') }),
  'svc.company_brain.query': () => ({ query: 'team', entity_type: 'team' }),
  'svc.approvals.list': () => ({}),
  'svc.approvals.get': async () => ({ approval_id: await thing('waiting') }),
  'svc.executions.list': () => ({ limit: 1 }),
  'svc.executions.get': async () => ({ effect_id: await thing('committed') }),
  'svc.executions.trace': async () => ({ effect_id: await thing('committed') }),
  'svc.receipts.verify': () => ({ receipt: 'a.b.c' }),
  'svc.observability.summary': () => ({ window: '1h' }),
  'svc.governance.readiness': () => ({}),
};

function proxied(column: string): Record<string, string> {
  return NAMES_AGENT.has(column) ? { 'svc-agent-id': 'bot' } : {};
}

interface Row {
  readonly title: string;
  readonly method: string;
  readonly prepare: (column: string) => Prepared | Promise<Prepared>;
}

async function rows(): Promise<readonly Row[]> {
  const { body } = await send(world.gateway.url, world.keys.account, 'GET', '/openapi.json');
  const operations = Object.entries<Record<string, { operationId: string; tags: readonly string[] }>>(
    body.paths,
  ).flatMap(([path, methods]) =>
    Object.entries(methods)
      .filter(([, { tags }]) => !tags.includes('mcp') && !tags.includes('pages'))
      .map(([method, { operationId }]) => ({
        operationId,
        method: method.toUpperCase(),
        title: `${method.toUpperCase()} ${path} (${operationId})`,
      })),
  );
  expect(operations.length).toBeGreaterThan(35);
  expect(operations.filter(({ operationId }) => OPERATIONS[operationId] === undefined)).toEqual([]);
  expect(Object.keys(OPERATIONS).toSorted()).toEqual(operations.map(({ operationId }) => operationId).toSorted());
  return [
    ...operations
      .toSorted((a, b) => a.title.localeCompare(b.title))
      .map(({ operationId, method, title }) => ({
        title,
        method,
        prepare: OPERATIONS[operationId] ?? (() => ({ path: '' })),
      })),
    ...BESIDE.map(({ name, method, prepare }) => ({ title: `${method} ${name}`, method, prepare })),
    { title: 'GET /v1/mcp', method: 'GET', prepare: () => ({ path: '/v1/mcp' }) },
    ...Object.entries(MCP_TOOLS).map(([name, args]) => ({
      title: `POST /v1/mcp, ${name}`,
      method: 'POST',
      prepare: async (column: string) => {
        const params = { name, arguments: await args(column) };
        return { path: '/v1/mcp', body: { jsonrpc: '2.0', id: 1, method: 'tools/call', params } };
      },
    })),
    ...MCP_DOORS,
  ];
}

it('who gets what: every operation with every kind of key', async () => {
  const lines: string[] = [
    '# Every operation, each with a request that holds, by every kind of key: status, then decision or code.',
    '# What the requests are about belongs to the agent `bot` of the workspace `demo`.',
    '# Written by test/hostile/permission-matrix.test.ts; UPDATE_GOLDEN=1 writes it anew. Read the diff.',
  ];
  for (const { title, method, prepare } of await rows()) {
    lines.push('', title);
    for (const [column, key] of Object.entries(keys)) {
      const { path, body, headers } = await prepare(column);
      const answer = await request(method, path, key, body, headers);
      if (answer.status >= 400) expect(answer.shouldRetry, `${title}, ${column}`).toMatch(/^(true|false)$/);
      expect(answer.status, `${title}, ${column}`).not.toBe(500);
      if (answer.status < 300 && method !== 'GET') forget(path);
      lines.push(`  ${column.padEnd(27)} ${answer.status} ${answer.word}`.trimEnd());
    }
  }
  await expectGolden(`${lines.join('\n')}\n`);
});

interface Got {
  readonly status: number;
  readonly word: string;
  readonly shouldRetry: string | null;
}

async function request(
  method: string,
  path: string,
  key: string | null,
  body: unknown,
  headers: Record<string, string> = {},
): Promise<Got> {
  const response = await fetch(`${world.gateway.url}${path}`, {
    method,
    headers: {
      ...(key === null ? {} : { 'x-api-key': key }),
      ...(body === undefined ? {} : { 'content-type': 'application/json' }),
      ...headers,
    },
    ...(body === undefined ? {} : { body: JSON.stringify(body) }),
  });
  // One stream has no end of its own: that it begins says who may.
  const isStream = response.status === 200 && path.endsWith('/effects/stream');
  if (isStream) await response.body?.cancel();
  const text = isStream ? '' : await response.text();
  const isJson = response.headers.get('content-type')?.includes('json') ?? false;
  const answer = isJson ? JSON.parse(text) : {};
  const called =
    answer.error?.data ??
    answer.result?._meta?.['dev.svc-gateway/decision'] ??
    (answer.result?.isError === true ? JSON.parse(answer.result.content[1].text) : {});
  const decision = answer.decision ?? called.decision ?? response.headers.get('svc-decision') ?? answer.would;
  const code = answer.reason?.code ?? answer.code ?? called.code;
  const words = [...new Set([decision, code])].filter((word) => typeof word === 'string');
  return {
    status: response.status,
    word: words.join(' '),
    shouldRetry: response.headers.get('x-should-retry'),
  };
}

/** What a request has used up is made anew for the next one. */
function forget(path: string): void {
  for (const [kind, id] of live) if (path.includes(`/${id}`) && !path.endsWith('/renew')) live.delete(kind);
}

async function expectGolden(text: string): Promise<void> {
  if (process.env['UPDATE_GOLDEN'] === '1') await writeFile(GOLDEN, text);
  expect(text).toBe(await readFile(GOLDEN, 'utf8'));
}
