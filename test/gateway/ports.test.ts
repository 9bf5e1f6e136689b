import { createEntityFacts } from '../../src/brain/facts.ts';
import { mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { createInvalidKeyLimiter, INVALID_KEY_LIMIT } from '../../src/api/invalid-key-limiter.ts';
import type { EffectPorts } from '../../src/effects/ports.ts';
import { runEffect } from '../../src/effects/run/run-effect.ts';
import { type EffectStore, StoreUnavailable } from '../../src/effects/store.ts';
import { problem as problemOf } from '../../src/effects/model/run-request.ts';
import { corePorts } from '../../src/gateway/core-ports.ts';
import { type Held, readFiles } from '../../src/gateway/in-force.ts';
import { identify, proxyPorts } from '../../src/gateway/door-ports.ts';
import { OwnSettings } from '../../src/gateway/in-force.ts';
import { createPauseView, createPinView } from '../../src/gateway/views.ts';
import { sealedStore } from '../../src/gateway/sealed-store.ts';
import { createAuthenticator } from '../../src/identity/authenticate.ts';
import { createDirectory } from '../../src/identity/directory.ts';
import { createKeyRecord } from '../../src/identity/key-record.ts';
import type { ProxyPorts } from '../../src/proxy/ports.ts';
import { openSigner } from '../../src/receipts/sign.ts';
import { makeKeyFile, readKeyFile } from '../../src/secrets/key-file.ts';
import { openSecrets } from '../../src/secrets/vault.ts';
import { openEmbeddedStore } from '../../src/gateway/embedded-store.ts';
import { settlementTexts } from '../../src/records/settlement-text.ts';
import { openSpillJournal, type SpillJournal } from '../../src/stores/journal/spill.ts';
import { createMetrics } from '../../src/telemetry/metrics.ts';
import { createUpstreams, type Upstreams } from '../../src/upstreams/upstreams.ts';
import { storeFolder } from '../contract/embedded-store.ts';
import { committed, dispatched, PERSON, settleRequest, WORKSPACE } from '../contract/requests.ts';
import { KEY_SEALS } from '../identity/key-seals.ts';
import { administrator } from './administrator.ts';
import { NO_SPOOL } from '../proxy/uploads.ts';
import { makeDispatch, makeTool } from '../upstreams/tool.ts';

const CONFIG = (folder: string): string => `
store: { kind: embedded, path: "${folder}/store" }
workspaces: [ { id: ${WORKSPACE} } ]
policies: { paths: ["${folder}/policies"] }
`;

let folder = '';
let store: EffectStore;
let spill: SpillJournal;
let upstreams: Upstreams;
let core: EffectPorts;
let proxy: ProxyPorts;
let held: Held;
beforeEach(async () => {
  folder = storeFolder();
  mkdirSync(join(folder, 'policies'));
  writeFileSync(join(folder, 'gateway.yaml'), CONFIG(folder));
  const inForce = await readFiles(join(folder, 'gateway.yaml'), {});
  held = { inForce };
  const secrets = await openSecrets({ masterFile: join(folder, 'master'), previous: [] });
  const retention = { keysMs: null, effectsMs: 1e12, denialsMs: 1e12 };
  const plain = await openEmbeddedStore({
    path: join(folder, 'store'),
    lockWaitMs: 0,
    retention,
    keySeals: KEY_SEALS,
    worker: 'never',
  });
  store = sealedStore(plain, secrets);
  spill = await openSpillJournal(join(folder, 'spill'), settlementTexts);
  const up = { url: 'http://127.0.0.1:9', timeoutMs: 1000, connections: 2, network: 'any', credentials: null } as const;
  upstreams = createUpstreams([{ ...up, id: 'up' }], { responseBytes: 1000, responseKeptBytes: 1000 });
  const pauses = createPauseView(store);
  core = corePorts({
    store,
    silent: { known: new Map(), called() {}, heard() {} },
    opinion: { offer: () => undefined, next: { call: Infinity, simulation: Infinity } },
    upstream: upstreams,
    held,
    directory: createDirectory(inForce.configuration, store),
    pauses,
    pins: createPinView(upstreams, () => inForce),
    entities: createEntityFacts(store),
    secrets,
    signer: await openSigner({
      keys: { path: join(folder, 'keys'), read: readKeyFile, make: makeKeyFile },
      issuer: null,
      store,
      version: 'test',
    }),
    spill,
    metrics: createMetrics({ store, workspaces: () => [WORKSPACE], swept: () => null }),
    alert: () => undefined,
    owner: 'the gateway of this test',
    policies: { follow: () => Promise.resolve(), hindrance: () => null },
  });
  const { authenticate } = createAuthenticator({
    store,
    users: { isUser: () => true },
    peppers: [secrets.keyPepper],
    elapsed: () => 0,
  });
  proxy = proxyPorts({
    core,
    held,
    authenticate,
    // Its clock stands still: nothing is given back.
    limiter: createInvalidKeyLimiter(() => 0),
    pauses,
    upstreams,
    spool: NO_SPOOL,
    run: (request) => runEffect(core, request),
    preferredWait: { hold: () => null },
    heard: () => undefined,
    shadowed: () => undefined,
    observed: () => undefined,
    access: null,
    settings: () => ({
      publicUrl: 'http://127.0.0.1',
      allowedHosts: [],
      queryKey: 'allow',
      jsonLimits: { depth: 64, values: 5000 },
    }),
  });
});
afterEach(async () => {
  await upstreams.close();
  await store.close();
  rmSync(folder, { recursive: true });
});

it('limits.body is that of the start until the next one, at routes and for files of calls that wait; other limits change at once', () => {
  const { bodyLimit, uploads } = proxy.settings();
  const { filesKeptBytes } = core.settings();
  const { inForce } = held;
  const { limits, resolve } = inForce.configuration;
  held.inForce = {
    ...inForce,
    configuration: {
      ...inForce.configuration,
      limits: { ...limits, bodyBytes: 2048, uploadBytes: 4096 },
      resolve: { ...resolve, allowForce: true },
    },
  };
  expect(proxy.settings()).toMatchObject({ bodyLimit, uploads: { ...uploads, request: 4096 } });
  expect(core.settings()).toMatchObject({ filesKeptBytes, allowForce: true });
});

it('what all doors read is of the configuration of now, and of where the gateway listens only where that names no address', () => {
  const own = new OwnSettings(held);
  own.listensAt('http://127.0.0.1:1234');
  const before = { publicUrl: 'http://127.0.0.1:1234', allowedHosts: [], queryKey: 'allow' };
  expect(own.read()).toEqual({ ...before, jsonLimits: { depth: 64, values: 10_000 } });
  const { configuration } = held.inForce;
  const { server, auth, limits } = configuration;
  held.inForce = {
    ...held.inForce,
    configuration: {
      ...configuration,
      server: { ...server, publicUrl: 'https://gateway.example.com', allowedHosts: ['a.example'] },
      auth: { ...auth, queryKey: 'refuse' },
      limits: { ...limits, paramsDepth: 5, paramsValues: 200 },
    },
  };
  expect(own.read()).toEqual({
    publicUrl: 'https://gateway.example.com',
    allowedHosts: ['a.example'],
    queryKey: 'refuse',
    jsonLimits: { depth: 5, values: 200 },
  });
});

it('a gateway whose configuration names its address no more is reached where it listens; the routes are those of now', () => {
  const { inForce } = held;
  const { configuration } = inForce;
  const server = { ...configuration.server, publicUrl: 'https://gateway.example.com' };
  held.inForce = { ...inForce, configuration: { ...configuration, server } };
  const own = new OwnSettings(held);
  expect(own.read().publicUrl).toBe('https://gateway.example.com');
  own.listensAt('http://127.0.0.1:1234');
  expect(own.read().publicUrl).toBe('https://gateway.example.com');
  held.inForce = { ...inForce, configuration: { ...configuration, routes: [] } };
  expect(own.routes()).toBe(held.inForce.configuration.routes);
  expect(own.read().publicUrl).toBe('http://127.0.0.1:1234');
});

it('an address that sends too many invalid keys to the proxy has to wait; another one has not', async () => {
  const codeOf = async (address: string) => {
    const found = await proxy.identify('guessed', address);
    return found.kind === 'problem' ? found.problem.code : found.kind;
  };
  for (let n = 0; n < INVALID_KEY_LIMIT.burst; n += 1) expect(await codeOf('192.0.2.1')).toBe('invalid_key');
  expect(await codeOf('192.0.2.1')).toBe('too_many_requests');
  expect(await codeOf('192.0.2.2')).toBe('invalid_key');
});

it('who holds a connection hears of a pause and of a key that was revoked, until the connection ends', async () => {
  let heard = 0;
  const end = proxy.onAccessChanged(() => (heard += 1));
  const by = { keyId: 'key_1', keyKind: 'administrative', user: 'maria' } as const;
  const scope = { kind: 'workspace' } as const;
  const pause = { workspace: WORKSPACE, scope, reason: 'stop', until: null, by, actor: PERSON };
  await store.setPause({ ...pause, id: 'pau_1' });
  await expect.poll(() => heard).toBe(1);
  const { record } = await putKey();
  const known = heard;
  await store.endKey(record.id, { kind: 'revoked' }, PERSON);
  await expect.poll(() => heard).toBeGreaterThan(known);
  end();
  const before = heard;
  await store.setPause({ ...pause, id: 'pau_2' });
  await expect.poll(async () => (await store.pauses(WORKSPACE)).pauses.length).toBe(2);
  expect(heard).toBe(before);
});

it('a key lets nobody in before the pauses of its workspace are known', async () => {
  const { key } = await putKey();
  const found = { ...administrator('maria'), kind: 'account', workspace: WORKSPACE } as const;
  const limiter = createInvalidKeyLimiter(() => 0);
  const away = createPauseView({ ...store, pauses: () => Promise.reject(new StoreUnavailable('away')) });
  const refused = {
    kind: 'problem',
    problem: { code: 'store_unavailable', retryAfterMs: 1_000, detail: expect.stringContaining('nothing was sent') },
  };
  expect(await identify({ limiter, pauses: away, authenticate: () => found }, key, '192.0.2.1')).toMatchObject(refused);
  const pauses = createPauseView(store);
  const failed = () => Promise.reject(new StoreUnavailable('away'));
  expect(await identify({ limiter, pauses, authenticate: failed }, key, '192.0.2.1')).toMatchObject(refused);
  expect(await identify({ limiter, pauses, authenticate: () => found }, key, '192.0.2.1')).toMatchObject({
    kind: 'principal',
  });
  expect(pauses.isLoaded(WORKSPACE)).toBe(true);
});

it('what became of a call that the gateway cannot answer is said by its method, and by whether it has a key', () => {
  const { problem } = problemOf('store_unavailable', 'away', 1_000);
  const said = (method: string, keyed: boolean) => {
    const { did_it_happen, safe_to_retry } = proxy.renderProblem(problem, { id: 'req_1', method, keyed }).body;
    return [did_it_happen, safe_to_retry];
  };
  expect(said('POST', false)).toEqual(['maybe', true]);
  for (const method of ['GET', 'HEAD']) {
    expect(said(method, false)).toEqual(['no', true]);
    // It may be the second time that it is asked.
    expect(said(method, true)).toEqual(['maybe', true]);
  }
});

it('the proxy says the same of every key that lets nobody in', async () => {
  const reasons = ['malformed', 'unknown', 'wrong_secret', 'expired', 'revoked', 'user_removed'] as const;
  const parts = { limiter: createInvalidKeyLimiter(() => 0), pauses: createPauseView(store) };
  const answers = await Promise.all(
    reasons.map(async (why) =>
      identify({ ...parts, authenticate: () => ({ failure: 'invalid_key', why }) }, 'svc_acct_x', '192.0.2.1'),
    ),
  );
  expect(answers[0]).toMatchObject({ kind: 'problem', problem: { code: 'invalid_key' } });
  for (const answer of answers) expect(answer).toEqual(answers[0]);
});

/** A good key of the workspace. */
async function putKey() {
  const { keyPepper: pepper } = await openSecrets({ masterFile: join(folder, 'master'), previous: [] });
  const rights = { kind: 'account', profile: null, workspace: WORKSPACE, agentId: null, scopes: null } as const;
  const request = { ...rights, user: null, madeBy: null, name: 'good', allowedTools: null, expiresInMs: null };
  const made = createKeyRecord(request, {
    pepper,
    now: store.now(),
    profiles: [],
    workspaces: [WORKSPACE],
    defaultExpiryMs: { account: null, agent: null, profile: null, administrative: null },
  });
  if (made.kind !== 'made') throw new Error(JSON.stringify(made.faults));
  await store.putKey(made.record, PERSON);
  return made;
}

it('who has sent a good key is let in with it also from an address that sends too many invalid ones', async () => {
  const made = await putKey();
  const kindOf = async (key: string) => (await proxy.identify(key, '192.0.2.1')).kind;
  expect(await kindOf(made.key)).toBe('principal');
  for (let n = 0; n <= INVALID_KEY_LIMIT.burst; n += 1) expect(await kindOf('guessed')).toBe('problem');
  expect(await kindOf(made.key)).toBe('principal');
});

it('the kept answer of a settlement that is spilled does not stand in the journal in the clear, and is there when it is read', async () => {
  const { effect } = await dispatched(store);
  const outcome = committed();
  if (outcome.kind !== 'committed') throw new Error(outcome.kind);
  const text = 'canary-of-the-result';
  const body = { kind: 'json', value: { text } } as const;
  const result = { kind: 'http', status: 201, headers: { 'x-of': text }, body, truncated: false } as const;
  await core.spill(settleRequest(effect, { ...outcome, result }));
  const [file = '', ...more] = readdirSync(join(folder, 'spill'));
  expect(more).toEqual([]);
  const spilled = readFileSync(join(folder, 'spill', file), 'utf8');
  expect(spilled).toContain(effect.id);
  expect(spilled).not.toContain('canary');
  expect(await spill.drain(store)).toBe(0);
  expect(await store.effect(WORKSPACE, effect.id)).toMatchObject({ life: { state: 'committed', result } });
});

it('to an upstream that a reload took away nothing is sent, and no state is read there', async () => {
  const tool = makeTool({ upstream: 'gone' });
  expect(await upstreams.send(makeDispatch({ tool }))).toMatchObject({
    kind: 'failed',
    evidence: { code: 'not_dispatched', message: 'the upstream gone is not declared any more', startedAt: null },
  });
  expect(await upstreams.readState(tool, {})).toEqual({
    kind: 'unreadable',
    message: 'the upstream is not declared any more',
  });
});

it('agents of one id in two workspaces do not share a place', () => {
  // Of two places an agent alone gets one; who has none gets the other at once.
  expect(core.place('up', 'one', 'bot')).toBeTypeOf('function');
  expect(core.place('up', 'two', 'bot')).toBeTypeOf('function');
  expect(proxy.place('reads', 'up', 'one', 'bot')).toBeTypeOf('function');
  expect(proxy.place('reads', 'up', 'two', 'bot')).toBeTypeOf('function');
});
