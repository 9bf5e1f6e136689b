import { afterEach, expect, it } from 'vitest';
import type { ApiApp } from '../../src/api/app.ts';
import { addHealth } from '../../src/api/control-plane.ts';
import { createServer } from '../../src/api/server.ts';
import type { StoreHealth } from '../../src/effects/store.ts';
import { createLogger } from '../../src/telemetry/logger.ts';
import { type Rig, startRig } from './rig.ts';

const READY: StoreHealth = { ready: true, problem: null, durability: 'fsync', epoch: 7 };

let rig: Rig | null = null;
let app: ApiApp | null = null;
afterEach(async () => {
  await app?.close();
  await rig?.close();
});

it('/readyz says all that keeps the gateway from its work, and what somebody should look at; /livez only that it lives', async () => {
  rig = await startRig();
  const { ports } = rig;
  let health: StoreHealth = READY;
  let impediments: { readonly part: string; readonly message: string }[] = [];
  let notes: { readonly part: string; readonly message: string; readonly since?: number }[] = [];
  app = createServer({
    logger: createLogger({ level: 'silent', sink: process.stdout }),
    settings: ports.settings,
    bodyLimit: 1_000,
    connections: 10,
  });
  const store: typeof ports.store = {
    ...ports.store,
    get installId() {
      return ports.store.installId;
    },
    health: () => health,
  };
  await addHealth(app, { ...ports, store, impediments: () => impediments, notes: () => notes });
  const served = app;
  const get = async (url: string) => {
    const { statusCode, headers, body } = await served.inject({ url, headers: { host: '127.0.0.1:8080' } });
    return { status: statusCode, headers, json: JSON.parse(body) };
  };
  expect(await get('/readyz')).toMatchObject({
    status: 200,
    json: { ready: true, store: { durability: 'fsync', epoch: 7 } },
  });
  expect((await get('/readyz')).json).not.toHaveProperty('notes');
  notes = [{ part: 'backup', message: 'There is none.' }];
  expect(await get('/readyz')).toMatchObject({ status: 200, json: { ready: true, notes } });
  notes = [{ part: 'pins', message: 'crm cannot be read.', since: Date.UTC(2026, 0, 2, 3) }];
  expect((await get('/readyz')).json).toMatchObject({ notes: [{ part: 'pins', since: '2026-01-02T03:00:00.000Z' }] });

  health = { ...READY, ready: false, problem: { code: 'store_sync_failed', message: 'The disk failed.' } };
  impediments = [{ part: 'gateway', message: 'It is shutting down.' }];
  const away = await get('/readyz');
  expect(away).toMatchObject({
    status: 503,
    headers: { 'retry-after': '1', 'x-should-retry': 'true' },
    json: {
      code: 'not_ready',
      detail: 'Not ready: store, gateway.',
      ready: false,
      parts: [
        { part: 'store', code: 'store_sync_failed', message: 'The disk failed.' },
        { part: 'gateway', message: 'It is shutting down.' },
      ],
    },
  });
  health = { ...READY, ready: false };
  expect((await get('/readyz')).json).toMatchObject({ parts: [{ part: 'store', code: 'store_unavailable' }, {}] });
  expect(await get('/livez')).toMatchObject({ status: 200, json: { status: 'ok' } });
  health = READY;
  expect(await get('/readyz')).toMatchObject({ status: 503, json: { detail: 'Not ready: gateway.' } });
  impediments = [];
  expect(await get('/readyz')).toMatchObject({ status: 200 });
});
