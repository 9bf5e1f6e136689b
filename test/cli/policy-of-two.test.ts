import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test, vi } from 'vitest';
import { until } from '../redis/servers.ts';
import { startWebhookReceiver, type WebhookReceiver } from '../system/webhook-receiver.ts';
import { begin, type Ran, type Running, svc } from './run.ts';

/** `svc policy` against a real gateway where two people have to stand behind policies. */
const folder = mkdtempSync(join(tmpdir(), 'svc-cli-of-two-'));
const config = join(folder, 'gateway.yaml');
const SECRET = `whsec_${Buffer.alloc(32, 1).toString('base64')}`;
let receiver: WebhookReceiver;
let gateway: Running;
let url: string;
const keys = new Map<string, string>();

const writePolicy = (rule: string): void =>
  writeFileSync(
    join(folder, 'policy.yaml'),
    `apiVersion: svc-gateway/v1\nkind: PolicySet\nname: p\nrules:\n  - { id: ${rule}, effect: deny, match: { tools: [up.note] }, reason: no }\n`,
  );

async function as(user: string, ...argv: readonly string[]): Promise<Ran> {
  vi.stubEnv('SVC_API_KEY', keys.get(user) ?? '');
  return svc('policy', ...argv, '--url', url);
}

interface Proposal {
  readonly id: string;
  readonly version: string;
  readonly status: string;
  readonly how: string;
  readonly people: readonly string[];
}

const proposals = async (): Promise<{ readonly in_force: string; readonly proposals: readonly Proposal[] }> =>
  JSON.parse((await as('maria', 'proposals', '--json')).out);

async function open(): Promise<Proposal> {
  const found = (await proposals()).proposals.find(({ status }) => status === 'open');
  if (found === undefined) throw new Error('nothing is open');
  return found;
}

beforeAll(async () => {
  writePolicy('one');
  receiver = await startWebhookReceiver(SECRET, () => false);
  writeFileSync(
    config,
    [
      `store: { path: ${JSON.stringify(join(folder, 'data'))} }`,
      'server: { port: 0 }',
      'users: [ { id: maria }, { id: omar }, { id: zoe } ]',
      'workspaces: [ { id: w } ]',
      `policies: { paths: [${JSON.stringify(join(folder, 'policy.yaml'))}], second_person: true }`,
      'upstreams: [ { id: up, url: "http://127.0.0.1:9" } ]',
      'tools: [ { name: up.note, upstream: up, kind: write, request: { method: POST, path: /notes, body: [text] } } ]',
      `webhooks: [ { name: ops, url: "${receiver.url}", secret: "\${HOOK_SECRET}", events: [policy.proposed] } ]`,
    ].join('\n'),
  );
  vi.stubEnv('HOOK_SECRET', SECRET);
  gateway = begin('start', '--config', config, '--port', '0');
  const ready: { readonly url: string } = JSON.parse(await gateway.line(/"ready"/));
  url = ready.url;
  for (const user of ['maria', 'omar', 'zoe']) {
    const made = await svc('keys', 'create', '--config', config, '--kind', 'administrative', '--user', user, '--json');
    const { key }: { readonly key: string } = JSON.parse(made.out);
    keys.set(user, key);
  }
});

afterAll(async () => {
  gateway.stop();
  await gateway.ended;
  await receiver.close();
  vi.unstubAllEnvs();
  rmSync(folder, { recursive: true, force: true });
});

test('edited files are proposed; after two people have confirmed them they are in force, and people were told', async () => {
  const { in_force: one } = await proposals();
  expect((await as('maria', 'proposals')).out).toBe('Nothing is proposed.');
  writePolicy('two');
  await until(async () => (await proposals()).proposals.length === 1);
  const { id, version, how } = await open();
  expect([how, (await proposals()).in_force]).toEqual(['files', one]);
  await until(async () => receiver.taken.length === 1);
  expect(receiver.taken[0]).toMatchObject({
    type: 'policy.proposed',
    data: { proposal: id, version, instead_of: one },
  });
  expect((await as('omar', 'show', version)).out).toContain('id: two,');
  expect((await svc('policy', 'digest', join(folder, 'policy.yaml'))).out).toBe(version);

  const counted = await as('maria', 'confirm', id);
  expect(counted.out).toContain(`In force until another person confirms it: ${one}`);
  expect(await as('maria', 'confirm', id)).toMatchObject({
    code: 1,
    err: expect.stringContaining('You stand behind it already'),
  });
  expect(await as('omar', 'confirm', id)).toMatchObject({ code: 0, out: `In force: ${version}` });
  expect((await proposals()).in_force).toBe(version);
  expect((await as('omar', 'history')).out).toMatch(/files .*policy\.yaml/);
});

test('what a person wants is proposed, with why, and somebody else confirms or withdraws it', async () => {
  const { in_force: two } = await proposals();
  const asked = await as('maria', 'rollback', '--comment', 'refunds fail');
  expect(asked.out).toContain('Proposed: ');
  const { id, version, people } = await open();
  expect(asked.out).toContain(`svc policy confirm ${id}`);
  expect(people).toEqual(['maria']);
  expect((await as('omar', 'proposals')).out).toMatch(
    new RegExp(`${id} .*open .*rollback +user maria +maria +refunds fail`),
  );
  await as('zoe', 'rollback');
  expect(await as('omar', 'withdraw', id)).toMatchObject({ code: 0, out: `Over: ${id} (withdrawn)` });
  const { people: others, id: other } = await open();
  expect([others, other === id]).toEqual([['zoe'], false]);
  await as('zoe', 'withdraw', other);
  expect(await as('omar', 'confirm', id)).toMatchObject({ code: 1, err: expect.stringContaining('is over') });
  expect((await proposals()).in_force).toBe(two);

  expect(JSON.parse((await as('maria', 'activate', version, '--json')).out)).toMatchObject({
    version: two,
    proposal: { version, status: 'open', still_needs: 1 },
  });
  expect(await as('zoe', 'confirm', (await open()).id)).toMatchObject({ code: 0, out: `In force: ${version}` });
  const history: { readonly activations: readonly object[] } = JSON.parse((await as('zoe', 'history', '--json')).out);
  expect(history.activations[0]).toMatchObject({ version, how: 'activate', confirmed_by: ['zoe'] });
  expect(await as('zoe', 'confirm', 'ppl_none')).toMatchObject({ code: 1, err: expect.stringContaining('no such') });
});

test('who rotates the key of another confirms nothing with its successor; rotated on the machine, it confirms', async () => {
  vi.stubEnv('SVC_API_KEY', keys.get('maria') ?? '');
  const list = await svc('keys', 'list', '--user', 'omar', '--url', url, '--json');
  const { keys: ofOmar }: { readonly keys: readonly { readonly id: string }[] } = JSON.parse(list.out);
  const byMaria = await svc('keys', 'rotate', ofOmar[0]?.id ?? '', '--overlap', '0', '--url', url, '--json');
  const rotated: { readonly id: string; readonly key: string; readonly made_by: string } = JSON.parse(byMaria.out);
  expect(rotated.made_by).toBe('maria');
  keys.set('omar', rotated.key);
  expect((await as('maria', 'activate')).out).toContain('Proposed: ');
  expect(await as('omar', 'confirm', (await open()).id)).toMatchObject({
    code: 1,
    err: expect.stringContaining('Your key was made by maria'),
  });
  await as('maria', 'withdraw', (await open()).id);

  const onMachine = await svc('keys', 'rotate', '--config', config, rotated.id, '--json');
  const again: { readonly key: string; readonly made_by: null } = JSON.parse(onMachine.out);
  expect(again.made_by).toBe(null);
  keys.set('omar', again.key);
  expect((await as('maria', 'activate')).out).toContain('Proposed: ');
  expect(await as('omar', 'confirm', (await open()).id)).toMatchObject({ code: 0 });
});

test('the setting is not turned off while the gateway runs', async () => {
  const { in_force: before } = await proposals();
  writeFileSync(config, readFileSync(config, 'utf8').replace('second_person: true', 'second_person: false'));
  writePolicy('three');
  await until(async () => (await proposals()).proposals.some(({ status }) => status === 'open'));
  expect((await proposals()).in_force).toBe(before);
});
