import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { loadConfiguration } from '../../src/config/load.ts';
import { pinnedCall } from '../../src/effects/model/tool.ts';
import { lockOf } from '../system/mcp/lenient-server.ts';

let folder = '';
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'svc-mcp-upstreams-'));
  const inputSchema = { type: 'object', properties: { id: { type: 'string' } } };
  writeFileSync(
    join(folder, 'pins.json'),
    lockOf('srv', [
      { name: 'again', inputSchema, annotations: { idempotentHint: true } },
      { name: 'change', inputSchema },
      { name: 'look', inputSchema, annotations: { readOnlyHint: true } },
    ]),
  );
});
afterAll(() => rmSync(folder, { recursive: true }));

/** The pinned tools of a server by name, with what `mcp` says of it and of them. */
async function toolsOf(
  mcp: string,
  tools = '',
  environment: Readonly<Record<string, string>> = {},
  server = 'url: "http://127.0.0.1:1/mcp"',
) {
  const file = join(folder, 'gateway.yaml');
  writeFileSync(
    file,
    `upstreams:\n  - id: srv\n    timeout: 7s\n    mcp: { ${server}, pins: "${folder}/pins.json", ${mcp} tools: [${tools}] }\n`,
  );
  const { configuration } = await loadConfiguration(file, { environment });
  return Object.fromEntries(
    configuration.tools.map((tool) => [tool.name.replace('srv.', ''), { ...tool, call: pinnedCall(tool) }]),
  );
}

describe('what a server says of its tools', () => {
  const seen = async (mcp: string, tools?: string) => {
    const { again, change, look } = await toolsOf(mcp, tools);
    return [again, change, look].map((tool) => `${tool?.kind} ${Number(tool?.call?.repeatMs) / 1000}`);
  };
  const MINUTES = 'write 120';

  it('counts only where it is trusted: a read by its hint, and no window for what may be repeated', async () => {
    expect(await seen('')).toEqual([MINUTES, MINUTES, MINUTES]);
    expect(await seen('trust_annotations: true,')).toEqual(['write 0', MINUTES, 'read 0']);
  });

  it('counts less than what the configuration says', async () => {
    expect(await seen('trust_annotations: true,', '{ name: look, kind: write }, { name: change, kind: read }')).toEqual(
      ['write 0', 'read 0', MINUTES],
    );
    const windows = '{ name: again, repeat_window: 5s }, { name: change, repeat_window: 0s }';
    expect(await seen('trust_annotations: true,', windows)).toEqual(['write 5', 'write 0', 'read 0']);
  });
});

it('a tool has the time of its upstream, a minute behind it, and an outcome that nobody knows, where nothing is said', async () => {
  const stated = '{ name: change, timeout: 2s, max_processing: 5s, is_error: failed, on_client_close: abort }';
  const { again, change } = await toolsOf('', stated);
  expect(again).toMatchObject({
    timeoutMs: 7000,
    maxProcessingMs: 60_000,
    call: { isError: 'unknown', onClientClose: 'finish' },
  });
  expect(change).toMatchObject({
    timeoutMs: 2000,
    maxProcessingMs: 5000,
    call: { isError: 'failed', onClientClose: 'abort' },
  });
});

it('a tool is what the configuration says of it: tags, risk, target, and the argument that is its key', async () => {
  const { again, change } = await toolsOf(
    '',
    '{ name: change, tags: [money], risk: high, target: "thing:{id}", key_from: id }',
  );
  expect(change).toMatchObject({ tags: ['money'], risk: 'high', target: 'thing:{id}', call: { keyFrom: ['id'] } });
  expect(again).toMatchObject({ tags: [], risk: null, target: null });
  expect(again?.call).not.toHaveProperty('keyFrom');
});

it('members of _meta are those of the server and, beside them, those of the tool', async () => {
  const { again, change } = await toolsOf('meta: [tenant],', '{ name: change, meta: [region, tenant] }');
  expect([again?.call?.meta, change?.call?.meta]).toEqual([['tenant'], ['tenant', 'region']]);
  expect(change?.paramsSchema).toMatchObject({
    properties: { id: {}, _meta: { properties: { tenant: {}, region: {} }, additionalProperties: false } },
  });
  expect((await toolsOf('')).again?.call).not.toHaveProperty('meta');
});

it('a program with other variables is another one to repeat a call at, and with other values of them the same', async () => {
  const digest = async (env: string, value: string) => {
    const { change } = await toolsOf(`env: [${env}],`, '', { TOKEN: value, OTHER: 'o' }, 'command: [server, --stdio]');
    return change?.digest;
  };
  const one = await digest('TOKEN', 'a');
  expect(await digest('TOKEN', 'b')).toBe(one);
  expect(await digest('TOKEN, OTHER', 'a')).not.toBe(one);
});
