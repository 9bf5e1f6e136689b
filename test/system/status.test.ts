import { execFile } from 'node:child_process';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { promisify } from 'node:util';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { until } from '../redis/servers.ts';
import { send } from './gateway.ts';
import { freshKey, refund, startWorld, type World } from './world.ts';

/* `svc status`: what an operator is told at night, by the exit code too. */

const run = promisify(execFile);

let world: World;
const lost: string[] = [];
beforeAll(async () => {
  world = await startWorld();
});
afterAll(() => world.close());

async function status(key = world.keys.account, ...more: readonly string[]) {
  const env = { ...process.env, SVC_API_KEY: key, SVC_BASE_URL: world.gateway.url, SVC_WORKSPACE: 'demo' };
  try {
    const { stdout } = await run(process.execPath, ['bin/svc.mjs', 'status', ...more], { env });
    return { code: 0, out: stdout, err: '' };
  } catch (error) {
    const { code, stdout, stderr } = error as {
      readonly code: number;
      readonly stdout: string;
      readonly stderr: string;
    };
    return { code, out: stdout, err: stderr };
  }
}

it('is 0 and one line each where nothing waits for anybody', async () => {
  expect((await world.run(refund({ amount: 10 }))).body.decision).toBe('committed');
  expect(await status()).toEqual({
    code: 0,
    err: '',
    out: [
      'gateway    takes calls',
      'unknown    no outcome is unknown',
      'running    nothing runs',
      'approvals  nothing waits for a decision',
      'pauses     nothing is paused',
      'budgets    none is low',
      '',
    ].join('\n'),
  });
});

it('is 1, and names what is stuck, oldest first, with the command that goes on', async () => {
  for (const key of Array.from({ length: 7 }, freshKey)) {
    await world.upstream.mode({ mode: 'drop_after', times: 1 });
    const { body } = await world.run(refund({ amount: 20 }, key));
    expect(body.decision).toBe('unknown_effect');
    lost.push(body.effect_id);
  }
  const waits = (await world.run(refund({ amount: 60_000 }))).body;
  const pause = (await world.post('/pauses', { scope: { tool: 'notes.add' }, reason: 'incident 7' })).body;
  expect((await world.run(refund({ amount: 30_000 }))).body.decision).toBe('committed');
  await world.upstream.mode({ mode: 'held', times: 1 });
  const held = world.run({ tool: 'deploy.start', params: { service: 'web' }, idempotency_key: freshKey() });
  await until(async () => (await world.get('/effects?state=executing')).body.effects.length === 1);
  const { code, out } = await status();
  expect(code).toBe(1);
  expect(out).toMatch(/^unknown +7 calls with an outcome that is unknown, the oldest for 0 min$/m);
  expect(out.indexOf(lost[0] ?? '?')).toBeLessThan(out.indexOf(lost[1] ?? '?'));
  for (const part of [
    /svc effects resolve EFFECT/,
    /^running +1 call under way$/m,
    /deploy\.start/,
    /^approvals +1 request for a decision$/m,
    /^budgets +1 low or exhausted$/m,
  ])
    expect(out).toMatch(part);
  for (const part of [lost[0], waits.approval.id, pause.id, 'incident 7', 'svc resume PAUSE', 'world/agent-day'])
    expect(out).toContain(part);
  const { parts } = JSON.parse((await status(world.keys.readonly, '--json')).out);
  expect(parts.map(({ name, needs_somebody: needs }: Record<string, unknown>) => [name, needs])).toEqual([
    ['gateway', false],
    ['unknown', true],
    ['running', false],
    ['approvals', true],
    ['pauses', true],
    ['budgets', false],
  ]);
  // JSON has all of them, the list for people the oldest ones.
  expect(parts[1].rows).toHaveLength(7);
  expect(out).toContain('… and 2 more');
  await world.upstream.release();
  await held;
});

it('a budget that is used up, and a pause without an end, wait for somebody; what ends by itself does not', async () => {
  for (const id of lost) await world.post(`/effects/${id}/resolve`, { outcome: 'happened', comment: 'seen' });
  for (const { id } of (await world.get('/approvals?status=pending')).body.approvals)
    await world.post(`/approvals/${id}/reject`, {}, world.keys.approver);
  for (const { id } of (await world.get('/pauses')).body.pauses)
    await send(world.gateway.url, world.keys.account, 'DELETE', `/v1/workspaces/demo/pauses/${id}`);
  const parts = async () => JSON.parse((await status(world.keys.account, '--json')).out).parts;
  const until = new Date(Date.now() + 3_600_000).toISOString();
  await world.post('/pauses', { scope: { tool: 'notes.add' }, reason: 'an hour', until });
  expect((await parts()).filter((part: { needs_somebody: boolean }) => part.needs_somebody)).toEqual([]);
  await world.run(refund({ amount: 1 }));
  const left = (await world.get('/budgets')).body.budgets[0].remaining;
  for (let rest = left; rest > 0; rest -= 50_000) await world.run(refund({ amount: Math.min(rest, 50_000) }));
  expect(await status()).toMatchObject({ code: 1, out: expect.stringMatching(/exhausted/) });
});

it('says of what is no gateway that it is none', async () => {
  const other = createServer((_, response) => response.end('{"effects":{}}'));
  await new Promise<void>((resolve) => other.listen(0, '127.0.0.1', resolve));
  const { port } = other.address() as AddressInfo;
  const { code, err } = await status(world.keys.account, '--url', `http://127.0.0.1:${port}`);
  other.close();
  expect([code, err]).toEqual([2, expect.stringContaining('does not answer as a gateway does')]);
});

it('is 2 where it cannot be told: the key may not see it, or no gateway answers', async () => {
  const elsewhere = await status(world.keys.stranger);
  expect(elsewhere.code).toBe(2);
  expect(elsewhere.out).toMatch(/^unknown +cannot be told: /m);
  const nowhere = await status(world.keys.account, '--url', 'http://127.0.0.1:1');
  expect(nowhere).toMatchObject({ code: 2, out: '' });
  expect(nowhere.err).toContain('http://127.0.0.1:1');
});
