import { expectSilentFsck } from '../silent-fsck.ts';
import { createEntityFacts } from '../../src/brain/facts.ts';
import { mkdtemp, mkdir, rm, writeFile } from 'node:fs/promises';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createDoorCheck, createEntrances } from '../../src/api/listeners.ts';
import { renderProblem } from '../../src/api/problem.ts';
import { createListeningServer } from '../../src/api/server.ts';
import type { Note } from '../../src/effects/model/note.ts';
import type { PauseScope } from '../../src/effects/model/pause.ts';
import { type PreviewResult, previewEffect } from '../../src/effects/run/preview-effect.ts';
import type { RunRequest } from '../../src/effects/model/run-request.ts';
import { runEffect } from '../../src/effects/run/run-effect.ts';
import type { EffectStore } from '../../src/effects/store.ts';
import { corePorts } from '../../src/gateway/core-ports.ts';
import { activate, readFiles } from '../../src/gateway/in-force.ts';
import { createPauseView, createPinView } from '../../src/gateway/views.ts';
import { createAuthenticator } from '../../src/identity/authenticate.ts';
import { authorize, createDirectory } from '../../src/identity/directory.ts';
import { createKeyRecord } from '../../src/identity/key-record.ts';
import { allProfiles } from '../../src/identity/profiles.ts';
import type { AccessLine } from '../../src/telemetry/access-log.ts';
import { createReadJudge } from '../../src/proxy/judge-read.ts';
import { proxyPlugin } from '../../src/proxy/plugin.ts';
import type { ProxyPorts } from '../../src/proxy/ports.ts';
import { openSigner } from '../../src/receipts/sign.ts';
import { receiptView } from '../../src/receipts/view.ts';
import { makeKeyFile, readKeyFile } from '../../src/secrets/key-file.ts';
import { openSecrets } from '../../src/secrets/vault.ts';
import { openEmbeddedStore } from '../../src/gateway/embedded-store.ts';
import { settlementTexts } from '../../src/records/settlement-text.ts';
import { openSpillJournal } from '../../src/stores/journal/spill.ts';
import { createLogger } from '../../src/telemetry/logger.ts';
import { createMetrics } from '../../src/telemetry/metrics.ts';
import { SilentUpstreams } from '../../src/gateway/signals.ts';
import { createUpstreams } from '../../src/upstreams/upstreams.ts';
import { askAgain } from '../ask-again.ts';
import { type LedgerUpstream, startLedgerUpstream } from '../upstream/start.ts';
import { KEY_SEALS } from '../identity/key-seals.ts';
import { NO_SPOOL, UPLOADS } from './uploads.ts';

export interface ProxiedWorld {
  readonly url: string;
  readonly store: EffectStore;
  readonly upstream: LedgerUpstream;
  /** Lines that the gateway logged. */
  readonly log: readonly string[];
  /** Rules in shadow mode that would have refused a read, once for each read that was counted. */
  readonly shadowed: readonly string[];
  /** Keys that were looked up, in order. */
  readonly identified: readonly string[];
  readonly keys: { readonly bot: string; readonly account: string; readonly readonly: string };
  /** A key that a test may revoke. */
  freshBot(): Promise<{ readonly key: string; revoke(): Promise<void> }>;
  /** What is noted of upstreams that do not answer. */
  readonly silences: () => readonly Note[];
  /** Whether the gateway has heard of keys and pauses lately. */
  heard(lately: boolean): void;
  /** Does something between the admission of the next call and its dispatch. */
  beforeSend(once: () => Promise<void>): void;
  /** Does something before the next read or tunnel gets its place. */
  beforePlace(once: () => Promise<void>): void;
  /** Has the next of these fail, as nothing in it expects. */
  failNext(what: 'identify' | 'run'): void;
  /** What `auth.query_key` says from now on. */
  queryKeys(how: 'allow' | 'refuse'): void;
  /** The latest write, as it was run. */
  ran(): RunRequest | null;
  /** Reads and tunnels that have a place. */
  placed(): number;
  /** Requests that are over, as the access log has them. */
  readonly accessed: readonly AccessLine[];
  /** Ids of the requests that came to the router. */
  readonly routed: readonly string[];
  /** What the latest write would get now, of another shop and under another key. */
  preview(shop: string, key: string): Promise<PreviewResult>;
  /** Pauses a tool, or what else a pause can stop; gives what lifts the pause. */
  pause(what: string | PauseScope): Promise<() => Promise<void>>;
  /** A request with `bot`'s key, unless it names another. */
  call(method: string, path: string, options?: CallOptions): Promise<ProxiedAnswer>;
  close(): Promise<void>;
}

export interface CallOptions {
  readonly key?: string | null;
  readonly headers?: Record<string, string>;
  readonly body?: string;
}

export interface ProxiedAnswer {
  readonly status: number;
  readonly headers: Headers;
  readonly text: string;
  /** Members of a JSON answer. */
  // oxlint-disable-next-line typescript/no-explicit-any -- answers are looked into member by member
  readonly body: any;
}

/** The upstream `model`, and what holds in the gateway before it. */
interface ModelUpstream {
  readonly model: string;
  readonly network?: 'any' | 'public';
  readonly mode?: 'observe';
}

const CONFIG = (upstream: string, folder: string, { model, network, mode }: ModelUpstream): string => `
server: { host: 127.0.0.1, port: 0 }
store: { kind: embedded, path: "${folder}/data" }
users: [ { id: tom, roles: [] } ]
workspaces: [ { id: demo, agents: [ { id: bot, team: support, owner: tom } ] } ]
policies: { mode: ${mode ?? 'enforce'}, paths: ["${folder}/policies"] }
upstreams:
  - { id: shop, url: "${upstream}", timeout: 20s, credentials: { header: x-upstream-token, value: "\${SHOP_TOKEN}" } }
  - { id: open, url: "${upstream}", timeout: 20s }
  - { id: closed, url: "${upstream}" }
  - { id: counted, url: "${upstream}" }
  - { id: model, url: "${model}", network: ${network ?? 'any'} }
tools:
  - name: model.chat
    upstream: model
    kind: write
    request: { method: POST, path: /v1/chat/completions, body: "*" }
    response: stream
    timeout: 20s
    actual: { token: usage.total_tokens }
  - name: model.messages
    upstream: model
    kind: write
    request: { method: POST, path: /v1/messages, body: "*" }
    response: stream
    timeout: 1500ms
  - name: model.short
    upstream: model
    kind: write
    request: { method: POST, path: /v1/chat/completions, body: "*" }
    response: stream
    timeout: 1500ms
  - { name: model.live, upstream: model, kind: read, timeout: 100ms, request: { method: GET, path: /v1/live } }
  - name: model.brief
    upstream: model
    kind: write
    request: { method: POST, path: /v1/brief, body: "*" }
    response: stream
    timeout: 1500ms
  - name: orders.create
    title: Create
    upstream: shop
    kind: write
    request: { method: POST, path: "/v1/shops/{shop}/orders", query: [dry], headers: { tenant: x-tenant }, body: [amount, note] }
    params_schema: { type: object, required: [shop, amount], properties: { shop: { type: string }, amount: { type: integer }, note: { type: string }, dry: { type: boolean }, tenant: { type: string } }, additionalProperties: false }
    target: "shop:{shop}"
    timeout: 20s
  - name: orders.get
    title: Get
    upstream: shop
    kind: read
    request: { method: GET, path: "/v1/orders/{order}", query: [mode, limit] }
    timeout: 2s
    params_schema: { type: object, required: [order], properties: { order: { type: string }, mode: { type: string }, limit: { type: integer } }, additionalProperties: false }
  - name: orders.search
    title: Search
    upstream: shop
    kind: read
    request: { method: POST, path: "/v1/search", body: "*" }
  - name: orders.secret
    title: Secret
    upstream: shop
    kind: read
    request: { method: GET, path: "/v1/secret" }
  - name: orders.counted
    title: Counted
    upstream: shop
    kind: read
    request: { method: GET, path: "/v1/counted" }
  - name: orders.stream
    title: Stream
    upstream: shop
    kind: read
    request: { method: GET, path: "/v1/stream" }
  - { name: files.put, upstream: shop, kind: write, request: { method: PUT, path: "/v1/files/{+path}", body: "*" }, target: "file:{path}" }
  - { name: projects.get, upstream: shop, kind: read, request: { method: GET, path: "/v1/projects/{id}" } }
  - { name: projects.raw, upstream: shop, kind: read, request: { method: GET, path: "/v1/projects/{id}/raw" } }
  - name: kube.apply
    upstream: shop
    kind: write
    request: { method: PUT, path: "/apis/apps/v1/namespaces/{namespace}/deployments/{name}", body: "*" }
    params_schema:
      type: object
      required: [namespace, name, metadata]
      properties:
        namespace: { type: string }
        name: { type: string }
        metadata: { $ref: "#/$defs/meta" }
        spec: { type: object }
      $defs: { meta: { type: object, required: [name], properties: { name: { type: string }, labels: { type: object, additionalProperties: { type: string } } } } }
    target: 'deployment:{namespace}/{metadata.name}:{metadata.labels["app.kubernetes.io/part-of"]}'
  - name: graph.move
    upstream: shop
    kind: write
    request: { method: POST, path: /graphql, body: "*" }
    params_schema:
      type: object
      required: [query, variables]
      properties: { query: { type: string }, variables: { type: object, required: [w], properties: { w: { type: [string, integer] } } } }
      additionalProperties: false
    target: "warehouse:{variables.w}"
  - { name: notes.add, title: Note, upstream: shop, kind: write, request: { method: POST, path: /v1/notes, body: [text] }, timeout: 3s }
  - { name: notes.derive, title: Note, upstream: shop, kind: write, request: { method: POST, path: /v1/derived, body: [text] }, timeout: 20s }
  - { name: notes.free, title: Note, upstream: shop, kind: write, request: { method: POST, path: /v1/free, body: [text] }, timeout: 20s }
  - { name: vip.order, title: Order, upstream: shop, kind: write, request: { method: POST, path: "/v1/vip/{shop}", body: [text] }, timeout: 20s }
  - { name: vip.get, title: Get, upstream: shop, kind: read, request: { method: GET, path: "/v1/vip/{shop}" } }
  - { name: open.hidden, title: Hidden, upstream: open, kind: read, request: { method: GET, path: "/v1/hidden/{id}" } }
  - { name: open.trigger, title: Trigger, upstream: open, kind: write, request: { method: GET, path: /v1/trigger } }
routes:
  - upstream: shop
    prefix: /shop
    rules:
      - { match: "POST /v1/shops/:shop/orders", tool: orders.create, idempotency: required }
      - { match: "GET /v1/orders/:order", tool: orders.get }
      - { match: "POST /v1/search", tool: orders.search }
      - { match: "GET /v1/secret", tool: orders.secret }
      - { match: "GET /v1/counted", tool: orders.counted }
      - { match: "GET /v1/stream", tool: orders.stream, frames: ungoverned }
      - { match: "PUT /v1/files/*path", tool: files.put, idempotency: required }
      - { match: "GET /v1/projects/:id", tool: projects.get }
      - { match: "GET /v1/projects/:id/raw", tool: projects.raw, encoded_slashes: [id] }
      - { match: "PUT /apis/apps/v1/namespaces/:namespace/deployments/:name", tool: kube.apply, idempotency: required }
      - { match: "POST /graphql", tool: graph.move, idempotency: required }
      - { match: "POST /v1/notes", tool: notes.add, idempotency: required, on_duplicate: replay }
      - { match: "POST /v1/derived", tool: notes.derive, idempotency: derive }
      - { match: "POST /v1/free", tool: notes.free, idempotency: none }
      - { match: "POST /v1/vip/:shop", tool: vip.order, idempotency: required }
      - { match: "GET /v1/vip/:shop", tool: vip.get }
  - { upstream: open, prefix: /open, undeclared: passthrough_reads, set_cookie: true, rules: [ { match: "GET /v1/hidden/:id", tool: open.hidden }, { match: "GET /v1/trigger", tool: open.trigger, idempotency: none } ] }
  - { upstream: closed, prefix: /closed, undeclared: passthrough_reads, rules: [] }
  - { upstream: open, prefix: /keyed, undeclared: passthrough_reads, keys: [ token, "header:x-token", "query:k" ], rules: [] }
  - { upstream: open, prefix: /linked, undeclared: passthrough_reads, links: [next], rules: [] }
  - upstream: model
    prefix: /model
    error_format: openai
    rules:
      - { match: "POST /v1/chat/completions", tool: model.chat, idempotency: none, on_duplicate: replay }
      - { match: "POST /v1/brief", tool: model.brief, idempotency: none }
      - { match: "GET /v1/live", tool: model.live, frames: ungoverned }
  - upstream: model
    prefix: /brief
    error_format: openai
    rules: [ { match: "POST /v1/chat/completions", tool: model.short, idempotency: none } ]
  - upstream: model
    prefix: /claude
    error_format: anthropic
    rules: [ { match: "POST /v1/messages", tool: model.messages, idempotency: none } ]
  - { upstream: counted, prefix: /counted, undeclared: passthrough_reads, rules: [] }
limits: { body: 64KiB }
`;

const POLICY = `
apiVersion: svc-gateway/v1
kind: PolicySet
name: proxied
owner: team-test
entities: { shop: { type: shop, id: params.shop }, owner: { of: shop, link: owned_by } }
budgets:
  tokens: { unit: token, by: [agent.id], per: day, limit: 1000000 }
rules:
  - { id: tokens, effect: constrain, match: { tools: [model.chat] }, obligations: [ { budget: { use: tokens, amount: 1000 } } ] }
  - { id: vip, effect: allow, match: { tools: ["vip.*"] }, when: { brain.shop.tier: gold } }
  - { id: sanctioned, effect: deny, match: { tools: ["vip.*"] }, when: { brain.owner.sanctioned: true } }
  - { id: all, effect: allow, match: { tools: ["orders.**", "notes.**", "model.**", open.trigger], except: [ { tools: [orders.secret] } ] } }
  - { id: counted, effect: constrain, match: { tools: [orders.counted] }, obligations: [ { rate_limit: { by: [agent.id], per: 1h, limit: 2 } } ] }
  - { id: undeclared, effect: allow, match: { kinds: [read], upstreams: [open, counted] }, when: { tool.declared: false } }
  - { id: counted-upstream, effect: constrain, match: { upstreams: [counted] }, obligations: [ { rate_limit: { by: [agent.id], per: 1h, limit: 2 } } ] }
  - { id: tried, mode: shadow, effect: deny, match: { tools: [orders.stream] } }
  - { id: slashes, effect: allow, match: { tools: [files.put, "projects.*"] } }
  - { id: no-workflows, effect: deny, match: { tools: [files.put] }, when: { params.path: { starts_with: .github/ } } }
  - { id: no-secret, effect: deny, match: { tools: [projects.raw] }, when: { params.id: group/secret } }
  - { id: parts, effect: allow, match: { tools: [kube.apply, graph.move] } }
  - { id: on-the-app, effect: constrain, match: { tools: [kube.apply] }, when: { params.namespace: held }, obligations: [ { claim: { on: "app:\${params.metadata.name}", hold: existing } } ] }
  - { id: theirs, effect: deny, match: { tools: [graph.move], targets: ["warehouse:theirs"] } }
  - { id: dear, effect: deny, match: { tools: [orders.create] }, when: { params.amount: { gt: 1000 } }, reason: "too dear" }
  - { id: counted-live, effect: constrain, match: { tools: [model.live] }, when: { all: [ { request.headers.user-agent: { exists: true } }, { request.headers.user-agent: { glob: "counted/*" } } ] }, obligations: [ { rate_limit: { by: [agent.id], per: 1h, limit: 2 } } ] }
  - { id: crawler, effect: deny, match: { tools: [notes.add, model.live] }, when: { all: [ { request.headers.user-agent: { exists: true } }, { request.headers.User-Agent: { glob: "crawler/*" } } ] } }
`;

/** The secret that the gateway puts on requests to the upstream. */
export const SHOP_TOKEN = 'shop-token-7';

/** Starts the gateway's data plane in this process, all rooms real, before an upstream that is a process of its own. */
export async function startProxiedWorld(model: ModelUpstream = { model: 'http://127.0.0.1:9' }): Promise<ProxiedWorld> {
  const service = await startLedgerUpstream({ lateMs: 1500 });
  const folder = await mkdtemp(join(tmpdir(), 'svc-proxy-'));
  await mkdir(join(folder, 'policies'));
  await writeFile(join(folder, 'gateway.yaml'), CONFIG(service.url, folder, model));
  await writeFile(join(folder, 'policies', 'proxied.yaml'), POLICY);
  const inForce = await readFiles(join(folder, 'gateway.yaml'), { SHOP_TOKEN });
  const { configuration } = inForce;
  if (configuration.store.kind !== 'embedded') throw new Error('the file above names the embedded store');
  const store = await openEmbeddedStore({
    path: configuration.store.path,
    lockWaitMs: configuration.store.lockWaitMs,
    retention: configuration.retention,
    keySeals: KEY_SEALS,
    worker: 'never',
  });
  const secrets = await openSecrets(configuration.secrets);
  const change = { how: 'files', by: { type: 'gateway', id: 'test' }, again: 'no' } as const;
  await activate(store, inForce, change, secrets.policySeals);
  const signer = await openSigner({
    keys: { path: configuration.receipts.keysDir, read: readKeyFile, make: makeKeyFile },
    issuer: null,
    store,
    version: 'test',
  });
  const directory = createDirectory(configuration, store);
  await directory.refresh();
  const pauses = createPauseView(store);
  await pauses.refresh('demo');
  const upstreams = createUpstreams(configuration.upstreams, configuration.limits, () => store.now());
  let fresh = true;
  let between = (): Promise<void> => Promise.resolve();
  let placing: (() => Promise<void>) | null = null;
  let placed = 0;
  let latest: RunRequest | null = null;
  const accessed: AccessLine[] = [];
  const silent = new SilentUpstreams(() => {});
  const core = corePorts({
    store,
    silent,
    opinion: { offer: () => undefined, next: { call: Infinity, simulation: Infinity } },
    upstream: {
      ...upstreams,
      send: async (dispatch) => {
        const once = between;
        between = () => Promise.resolve();
        await once();
        return upstreams.send(dispatch);
      },
    },
    held: { inForce },
    directory,
    pauses,
    pins: createPinView(upstreams, () => inForce),
    entities: createEntityFacts(store),
    secrets,
    signer,
    spill: await openSpillJournal(join(folder, 'spill'), settlementTexts),
    metrics: createMetrics({ store, workspaces: () => ['demo'], swept: () => null }),
    alert: () => {},
    owner: 'the gateway of this test',
    policies: { follow: () => Promise.resolve(), hindrance: () => null },
  });
  const authenticator = createAuthenticator({
    store,
    users: { isUser: () => true },
    peppers: [secrets.keyPepper],
    elapsed: () => performance.now(),
  });
  let origin = '';
  let queryKey: 'allow' | 'refuse' = 'allow';
  const settings = () => ({
    publicUrl: origin,
    allowedHosts: [],
    queryKey,
    jsonLimits: { depth: 64, values: 5000 },
  });
  const log: string[] = [];
  const shadowed: string[] = [];
  const logger = createLogger({ level: 'trace', sink: { write: (line) => void log.push(line) } });
  const { app: server, front } = createListeningServer({
    logger,
    settings,
    bodyLimit: configuration.limits.bodyBytes,
    connections: configuration.limits.connections,
  });
  const identified: string[] = [];
  let failing: 'identify' | 'run' | null = null;
  const mayFail = (what: 'identify' | 'run'): void => {
    if (failing !== what) return;
    failing = null;
    throw new Error(`planted: ${what}`);
  };
  const ports: ProxyPorts = {
    routes: () => configuration.routes,
    catalog: () => inForce.catalog,
    entranceOf: createEntrances(() => configuration.routes),
    doorFault: createDoorCheck(settings),
    identify: async (key) => {
      identified.push(key);
      mayFail('identify');
      const found = await authenticator.authenticate(key);
      if (!('failure' in found)) return { kind: 'principal', principal: found };
      return {
        kind: 'problem',
        problem: { code: 'invalid_key', detail: 'Not valid.', errors: [], retryAfterMs: null },
      };
    },
    evaluateRead: createReadJudge({
      authorize: (principal, request) => authorize(directory, principal, request),
      judge: core.judge,
      policyVersion: core.policyVersion,
      pauses,
      isFresh: () => fresh,
      now: () => store.now(),
    }),
    run: async (request) => {
      mayFail('run');
      latest = request;
      return runEffect(core, request);
    },
    preferredWait: { hold: () => null },
    append: (workspace, events) => store.append(workspace, events),
    stream: (id) => upstreams.stream(id),
    place: (kind, upstream, workspace, agentId) => {
      const counted = (giveBack: () => void): (() => void) => {
        placed += 1;
        return () => {
          placed -= 1;
          giveBack();
        };
      };
      const place = upstreams.place(kind, upstream, `${workspace}\n${agentId}`);
      const once = placing;
      placing = null;
      if (once === null && !(place instanceof Promise)) return counted(place);
      return Promise.all([place, once?.()]).then(([giveBack]) => giveBack && counted(giveBack));
    },
    upstream: (id) => upstreams.settings(id),
    receiptView,
    renderProblem: (problem, { id }) =>
      renderProblem(problem, {}, { publicUrl: origin, requestId: id, run: true, changes: true }),
    policyMode: () => configuration.policies.mode,
    observed: () => {},
    access: (line) => void accessed.push(line),
    heard: (upstream, code) => silent.heard(upstream, code),
    shadowed: (rules) => void shadowed.push(...rules),
    settings: () => ({ ...settings(), bodyLimit: configuration.limits.bodyBytes, uploads: UPLOADS }),
    spool: NO_SPOOL,
    now: () => store.now(),
    newId: core.newId,
    onAccessChanged: (listener) => {
      store.onKeysChanged(listener);
      pauses.onChange(listener);
      return () => {};
    },
  };
  const routed: string[] = [];
  server.addHook('onRequest', (request, _reply, done) => {
    routed.push(request.id);
    done();
  });
  server.get('/livez', () => ({ own: true }));
  server.get('/', (_request, reply) => reply.code(404).send({ own: true }));
  await server.register(proxyPlugin, { ports, front });
  origin = await server.listen({ host: '127.0.0.1', port: 0 });

  const actor = { type: 'gateway', id: 'test' } as const;
  const makeKey = async (rights: { kind: 'agent' | 'account' | 'profile'; agentId?: string; profile?: string }) => {
    const made = createKeyRecord(
      {
        user: 'tom',
        madeBy: null,
        name: 'test',
        kind: rights.kind,
        profile: rights.profile ?? null,
        workspace: 'demo',
        agentId: rights.agentId ?? null,
        scopes: null,
        allowedTools: null,
        expiresInMs: null,
      },
      {
        pepper: secrets.keyPepper,
        now: store.now(),
        profiles: allProfiles([]),
        workspaces: ['demo'],
        defaultExpiryMs: configuration.auth.defaultExpiryMs,
      },
    );
    if (made.kind !== 'made') throw new Error(JSON.stringify(made.faults));
    await store.putKey(made.record, actor);
    return made;
  };
  const bot = await makeKey({ kind: 'agent', agentId: 'bot' });
  const account = await makeKey({ kind: 'account' });
  const readonly = await makeKey({ kind: 'profile', profile: 'mcp_readonly' });
  return {
    url: origin,
    store,
    upstream: service,
    log,
    shadowed,
    identified,
    routed,
    keys: { bot: bot.key, account: account.key, readonly: readonly.key },
    freshBot: async () => {
      const made = await makeKey({ kind: 'agent', agentId: 'bot' });
      return {
        key: made.key,
        revoke: async () => void (await store.endKey(made.record.id, { kind: 'revoked' }, actor)),
      };
    },
    beforeSend: (once) => {
      between = once;
    },
    beforePlace: (once) => {
      placing = once;
    },
    failNext: (what) => {
      failing = what;
    },
    queryKeys: (how) => {
      queryKey = how;
    },
    ran: () => latest,
    placed: () => placed,
    accessed,
    preview: async (shop, key) => {
      if (latest === null) throw new Error('nothing was written yet');
      return previewEffect(core, { ...latest, params: { ...latest.params, shop }, idempotencyKey: key });
    },
    silences: () => silent.notes(Date.now()),
    heard: (lately) => {
      fresh = lately;
    },
    pause: async (what) => {
      const by = { keyId: 'key_test', keyKind: 'account', user: null } as const;
      const scope: PauseScope = typeof what === 'string' ? { kind: 'tool', glob: what } : what;
      const id = `pau_${Math.random()}`;
      await store.setPause({
        id,
        workspace: 'demo',
        scope,
        reason: 'test',
        until: null,
        by,
        actor,
      });
      await pauses.refresh('demo');
      return async () => {
        await store.liftPause('demo', id, 'account', actor);
        await pauses.refresh('demo');
      };
    },
    call: async (method, path, { key = bot.key, headers = {}, body } = {}) => {
      const ask = async () => {
        const answer = await fetch(`${origin}${path}`, {
          method,
          redirect: 'manual',
          headers: {
            ...(key === null ? {} : { 'x-api-key': key }),
            ...(body === undefined ? {} : { 'content-type': 'application/json' }),
            ...headers,
          },
          ...(body === undefined ? {} : { body }),
        });
        const text = await answer.text();
        return { status: answer.status, headers: answer.headers, text, body: parsed(text) };
      };
      return askAgain(ask, ({ text }) => text);
    },
    close: async () => {
      await server.close();
      await authenticator.close();
      await upstreams.close();
      await expectSilentFsck(store);
      await store.close();
      await service.stop();
      await rm(folder, { recursive: true, force: true });
    },
  };
}

function parsed(text: string): ProxiedAnswer['body'] {
  try {
    return JSON.parse(text) as ProxiedAnswer['body'];
  } catch {
    return {};
  }
}

/** Writes bytes on a fresh connection and reads until the other side ends, or an answer is there. */
export function rawExchange(url: string, bytes: string | Buffer, waitMs = 3000): Promise<string> {
  const { hostname, port } = new URL(url);
  return new Promise((resolve) => {
    const socket = connect(Number(port), hostname);
    let got = '';
    const finish = (): void => {
      clearTimeout(timer);
      socket.destroy();
      resolve(got);
    };
    const timer = setTimeout(finish, waitMs);
    socket.setEncoding('latin1');
    socket.on('data', (chunk) => {
      got += String(chunk);
      const head = got.indexOf('\r\n\r\n');
      if (head === -1) return;
      const length = /content-length: (\d+)/i.exec(got.slice(0, head))?.[1];
      if (length !== undefined && got.length >= head + 4 + Number(length)) finish();
    });
    socket.on('error', finish);
    socket.on('close', finish);
    socket.write(bytes);
  });
}
