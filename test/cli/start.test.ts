import { cpSync, existsSync, mkdtempSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setImmediate } from 'node:timers/promises';
import { afterAll, beforeAll, expect, test, vi } from 'vitest';
import { makeKey } from '../../src/identity/key-format.ts';
import { begin, svc } from './run.ts';

const folder = mkdtempSync(join(tmpdir(), 'svc-start-'));
const config = join(folder, 'gateway.yaml');
const data = join(folder, 'data');

beforeAll(() => {
  writeFileSync(
    join(folder, 'policy.yaml'),
    'apiVersion: svc-gateway/v1\nkind: PolicySet\nname: p\nrules: [ { id: all, effect: allow } ]\n',
  );
  writeFileSync(
    config,
    [
      `store: { path: ${JSON.stringify(data)} }`,
      'server: { port: 0 }',
      'workspaces: [ { id: w } ]',
      `policies: { paths: [${JSON.stringify(join(folder, 'policy.yaml'))}] }`,
      'upstreams: [ { id: api, url: "http://127.0.0.1:1" } ]',
    ].join('\n'),
  );
});
afterAll(() => rmSync(folder, { recursive: true, force: true }));

async function start(): Promise<{ readonly line: string; stop(): Promise<string> }> {
  const gateway = begin('start', '--config', config, '--port', '0');
  return {
    line: await gateway.line(/"url"/),
    stop: async () => {
      gateway.stop();
      const { code, out } = await gateway.ended;
      expect(code).toBe(0);
      return out;
    },
  };
}

test('a folder that was set back as a whole is not called ready, until svc store accept-loss', async () => {
  const copy = join(folder, 'copy');
  await (await start()).stop();
  cpSync(data, copy, { recursive: true });
  await (await start()).stop();
  rmSync(data, { recursive: true });
  renameSync(copy, data);
  const setBack = await start();
  // What it tells people to run names their configuration.
  const message = expect.stringContaining(`svc store accept-loss --config ${config}`);
  expect(JSON.parse(setBack.line)).toMatchObject({ problem: { code: 'store_rolled_back', message } });
  expect(await svc('store', 'accept-loss', '--config', config)).toMatchObject({ code: 2 });
  await setBack.stop();
  // What is compared with its own ledger only would be called sound.
  const refused = await svc('fsck', '--config', config);
  expect([refused.code, refused.out]).toEqual([2, '']);
  expect(await svc('store', 'accept-loss', '--config', config)).toMatchObject({ code: 0 });
  expect(await svc('fsck', '--config', config)).toMatchObject({ code: 0 });
  const nothing = await svc('store', 'accept-loss', '--config', config);
  expect([nothing.code, nothing.err]).toEqual([2, expect.stringContaining('there is no loss to accept')]);
  const lost = await svc('store', 'recover', '--config', config, '--lost', 'gw-2');
  expect([lost.code, lost.err]).toEqual([2, expect.stringContaining('this one is embedded')]);
  const again = await start();
  expect(JSON.parse(again.line)).toMatchObject({ event: 'ready' });
  await again.stop();
});

test('the first administrative key is shown to a person at a terminal, and to no log', async () => {
  const alone = join(folder, 'alone');
  const file = join(folder, 'alone.yaml');
  writeFileSync(file, readFileSync(config, 'utf8').replace(JSON.stringify(data), JSON.stringify(alone)));
  const gateway = begin('start', '--config', file, '--port', '0');
  await gateway.line(/"ready"/);
  gateway.stop();
  const { out, err } = await gateway.ended;
  const key = readFileSync(join(alone, 'admin.key'), 'utf8').trim();
  expect(key).toMatch(/^svc_/);
  expect(out + err).not.toContain(key);
  expect(err).toContain('admin.key');
});

test('a first key may be brought; once there are keys the variable does nothing, and its file may be gone', async () => {
  const own = join(folder, 'own');
  const file = join(folder, 'own.yaml');
  const keyFile = join(folder, 'own.key');
  const { key } = makeKey('administrative');
  writeFileSync(keyFile, `${key}\n`);
  writeFileSync(file, readFileSync(config, 'utf8').replace(JSON.stringify(data), JSON.stringify(own)));
  vi.stubEnv('SVC_BOOTSTRAP_ADMIN_KEY_FILE', keyFile);
  const listed = async () => {
    const gateway = begin('start', '--config', file, '--port', '0');
    const { url }: { readonly url: string } = JSON.parse(await gateway.line(/"ready"/));
    const answer = await fetch(`${url}/v1/beta/keys`, { headers: { 'x-api-key': key } });
    gateway.stop();
    const { out, err } = await gateway.ended;
    expect(out + err).not.toContain(key);
    return answer.status;
  };
  try {
    expect(await listed()).toBe(200);
    expect(existsSync(join(own, 'admin.key'))).toBe(false);
    rmSync(keyFile);
    expect(await listed()).toBe(200);
  } finally {
    vi.unstubAllEnvs();
  }
});

test('a folder of the user that cannot be written is told in the notes of /readyz, and keeps nobody from calling', async () => {
  // A file: nothing can be made below it.
  vi.stubEnv('XDG_STATE_HOME', config);
  const gateway = begin('start', '--config', config, '--port', '0');
  try {
    const { url }: { readonly url: string } = JSON.parse(await gateway.line(/"ready"/));
    const answer = await fetch(`${url}/readyz`);
    expect([answer.status, await answer.json()]).toEqual([
      200,
      expect.objectContaining({ notes: [{ part: 'store', message: expect.stringContaining('store.fence') }] }),
    ]);
  } finally {
    gateway.stop();
    await gateway.ended;
    vi.unstubAllEnvs();
  }
});

test('a store that was set back is not called ready, until somebody accepts the loss', async () => {
  const first = await start();
  expect(JSON.parse(first.line)).toMatchObject({ event: 'ready' });
  await first.stop();

  rmSync(join(data, 'store.db'));
  const setBack = await start();
  const said: { readonly url: string } = JSON.parse(setBack.line);
  expect(said).toMatchObject({ event: 'listening', problem: { code: 'store_rolled_back' } });
  expect((await fetch(`${said.url}/readyz`)).status).toBe(503);
  expect(await setBack.stop()).not.toContain('"ready"');

  rmSync(join(data, 'install.json'));
  const again = await start();
  expect(JSON.parse(again.line)).toMatchObject({ event: 'ready' });
  await again.stop();
});

test('a gateway that stops says so in /readyz, and each answer ends its connection', async () => {
  const gateway = begin('start', '--config', config, '--port', '0');
  const { url }: { readonly url: string } = JSON.parse(await gateway.line(/"ready"/));
  const look = async (path: string) => {
    const answer = await fetch(`${url}${path}`);
    return { status: answer.status, connection: answer.headers.get('connection'), body: await answer.json() };
  };
  expect(await look('/readyz')).toMatchObject({ status: 200, connection: 'keep-alive' });
  // For ten looks after a request it stays open, for those that are on their way.
  expect(await look('/v1/workspaces')).toMatchObject({ status: 401, connection: 'keep-alive' });
  gateway.stop();
  await setImmediate();
  const [ready, live] = await Promise.all([look('/readyz'), look('/livez')]);
  expect(ready).toMatchObject({
    status: 503,
    connection: 'close',
    body: { parts: [{ part: 'gateway', message: 'It is shutting down.' }] },
  });
  expect(live).toMatchObject({ status: 200, connection: 'close' });
  expect((await gateway.ended).code).toBe(0);
});
