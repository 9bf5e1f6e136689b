import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { inspectStore } from '../../src/gateway/offline.ts';

it('a store is looked at also where the variables of the rest of its configuration are not set', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'svc-offline-'));
  try {
    const configFile = join(folder, 'gateway.yaml');
    const credentials = '{ header: Authorization, value: "Bearer ${SVC_TEST_NEVER_SET}" }';
    const upstream = `{ id: shop, url: "http://127.0.0.1:1", credentials: ${credentials} }`;
    writeFileSync(configFile, `store: { kind: embedded, path: "${folder}/store" }\nupstreams: [ ${upstream} ]\n`);
    expect(await inspectStore({ configFile, environment: {} })).toMatchObject({ state: 'absent', problem: null });
  } finally {
    rmSync(folder, { recursive: true });
  }
});
