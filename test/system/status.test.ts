import { execFile } from 'node:child_process';
import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { until } from '../redis/servers.ts';
import { send, type TestFiles } from './gateway.ts';
import { freshKey, refund, startWorld, type World, worldFiles } from './world.ts';

/* `svc status`: what an operator is told at night, by the exit code too. */

const run = promisify(execFile);

let world: World;
const lost: string[] = [];
beforeAll(async () => {
  world = await startWorld({ files: (url) => withRule(withRule(worldFiles(url), BRIEF), ASKED) });
});
afterAll(() => world.close());

/** A request that nobody can decide on in time. */
const BRIEF =
  '{ id: brief, effect: require_approval, match: { tools: [notes.secret] }, approval: { approvers: { users: [maria] }, quorum: 1, expires: 1s, summary: "Tell it" } }';

/** A call that waits for an hour. */
const ASKED =
  '{ id: asked, effect: require_approval, match: { tools: [payments.charge] }, when: { params.amount: { eq: 7 } }, approval: { approvers: { users: [maria] }, quorum: 1, expires: 1h, summary: "Charge it" } }';

function withRule({ config, policies }: TestFiles, rule: string): TestFiles {
  return { config, policies: { ...policies, 'world.yaml': `${policies['world.yaml']}  - ${rule}\n` } };
}

/** The world with one more upstream, of which a tool and a read are declared. */
function filesOfGone(url: string): (upstreamUrl: string) => TestFiles {
  return (upstreamUrl) => {
    const { config, policies } = worldFiles(upstreamUrl);
    const tool = (name: string, kind: string, method: string): string =>
      `  - { name: ${name}, title: Thing, upstream: gone, kind: ${kind}, request: { method: ${method}, path: /v1/things }, params_schema: { type: object } }`;
    const more = config
      .replace('timeout: 10s }', `timeout: 10s }, { id: gone, url: "${url}" }`)
      .replace('\nroutes:', `\n${tool('gone.add', 'write', 'POST')}\n${tool('gone.list', 'read', 'GET')}\nroutes:`)
      .replace(
        '\npools:',
        '\n  - { upstream: gone, prefix: /gone, rules: [ { match: "GET /v1/things", tool: gone.list } ] }\npools:',
      );
    return withRule({ config: more, policies }, '{ id: gone, effect: allow, match: { tools: ["gone.*"] } }');
  };
}

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
      'approved   every approved call was sent',
      'expired    no request ended without a decision in the last 24 h',
      'pauses     nothing is paused',
      'budgets    none is low',
      'refused    no call for a budget in the last 15 minutes',
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
  const note = { tool: 'notes.add', params: { text: 'x' }, idempotency_key: freshKey() };
  expect((await world.run(note)).body.decision).toBe('denied_paused');
  expect((await world.run(refund({ amount: 30_000 }))).body.decision).toBe('committed');
  await world.upstream.mode({ mode: 'held', times: 1 });
  const held = world.run({ tool: 'deploy.start', params: { service: 'web' }, idempotency_key: freshKey() });
  await until(async () => (await world.get('/effects?state=executing')).body.effects.length === 1);
  const { code, out } = await status();
  expect(code).toBe(1);
  expect(out).toMatch(/^unknown +7 calls with an outcome that is unknown, the oldest for 0 min$/m);
  expect(out.indexOf(lost[0] ?? '?')).toBeLessThan(out.indexOf(lost[1] ?? '?'));
  for (const part of [
    new RegExp(`^  ${lost[0]} payments\\.refund on payment:\\S+, upstream payments, key \\S+$`, 'm'),
    /^ +sent at 2\S+Z: .+; it may arrive until 2\S+Z$/m,
    /svc effects resolve EFFECT --outcome happened --comment/,
    new RegExp(`svc approvals show ${waits.approval.id}, then`),
    /^running +1 call under way$/m,
    /deploy\.start/,
    /^approvals +1 request for a decision$/m,
    /^pauses +1 in force, 1 until somebody lifts it; 1 call refused for a pause in the last 15 minutes$/m,
    /^budgets +1 low or exhausted$/m,
    /set aside for calls that run, wait for people or are unknown/,
  ])
    expect(out).toMatch(part);
  for (const part of [lost[0], waits.approval.id, pause.id, 'incident 7', `svc resume ${pause.id}`, 'world/agent-day'])
    expect(out).toContain(part);
  const { parts } = JSON.parse((await status(world.keys.readonly, '--json')).out);
  expect(parts.map(({ name, needs_somebody: needs }: Record<string, unknown>) => [name, needs])).toEqual([
    ['gateway', false],
    ['unknown', true],
    ['running', false],
    ['approvals', true],
    ['approved', false],
    ['expired', false],
    ['pauses', true],
    ['budgets', false],
    ['refused', false],
  ]);
  // JSON has all of them, the list for people the oldest ones.
  expect(parts[1].rows).toHaveLength(7);
  expect(parts[1].rows[0]).toMatchObject({
    effect: lost[0],
    tool: 'payments.refund',
    may_arrive_until: expect.any(String),
  });
  expect(parts[3].rows).toMatchObject([{ approval: waits.approval.id, by: 'bot', may_decide: ['role finance-lead'] }]);
  expect(parts[6].rows).toMatchObject([{ pause: pause.id, scope: { tool: 'notes.add' }, until: null }]);
  expect(parts[7].rows).toMatchObject([{ budget: 'world/agent-day', left: 9850, of: 100_000, unit: 'EUR-cent' }]);
  // People read money, and whose it is; scripts get the numbers.
  expect(out).toMatch(/world\/agent-day +low +€98\.50 +€[\d,.]+ +€1,000\.00 .*\["bot"\]/);
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

it('a call that was refused for a budget stands there, with why', async () => {
  const answer = async () => (await world.run(refund({ amount: 50_000 }))).body;
  let refused = await answer();
  while (refused.decision === 'committed') refused = await answer();
  expect(refused.decision).toBe('denied_budget');
  const part = JSON.parse((await status(world.keys.account, '--json')).out).parts.at(-1);
  expect(part).toMatchObject({
    name: 'refused',
    needs_somebody: true,
    next: expect.stringContaining('svc effects show'),
  });
  expect(part.rows).toMatchObject([{ effect: refused.effect_id, agent: 'bot', why: refused.reason.message }]);
});

it('a request that nobody decided on is not gone without a word', async () => {
  const asked = (await world.run({ tool: 'notes.secret', params: { text: 'x' }, idempotency_key: freshKey() })).body;
  const expired = async () => (await world.get('/approvals?status=expired')).body.approvals;
  await until(async () => (await expired()).length === 1);
  const { out } = await status();
  expect(out).toMatch(/^expired +1 request ended without a decision in the last 24 h$/m);
  const [, , , pending, , gone] = JSON.parse((await status(world.keys.account, '--json')).out).parts;
  expect(pending.text).toBe('nothing waits for a decision');
  expect(gone).toMatchObject({ needs_somebody: false, rows: [{ approval: asked.approval.id, what: 'Tell it' }] });
});

it('what people approved is none that nobody decided on: stopped by a pause it stands there until it is sent, asked anew it is gone', async () => {
  const waits = async () =>
    (await world.run({ tool: 'payments.charge', params: { amount: 7 }, idempotency_key: freshKey() })).body;
  const approve = (id: string) => world.post(`/approvals/${id}/approve`, {}, world.keys.approver);
  const renewed = await waits();
  const version = async () => (await world.get('/policies')).body.version;
  const before = await version();
  const file = join(world.gateway.policyFolder, 'world.yaml');
  await writeFile(file, (await readFile(file, 'utf8')).replace('"Charge it"', '"Take it"'));
  await until(async () => (await version()) !== before);
  expect((await approve(renewed.approval.id)).body.became.what).toBe('asked_anew');
  const stopped = await waits();
  const pause = (await world.post('/pauses', { scope: { tool: 'payments.charge' }, reason: 'incident 8' })).body;
  expect((await approve(stopped.approval.id)).body.became.what).toBe('stopped');
  const { out } = await status();
  expect(out).toMatch(/^approved +1 call approved, and stopped before anything was sent$/m);
  expect(out).toMatch(/svc resume PAUSE lifts the pause that it names/);
  expect(out).toMatch(/^pauses +.*, and 1 approved that waits? for its end$/m);
  const { parts } = JSON.parse((await status(world.keys.account, '--json')).out);
  const [, , , , approved, expired] = parts;
  expect(approved).toMatchObject({
    needs_somebody: true,
    rows: [{ approval: stopped.approval.id, why: expect.stringContaining(`incident 8 (${pause.id})`) }],
  });
  expect(JSON.stringify(expired)).not.toContain(renewed.approval.id);
  await send(world.gateway.url, world.keys.account, 'DELETE', `/v1/workspaces/demo/pauses/${pause.id}`);
  await until(async () => (await world.get(`/effects/${stopped.effect_id}`)).body.effect.state !== 'pending_approval');
});

it('an upstream that is gone stands there since its first silent call, until it answers', async () => {
  const answering = createServer((_, response) => response.end('{}'));
  answering.listen(0, '127.0.0.1');
  await once(answering, 'listening');
  const { port } = answering.address() as AddressInfo;
  answering.close();
  const ofGone = await startWorld({ files: filesOfGone(`http://127.0.0.1:${port}`) });
  const call = () => ofGone.run({ tool: 'gone.add', params: {}, idempotency_key: freshKey() });
  const read = () =>
    fetch(`${ofGone.gateway.url}/gone/v1/things`, { headers: { authorization: `Bearer ${ofGone.keys.bot}` } });
  const told = (...more: string[]) => status(ofGone.keys.account, '--url', ofGone.gateway.url, ...more);
  try {
    const before = new Date().toISOString();
    expect((await call()).body.reason.code).toBe('connect_failed');
    const after = new Date().toISOString();
    expect((await read()).status).toBe(502);
    expect(await told()).toMatchObject({ code: 0 });
    expect((await call()).body.decision).toBe('failed');
    expect(await told()).toMatchObject({ code: 1, out: expect.stringContaining('svc doctor') });
    const [gateway] = JSON.parse((await told('--json')).out).parts;
    expect(gateway).toMatchObject({ needs_somebody: true, rows: [{ part: 'upstream' }] });
    const { message, since } = gateway.rows[0];
    expect(message).toMatch(/^The last 3 calls of gone had no answer \(connect_failed\)/);
    expect([before <= since, since <= after]).toEqual([true, true]);
    answering.listen(port, '127.0.0.1');
    await once(answering, 'listening');
    expect((await read()).status).toBe(200);
    expect(await told()).toMatchObject({ code: 0 });
  } finally {
    answering.close();
    await ofGone.close();
  }
});

it('says of what is no gateway that it is none', async () => {
  const other = createServer((_, response) => response.end('{"effects":{}}'));
  await new Promise<void>((resolve) => other.listen(0, '127.0.0.1', resolve));
  const { port } = other.address() as AddressInfo;
  const { code, err } = await status(world.keys.account, '--url', `http://127.0.0.1:${port}`);
  other.close();
  expect([code, err]).toEqual([2, expect.stringContaining('does not answer as a gateway does')]);
  expect(err).toContain('svc doctor gateway.yaml says why');
});

it('is 2 where it cannot be told: the key may not see it, or no gateway answers', async () => {
  const elsewhere = await status(world.keys.stranger);
  expect(elsewhere.code).toBe(2);
  expect(elsewhere.out).toMatch(
    /^key +cannot be told of unknown, .*workspace.*\n  Name the workspace .* SVC_WORKSPACE/m,
  );
  expect(elsewhere.out).not.toContain('svc doctor');
  const nowhere = await status(world.keys.account, '--url', 'http://127.0.0.1:1');
  expect(nowhere).toMatchObject({ code: 2, out: '' });
  expect(nowhere.err).toMatch(/http:\/\/127\.0\.0\.1:1 .*\(.*\)\. On the machine of the gateway, svc doctor/);
});
