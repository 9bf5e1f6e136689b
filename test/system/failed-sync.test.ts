import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { until } from '../redis/servers.ts';
import { compileRecorder } from '../torture/power/record.ts';
import type { TestGateway } from './gateway.ts';
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
  // What the gateway writes by itself may be what is synced first. Then the call after it was not written at all.
  let gateway: TestGateway | null = world.gateway;
  for (let round = 0; gateway !== null; round += 1) {
    expect(round).toBeLessThan(10);
    gateway = await failSync(world, gateway, failing);
  }
});

/**
 * A call is sent after one that succeeded and beside one that runs, and from then on a sync fails.
 * @param failing the file that makes the next sync fail
 * @returns the gateway that was started after it; `null` if it was this call's admission that was not synced
 */
async function failSync(
  { run, upstream, get }: World,
  gateway: TestGateway,
  failing: string,
): Promise<TestGateway | null> {
  const [before, underWay, after] = [freshKey(), freshKey(), freshKey()];
  const { effects: atFirst } = await upstream.counts();
  expect((await run(refund({}, before))).body).toMatchObject({ decision: 'committed' });
  await upstream.mode({ mode: 'held', times: 1 });
  const answer = run(refund({}, underWay)).catch(() => null);
  await until(async () => (await upstream.counts()).effects === atFirst + 2);
  writeFileSync(failing, '');
  const refused = await run(refund({}, after)).catch(() => null);
  expect((await upstream.counts()).effects).toBe(atFirst + 2);
  await upstream.release();
  const answered = await answer;
  rmSync(failing);
  const successor = await gateway.restart();
  // The process had ended by itself before the call came.
  if (refused === null) return successor;
  expect(refused.status).toBe(503);
  expect(answered?.body).toMatchObject({ decision: 'committed', did_it_happen: 'yes' });
  // What it wrote may be read after its end.
  await until(() => gateway.log().includes('store_sync_failed'));
  const isWritten = (await get('/effects')).body.effects.length === atFirst + 3;
  for (const key of [before, underWay]) {
    const again = await run(refund({}, key));
    expect(again.body).toMatchObject({ decision: 'duplicate_blocked' });
  }
  // If its admission was written, it is not known to be on the disk: nothing says any more that it was not sent.
  expect((await run(refund({}, after))).body).toMatchObject({ decision: isWritten ? 'unknown_effect' : 'committed' });
  expect((await upstream.counts()).effects).toBe(atFirst + (isWritten ? 2 : 3));
  return isWritten ? null : successor;
}
