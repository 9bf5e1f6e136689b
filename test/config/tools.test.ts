import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { loadConfiguration } from '../../src/config/load.ts';
import { type HttpTool, isHttpTool } from '../../src/effects/model/tool.ts';

let folder = '';
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), 'svc-tools-'));
});
afterAll(() => rmSync(folder, { recursive: true }));

/** A write that says this beside its request. */
async function loaded(more: string, file = ''): Promise<HttpTool> {
  const path = join(folder, 'gateway.yaml');
  const tool = `{ name: a.post, upstream: a, kind: write, ${more.includes('request:') ? '' : 'request: { method: POST, path: /x, body: "*" }, '}${more} }`;
  writeFileSync(path, `upstreams: [{ id: a, url: "http://127.0.0.1:1" }]\ntools: [${tool}]\n${file}`);
  const { configuration } = await loadConfiguration(path);
  const [found] = configuration.tools.filter(isHttpTool);
  if (found === undefined) throw new Error('there is no tool');
  return found;
}

test('an answer is read whole, unless it is said to stream: then it may take ten minutes, or as long and as much as is said', async () => {
  expect((await loaded('risk: low')).streams).toBeUndefined();
  expect((await loaded('response: stream')).streams).toMatchObject({ totalMs: 600_000 });
  const said = await loaded('response: stream, stream_time: 1m', 'limits: { stream: 1MiB }\n');
  expect(said.streams).toEqual({ totalMs: 60_000, bytes: 1024 * 1024 });
});

test.each([
  ['one path', 'usage.total_tokens', [['usage.total_tokens']]],
  ['paths that are added up', '[usage.input, usage.output]', [['usage.input'], ['usage.output']]],
  [
    'alternatives, of which one counts',
    '[[usage.input, message.usage.input], usage.output]',
    [['usage.input', 'message.usage.input'], ['usage.output']],
  ],
])('what was spent stands at %s', async (_what, paths, read) => {
  expect((await loaded(`actual: { token: ${paths} }`)).actual).toEqual({ token: read });
});

test('an upstream removes duplicates for as long as the tool says, by the header that it names', async () => {
  expect((await loaded('risk: low')).idempotent).toEqual({ kind: 'none' });
  const { idempotent } = await loaded('idempotent: { header: X-Request-Key, for: 2h }');
  expect(idempotent).toEqual({ kind: 'header', header: 'x-request-key', forMs: 7_200_000 });
});

test('the first entry of outcomes.body that fits decides', async () => {
  const entries = ['NOT_FOUND', 'FORBIDDEN'].map(
    (equals) => `{ path: errors.0.type, equals: ${equals}, outcome: failed }`,
  );
  const { call } = await loaded(
    `outcomes: { body: [${entries.join(', ')}, { path: data, equals: null, outcome: unknown }] }`,
  );
  expect(call.outcomes.body.map(({ equals }) => equals)).toEqual(['NOT_FOUND', 'FORBIDDEN', null]);
});

test('a param that is sent as a header is called like it, or as the map says', async () => {
  const request = (headers: string) => loaded(`request: { method: POST, path: /x, headers: ${headers} }`);
  expect((await request('[x_tenant]')).call.request.headers).toEqual({ x_tenant: 'x-tenant' });
  expect((await request('{ tenant: X-Shop-Tenant }')).call.request.headers).toEqual({ tenant: 'x-shop-tenant' });
});
