import { execFile } from 'node:child_process';
import { createHash } from 'node:crypto';
import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { verifyReport } from '../../src/receipts/verify-report.ts';
import { makeApiKey, send } from './gateway.ts';
import { freshKey, refund, startWorld, type World, worldFiles } from './world.ts';

let world: World;
let trust = '';
beforeAll(async () => {
  world = await startWorld();
  trust = await (await fetch(`${world.gateway.url}/.well-known/jwks.json`)).text();
});
afterAll(() => world.close());

const disclosed = (id: string, key?: string) => world.get(`/effects/${id}/receipt?disclosure=1`, key);

/** The digest that a receipt commits to, of what really arrived. */
async function lastSent(): Promise<string> {
  const last = (await world.upstream.ledger()).requests.at(-1);
  return createHash('sha256').update(`${last?.method} ${last?.url}\n${last?.text}`).digest('base64url');
}

it('whoever may read the params opens the receipt: salts and values, down to the bytes that were sent', async () => {
  const call = refund({ amount: 7 });
  const { body: run } = await world.run(call);
  const sent = await lastSent();
  for (const key of [world.keys.bot, world.keys.account]) {
    const { status, body } = await disclosed(run.effect_id, key);
    expect(status).toBe(200);
    expect(body.receipt).toEqual(run.receipt);
    const { values } = body.disclosure;
    expect(values).toMatchObject({
      params: call['params'],
      idem: call['idempotency_key'],
      request: { sent_sha256: sent },
    });
    expect(Object.keys(values).sort()).toEqual(['idem', 'params', 'request', 'response', 'target']);
    const file = JSON.stringify(body);
    const report = verifyReport({ receipt: file, trust, disclosure: file });
    expect(report.exit, report.text).toBe(0);
    expect(report.text.match(/^ok +disclosure/gm)).toHaveLength(5);
    for (const field of Object.keys(values)) {
      const altered = { ...body.disclosure, values: { ...values, [field]: 'something else' } };
      expect(verifyReport({ receipt: file, trust, disclosure: JSON.stringify(altered) }).exit, field).toBe(1);
    }
  }
});

it('of a proxied call the bytes are those that came', async () => {
  const answer = await send(
    world.gateway.url,
    world.keys.bot,
    'POST',
    '/payments/v1/notes',
    { text: 'as it came' },
    { 'idempotency-key': freshKey() },
  );
  const { body } = await disclosed(answer.headers.get('svc-effect-id') ?? '');
  expect(body.disclosure.values.request.sent_sha256).toBe(await lastSent());
});

it('nobody else does', async () => {
  const { body: run } = await world.run(refund());
  expect((await disclosed(run.effect_id, world.keys.otherBot)).status).toBe(404);
  const reader = await makeApiKey(world.gateway, 'olga', { profile: 'mcp_operator', workspace: 'demo' });
  expect((await world.get(`/effects/${run.effect_id}/receipt`, reader)).status).toBe(200);
  const refused = await disclosed(run.effect_id, reader);
  expect([refused.status, refused.body.code]).toEqual([403, 'insufficient_scope']);
  const narrow = await makeApiKey(world.gateway, 'olga', {
    kind: 'agent',
    workspace: 'demo',
    agent_id: 'bot',
    allowed_tools: ['notes.add'],
  });
  expect((await disclosed(run.effect_id, narrow)).status).toBe(403);
});

it('what is erased cannot be opened any more, by nobody, and its receipt still verifies', async () => {
  const { body: run } = await world.run(refund({ amount: 11 }));
  const path = `/v1/workspaces/demo/effects/${run.effect_id}/params`;
  const erase = (key: string) => send(world.gateway.url, key, 'DELETE', path);
  expect((await erase(world.keys.bot)).body.code).toBe('wrong_key_kind');
  expect((await disclosed(run.effect_id)).status).toBe(200);
  expect(await erase(world.keys.account)).toMatchObject({ status: 200, body: { erased: true } });
  const gone = await disclosed(run.effect_id, world.keys.account);
  expect([gone.status, gone.body.code]).toEqual([410, 'disclosure_gone']);
  const receipt = await world.get(`/effects/${run.effect_id}/receipt`);
  expect(receipt.body).toEqual(run.receipt);
  expect(verifyReport({ receipt: JSON.stringify(receipt.body), trust, disclosure: null }).exit).toBe(0);
  expect(await world.kinds(run.effect_id)).toContain('effect.erased');
  expect((await world.get(`/effects/${run.effect_id}`)).body.effect).not.toHaveProperty('result');
});

it('single fields are disclosed: who gets the target or a comment learns nothing of the rest', async () => {
  const { body: waiting } = await world.run(refund({ amount: 50_001, reason: 'a canary' }));
  await world.post(`/approvals/${waiting.approval.id}/approve`, { comment: 'seen and approved' }, world.keys.approver);
  const of = (fields: string) =>
    world.get(`/effects/${waiting.effect_id}/receipt?disclosure=1&fields=${fields}`, world.keys.account);
  const { body } = await of('target,approval.0.comment');
  expect(Object.keys(body.disclosure.values)).toEqual(['target', 'approval.0.comment']);
  expect(Object.keys(body.disclosure.salts)).toEqual(['target', 'approval.0.comment']);
  const file = JSON.stringify(body);
  expect(file).not.toContain('a canary');
  const report = verifyReport({ receipt: file, trust, disclosure: file });
  expect(report.exit, report.text).toBe(0);
  expect(report.text.match(/^ok +disclosure/gm)).toHaveLength(2);
  expect((await of('evidence')).status).toBe(400);
  expect((await of('Target')).status).toBe(400);
  expect((await of('params')).body.disclosure.values.params).toMatchObject({ reason: 'a canary' });
});

describe('a receipt that commits to each param', () => {
  let each: World;
  beforeAll(async () => {
    each = await startWorld({
      files(url) {
        const { config, policies } = worldFiles(url);
        return { config: `${config}\nreceipts: { params: each }\n`, policies };
      },
    });
  });
  afterAll(() => each.close());

  it('opens one of them, offline, and shows nothing of the others', async () => {
    const { body: run } = await each.run(refund({ amount: 7, reason: 'a canary' }));
    const keys = await (await fetch(`${each.gateway.url}/.well-known/jwks.json`)).text();
    const keyFile = join(each.gateway.folder, 'key');
    await writeFile(keyFile, each.keys.account, { mode: 0o600 });
    const access = ['--url', each.gateway.url, '--workspace', 'demo', '--key-file', keyFile];
    const words = ['effects', 'disclose', String(run.effect_id), '--field', 'params.amount', ...access];
    const { stdout: file } = await promisify(execFile)(process.execPath, ['bin/svc.mjs', ...words]);
    expect(JSON.parse(file).disclosure.values).toEqual({ 'params.amount': 7 });
    expect(file).not.toContain('a canary');
    const report = verifyReport({ receipt: file, trust: keys, disclosure: file });
    expect(report.exit, report.text).toBe(0);
    expect(report.text).toContain('params.amount is what the receipt commits to: 7.');
    const of = (fields: string) =>
      each.get(`/effects/${run.effect_id}/receipt?disclosure=1${fields}`, each.keys.account);
    const none = await of('&fields=params.none');
    expect([none.status, none.body.code]).toEqual([400, 'invalid_request']);
    expect(none.body.detail).toMatch(/commits to no params\.none\. It commits to: .*\bamount\b/);
    const whole = JSON.stringify((await of('')).body);
    expect(verifyReport({ receipt: whole, trust: keys, disclosure: whole }).exit).toBe(0);
  });

  it('where receipts commit to params together, one of them is refused with what to do', async () => {
    const { body: run } = await world.run(refund());
    const refused = await world.get(`/effects/${run.effect_id}/receipt?disclosure=1&fields=params.amount`);
    expect(refused).toMatchObject({ status: 400, body: { detail: expect.stringContaining('receipts.params: each') } });
  });
});
