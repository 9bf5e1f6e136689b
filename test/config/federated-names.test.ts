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

test('a target and a key are named by parts of the arguments of a pinned tool, or that is an error at load', async () => {
  const said = async (settings: string): Promise<readonly string[]> => {
    const pins = join(folder, 'orders.json');
    const order = {
      type: 'object',
      required: ['id'],
      properties: { id: { type: 'string' }, note: { type: 'string' } },
    };
    const inputSchema = { type: 'object', required: ['order'], properties: { order }, additionalProperties: false };
    writeFileSync(pins, lockOf('orders', [{ name: 'place', inputSchema }]));
    const file = join(folder, 'gateway.yaml');
    const mcp = `{ url: "http://127.0.0.1:1/mcp", pins: "${pins}", tools: [ { name: place, ${settings} } ] }`;
    writeFileSync(file, `users: []\nupstreams:\n  - { id: orders, mcp: ${mcp} }\n`);
    const { findings: found } = await checkConfiguration(file);
    return found
      .filter(({ code }) => /param|target/.test(code))
      .map(({ at, severity, code, message, hint }) => `${at?.line} ${severity} ${code} ${message} (${hint})`);
  };
  expect(await said('target: "order:{order.id}", key_from: order.id')).toEqual([]);
  expect(await said('target: "order:{order.di}"')).toEqual([
    "3 error unknown_param There is no param 'order.di' (did you mean 'order.id'?)",
  ]);
  expect(await said('key_from: order_id')).toEqual([
    "3 error unknown_param There is no param 'order_id' (known: order)",
  ]);
  expect(await said('target: "order:{order.note}"')).toEqual([
    expect.stringContaining("3 warning target_param_optional The target needs the param 'order.note'"),
  ]);
});
