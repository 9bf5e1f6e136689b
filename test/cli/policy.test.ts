import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test, vi } from 'vitest';
import { until } from '../redis/servers.ts';
import { begin, type Ran, type Running, svc } from './run.ts';

/** `svc policy` against a real gateway, whose files change. */
const folder = mkdtempSync(join(tmpdir(), 'svc-cli-policy-'));
const config = join(folder, 'gateway.yaml');
let gateway: Running;
let url: string;

const writePolicy = (rule: string): void =>
  writeFileSync(
    join(folder, 'policy.yaml'),
    `apiVersion: svc-gateway/v1\nkind: PolicySet\nname: p\nrules:\n  - { id: ${rule}, effect: deny, match: { tools: [up.note] }, reason: no }\n`,
  );
const policy = (...argv: readonly string[]): Promise<Ran> => svc('policy', ...argv, '--url', url);

interface History {
  readonly in_force: string;
  readonly files_version: string;
  readonly activations: readonly { readonly version: string; readonly how: string }[];
}

async function history(): Promise<History> {
  const { code, out } = await policy('history', '--json');
  expect(code).toBe(0);
  return JSON.parse(out);
}

beforeAll(async () => {
  writePolicy('one');
  writeFileSync(
    config,
    [
      `store: { path: ${JSON.stringify(join(folder, 'data'))} }`,
      'server: { port: 0 }',
      'users: [ { id: maria } ]',
      'workspaces: [ { id: w } ]',
      `policies: { paths: [${JSON.stringify(join(folder, 'policy.yaml'))}] }`,
      'upstreams: [ { id: up, url: "http://127.0.0.1:9" } ]',
      'tools: [ { name: up.note, upstream: up, kind: write, request: { method: POST, path: /notes, body: [text] } } ]',
    ].join('\n'),
  );
  gateway = begin('start', '--config', config, '--port', '0');
  const ready: { readonly url: string } = JSON.parse(await gateway.line(/"ready"/));
  url = ready.url;
  const made = await svc('keys', 'create', '--config', config, '--kind', 'administrative', '--user', 'maria', '--json');
  expect(made.code).toBe(0);
  const { key }: { readonly key: string } = JSON.parse(made.out);
  vi.stubEnv('SVC_API_KEY', key);
});

afterAll(async () => {
  gateway.stop();
  await gateway.ended;
  vi.unstubAllEnvs();
  rmSync(folder, { recursive: true, force: true });
});

test('history, rollback, activate: what is in force, who put it there, and how to get back', async () => {
  const { in_force: one, activations } = await history();
  expect(activations.map(({ how }) => how)).toEqual(['files']);
  // There is nothing before the first.
  expect(await policy('rollback')).toMatchObject({ code: 1, err: expect.stringContaining('no such policies') });

  writePolicy('two');
  await until(async () => (await history()).in_force !== one);
  const { in_force: two } = await history();

  expect(await policy('rollback')).toMatchObject({ code: 0, out: `In force: ${one}` });
  expect(await history()).toMatchObject({ in_force: one, files_version: two });
  const shown = await policy('history');
  expect(shown.out).toMatch(new RegExp(`\\* +${one} .*rollback +\\S+ maria|\\* +${one} .*rollback`));
  expect(shown.out).toContain('are not in force. Put them in force with: svc policy activate');

  expect(await policy('activate')).toMatchObject({ code: 0, out: `In force: ${two}` });
  expect(await policy('activate', one, '--json')).toMatchObject({ code: 0, out: expect.stringContaining(one) });
  expect((await history()).activations.map(({ how, version }) => [how, version])).toEqual([
    ['activate', one],
    ['activate', two],
    ['rollback', one],
    ['files', two],
    ['files', one],
  ]);
});

test('a version that is not kept is 1 and changes nothing; what is no version is refused with its place', async () => {
  const { in_force: before } = await history();
  expect(await policy('activate', 'A'.repeat(43))).toMatchObject({
    code: 1,
    err: expect.stringContaining('stand in the history'),
  });
  expect((await policy('activate', 'short')).code).not.toBe(0);
  expect((await history()).in_force).toBe(before);
});

test('what a policy says does not steer the terminal of whoever reads it', async () => {
  const { in_force: before } = await history();
  writePolicy('three, description: "\u202e"');
  await until(async () => (await history()).in_force !== before);
  const { out } = await policy('show', (await history()).in_force);
  expect(out).toContain('id: three');
  expect(out).not.toContain('\u202e');
});
