import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { begin } from './run.ts';

const folder = mkdtempSync(join(tmpdir(), 'svc-start-'));
const config = join(folder, 'gateway.yaml');
const data = join(folder, 'data');

beforeAll(() => {
  writeFileSync(
    join(folder, 'policy.yaml'),
    'apiVersion: svc-gateway/v1\nkind: PolicySet\nname: p\nrules: [ { id: all, effect: allow } ]\n',
  );
  writeFileSync(
    config,
    [
      `store: { path: ${JSON.stringify(data)} }`,
      'server: { port: 0 }',
      'workspaces: [ { id: w } ]',
      `policies: { paths: [${JSON.stringify(join(folder, 'policy.yaml'))}] }`,
      'upstreams: [ { id: api, url: "http://127.0.0.1:1" } ]',
    ].join('\n'),
  );
});
afterAll(() => rmSync(folder, { recursive: true, force: true }));

async function start(): Promise<{ readonly line: string; stop(): Promise<string> }> {
  const gateway = begin('start', '--config', config, '--port', '0');
  return {
    line: await gateway.line(/"url"/),
    stop: async () => {
      gateway.stop();
      const { code, out } = await gateway.ended;
      expect(code).toBe(0);
      return out;
    },
  };
}

test('a store that was set back is not called ready, until somebody accepts the loss', async () => {
  const first = await start();
  expect(JSON.parse(first.line)).toMatchObject({ event: 'ready' });
  await first.stop();

  rmSync(join(data, 'store.db'));
  const setBack = await start();
  const said: { readonly url: string } = JSON.parse(setBack.line);
  expect(said).toMatchObject({ event: 'listening', problem: { code: 'store_rolled_back' } });
  expect((await fetch(`${said.url}/readyz`)).status).toBe(503);
  expect(await setBack.stop()).not.toContain('"ready"');

  rmSync(join(data, 'install.json'));
  const again = await start();
  expect(JSON.parse(again.line)).toMatchObject({ event: 'ready' });
  await again.stop();
});
