import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, it, vi } from 'vitest';
import { svc } from '../cli/run.ts';
import { until } from '../redis/servers.ts';
import { send } from './gateway.ts';
import { refund, startWorld, type World } from './world.ts';

let world: World;
beforeAll(async () => {
  world = await startWorld();
});
afterAll(() => world.close());

/** What is spent and held of the budget of `bot`. */
async function standing(): Promise<object> {
  const { body } = await world.get('/budgets');
  const row = body.budgets.find(({ bucket }: { bucket: string }) => bucket.includes('"bot"'));
  return { spent: row?.spent ?? 0, held: row?.held ?? 0 };
}

it('a call says what it took, and how the budget stood before and after it, as it stood then', async () => {
  const id = async (amount: number): Promise<string> => (await world.run(refund({ amount }))).body.effect_id;
  const stood = [await standing()];
  const ids: string[] = [];
  for (const amount of [1_000, 2_000, 60_000]) {
    ids.push(await id(amount));
    stood.push(await standing());
  }
  for (const [n, effect] of ids.entries()) {
    const { status, body } = await world.get(`/effects/${effect}/budgets`);
    expect(status).toBe(200);
    expect(body.budgets).toMatchObject([
      {
        budget: 'world/agent-day',
        spent: [1_000, 2_000, 0][n],
        before: stood[n],
        after: stood[n + 1],
        now: { ...stood.at(-1), limit: 100_000 },
      },
    ]);
  }
  const denied = (await world.run(refund({ currency: 'CHF' }))).body.effect_id;
  expect((await world.get(`/effects/${denied}/budgets`)).body).toEqual({ hold_state: 'none', budgets: [] });
  expect((await world.get('/effects/eff_none/budgets')).status).toBe(404);

  const own = await send(world.gateway.url, world.keys.bot, 'GET', `/v1/workspaces/demo/effects/${ids[0]}/budgets`);
  expect([own.status, own.body.code]).toEqual([403, 'wrong_key_kind']);
  const show = async (key: string): Promise<string> => {
    vi.stubEnv('SVC_API_KEY', key);
    const ran = await svc('effects', 'show', ids[1] ?? '', '--workspace', 'demo', '--url', world.gateway.url);
    vi.unstubAllEnvs();
    expect(ran.code).toBe(0);
    return ran.out;
  };
  expect(await show(world.keys.account)).toMatch(
    /world\/agent-day +2000 +2000 +1000 \+ 0 +3000 \+ 0 +3000 \+ 60000 +100000 EUR-cent/,
  );
  expect(await show(world.keys.bot)).not.toContain('Budgets');
});

it('shows the limit that is in force, also before the next call', async () => {
  expect((await world.run(refund({ amount: 500 }))).body.decision).toBe('committed');
  const file = join(world.gateway.folder, 'policies', 'world.yaml');
  writeFileSync(file, readFileSync(file, 'utf8').replace('limit: 100000 }', 'limit: 250000 }'));
  const row = async () =>
    (await world.get('/budgets')).body.budgets.find(({ budget }: { budget: string }) => budget === 'world/agent-day');
  await until(async () => (await row()).limit === 250_000);
  const { limit, spent, held, remaining } = await row();
  expect(remaining).toBe(limit - spent - held);
});
