import { mkdtemp, readdir, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { runSuite } from '../mcp/official-suite.ts';
import { type McpWorld, startMcpWorld } from '../mcp/world.ts';

interface Check {
  readonly id: string;
  readonly status: 'SUCCESS' | 'FAILURE' | 'WARNING' | 'SKIPPED' | 'INFO';
  readonly errorMessage?: string;
  readonly details?: { readonly untestable?: boolean };
}

let world: McpWorld;
let folder: string;
beforeAll(async () => {
  world = await startMcpWorld();
  folder = await mkdtemp(join(tmpdir(), 'svc-conformance-'));
});
afterAll(async () => {
  await world.close();
  await rm(folder, { recursive: true, force: true });
});

/** Runs one scenario of the suite against `/v1/mcp`. The suite sends no headers of ours, so the key is in the query. */
async function checksOf(scenario: string, version: string): Promise<readonly Check[]> {
  const output = await mkdtemp(join(folder, `${version}-`));
  const url = `${world.url}/v1/mcp?api_key=${world.keys.readonly}`;
  await runSuite(url, output, ['--scenario', scenario, '--spec-version', version]);
  const files = await readdir(output, { recursive: true });
  const file = files.find((name) => name.endsWith('checks.json'));
  if (file === undefined) throw new Error(`${scenario}: the suite wrote nothing`);
  return JSON.parse(await readFile(join(output, file), 'utf8')) as Check[];
}

describe.each([
  ['2025-11-25', ['server-initialize', 'ping', 'tools-list', 'dns-rebinding-protection']],
  ['2026-07-28', ['server-stateless', 'tools-list', 'dns-rebinding-protection']],
])('%s', (version, scenarios) => {
  it.each(scenarios)('%s', async (scenario) => {
    const checks = await checksOf(scenario, version);
    expect(checks.filter(({ status }) => status === 'SUCCESS').length).toBeGreaterThan(0);
    // A check that needs a diagnostic tool of the suite's own server says itself that it could not be made.
    const failed = checks.filter(
      ({ status, details }) => (status === 'FAILURE' || status === 'WARNING') && details?.untestable !== true,
    );
    expect(failed.map(({ id, errorMessage }) => `${id}: ${errorMessage ?? ''}`)).toEqual([]);
  });
});
