import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Writable } from 'node:stream';
import type { InjectOptions } from 'fastify';
import { ulid } from 'ulid';
import { expectSilentFsck } from '../silent-fsck.ts';
import type { ApiApp } from '../../src/api/app.ts';
import { Brain } from '../../src/brain/brain.ts';
import { createBrainWriter } from '../../src/brain/writer.ts';
import { createInvalidKeyLimiter } from '../../src/api/invalid-key-limiter.ts';
import { addControlPlane } from '../../src/api/control-plane.ts';
import { createLists } from '../../src/api/lists.ts';
import type { ApiPorts, ApiSettings } from '../../src/api/ports.ts';
import { PreferredWait } from '../../src/api/preferred-wait.ts';
import { createServer } from '../../src/api/server.ts';
import { surroundingsOfPolicies } from '../../src/config/for-policies.ts';
import { loadConfiguration } from '../../src/config/load.ts';
import { decideApproval } from '../../src/effects/run/decide-approval.ts';
import type { People } from '../../src/effects/run/recall.ts';
import type { EffectPorts, JudgeInput } from '../../src/effects/ports.ts';
import { Running } from '../../src/effects/run/running.ts';
import { runEffect } from '../../src/effects/run/run-effect.ts';
import { previewEffect } from '../../src/effects/run/preview-effect.ts';
import type { KeyKind, Scope } from '../../src/effects/model/principal.ts';
import { createProbe } from '../../src/effects/run/probe-effect.ts';
import { resolveEffect } from '../../src/effects/run/resolve-effect.ts';
import { standingOf } from '../../src/effects/run/standing.ts';
import { addConsole } from '../../src/console/plugin.ts';
import { ConsoleSessions } from '../../src/console/sessions.ts';
import { StoreUnavailable } from '../../src/effects/store.ts';
import { discloser } from '../../src/gateway/control-plane-ports.ts';
import { createPauseView } from '../../src/gateway/views.ts';
import { sealedStore } from '../../src/gateway/sealed-store.ts';
import { createAuthenticator } from '../../src/identity/authenticate.ts';
import { authorize, createDirectory } from '../../src/identity/directory.ts';
import { createPasskeys } from '../../src/identity/passkeys/passkeys.ts';
import { createVerifier } from '../../src/identity/passkeys/verifier.ts';
import { createKeyRecord, keyState, successorOf } from '../../src/identity/key-record.ts';
import { allProfiles } from '../../src/identity/profiles.ts';
import { evaluatePolicies, summariesOf } from '../../src/policy/evaluate.ts';
import { loadPolicySets } from '../../src/policy/load.ts';
import { suggestRules } from '../../src/policy/suggest.ts';
import { openSigner } from '../../src/receipts/sign.ts';
import { receiptView } from '../../src/receipts/view.ts';
import { makeKeyFile, readKeyFile } from '../../src/secrets/key-file.ts';
import { openSecrets } from '../../src/secrets/vault.ts';
import { openEmbeddedStore } from '../../src/gateway/embedded-store.ts';
import { createLogger } from '../../src/telemetry/logger.ts';
import { createMetrics } from '../../src/telemetry/metrics.ts';
import { createCatalog } from '../../src/upstreams/catalog.ts';
import { createUpstreams } from '../../src/upstreams/upstreams.ts';
import { startPaymentsUpstream } from '../../packages/demo/src/payments-upstream.ts';
import { documented } from '../documented.ts';
import { KEY_SEALS } from '../identity/key-seals.ts';

/** What a test sees of an answer. */
export interface Seen {
  readonly status: number;
  readonly headers: Readonly<Record<string, string | string[] | number | undefined>>;
  readonly text: string;
  // Bodies are asserted on by the tests, member by member.
  readonly json: Record<string, never> & { readonly [name: string]: unknown };
}

export type Keys = Readonly<
  Record<
    | 'account'
    | 'approver'
    | 'agent'
    | 'otherAgent'
    | 'admin'
    | 'readonly'
    | 'operator'
    | 'auditor'
    | 'runner'
    | 'stranger'
    | 'restricted'
    | 'governor'
    | 'governingAgent'
    | 'expired'
    | 'revoked',
    string
  >
>;

export interface Rig {
  readonly app: ApiApp;
  readonly ports: ApiPorts;
  readonly core: EffectPorts;
  readonly people: People;
  readonly keys: Keys;
  readonly logs: () => string;
  readonly storeFolder: () => string;
  readonly loseNextAnswer: () => void;
  send(method: InjectOptions['method'], path: string, options?: SendOptions): Promise<Seen>;
  close(): Promise<void>;
}

export interface SendOptions {
  readonly key?: string | null;
  readonly body?: unknown;
  /** Sent as it is, instead of `body`. */
  readonly raw?: string | Buffer;
  readonly headers?: Record<string, string>;
}

const CONFIG = (url: string, folder: string) => `
server: { host: 127.0.0.1, port: 0 }
store: { kind: embedded, path: "${folder}/store" }
auth: { profiles: [ { name: governor, scopes: [governance:write, brain:read] }, { name: decider, scopes: [approvals:read, approvals:decide] } ] }
users: [ { id: maria, roles: [finance-lead] }, { id: nora, roles: [finance-lead] }, { id: olga, roles: [] } ]
roles: { finance-lead: {} }
workspaces:
  - id: demo
    agents: [ { id: bot, team: support, owner: olga, attributes: { region: eu } }, { id: other-bot, team: support, attributes: { region: us } }, { id: retired, disabled: true } ]
  - { id: elsewhere, agents: [ { id: stranger } ] }
policies: { paths: ["${folder}/policy.yaml"] }
upstreams: [ { id: payments, url: "${url}", timeout: 5s } ]
tools:
  - name: payments.refund
    title: Refund
    upstream: payments
    kind: write
    request: { method: POST, path: "/v1/payments/{payment_id}/refunds", body: [amount, currency, reason] }
    params_schema: { type: object, required: [payment_id, amount, currency], properties: { payment_id: { type: string }, amount: { type: integer }, currency: { type: string }, reason: { type: string } }, additionalProperties: false }
    target: "payment:{payment_id}"
    timeout: 5s
    max_processing: 100ms
    state: { request: { method: GET, path: "/v1/payments/{payment_id}" } }
  - name: deploy.start
    title: Deploy
    upstream: payments
    kind: write
    request: { method: POST, path: /v1/deployments, body: [service] }
    params_schema: { type: object, required: [service], properties: { service: { type: string } }, additionalProperties: false }
    target: "service:{service}"
  - name: payments.get
    title: Get
    upstream: payments
    kind: read
    request: { method: GET, path: "/v1/payments/{payment_id}" }
    params_schema: { type: object, required: [payment_id], properties: { payment_id: { type: string } }, additionalProperties: false }
  - name: notes.add
    title: Note
    upstream: payments
    kind: write
    request: { method: POST, path: "/v1/notes", body: [text] }
    params_schema: { type: object, required: [text], properties: { text: { type: string } }, additionalProperties: false }
  - name: boxes.move
    title: Move
    upstream: payments
    kind: write
    request: { method: POST, path: "/v1/shelves/{shelf}/boxes/{box}" }
    params_schema: { type: object, required: [shelf, box], properties: { shelf: { type: string }, box: { type: string } }, additionalProperties: false }
    target: "shelf:{shelf}/box:{box}"
pools: [ { id: deploy-slot, units: 2 } ]
`;

const POLICY = `
apiVersion: svc-gateway/v1
kind: PolicySet
name: rig
owner: team-test
budgets:
  agent-day: { unit: EUR-cent, by: [agent.id], per: year, limit: 100000 }
  team-day: { unit: EUR-cent, by: [agent.team], per: year, limit: 1000000 }
  region-day: { unit: EUR-cent, by: [tool.name, agent.attributes.region, agent.owner], per: year, limit: 10000000 }
rules:
  - id: refund
    effect: allow
    match: { tools: [payments.refund] }
    when: { params.amount: { lte: 50000 } }
    obligations: [ { budget: { use: agent-day, amount: params.amount } }, { budget: { use: team-day, amount: params.amount } } ]
  - id: refund-in-a-slot
    effect: constrain
    on_unknown: skip
    match: { tools: [payments.refund] }
    when: { params.reason: { eq: slot } }
    obligations: [ { reserve: { pool: deploy-slot, units: 1 } } ]
  - id: refund-in-a-region
    effect: constrain
    on_unknown: skip
    match: { tools: [payments.refund] }
    when: { params.reason: { eq: region } }
    obligations: [ { budget: { use: region-day, amount: params.amount } } ]
  - { id: note, effect: allow, match: { tools: [notes.add] }, obligations: [ { claim: { on: "note:\${params.text}", hold: existing } } ] }
  - { id: box, effect: allow, match: { tools: [boxes.move] } }
  - { id: barred, effect: deny, match: { agents: { id: [barred] } }, reason: "This agent does nothing" }
  - id: refund-large
    effect: require_approval
    match: { tools: [payments.refund] }
    when: { params.amount: { gt: 50000 } }
    description: Large refunds are looked at
    obligations: [ { budget: { use: team-day, amount: params.amount } }, { redact: { params: [reason] } } ]
    approval: { approvers: { roles: [finance-lead] }, quorum: 1, expires: 1h, summary: "Refund \${params.amount}", editable: { currency: { max_length: 80 } } }
  - id: refund-by-two
    effect: require_approval
    on_unknown: skip
    match: { tools: [payments.refund] }
    when: { params.reason: { eq: two } }
    approval: { approvers: { roles: [finance-lead] }, quorum: 2, expires: 1h, summary: "Refund \${params.amount}" }
`;

/** The whole gateway behind the control plane, in this process: real store, core, policy, identity, receipts, upstream. */
export async function startRig(
  change: Partial<ApiSettings> = {},
  other: Partial<
    Pick<ApiPorts, 'catalog' | 'choosePolicy' | 'confirmPolicy' | 'suggestRules' | 'pins' | 'receivers'>
  > = {},
  beforeRoutes: (app: ApiApp) => Promise<void> = async () => {},
): Promise<Rig> {
  const folder = await mkdtemp(join(tmpdir(), 'svc-api-'));
  const upstream = await startPaymentsUpstream({ port: 0 });
  await writeFile(join(folder, 'gateway.yaml'), CONFIG(upstream.url, folder));
  await writeFile(join(folder, 'policy.yaml'), POLICY);
  const { configuration } = await loadConfiguration(join(folder, 'gateway.yaml'));
  const bare = await openEmbeddedStore({
    path: join(folder, 'store'),
    lockWaitMs: 1000,
    retention: { keysMs: null, effectsMs: 86_400_000, denialsMs: 86_400_000 },
    keySeals: KEY_SEALS,
    worker: 'never',
  });
  const secrets = await openSecrets({ masterFile: join(folder, 'master'), previous: [] });
  const store = sealedStore(bare, secrets);
  const signer = await openSigner({
    keys: { path: join(folder, 'keys'), read: readKeyFile, make: makeKeyFile },
    issuer: null,
    store,
    version: '0.0.0-test',
  });
  const surroundings = surroundingsOfPolicies(configuration);
  const { pools } = surroundings;
  const { set, texts } = await loadPolicySets(surroundings);
  await store.activatePolicy(set.version, set.budgets);
  const directory = createDirectory(configuration, store);
  await directory.refresh();
  await store.seeUsers(configuration.rolesOf, { type: 'gateway', id: 'test' });
  const catalog = createCatalog(configuration.tools);
  const upstreams = createUpstreams(configuration.upstreams, {
    responseBytes: 1_000_000,
    responseKeptBytes: 65_536,
  });
  const pauses = createPauseView(store);
  const elapsed = () => performance.now();
  const authenticator = createAuthenticator({ store, users: directory, peppers: [secrets.keyPepper], elapsed });
  const newId = (prefix: string) => `${prefix}_${ulid().toLowerCase()}`;
  const inputOf = (input: JudgeInput) =>
    ({ ...input, env: directory.envOf(input.workspace), mode: 'enforce' }) as const;
  const core: EffectPorts = {
    store,
    upstream: upstreams,
    place: (upstream, workspace, agentId) => upstreams.place('calls', upstream, `${workspace}\n${agentId}`),
    catalog: () => catalog,
    authorize: (principal, request) => authorize(directory, principal, request),
    judge: (input, exceeded) => evaluatePolicies(set, inputOf(input), exceeded),
    silent: { known: new Map(), called() {}, heard() {} },
    summarize: (input, rules) => summariesOf(set, inputOf(input), rules),
    policyVersion: () => set.version,
    policyMode: () => 'enforce',
    pauses,
    refresh: (workspace) => pauses.refresh(workspace),
    secrets,
    issueReceipt: (facts) => signer.issue(facts),
    spill: async () => undefined,
    newId,
    newNonce: () => ulid(),
    elapsed,
    owner: 'rig',
    running: new Running(),
    settings: () => ({ filesKeptBytes: 786_432, dispatchWindowMs: 2000, allowForce: false }),
    alert: () => undefined,
  };
  const people: People = {
    rolesOf: (user: string) => directory.rolesOf(user),
    since: async (user: string) => (directory.isUser(user) ? store.userSince(user) : 0),
    agent: (workspace: string, id: string) => directory.agent(workspace, id),
    async key(keyId: string) {
      const record = await store.key(keyId.slice('key_'.length));
      return record === null || keyState(record, store.now()) !== 'active' ? null : { profile: record.profile };
    },
  };
  const profiles = allProfiles(configuration.auth.profiles);
  const keyContext = () => ({
    pepper: secrets.keyPepper,
    now: store.now(),
    profiles,
    workspaces: directory.workspaces(),
    defaultExpiryMs: { account: null, agent: null, administrative: null, profile: null },
  });
  const settings: ApiSettings = {
    publicUrl: 'http://127.0.0.1:8080',
    allowedHosts: [],
    queryKey: 'allow',
    jsonLimits: { depth: 64, values: 5000 },
    ...change,
  };
  const metrics = createMetrics({ store, workspaces: () => directory.workspaces(), swept: () => null });
  const brain = new Brain({ store, turns: store.turns, failed: () => undefined });
  const brainWriter = createBrainWriter({
    store,
    digestKey: (workspace) => secrets.fingerprintKey(workspace),
    limits: () => configuration.brain.limits,
  });
  const stillValid: ApiPorts['stillValid'] = (keyId) => authenticator.stillValid(keyId);
  const sessions = new ConsoleSessions({ store, seals: secrets, stillValid, settings: () => settings });
  const verifier = createVerifier();
  const run: ApiPorts['run'] = (request) => runEffect(core, request);
  const ports: ApiPorts = {
    store,
    sessions,
    passkeys: createPasskeys({ store, seals: secrets, verifier }),
    lists: createLists(store.turns),
    invalidKeys: createInvalidKeyLimiter(() => performance.now()),
    authenticate: (key) => authenticator.authenticate(key),
    stillValid,
    seals: secrets,
    run,
    preferredWait: new PreferredWait({ store, stillValid, run }),
    running: core.running,
    preview: (request) => previewEffect(core, request),
    resolve: (call) => resolveEffect(core, call),
    probe: createProbe(core),
    decideApproval: (call) => decideApproval(core, people, call),
    standingOf: (approval) => standingOf(core, people, approval),
    openParams: ({ sealed, workspace, id, fingerprint }) =>
      sealed === null ? null : secrets.open(sealed, { workspace, effectId: id, fingerprint }),
    directory,
    upstream: () => null,
    catalog: other.catalog ?? (() => catalog),
    policies: () => ({ set, mode: 'enforce', filesVersion: set.version }),
    choosePolicy: other.choosePolicy ?? (async () => ({ kind: 'not_kept' })),
    confirmPolicy: other.confirmPolicy ?? (async () => ({ kind: 'absent' })),
    showPolicy: async () => ({ kind: 'not_kept' }),
    policyTexts: async () => null,
    policyInput: inputOf,
    suggestRules: other.suggestRules ?? (async (groups) => suggestRules(groups, texts, surroundings)),
    profiles: () => profiles,
    keys: {
      create: (request) => createKeyRecord(request, keyContext()),
      successor: (of, madeBy) => successorOf(of, madeBy, keyContext()),
    },
    receipts: {
      view: receiptView,
      disclosure: discloser(secrets),
      jwks: () => signer.jwks(),
      sealExport: signer.sealExport,
    },
    brain,
    brainWriter,
    pins: other.pins ?? { stateOf: () => null, seen: () => [], compare: async () => null },
    receivers: other.receivers ?? (() => configuration.webhooks),
    pools: () => pools,
    settings: () => settings,
    newId,
    impediments: () => [],
    notes: () => [],
    metrics: () => metrics.render(),
  };

  let written = '';
  const sink = new Writable({
    write(chunk: Buffer, _encoding, done) {
      written += chunk.toString();
      done();
    },
  });
  const app = createServer({
    logger: createLogger({ level: 'debug', sink }),
    settings: () => settings,
    bodyLimit: 256 * 1024,
    connections: 1000,
  });
  await beforeRoutes(app);
  await addControlPlane(app, ports, '0.0.0-test');
  await addConsole(app, { ...ports, sessions });
  await app.ready();

  const actor = { type: 'gateway', id: 'rig' } as const;
  const makeKey = async (
    kind: KeyKind,
    more: {
      user?: string;
      workspace?: string;
      agentId?: string;
      profile?: string;
      scopes?: Scope[];
      allowedTools?: string[];
      expired?: boolean;
      revoked?: boolean;
    } = {},
  ): Promise<string> => {
    const made = createKeyRecord(
      {
        user: more.user ?? null,
        madeBy: null,
        name: kind,
        kind,
        profile: more.profile ?? null,
        workspace: more.workspace ?? null,
        agentId: more.agentId ?? null,
        scopes: more.scopes ?? null,
        allowedTools: more.allowedTools ?? null,
        expiresInMs: null,
      },
      keyContext(),
    );
    if (made.kind === 'refused') throw new Error(JSON.stringify(made.faults));
    await store.putKey({ ...made.record, expiresAt: more.expired === true ? made.record.createdAt : null }, actor);
    if (more.revoked === true) await store.endKey(made.record.id, { kind: 'revoked' }, actor);
    return made.key;
  };
  const demo = { workspace: 'demo' };
  const keys: Keys = {
    account: await makeKey('account', { ...demo, user: 'ops' }),
    approver: await makeKey('account', { ...demo, user: 'maria' }),
    agent: await makeKey('agent', { ...demo, agentId: 'bot' }),
    otherAgent: await makeKey('agent', { ...demo, agentId: 'other-bot' }),
    admin: await makeKey('administrative', { user: 'root' }),
    readonly: await makeKey('profile', { ...demo, profile: 'mcp_readonly' }),
    operator: await makeKey('profile', { ...demo, profile: 'mcp_operator' }),
    auditor: await makeKey('profile', { ...demo, profile: 'auditor' }),
    runner: await makeKey('profile', { ...demo, profile: 'mcp_agent', agentId: 'bot' }),
    stranger: await makeKey('account', { workspace: 'elsewhere', user: 'ops' }),
    expired: await makeKey('account', { ...demo, user: 'ops', expired: true }),
    revoked: await makeKey('account', { ...demo, user: 'ops', revoked: true }),
    governor: await makeKey('profile', { ...demo, profile: 'governor' }),
    governingAgent: await makeKey('profile', { ...demo, profile: 'governor', agentId: 'bot' }),
    restricted: await makeKey('agent', { ...demo, agentId: 'bot', allowedTools: ['deploy.start'] }),
  };

  return {
    app,
    ports,
    core,
    people,
    keys,
    logs: () => written,
    storeFolder: () => join(folder, 'store'),
    loseNextAnswer: () => upstream.loseNextAnswer(),
    async send(method, path, { key = keys.account, body, raw, headers = {} } = {}) {
      const payload = raw ?? (body === undefined ? undefined : JSON.stringify(body));
      const request: InjectOptions = {
        ...(method === undefined ? {} : { method }),
        url: path,
        headers: {
          host: '127.0.0.1:8080',
          ...(key === null ? {} : { 'x-api-key': key }),
          ...(payload === undefined ? {} : { 'content-type': 'application/json' }),
          ...headers,
        },
        ...(payload === undefined ? {} : { payload }),
      };
      if (path.endsWith('/stream')) {
        // It has no end of its own; that it begins is all that is asked.
        const { statusCode, headers: sent, ...begun } = await app.inject({ ...request, payloadAsStream: true });
        const isStream = String(sent['content-type']).startsWith('text/event-stream');
        const text = isStream
          ? ''
          : await begun
              .stream()
              .setEncoding('utf8')
              .toArray()
              .then((parts) => parts.join(''));
        if (isStream) begun.stream().destroy();
        return { status: statusCode, headers: sent, text, json: text === '' ? {} : JSON.parse(text) };
      }
      const answer = await app.inject(request);
      const contentType = String(answer.headers['content-type'] ?? '');
      if (method !== 'HEAD')
        documented.check({ method: method ?? 'GET', path, status: answer.statusCode, contentType, text: answer.body });
      const isJson = /json(?:;|$)/.test(contentType);
      return {
        status: answer.statusCode,
        headers: answer.headers,
        text: answer.body,
        json: isJson && answer.body !== '' ? answer.json() : {},
      };
    },
    async close() {
      await app.close();
      brain.close();
      await authenticator.close();
      await upstreams.close();
      await upstream.close();
      await expectSilentFsck(store).catch((error: unknown) => {
        // Some tests close it themselves.
        if (!(error instanceof StoreUnavailable)) throw error;
      });
      await store.close();
      await rm(folder, { recursive: true, force: true });
    },
  };
}

let counter = 0;

/** A refund that is in order, with a key of its own. */
export function refund(change: Record<string, unknown> = {}): Record<string, unknown> {
  counter += 1;
  return {
    tool: 'payments.refund',
    params: { payment_id: 'pay_1', amount: 100, currency: 'EUR' },
    agent_id: 'bot',
    idempotency_key: `key-${counter}`,
    ...change,
  };
}
