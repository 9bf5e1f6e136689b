import { mkdir, mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { readLiveServer } from '../../../src/cli/mcp/live-server.ts';
import { isJsonObject, type Json } from '../../../src/json/value.ts';
import { runSuite } from '../../mcp/official-suite.ts';
import { makeApiKey, startGateway, type TestGateway } from '../gateway.ts';
import { startEverythingServer } from './everything-server.ts';
import { lockOf } from './lenient-server.ts';

/*
 * The official conformance suite, against a server on the official SDK: what passes directly has to pass through the
 * gateway, with a key, pins, policy and receipts.
 */

const config = (url: string, pins: string): string => `
server: { host: 127.0.0.1, port: 0 }
store: { kind: embedded, path: "\${SVC_TEST_DATA}" }
users: [ { id: olga, roles: [] } ]
workspaces: [ { id: demo, agents: [ { id: bot, team: support, owner: olga } ] } ]
policies: { paths: ["\${SVC_TEST_POLICIES}"] }
upstreams: [ { id: all, mcp: { url: "${url}", pins: "${pins}" } } ]
`;
const POLICY = `
apiVersion: svc-gateway/v1
kind: PolicySet
name: all
owner: team
rules:
  - { id: all, effect: allow, match: { upstreams: [all] } }
  - { id: never, effect: deny, match: { tools: [all.test_forbidden] }, reason: "Never" }
`;

/** The gateway takes a stream that broke up again by itself, so the client gets its answer on the first one. */
const TAKEN_UP = ['server-server-sse-polling "server-sse-disconnect-resume"'];

let folder: string;
let server: Awaited<ReturnType<typeof startEverythingServer>>;
let gateway: TestGateway;
let key: string;
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'svc-conformance-'));
  server = await startEverythingServer();
  const pins = join(folder, 'all.lock.json');
  const { tools } = await readLiveServer({ url: new URL(server.url), headers: {} });
  await writeFile(pins, lockOf('all', tools.filter(isJsonObject)));
  gateway = await startGateway({ config: config(server.url, pins), policies: { 'all.yaml': POLICY } });
  key = await makeApiKey(gateway, 'olga', { kind: 'agent', workspace: 'demo', agent_id: 'bot' });
});
afterAll(async () => {
  await gateway.dispose();
  server.close();
  await rm(folder, { recursive: true });
});

test('what passes directly passes through the gateway', async () => {
  const [direct, through] = await Promise.all([
    checksOf('direct', server.url),
    checksOf('through', `${gateway.url}/mcp/all?api_key=${key}`),
  ]);
  expect(direct.length).toBeGreaterThan(60);
  expect(direct.filter((check) => !through.includes(check))).toEqual(TAKEN_UP);
});

/** The checks that pass, each with its scenario. */
async function checksOf(name: string, url: string): Promise<readonly string[]> {
  const out = join(folder, name);
  await mkdir(out);
  await runSuite(url, out, ['--requirements', '2025-11-25']);
  const passed: string[] = [];
  for (const scenario of await readdir(out)) {
    const checks: Json = JSON.parse(await readFile(join(out, scenario, 'checks.json'), 'utf8'));
    for (const check of Array.isArray(checks) ? checks : [])
      if (isJsonObject(check) && check['status'] === 'SUCCESS')
        passed.push(`${scenario.replace(/-\d{4}-.*$/, '')} ${JSON.stringify(check['id'])}`);
  }
  return [...new Set(passed)];
}
