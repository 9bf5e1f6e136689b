import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { checkConfiguration } from '../../src/config/load.ts';
import { lockOf } from '../system/mcp/lenient-server.ts';

let folder = '';
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'svc-federated-'));
});
afterAll(() => rmSync(folder, { recursive: true }));

/** What is said of a configuration whose servers have these tools. */
async function findings(servers: Readonly<Record<string, readonly string[]>>): Promise<readonly string[]> {
  const upstreams = Object.entries(servers).map(([id, names]) => {
    const pins = join(folder, `${id}.json`);
    writeFileSync(
      pins,
      lockOf(
        id,
        names.map((name) => ({ name, inputSchema: { type: 'object' } })),
      ),
    );
    return `  - { id: ${id}, mcp: { url: "http://127.0.0.1:1/mcp", pins: "${pins}" } }\n`;
  });
  const file = join(folder, 'gateway.yaml');
  writeFileSync(file, `users: []\nupstreams:\n${upstreams.join('')}`);
  const report = await checkConfiguration(file);
  return report.findings.map(({ severity, code, message }) => `${severity} ${code} ${message}`);
}

test('two tools that would have one name at /mcp are an error', async () => {
  expect(await findings({ a: ['b__c'], a__b: ['c'] })).toContainEqual(
    expect.stringMatching(/^error duplicate_tool At \/mcp both 'a\.b__c' and 'a__b\.c' would be a__b__c/),
  );
  expect((await findings({ a: ['b__c'], a__b: ['d'] })).join('\n')).not.toContain('/mcp');
});

test('a tool whose name clients would not take is named: it stays at the door to its server', async () => {
  for (const [name, isNamed] of [
    ['b/c', true],
    ['x'.repeat(62), true],
    ['x'.repeat(61), false],
  ] as const) {
    const said = (await findings({ a: [name] })).filter((one) => one.includes('/mcp/a'));
    expect(said, name).toEqual(isNamed ? [expect.stringContaining(`warning tool_name The pinned tool '${name}'`)] : []);
  }
});
