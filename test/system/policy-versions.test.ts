import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, it, vi } from 'vitest';
import { svc } from '../cli/run.ts';
import { type Answer, makeApiKey, send } from './gateway.ts';
import { startWorld, type World } from './world.ts';

const MORE = `
apiVersion: svc-gateway/v1
kind: PolicySet
name: more
owner: team-test
rules: [ { id: no-secrets, effect: deny, match: { tools: [notes.secret] } } ]
`;

let world: World;
let auditor = '';
let first = '';
let second = '';
let text = '';

const admin = (method: string, path: string, body?: unknown): Promise<Answer> =>
  send(world.gateway.url, world.gateway.administrativeKey, method, `/v1/beta/policies${path}`, body);
const history = async () => (await admin('GET', '/activations')).body;

beforeAll(async () => {
  world = await startWorld();
  auditor = await makeApiKey(world.gateway, 'olga', { profile: 'auditor', workspace: 'demo' });
  first = (await history()).in_force;
  const file = join(world.gateway.policyFolder, 'world.yaml');
  text = await readFile(file, 'utf8');
  await writeFile(file, text.replace('Only EUR and USD', 'Only euros and dollars'));
  await vi.waitFor(async () => expect((await history()).in_force).not.toBe(first), 30_000);
  second = (await history()).in_force;
});
afterAll(() => world.close());

it('a change by files names the files that changed', async () => {
  const { activations } = await history();
  expect(activations[0]).toMatchObject({
    version: second,
    how: 'files',
    files: [expect.stringMatching(/world\.yaml$/)],
  });
});

it('what an earlier version said is read back, by an auditor too, and was held against its version', async () => {
  for (const key of [world.gateway.administrativeKey, auditor]) {
    const { body } = await send(world.gateway.url, key, 'GET', `/v1/beta/policies/versions/${first}`);
    expect(body).toMatchObject({ version: first, proven: true });
    expect(body.files.map((file: { text: string }) => file.text)).toEqual([text]);
  }
  const { body } = await admin('GET', `/versions/${second}`);
  expect(body.files[0].text).toContain('Only euros and dollars');
  expect((await admin('GET', `/versions/${'A'.repeat(43)}`)).body.code).toBe('not_found');
  const denied = await send(world.gateway.url, world.keys.account, 'GET', `/v1/beta/policies/versions/${first}`);
  expect(denied.body.code).toBe('wrong_key_kind');
});

it('who puts policies in force says why, and history and ledger say it again', async () => {
  expect((await admin('POST', '/rollback', { comment: 'the new one stops refunds' })).body).toEqual({ version: first });
  const { activations } = await history();
  expect(activations[0]).toMatchObject({ version: first, how: 'rollback', why: 'the new one stops refunds' });
  const { body } = await send(
    world.gateway.url,
    world.gateway.administrativeKey,
    'GET',
    '/v1/beta/ledger?kind=policy.rolled_back',
  );
  expect(body.events[0].data).toMatchObject({ before: second, version: first, why: 'the new one stops refunds' });
});

it('svc policy show prints the files, and history who and why', async () => {
  vi.stubEnv('SVC_API_KEY', auditor);
  const shown = await svc('policy', 'show', first, '--url', world.gateway.url);
  const told = await svc('policy', 'history', '--url', world.gateway.url);
  vi.unstubAllEnvs();
  expect(shown.err).toBe('');
  expect(shown.out).toContain('world.yaml');
  expect(shown.out).toContain('reason: "Only EUR and USD"');
  expect(told.out).toMatch(/rollback .*the new one stops refunds/);
  expect(told.out).toMatch(/files .*world\.yaml/);
});

it('a start names the files that changed while nothing ran, and no other', async () => {
  const { policyFolder } = world.gateway;
  await writeFile(join(policyFolder, 'more.yaml'), MORE);
  await vi.waitFor(
    async () => expect((await history()).activations[0].files).toEqual([expect.stringMatching(/more/)]),
    30_000,
  );
  await world.gateway.stop();
  const file = join(policyFolder, 'world.yaml');
  await writeFile(file, (await readFile(file, 'utf8')).replace('Only euros and dollars', 'Euros or dollars'));
  await world.gateway.restart();
  const { activations } = await history();
  expect(activations[0]).toMatchObject({ how: 'files', files: [expect.stringMatching(/world\.yaml$/)] });
});
