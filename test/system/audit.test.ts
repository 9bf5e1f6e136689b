import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, it, vi } from 'vitest';
import { type Ran, svc } from '../cli/run.ts';
import { send } from './gateway.ts';
import { refund, startWorld, type World } from './world.ts';

const PAGE = new URL('../../docs/operating/audit.md', import.meta.url);

let world: World;
let folder = '';
/** What the words in capitals and the files of the page stand for here. */
let meant: readonly (readonly [RegExp, string])[] = [];
let commands: readonly string[] = [];

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'svc-audit-'));
  world = await startWorld();
  await world.run(refund());
  const { body } = await world.run(refund({ amount: 50_001 }));
  await world.post(`/approvals/${body.approval.id}/approve`, { comment: 'seen' }, world.keys.approver);
  const { url } = world.gateway;
  await writeFile(join(folder, 'keys.json'), await (await fetch(`${url}/.well-known/jwks.json`)).text());
  await world.post('/pauses', { scope: { tool: 'nothing.here' }, reason: 'a look at it' });
  const policies = await send(url, world.gateway.administrativeKey, 'GET', '/v1/beta/policies/activations');
  const version: string = policies.body.in_force;
  const year = new Date().getUTCFullYear();
  meant = [
    [/gateway\.yaml/g, world.gateway.configFile],
    [/\bpolicies\/$/g, world.gateway.policyFolder],
    [/\bEFFECT\b/g, body.effect_id],
    [/\bVERSION\b/g, version],
    [/\b(june[\w-]*\.\w+|keys\.json|disclosed\.json)/g, `${folder}/$1`],
    // All that happens here happens in this year.
    [/2026-06-01T00:00:00Z/g, `${year}-01-01T00:00:00Z`],
    [/2026-07-01T00:00:00Z/g, `${year + 1}-01-01T00:00:00Z`],
  ];
  const blocks = (await readFile(PAGE, 'utf8')).matchAll(/```sh\n([^]*?)```/g);
  commands = [...blocks].flatMap(([, block = '']) => block.trim().split('\n'));
  vi.stubEnv('SVC_BASE_URL', url);
  vi.stubEnv('SVC_WORKSPACE', 'demo');
  vi.stubEnv('SVC_TEST_DATA', world.gateway.dataFolder);
  vi.stubEnv('SVC_TEST_POLICIES', world.gateway.policyFolder);
});
afterAll(async () => {
  vi.unstubAllEnvs();
  await world.close();
  await rm(folder, { recursive: true });
});

/** Runs one line of the page as a shell would: a file may take its output. */
async function run(line: string, key: string): Promise<Ran> {
  vi.stubEnv('SVC_API_KEY', key);
  const [command = '', into] = meant.reduce((text, [word, means]) => text.replace(word, means), line).split(' > ');
  const ran = await svc(...command.split(' ').slice(1));
  if (into !== undefined) await writeFile(into, ran.out);
  return ran;
}

it('each command of the page does what the page says, the auditor’s with a key that only reads', async () => {
  const [create = '', ...others] = commands;
  expect(others.length).toBeGreaterThan(12);
  const made = await run(`${create} --json`, world.gateway.administrativeKey);
  expect(made.code, made.err).toBe(0);
  const { key }: { readonly key: string } = JSON.parse(made.out);
  for (const command of others) {
    // Params are disclosed by who may read them, and not by the auditor.
    const ran = await run(command, command.includes('effects disclose') ? world.keys.account : key);
    expect([command, ran.code, ran.err]).toEqual([command, 0, '']);
    expect(ran.out, command).not.toMatch(/^No (?:effects|events)\./m);
    if (command.startsWith('svc verify')) expect(ran.out).toMatch(/^VALID$/m);
  }
});
