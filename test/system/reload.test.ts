import { once } from 'node:events';
import { rmSync, symlinkSync } from 'node:fs';
import { mkdir, readFile, rename, symlink, truncate, writeFile } from 'node:fs/promises';
import { connect } from 'node:net';
import { dirname, join } from 'node:path';
import { afterEach, beforeEach, expect, it, vi } from 'vitest';
import { INSTALLATION } from '../../src/effects/model/ledger.ts';
import { openEmbeddedStore } from '../../src/gateway/embedded-store.ts';
import { type Answer, send } from './gateway.ts';
import { freshKey, refund, startWorld, type World } from './world.ts';
import { KEY_SEALS } from '../identity/key-seals.ts';

let world: World;
beforeEach(async () => {
  world = await startWorld();
});
afterEach(() => world.close());

const RELOADED = 'configuration and policies reloaded';
const REJECTED = 'the new configuration is not in force; the last good one is';

function logged(text: string): number {
  return world.gateway.log().split(text).length - 1;
}

/** Does something, and waits until the gateway has said so once more than before. */
async function until(text: string, change: () => Promise<void>, timeout = 60_000): Promise<void> {
  const before = logged(text);
  await change();
  // A change that the file system does not tell of is found at the next look, 10 s later at most.
  await vi.waitFor(() => expect(logged(text)).toBeGreaterThan(before), { timeout, interval: 10 });
}

/** Puts a file in its place whole, as editors do: a busy gateway never finds it half written. */
async function put(path: string, text: string): Promise<void> {
  const beside = join(dirname(path), 'written');
  await writeFile(beside, text);
  await rename(beside, path);
}

function policyFile(): string {
  return join(world.gateway.policyFolder, 'world.yaml');
}

function note(text: string, key = freshKey()): Promise<Answer> {
  return world.run({ tool: 'notes.add', params: { text }, idempotency_key: key });
}

const NO_NOTES = '  - { id: no-notes, effect: deny, match: { tools: [notes.add] }, reason: "No notes today" }\n';

async function alerts(what: string): Promise<number> {
  const text = await (await fetch(`${world.gateway.url}/metrics`)).text();
  return Number(new RegExp(`^svc_alerts_total\\{what="${what}"\\} (\\d+)$`, 'm').exec(text)?.[1] ?? 0);
}

it('a new rule is in force; a broken, an empty and a half-written file leave the last good one in force, loudly', async () => {
  const good = await readFile(policyFile(), 'utf8');
  expect((await note('before')).body.decision).toBe('committed');
  const before = (await world.get('/policies')).body;

  await until(RELOADED, () => put(policyFile(), good + NO_NOTES));
  const denied = await note('after');
  expect(denied.body).toMatchObject({
    decision: 'denied_policy',
    reason: { code: 'rule_denied', rule: 'world/no-notes', message: expect.stringContaining('No notes today') },
  });
  const after = (await world.get('/policies')).body;
  expect(after.version).not.toBe(before.version);

  const broken: readonly (readonly [name: string, text: string])[] = [
    ['a rule with a misspelt field', `${good}${NO_NOTES.replace('effect: deny', 'efect: allow')}`],
    ['no YAML', `${good}  - { id: `],
    ['nothing', ''],
    ['half', good.slice(0, good.length / 2)],
  ];
  for (const [index, [name, text]] of broken.entries()) {
    await until(REJECTED, () => put(policyFile(), text));
    expect((await note('still')).body, name).toMatchObject({
      decision: 'denied_policy',
      reason: { rule: 'world/no-notes' },
    });
    expect(await alerts('configuration_rejected')).toBe(index + 1);
    expect((await world.get('/policies')).body.version, name).toBe(after.version);
    const ready = await fetch(`${world.gateway.url}/readyz`);
    expect(ready.status).toBe(200);
    expect(await ready.json()).toMatchObject({ ready: true, notes: [{ part: 'configuration' }] });
  }
  // The finding names file, line and column.
  expect(world.gateway.log()).toMatch(/world\.yaml:\d+:\d+/);
  expect(world.gateway.log()).toContain('efect');

  // The rest of a half-written file is in force when it has come.
  await until(RELOADED, () => put(policyFile(), good));
  expect((await note('again')).body.decision).toBe('committed');
  expect(await (await fetch(`${world.gateway.url}/readyz`)).json()).not.toHaveProperty('notes');

  // The same for the configuration itself.
  const { configFile } = world.gateway;
  const config = await readFile(configFile, 'utf8');
  await until(REJECTED, () => truncate(configFile, 300));
  expect((await note('configured')).body.decision).toBe('committed');
  await until(RELOADED, () => put(configFile, config.replace('title: Note', 'title: Notes')));

  await world.gateway.stop();
  const store = await openEmbeddedStore({
    path: world.gateway.dataFolder,
    lockWaitMs: 5_000,
    retention: { keysMs: null, effectsMs: 1e12, denialsMs: 1e12 },
    keySeals: KEY_SEALS,
    worker: 'never',
  });
  const events = await store.ledger(INSTALLATION, 0, 1_000);
  await store.close();
  const told = events.filter(({ kind }) => kind.startsWith('policy.'));
  expect(told.map(({ kind }) => kind)).toEqual([
    'policy.activated',
    'policy.activated',
    'policy.loaded',
    ...broken.map(() => 'policy.rejected'),
    'policy.activated',
    'policy.loaded',
    'policy.rejected',
    'policy.loaded',
  ]);
  expect(told[3]?.data).toEqual({ in_force: after.version });
  // Beside the keys that belong to no workspace.
  expect(events.find(({ kind }) => kind === 'key.created')?.data).toMatchObject({ kind: 'administrative' });
});

it('a budget is not redefined behind what it has counted, unless it says so', async () => {
  const good = await readFile(policyFile(), 'utf8');
  expect((await world.run(refund({ amount: 40_000 }))).body.decision).toBe('committed');
  const spent = async (): Promise<unknown> =>
    (await world.get('/budgets')).body.budgets.map((budget: { spent: number; limit: number }) => [
      budget.spent,
      budget.limit,
    ]);
  expect(await spent()).toEqual([[40_000, 100_000]]);

  const redefined = good.replace('agent-day: { unit: EUR-cent,', 'agent-day: { unit: USD-cent,');
  await until(REJECTED, () => put(policyFile(), redefined));
  expect(world.gateway.log()).toMatch(/agent-day.*EUR-cent/);
  expect(await spent()).toEqual([[40_000, 100_000]]);
  expect((await world.run(refund({ amount: 10_000 }))).body.decision).toBe('committed');

  // Another limit is no other budget: what is spent stays spent.
  await until(RELOADED, () => put(policyFile(), good.replace('limit: 100000 }', 'limit: 60000 }')));
  expect((await world.run(refund({ amount: 10_001 }))).body.decision).toBe('denied_budget');
  expect((await world.run(refund({ amount: 10_000 }))).body.decision).toBe('committed');

  await until(RELOADED, () => put(policyFile(), redefined.replace('limit: 100000 }', 'limit: 100000, reset: true }')));
  expect((await world.run(refund({ amount: 50_000 }))).body.decision).toBe('committed');
});

it('a user who is named no more is gone at once, with the keys; who came and went stands in the ledger', async () => {
  const config = await readFile(world.gateway.configFile, 'utf8');
  const tom = /\{ id: tom[^}]*\}, ?/;
  expect(config).toMatch(tom);
  const looks = async (): Promise<number> => (await world.get('/effects')).status;
  const waiting = (await world.run(refund({ amount: 50_001 }))).body;
  expect(await looks()).toBe(200);
  await until(RELOADED, () =>
    put(
      world.gateway.configFile,
      config.replace(tom, '').replace('id: maria, roles: [', 'id: maria, roles: [night-watch, '),
    ),
  );
  expect(await looks()).toBe(401);
  await world.gateway.stop();
  await world.gateway.restart();
  expect(await looks()).toBe(401);
  const events = async () =>
    (await send(world.gateway.url, world.gateway.administrativeKey, 'GET', '/v1/beta/ledger?kind=user')).body.events
      .map(({ kind, data }: { kind: string; data: Record<string, unknown> }) => ({ kind, ...data }))
      .toReversed();
  expect((await events()).filter(({ kind }: { kind: string }) => kind !== 'user.added')).toEqual([
    { kind: 'user.roles_changed', user: 'maria', given: ['night-watch'], taken: [] },
    { kind: 'user.removed', user: 'tom', roles: ['finance'] },
  ]);
  // Olga's key asked, and she is gone before it is approved: what was approved is not sent.
  const olga = /, \{ id: olga[^}]*\}/;
  await put(world.gateway.configFile, config.replace(olga, '').replace(/, owner: olga/g, ''));
  await vi.waitFor(async () => expect(await looks()).toBe(200), { timeout: 60_000, interval: 10 });
  const voted = await world.post(`/approvals/${waiting.approval.id}/approve`, {}, world.keys.approver);
  expect([voted.status, voted.body.became?.code]).toEqual([200, 'key_ended']);
});

it('settings that hold until the next start are named in the log; the others are in force', async () => {
  const { configFile } = world.gateway;
  const config = await readFile(configFile, 'utf8');
  const changed = config
    .replace('port: 0 }', 'port: 1 }')
    .replace('users: [', 'users: [ { id: nina, roles: [] },')
    .replace('pools:', 'retention: { effects: 90d }\npools:')
    .replace('- { id: other-bot, team: support, owner: olga }', '- { id: other-bot, team: sales, owner: olga }');
  await until(RELOADED, () => put(configFile, changed));
  const lines = world.gateway
    .log()
    .split('\n')
    .filter((line) => line.includes('changes at the next start only'));
  expect(new Set(lines.map((line) => JSON.parse(line).setting))).toEqual(new Set(['retention', 'server.port']));
  expect(lines.length).toBe(2);
  // The agent is in another team now, for which no rule allows refunds.
  const other = await world.run(refund(), world.keys.otherBot);
  expect(other.body).toMatchObject({ decision: 'denied_policy', reason: { code: 'no_rule_allows' } });
});

it('a policy file that the configuration begins to name is watched from then on', async () => {
  const { folder, configFile } = world.gateway;
  const config = await readFile(configFile, 'utf8');
  const file = join(folder, 'elsewhere', 'more.yaml');
  const rules = (effect: string, reason: string): string =>
    `apiVersion: svc-gateway/v1\nkind: PolicySet\nname: more\nowner: team-test\nrules:\n  - { id: notes, effect: ${effect}, match: { tools: [notes.add] }${reason} }\n`;
  const denying = rules('deny', ', reason: "No notes today"');
  await mkdir(join(folder, 'elsewhere'));
  await put(file, denying);
  await until(RELOADED, () => put(configFile, config.replace(/(paths: \[)/, `$1"${file}", `)));
  expect((await note('named')).body.reason.rule).toBe('more/notes');
  // Two changes in less than the 10 s between the looks at files that nobody tells of.
  await until(RELOADED, () => put(file, rules('allow', '')), 8_000);
  await until(RELOADED, () => put(file, denying), 8_000);
  expect((await note('watched')).body.reason.rule).toBe('more/notes');
});

it('calls in flight while everything changes under them lose nothing; approvals survive an unrelated change', async () => {
  const { configFile } = world.gateway;
  const [config, policy] = await Promise.all([readFile(configFile, 'utf8'), readFile(policyFile(), 'utf8')]);
  const asked = await world.run(refund({ amount: 50_001 }));
  expect(asked.body.decision).toBe('pending_approval');
  // A request whose body is still on its way is nobody's yet.
  const { hostname, port } = new URL(world.gateway.url);
  const half = connect(Number(port), hostname);
  let halfAnswer = '';
  half.setEncoding('utf8').on('data', (text: string) => {
    halfAnswer += text;
  });
  half.write(
    `POST /payments/v1/notes HTTP/1.1\r\nHost: ${hostname}\r\nX-API-Key: ${world.keys.bot}\r\nIdempotency-Key: ${freshKey()}\r\nContent-Type: application/json\r\nContent-Length: 15\r\nConnection: close\r\n\r\n{"text":`,
  );
  await world.upstream.mode({ mode: 'held', times: 3 });
  const key = freshKey();
  const running = [
    note('one', key),
    note('two'),
    world.run({ tool: 'deploy.start', params: { service: 'a' }, idempotency_key: freshKey() }),
  ];
  await vi.waitFor(async () => expect((await world.upstream.counts()).effects).toBe(3), { timeout: 30_000 });

  // The tool, its rule and the pool are gone while the calls are under way.
  await until(RELOADED, async () => {
    const gone = config.slice(config.indexOf('  - name: notes.add'), config.indexOf('  - name: notes.secret'));
    const route = config.split('\n').find((line) => line.includes('POST /v1/notes')) ?? '';
    await put(policyFile(), policy.replace(/.*id: note,.*\n/, ''));
    await put(configFile, config.replace(gone, '').replace(`${route}\n`, ''));
  });
  // A busy gateway may take on the one file before the other.
  await vi.waitFor(async () => expect((await note('gone')).body.reason.code).toBe('tool_not_declared'), {
    timeout: 30_000,
  });
  half.write('"half"}');
  await once(half, 'close');
  expect(halfAnswer).toMatch(/^HTTP\/1\.1 503 .*x-should-retry: true.*"code":"not_ready"/s);
  expect((await world.upstream.counts()).effects).toBe(3);
  await world.upstream.release();
  const answers = await Promise.all(running);
  for (const { body } of answers) expect(body).toMatchObject({ decision: 'committed', receipt: expect.anything() });
  expect((await note('three')).body).toMatchObject({
    decision: 'denied_policy',
    reason: { code: 'tool_not_declared' },
  });
  // What has happened is still told, with its receipt, although the tool is gone.
  const again = await note('one', key);
  expect(again.status).toBe(409);
  expect(again.body).toMatchObject({ decision: 'duplicate_blocked', receipt: answers[0]?.body.receipt });

  const approved = await world.post(`/approvals/${asked.body.approval.id}/approve`, {}, world.keys.approver);
  expect(approved.status).toBe(200);
  await vi.waitFor(
    async () => expect((await world.get(`/effects/${asked.body.effect_id}`)).body.effect.state).toBe('committed'),
    { timeout: 30_000 },
  );
});

it('a folder swapped by a link is taken on as one: no call is judged by a mix of two versions', async () => {
  const { folder, configFile, policyFolder } = world.gateway;
  const [config, policy] = await Promise.all([readFile(configFile, 'utf8'), readFile(policyFile(), 'utf8')]);
  // Each version allows notes of its own text only, by rules of its own name in two files, to a path of its own.
  const versions = ['a', 'b'] as const;
  for (const version of versions) {
    const root = join(folder, version);
    await mkdir(join(root, 'policies'), { recursive: true });
    await writeFile(
      join(root, 'gateway.yaml'),
      config.replaceAll('/v1/notes', `/v1/notes-${version}`).replace('title: Note', `title: Note ${version}`),
    );
    await writeFile(
      join(root, 'policies', 'world.yaml'),
      policy.replace(/.*id: note,.*\n/, `  - { id: note-${version}, effect: allow, match: { tools: [notes.add] } }\n`),
    );
    await writeFile(
      join(root, 'policies', 'second.yaml'),
      `apiVersion: svc-gateway/v1
kind: PolicySet
name: second
owner: team-test
rules:
  - { id: guard-${version}, effect: deny, match: { tools: [notes.add] }, unless: { params.text: ${version} }, reason: "version ${version}" }
`,
    );
  }
  const current = join(folder, 'current');
  const swapTo = async (version: string): Promise<void> => {
    await symlink(version, `${current}.new`);
    await rename(`${current}.new`, current);
  };
  await swapTo('a');
  // In one go: nobody may look while there is none.
  await until(RELOADED, async () => {
    rmSync(configFile);
    rmSync(policyFolder, { recursive: true });
    symlinkSync(join('current', 'policies'), policyFolder);
    symlinkSync(join('current', 'gateway.yaml'), configFile);
  });

  const answers: { readonly text: string; readonly answer: Answer }[] = [];
  let stopped = false;
  const caller = async (lane: number): Promise<void> => {
    for (let n = 0; !stopped; n += 1) {
      const text = versions[(n + lane) % 2] ?? 'a';
      answers.push({ text, answer: await note(text) });
    }
  };
  const callers = [0, 1, 2, 3].map(caller);
  for (const version of ['b', 'a', 'b', 'a']) await until(RELOADED, () => swapTo(version));
  stopped = true;
  await Promise.all(callers);

  const seen = new Map<string, number>();
  for (const { text, answer } of answers) {
    const { decision, reason, receipt } = answer.body;
    if (decision === 'committed') {
      expect(receipt.policy.matched.map(({ rule }: { rule: string }) => rule)).toEqual([`world/note-${text}`]);
    } else {
      expect({ decision, rule: reason.rule }).toEqual({
        decision: 'denied_policy',
        rule: `second/guard-${text === 'a' ? 'b' : 'a'}`,
      });
    }
    seen.set(`${text} ${decision}`, (seen.get(`${text} ${decision}`) ?? 0) + 1);
  }
  expect([...seen.keys()].toSorted()).toEqual(['a committed', 'a denied_policy', 'b committed', 'b denied_policy']);
  // What policy allowed by one version was sent by the tool of that version.
  const { effects } = await world.upstream.ledger();
  const notes = effects.filter(({ path }) => path.startsWith('/v1/notes'));
  expect(notes.length).toBe((seen.get('a committed') ?? 0) + (seen.get('b committed') ?? 0));
  for (const { path, body } of notes) expect(path).toBe(`/v1/notes-${(body as { text: string }).text}`);
  expect(logged(REJECTED)).toBe(0);
  expect((await send(world.gateway.url, world.keys.account, 'GET', '/readyz')).body.ready).toBe(true);
});
