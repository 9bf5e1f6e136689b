import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { until } from '../redis/servers.ts';
import { compileRecorder } from '../torture/power/record.ts';
import { freshKey, refund, startWorld, type World } from './world.ts';

let folder = '';
let world: World | null = null;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'svc-failed-sync-'));
});
afterEach(async () => {
  await world?.close();
  world = null;
  rmSync(folder, { recursive: true });
});

it('after a failed sync the process ends with true answers, the next start is ready, and nothing runs twice', async () => {
  const failing = join(folder, 'failing');
  world = await startWorld({
    env: {
      LD_PRELOAD: compileRecorder(folder),
      // The folder of the gateway, which it is given when it starts.
      SVC_POWER_ROOT: join(tmpdir(), 'svc-gw-'),
      SVC_POWER_LOG: join(folder, 'log'),
      SVC_POWER_FAIL: '1:-wal',
      SVC_POWER_FAIL_WHEN: failing,
    },
  });
  const { run, upstream, gateway, get } = world;
  const [before, underWay, after] = [freshKey(), freshKey(), freshKey()];
  expect((await run(refund({}, before))).body).toMatchObject({ decision: 'committed' });
  await upstream.mode({ mode: 'held', times: 1 });
  const answer = run(refund({}, underWay));
  await until(async () => (await upstream.counts()).effects === 2);
  writeFileSync(failing, '');
  const refused = await run(refund({}, after));
  expect(refused.status).toBe(503);
  const { effects } = await upstream.counts();
  await upstream.release();
  expect((await answer).body).toMatchObject({ decision: 'committed', did_it_happen: 'yes' });
  expect(effects).toBe(2);
  rmSync(failing);
  await gateway.restart();
  // What it wrote may be read after its end.
  await until(() => gateway.log().includes('store_sync_failed'));
  for (const key of [before, underWay]) {
    const again = await run(refund({}, key));
    expect(again.body).toMatchObject({ decision: 'duplicate_blocked' });
  }
  // Its admission was written and not known to be on the disk: nothing says any more that it was not sent.
  expect((await run(refund({}, after))).body).toMatchObject({ decision: 'unknown_effect' });
  expect((await upstream.counts()).effects).toBe(2);
  expect((await get('/effects')).body.effects).toHaveLength(3);
});
