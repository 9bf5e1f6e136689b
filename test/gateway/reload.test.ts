import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, it, vi } from 'vitest';
import { INSTALLATION } from '../../src/effects/model/ledger.ts';
import { type EffectStore, StoreUnavailable } from '../../src/effects/store.ts';
import { FileReader, FilesNotRead } from '../../src/gateway/file-reader.ts';
import { activate, type InForce, readFiles } from '../../src/gateway/in-force.ts';
import { Reloader } from '../../src/gateway/reload.ts';
import { openEmbeddedStore } from '../../src/gateway/embedded-store.ts';
import { createLogger } from '../../src/telemetry/logger.ts';
import { administrator } from './administrator.ts';
import { POLICY_SEALS } from './policy-seals.ts';
import { KEY_SEALS } from '../identity/key-seals.ts';

const CONFIG = (folder: string, users: readonly string[]): string => `
upstreams: [{ id: up, url: "http://127.0.0.1:9" }]
users: [${users.map((id) => `{ id: ${id}, roles: [] }`).join(', ')}]
policies: { paths: ["${folder}/policy.yaml"] }
tools:
  - { name: up.note, title: Note, upstream: up, kind: write, action_type: note.add, request: { method: POST, path: /v1/notes, body: [text] } }
`;
const POLICY = (rule: string): string =>
  `apiVersion: svc-gateway/v1\nkind: PolicySet\nname: a\nrules:\n  - { id: ${rule}, effect: allow, match: { tools: [up.note] } }\n`;

let folder = '';
let configFile = '';
let store: EffectStore;
let inForce: InForce;
let isAway = false;
let reloader: Reloader;
/** What the operator is alerted of. */
let alerts: string[] = [];
let logged: string[] = [];
beforeEach(async () => {
  folder = mkdtempSync(join(tmpdir(), 'svc-reload-'));
  configFile = join(folder, 'gateway.yaml');
  writeFileSync(configFile, CONFIG(folder, ['maria']));
  writeFileSync(join(folder, 'policy.yaml'), POLICY('one'));
  const retention = { keysMs: null, effectsMs: 1e12, denialsMs: 1e12 };
  store = await openEmbeddedStore({
    path: join(folder, 'store'),
    lockWaitMs: 5000,
    retention,
    keySeals: KEY_SEALS,
    worker: 'never',
  });
  inForce = await readFiles(configFile, {});
  await activate(store, inForce, { how: 'files', by: { type: 'gateway', id: 'test' }, again: 'no' }, POLICY_SEALS);
  await store.seeUsers(inForce.configuration.rolesOf, { type: 'gateway', id: 'test' });
  reloader = new Reloader({
    configFile,
    environment: {},
    store: {
      ...store,
      activatePolicy: async (version, budgets, change) => {
        if (isAway) throw new StoreUnavailable('the store is away');
        return store.activatePolicy(version, budgets, change);
      },
      append: async (workspace, events) => {
        if (isAway) throw new StoreUnavailable('the store is away');
        return store.append(workspace, events);
      },
    },
    seals: POLICY_SEALS,
    proposals: null,
    current: () => inForce,
    adopt: (next) => {
      inForce = next;
    },
    noted: () => undefined,
    reader: new FileReader({ entry: null, longestMs: 60_000 }),
    owner: 'test',
    logger: createLogger({ level: 'info', sink: { write: (line) => void logged.push(line) } }),
    metrics: { alerted: (what) => void alerts.push(what) },
  });
});
afterEach(async () => {
  isAway = false;
  alerts = [];
  logged = [];
  await reloader.settled();
  await store.close();
  rmSync(folder, { recursive: true });
});

it('a user who came with a reload is one since then: what was asked before is not theirs to decide', async () => {
  writeFileSync(configFile, CONFIG(folder, ['maria', 'omar']));
  const before = store.now();
  await reloader.reload();
  expect(inForce.configuration.users.map(({ id }) => id)).toEqual(['maria', 'omar']);
  expect(await store.userSince('maria')).toBe(0);
  expect(await store.userSince('omar')).toBeGreaterThanOrEqual(before);
});

it('files that were written and say what is in force already are no news', async () => {
  const before = inForce;
  writeFileSync(configFile, CONFIG(folder, ['maria']));
  writeFileSync(join(folder, 'policy.yaml'), POLICY('one'));
  await reloader.reload();
  expect(inForce).toBe(before);
  const events = await store.ledger(INSTALLATION, 0, 100);
  expect(events.filter(({ kind }) => kind === 'policy.loaded')).toEqual([]);
});

it('files that are as they were before they were refused can be used again, which is logged once', async () => {
  const again = () => logged.filter((line) => line.includes('the files can be used again'));
  for (const text of [POLICY('one'), POLICY('one').replace('effect', 'efect')]) {
    writeFileSync(join(folder, 'policy.yaml'), text);
    await reloader.reload();
  }
  expect(again()).toEqual([]);
  writeFileSync(join(folder, 'policy.yaml'), POLICY('one'));
  await reloader.reload();
  await reloader.reload();
  expect(again()).toEqual([expect.stringContaining(inForce.policies.version)]);
});

it('files that are refused leave what is in force, and it is said until they are mended', async () => {
  writeFileSync(join(folder, 'policy.yaml'), POLICY('one').replace('effect', 'efect'));
  const { version } = inForce.policies;
  await reloader.reload();
  expect([reloader.staleness(), inForce.policies.rules.map(({ id }) => id)]).toEqual(['refused', ['a/one']]);
  const since = reloader.staleSince();
  expect(since).not.toBeNull();
  await reloader.reload();
  expect(reloader.staleSince()).toBe(since);
  expect(alerts).toEqual(['configuration_rejected', 'configuration_rejected']);
  writeFileSync(join(folder, 'policy.yaml'), POLICY('two'));
  await reloader.reload();
  expect([reloader.staleness(), inForce.policies.rules.map(({ id }) => id)]).toEqual([null, ['a/two']]);
  expect(reloader.staleSince()).toBeNull();
  expect(alerts).toHaveLength(2);
  const events = await store.ledger(INSTALLATION, 0, 100);
  expect(events.filter(({ kind }) => kind === 'policy.rejected' || kind === 'policy.loaded')).toMatchObject([
    { kind: 'policy.rejected', actor: { type: 'gateway', id: 'test' }, data: { in_force: version } },
    { kind: 'policy.rejected', data: { in_force: version } },
    { kind: 'policy.loaded', actor: { type: 'gateway', id: 'test' }, data: { version: inForce.policies.version } },
  ]);
});

it('files that could not be read are tried again by themselves, ever later up to a minute, until they can be', async () => {
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
  const reader = new FileReader({ entry: null, longestMs: 60_000 });
  let reads = 0;
  let closed = 0;
  let isTorn = true;
  const torn = new Reloader({
    configFile,
    environment: {},
    store,
    seals: POLICY_SEALS,
    proposals: null,
    current: () => inForce,
    adopt: (next) => {
      inForce = next;
    },
    noted: () => undefined,
    reader: {
      close: async () => void (closed += 1),
      suggest: (request) => reader.suggest(request),
      async read(request) {
        reads += 1;
        if (isTorn) throw new FilesNotRead('the thread died');
        return reader.read(request);
      },
    },
    owner: 'test',
    logger: createLogger({ level: 'fatal', sink: { write: () => undefined } }),
    metrics: { alerted: (what) => void alerts.push(what) },
  });
  await torn.reload();
  expect([reads, torn.staleness(), alerts]).toEqual([1, 'unread', ['configuration_rejected']]);
  for (const ms of [1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 60_000, 60_000]) {
    const before = reads;
    await vi.advanceTimersByTimeAsync(ms - 1);
    expect([ms, reads]).toEqual([ms, before]);
    await vi.advanceTimersByTimeAsync(1);
    await expect.poll(() => reads).toBe(before + 1);
    await torn.follow();
  }
  isTorn = false;
  writeFileSync(join(folder, 'policy.yaml'), POLICY('two'));
  await torn.reload();
  expect([torn.staleness(), inForce.policies.rules.map(({ id }) => id)]).toEqual([null, ['a/two']]);
  // From then on the first wait is a short one again.
  isTorn = true;
  await torn.reload();
  const before = reads;
  await vi.advanceTimersByTimeAsync(1_000);
  await expect.poll(() => reads).toBe(before + 1);
  await torn.settled();
  expect(closed).toBe(1);
  const { length } = alerts;
  await torn.reload();
  await vi.advanceTimersByTimeAsync(120_000);
  expect([reads, alerts.length]).toEqual([before + 1, length]);
  vi.useRealTimers();
});

it('files that are edited are in force, whatever stood there before; who chooses other policies mends no file', async () => {
  const by = administrator('maria');
  const rules = () => inForce.policies.rules.map(({ id }) => id);
  for (const rule of ['two', 'one', 'two']) {
    writeFileSync(join(folder, 'policy.yaml'), POLICY(rule));
    await reloader.reload();
    expect(rules()).toEqual([`a/${rule}`]);
  }
  expect(await store.policyInForce()).toBe(inForce.policies.version);
  writeFileSync(join(folder, 'policy.yaml'), 'no: policy');
  await reloader.reload();
  expect(await reloader.choose({ kind: 'before' }, by)).toMatchObject({ kind: 'active' });
  expect([reloader.staleness(), rules()]).toEqual(['refused', ['a/one']]);
  expect(logged.filter((line) => line.includes('the policy files here are not in force'))).toHaveLength(1);
});

it('what cannot change while it runs is named in the log, and all else is taken on', async () => {
  const fixed = [
    'server: { host: 127.0.0.2, port: 1 }',
    'store: { path: ./elsewhere }',
    'secrets: { master: { file: ./another } }',
    'receipts: { keys: ./others }',
    'retention: { effects: 1d }',
    'limits: { connections: 70 }',
  ];
  writeFileSync(configFile, `${CONFIG(folder, ['maria', 'omar'])}\n${fixed.join('\n')}\n`);
  await reloader.reload();
  expect(inForce.configuration.users.map(({ id }) => id)).toEqual(['maria', 'omar']);
  const waiting = logged
    .map((line): Record<string, unknown> => JSON.parse(line))
    .filter(({ msg }) => msg === 'changes at the next start only');
  expect(waiting.map(({ level, setting }) => [level, setting])).toEqual(
    ['server.host', 'server.port', 'store', 'secrets', 'receipts', 'retention', 'limits.connections'].map((name) => [
      'warn',
      name,
    ]),
  );
});

it('what could not be taken on because the store was away is taken on by itself when it is back', async () => {
  isAway = true;
  writeFileSync(join(folder, 'policy.yaml'), POLICY('two'));
  await reloader.reload();
  expect([reloader.staleness(), inForce.policies.rules.map(({ id }) => id)]).toEqual(['refused', ['a/one']]);
  isAway = false;
  await vi.waitFor(() => expect(inForce.policies.rules.map(({ id }) => id)).toEqual(['a/two']), { timeout: 20_000 });
});

it('who chooses policies while the store is away is told so, and what comes after that is taken on', async () => {
  const by = administrator('maria');
  writeFileSync(join(folder, 'policy.yaml'), POLICY('one').replace('effect', 'efect'));
  await reloader.reload();
  expect(reloader.staleness()).toBe('refused');
  writeFileSync(join(folder, 'policy.yaml'), POLICY('two'));
  isAway = true;
  await expect(reloader.choose({ kind: 'files' }, by)).rejects.toThrow(new StoreUnavailable('the store is away'));
  isAway = false;
  expect(await reloader.choose({ kind: 'files' }, by)).toMatchObject({ kind: 'active' });
  // Files that are chosen are files that can be used.
  expect([reloader.staleness(), inForce.policies.rules.map(({ id }) => id)]).toEqual([null, ['a/two']]);
});

it('where one person is enough, there is nothing to confirm', async () => {
  expect(await reloader.confirm('ppl_1', administrator('maria'))).toEqual({
    kind: 'refused',
    message: 'Policies come in force without a second person here.',
  });
});

it('a fault that is not of the files is not shown to whoever chooses, and alerts nobody once the gateway stops', async () => {
  let fail: (error: Error) => void = () => undefined;
  const reading = new Reloader({
    configFile,
    environment: {},
    store,
    seals: POLICY_SEALS,
    proposals: null,
    current: () => inForce,
    adopt: () => undefined,
    noted: () => undefined,
    reader: {
      close: async () => fail(new Error('canary')),
      suggest: () => Promise.reject(new Error('canary')),
      read: () => new Promise((_resolve, reject) => (fail = reject)),
    },
    owner: 'test',
    logger: createLogger({ level: 'info', sink: { write: (line) => void logged.push(line) } }),
    metrics: { alerted: (what) => void alerts.push(what) },
  });
  const chosen = reading.choose({ kind: 'files' }, administrator('maria'));
  await new Promise((resolve) => setImmediate(resolve));
  fail(new Error('canary'));
  expect(await chosen).toEqual({ kind: 'refused', message: 'it could not be read' });
  const reloading = reading.reload();
  await new Promise((resolve) => setImmediate(resolve));
  await reading.settled();
  await reloading;
  expect([alerts, logged, reading.staleness()]).toEqual([[], [], null]);
});
