import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, expect, it } from 'vitest';
import type { RunningGateway } from '../../src/cli/ports.ts';
import { createKey, listKeys, revokeKey } from '../../src/gateway/offline-keys.ts';
import { checkStore } from '../../src/gateway/operate-store.ts';
import { startGateway } from '../../src/gateway/start.ts';
import { loadDriver } from '../../src/stores/embedded/driver.ts';

const openDatabase = await loadDriver();
const closers: (() => Promise<unknown>)[] = [];
afterEach(async () => {
  for (const close of closers.splice(0).reverse()) await close();
});

const CONFIGURATION = `
server: { host: 127.0.0.1, port: 0 }
store: { kind: embedded, path: "\${DATA}/store" }
secrets: { master: { file: "\${DATA}/master" } }
receipts: { keys: "\${DATA}/keys" }
workspaces: [ { id: demo } ]
users: [ { id: olga, roles: [] }, { id: tom, roles: [] } ]
policies: { paths: [] }
`;

/** Two people behind a call that is asked about, and may be allowed ahead. */
const ASKING = CONFIGURATION.replace('[ { id: demo } ]', '[ { id: demo, agents: [ { id: bot, owner: tom } ] } ]')
  .replace('id: olga, roles: []', 'id: olga, roles: [lead]')
  .replace('paths: []', 'paths: ["${DATA}/policy.yaml"]')
  .concat(`
roles: { lead: {} }
upstreams: [ { id: shop, url: "http://127.0.0.1:1" } ]
tools: [ { name: shop.order, upstream: shop, kind: write, request: { method: POST, path: /orders, body: "*" } } ]
`);
const POLICY = `
apiVersion: svc-gateway/v1
kind: PolicySet
name: shop
owner: team
rules:
  - id: ask
    effect: require_approval
    match: { tools: [shop.order] }
    approval: { approvers: { roles: [lead] }, quorum: 1, expires: 4h, allow_alike: { times: 3, for: 1h } }
`;

async function installation(configuration = CONFIGURATION) {
  const folder = await mkdtemp(join(tmpdir(), 'svc-forged-'));
  closers.push(() => rm(folder, { recursive: true, force: true }));
  const configFile = join(folder, 'gateway.yaml');
  await writeFile(configFile, configuration);
  await writeFile(join(folder, 'policy.yaml'), POLICY);
  const options = { configFile, environment: { DATA: folder } };
  return {
    options,
    async start(): Promise<RunningGateway> {
      const gateway = await startGateway({ ...options, port: 0, log: 'none', firstKey: 'shown' });
      closers.push(() => gateway.close());
      return gateway;
    },
    /** Alters rows in the file, those of keys where it is not said which, as somebody who has nothing but the file. */
    alter(from: string, to: string, id = 'key_%'): void {
      const database = openDatabase(join(folder, 'store', 'store.db'));
      database
        .prepare(`UPDATE rows SET version = 'forged', text = replace(text, ?, ?) WHERE id LIKE ?`)
        .run(from, to, id);
      database.close();
    },
    remove(id: string): void {
      const database = openDatabase(join(folder, 'store', 'store.db'));
      database.prepare('DELETE FROM rows WHERE id LIKE ?').run(`%${id}%`);
      database.close();
    },
    /** Adds a row, as the same, whose kind is none that is there yet. */
    add(kind: string, id: string, text: string): void {
      const database = openDatabase(join(folder, 'store', 'store.db'));
      database
        .prepare(`INSERT INTO names (workspace, type, name) SELECT workspace, type, ? FROM names WHERE name = 'user'`)
        .run(kind);
      database
        .prepare(`INSERT INTO rows (kind, id, version, text) SELECT n, ?, 'forged', ? FROM names WHERE name = ?`)
        .run(id, text, kind);
      database.close();
    },
    async makeKeyOf(user: string): Promise<string> {
      const of = { kind: 'account', workspace: 'demo', agent: null, user, profile: null, name: user } as const;
      return (await createKey({ ...options, ...of })).key;
    },
    async makeKey(kind: 'agent' | 'administrative' = 'agent') {
      const whose = kind === 'agent' ? { workspace: 'demo', agent: 'bot' } : { workspace: null, agent: null };
      const { record, key } = await createKey({ ...options, kind, ...whose, user: null, profile: null, name: 'a key' });
      return { id: textOf(record['id']), key };
    },
  };
}

function textOf(value: unknown): string {
  if (typeof value !== 'string') throw new Error('that is no text');
  return value;
}

const workspacesFor = (gateway: RunningGateway, key: string): Promise<Response> =>
  fetch(`${gateway.url}/v1/workspaces`, { headers: { 'x-api-key': key } });

const forgedCounted = async (gateway: RunningGateway): Promise<number> => {
  const metrics = await (await fetch(`${gateway.url}/metrics`)).text();
  return Number(/^svc_alerts_total\{what="key_forged"\} (\d+)/m.exec(metrics)?.[1] ?? 0);
};

it('an agent’s key that was made an administrator’s in the file is refused, counted, and named by fsck', async () => {
  const at = await installation();
  const first = await at.start();
  const agent = await at.makeKey();
  // It is a key, of one who may not see this.
  expect((await workspacesFor(first, agent.key)).status).toBe(403);
  await first.close();

  at.alter('"kind":"agent"', '"kind":"administrative"');
  const second = await at.start();
  expect((await workspacesFor(second, agent.key)).status).toBe(401);
  expect(await forgedCounted(second)).toBeGreaterThan(0);
  await second.close();

  expect((await listKeys(at.options)).map(({ id }) => id)).not.toContain(agent.id);
  expect(await revokeKey(at.options, agent.id)).toBeNull();
  expect(await checkStore(at.options)).toContainEqual(
    expect.objectContaining({ what: 'key', where: agent.id, store: expect.stringContaining('put there or changed') }),
  );
  // The gateway that runs there next tells of it.
  const third = await at.start();
  const { notes } = (await (await fetch(`${third.url}/readyz`)).json()) as { readonly notes: readonly unknown[] };
  expect(notes).toContainEqual(expect.objectContaining({ part: 'fsck' }));
  await third.close();
});

it('an administrator’s key that is gone from the file is named by fsck, of the ledger of the installation', async () => {
  const at = await installation();
  const gateway = await at.start();
  const { id } = await at.makeKey('administrative');
  await gateway.close();
  expect(await checkStore(at.options)).toEqual([]);
  at.remove(id);
  expect(await checkStore(at.options)).toContainEqual(
    expect.objectContaining({ workspace: '', what: 'key', where: id, store: 'nothing' }),
  );
});

it('an agent that was enabled, and a pause that was lifted, in the file are named by fsck', async () => {
  const at = await installation();
  const gateway = await at.start();
  const { key } = await at.makeKey('administrative');
  const send = async (path: string, body: object): Promise<number> => {
    const headers = { 'x-api-key': key, 'content-type': 'application/json' };
    const of = { method: 'POST', headers, body: JSON.stringify(body) };
    return (await fetch(`${gateway.url}/v1/workspaces/demo/${path}`, of)).status;
  };
  expect(await send('agents', { id: 'other-bot', team: 'support' })).toBe(201);
  expect(await send('pauses', { scope: { workspace: true }, reason: 'stop' })).toBe(201);
  await gateway.close();
  expect(await checkStore(at.options)).toEqual([]);

  at.alter('"team":"support"', '"team":"board"', '%other-bot');
  at.alter('"stop"', '"go on"', '%');
  const found = (await checkStore(at.options)).filter(({ what }) => what === 'seal');
  expect(found).toEqual(
    ['agent demo other-bot', 'pauses demo'].map((where) =>
      expect.objectContaining({ workspace: '', where, store: expect.stringContaining('put there or changed') }),
    ),
  );
});

it('the date of a user that was set back, and passkeys that nobody added, are named by fsck', async () => {
  const at = await installation();
  await (await at.start()).close();
  expect(await checkStore(at.options)).toEqual([]);
  // When users were first looked at stands in a row without a name.
  at.alter('"since":', '"since":2', '');
  expect((await checkStore(at.options)).map(({ what, where }) => `${what} ${where}`)).toEqual(['seal user ']);
  at.alter('"since":', '"since":1', 'olga');
  at.add('passkeys', 'tom', JSON.stringify({ passkeys: [{ id: 'mine', user: 'tom' }], answered: [], seal: 'a.b' }));
  const found = (await checkStore(at.options)).filter(({ what }) => what === 'seal');
  expect(found.map(({ where }) => where).toSorted()).toEqual(['passkeys tom', 'user ', 'user olga']);
});

it('a request for approval that was changed, and an allowance for more calls, are named by fsck', async () => {
  const at = await installation(ASKING);
  const gateway = await at.start();
  const [tom, olga] = [await at.makeKeyOf('tom'), await at.makeKeyOf('olga')];
  async function send(key: string, path: string, body?: object): Promise<Readonly<Record<string, unknown>>> {
    const headers = { 'x-api-key': key, 'content-type': 'application/json' };
    const of = body === undefined ? { headers } : { method: 'POST', headers, body: JSON.stringify(body) };
    return Object(await (await fetch(`${gateway.url}/v1/workspaces/demo/${path}`, of)).json());
  }
  const params = { note: 'one' };
  const { approval } = await send(tom, 'effects', {
    tool: 'shop.order',
    agent_id: 'bot',
    params,
    idempotency_key: 'k',
  });
  const id = textOf(Object(approval).id);
  const { digest } = await send(olga, `approvals/${id}`);
  const voted = await send(olga, `approvals/${id}/approve`, {
    digest: textOf(digest),
    allow_alike: { times: 2, until: new Date(Date.now() + 600_000).toISOString() },
  });
  expect(voted['allowance_id'], JSON.stringify(voted)).toMatch(/^alw_/);
  await gateway.close();
  expect(await checkStore(at.options)).toEqual([]);

  at.alter('"times":2', '"times":9', 'alw_%');
  at.alter('"user":"olga"', '"user":"tom"', 'apr_%');
  const found = (await checkStore(at.options)).filter(({ what }) => what === 'seal').map(({ where }) => where);
  expect(found.toSorted()).toEqual([`allowance demo ${textOf(voted['allowance_id'])}`, `approval demo ${id}`]);
});

it('a revocation that is lifted in the file of a running gateway lets nobody in again', async () => {
  const at = await installation();
  const gateway = await at.start();
  const agent = await at.makeKey();
  expect((await workspacesFor(gateway, agent.key)).status).toBe(403);
  const revoked = await revokeKey(at.options, agent.id);
  await expect.poll(async () => (await workspacesFor(gateway, agent.key)).status).toBe(401);
  const revokedAt = Date.parse(textOf(revoked?.['revoked_at']));
  at.alter(`"revokedAt":${revokedAt}`, '"revokedAt":null');
  await expect.poll(() => workspacesFor(gateway, agent.key).then(() => forgedCounted(gateway))).toBeGreaterThan(0);
  expect((await workspacesFor(gateway, agent.key)).status).toBe(401);
});

it('when a key was last used is on record once the gateway has stopped', async () => {
  const { options, start, makeKey } = await installation();
  const gateway = await start();
  const { id, key } = await makeKey();
  // It is a key, of one who may not see this.
  expect((await workspacesFor(gateway, key)).status).toBe(403);
  await gateway.close();
  const found = (await listKeys(options)).find((one) => one['id'] === id);
  expect(Date.parse(textOf(found?.['last_used_at']))).toBeGreaterThan(Date.now() - 3_600_000);
});
