import { join } from 'node:path';
import { afterAll, beforeAll, expect, it, vi } from 'vitest';
import { freshKey, refund, startWorld, type World } from './world.ts';

/** For what has to come, and how soon is not the question. */
const PATIENT = { timeout: 30_000, interval: 20 } as const;

let world: World;
beforeAll(async () => {
  world = await startWorld({ entry: join(process.cwd(), 'test', 'system', 'failpoint-gateway.mjs') });
});
afterAll(() => world.close());

/** What was logged of an alert, once it has come through the pipe. */
async function alertOf(effectId: string): Promise<Record<string, unknown>> {
  return vi.waitFor(() => {
    const line = world.gateway
      .log()
      .split('\n')
      .find((text) => text.includes('"alert"') && text.includes(effectId));
    if (line === undefined) throw new Error('no alert has been logged');
    return JSON.parse(line) as Record<string, unknown>;
  }, PATIENT);
}

async function alerts(what: string): Promise<number> {
  const text = await (await fetch(`${world.gateway.url}/metrics`)).text();
  return Number(new RegExp(`^svc_alerts_total\\{what="${what}"\\} (\\d+)$`, 'm').exec(text)?.[1] ?? 0);
}

it.each([
  ['throw_after_send', 'attempt_fault', 'unknown_effect', 'in the middle of an attempt'],
  ['settle_throws', 'settlement_spilled', 'committed', 'a fault of the store'],
  ['settle_and_spill_throw', 'settlement_lost', 'unknown_effect', 'a fault of the journal'],
])('a fault of ours (%s) is logged with its cause, and counted', async (failpoint, what, decision, cause) => {
  const { body } = await world.run(refund({ reason: `failpoint:${failpoint}` }, freshKey()));
  expect(body).toMatchObject({ decision, ...(what === 'attempt_fault' ? {} : { settlement: 'pending' }) });
  const logged = await alertOf(body.effect_id);
  expect(logged).toMatchObject({ level: 'error', alert: what, effect_id: body.effect_id });
  expect(JSON.stringify(logged['err'])).toContain(cause);
  expect(world.gateway.log()).not.toContain('canary-4711');
  expect(await alerts(what)).toBe(1);
});
