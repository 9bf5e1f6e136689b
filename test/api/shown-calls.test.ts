import { afterAll, beforeAll, expect, it } from 'vitest';
import type { Scope } from '../../src/effects/model/principal.ts';
import { readCalls } from '../../src/effects/wire/calls.ts';
import { approvalFor, effectFor, withheldBecause } from '../../src/effects/wire/withheld.ts';
import { refund, type Rig, startRig } from './rig.ts';

const WS = '/v1/workspaces/demo';

let rig: Rig;
beforeAll(async () => {
  rig = await startRig();
});
afterAll(() => rig.close());

const params = { payment_id: 'pay/1', amount: 60_000, currency: 'EUR', reason: 'canary-of-the-reason' };

async function waiting(more: Record<string, unknown> = {}) {
  const run = await rig.send('POST', `${WS}/effects`, {
    body: refund({ params: { ...params, payment_id: 'pay_1', ...more } }),
  });
  if (run.json['decision'] !== 'pending_approval') throw new Error(run.text);
  const { id } = run.json['approval'] as unknown as { id: string };
  return { id, effect: String(run.json['effect_id']) };
}

const SHOWN = { payment_id: 'pay_1', amount: 60_000, currency: 'EUR', reason: '(redacted)' };

it('approvers see what they approve: what is sent where, every param, cost, whose it is, and why they are asked', async () => {
  const { id } = await waiting();
  const { json, text } = await rig.send('GET', `${WS}/approvals/${id}`, { key: rig.keys.approver });
  expect(json).toMatchObject({
    tool: 'payments.refund',
    target: 'payment:pay_1',
    summary: 'Refund 60000',
    action: {
      title: 'Refund',
      kind: 'write',
      upstream: 'payments',
      method: 'POST',
      path: '/v1/payments/pay_1/refunds',
      target: 'payment:pay_1',
    },
    params: SHOWN,
    costs: [{ budget: 'rig/team-day', unit: 'EUR-cent', amount: 60_000, limit: 1_000_000 }],
    requested_by: { agent_id: 'bot', agent_owner: 'olga' },
    why: [{ rule: 'rig/refund-large', description: 'Large refunds are looked at', unknown: [] }],
  });
  expect(text).not.toContain('canary');
  const list = await rig.send('GET', `${WS}/approvals?status=pending&limit=200`, { key: rig.keys.approver });
  const found = list.json['approvals'] as unknown as { id: string }[];
  expect(found.find((one) => one.id === id)).toMatchObject({ params: SHOWN, action: { method: 'POST' } });
  expect(list.text).not.toContain('canary');
});

it('of a long text one request and one effect show 20,000 characters and how many more there are, a list 2,000', async () => {
  const text = 'p'.repeat(20_003);
  const { id, effect } = await waiting({ currency: text });
  const cut = (length: number): string => `${'p'.repeat(length)}… (${20_003 - length} more characters)`;
  const shown = async (path: string): Promise<unknown> =>
    (await rig.send('GET', `${WS}${path}`, { key: rig.keys.approver })).json;
  const long = { params: { currency: cut(20_000) } };
  expect(await shown(`/approvals/${id}`)).toMatchObject(long);
  expect(await shown(`/effects/${effect}`)).toMatchObject({ effect: long });
  expect(await shown('/effects?params=true&limit=1')).toMatchObject({
    effects: [{ params: { currency: cut(2_000) } }],
  });
});

it.each<[Scope, boolean]>([
  ['params:read', true],
  ['effects:preview', true],
  ['effects:run', true],
  ['approvals:decide', true],
  ['approvals:read', false],
  ['traces:read', false],
  ['ledger:read', false],
])('whether a profile with the scope %s reads what calls carry: %s', (scope, reads) => {
  const principal = {
    kind: 'profile',
    keyId: 'key_000000000000',
    user: 'maria',
    madeBy: null,
    keyCreatedAt: 0,
    readOnly: false,
    allowedTools: null,
    profile: 'some',
    workspace: 'demo',
    agentId: null,
    scopes: [scope],
  } as const;
  expect(withheldBecause(principal, 'payments.refund')).toBe(
    reads ? null : 'the key does not have the scope params:read',
  );
  expect(withheldBecause({ ...principal, allowedTools: ['mail.send'] }, 'payments.refund')).toBe(
    'the key may not call the tool',
  );
});

const AUDITOR = {
  kind: 'profile',
  keyId: 'key_000000000000',
  user: 'maria',
  madeBy: null,
  keyCreatedAt: 0,
  readOnly: true,
  allowedTools: null,
  profile: 'auditor',
  workspace: 'demo',
  agentId: null,
  scopes: ['traces:read', 'approvals:read', 'ledger:read'],
} as const;

it('who does not read what calls carry is given no answer, also where the upstream said no', async () => {
  const { effect } = await waiting();
  const record = await rig.ports.store.effect('demo', effect);
  if (record === null) throw new Error('the effect is there');
  const answered = { kind: 'http', status: 402 } as const;
  const evidence = { code: 'http_status', message: 'seen', answered, startedAt: 1, endedAt: 2 };
  const body = { kind: 'json', value: { card: 'canary' } } as const;
  const result = { ...answered, headers: {}, body, truncated: false } as const;
  const ended = { at: 1, settledBy: { by: 'owner' }, evidence, result } as const;
  const more = { receipt: { id: 'rcp_1', jws: 'a.b.c' }, accepted: false, responseTruncated: false };
  for (const life of [
    { state: 'failed', ...ended },
    { state: 'committed', ...ended, ...more },
  ] as const) {
    expect(effectFor(AUDITOR, { ...record, life }).life).toEqual({ ...life, result: null });
    expect(effectFor({ ...AUDITOR, scopes: ['params:read'] }, { ...record, life }).life).toEqual(life);
  }
});

it('who does not read what calls carry is told which rule stops an approved call, not what it made of the params', async () => {
  const { id } = await waiting();
  const record = await rig.ports.store.approval('demo', id);
  if (record === null) throw new Error('the request is there');
  const reason = { code: 'rule_denied', message: 'No refund to canary', rule: 'rig/no' } as const;
  const stopped = { at: 1, decision: 'denied_policy', reason } as const;
  expect(approvalFor(AUDITOR, { ...record, stopped }).stopped).toEqual({
    ...stopped,
    reason: { ...reason, message: 'The rule rig/no refuses this call.' },
  });
  expect(approvalFor({ ...AUDITOR, scopes: ['params:read'] }, { ...record, stopped }).stopped).toEqual(stopped);
});

it('the agent sees its own, without the figures of budgets; a key that may not call the tool sees no params', async () => {
  const { id, effect } = await waiting();
  const own = await rig.send('GET', `${WS}/approvals/${id}`, { key: rig.keys.agent });
  expect(own.json).toMatchObject({ params: SHOWN });
  expect(own.json['costs']).toEqual([{ budget: 'rig/team-day', unit: 'EUR-cent', amount: 60_000 }]);
  expect((await rig.send('GET', `${WS}/approvals/${id}`, { key: rig.keys.otherAgent })).status).toBe(404);
  for (const path of [`approvals/${id}`, `effects/${effect}`]) {
    const limited = await rig.send('GET', `${WS}/${path}`, { key: rig.keys.restricted });
    expect([limited.status, limited.text.includes('params_omitted')]).toEqual([200, true]);
    expect(limited.text).not.toContain('EUR"');
  }
});

it('effects show their params one by one, and in lists that ask for them', async () => {
  const { effect } = await waiting();
  const one = await rig.send('GET', `${WS}/effects/${effect}`);
  expect(one.json['effect']).toMatchObject({ params: SHOWN });
  expect((await rig.send('GET', `${WS}/effects`)).text).not.toContain('"params"');
  const asked = await rig.send('GET', `${WS}/effects?params=true&limit=1`);
  expect(asked.json['effects']).toMatchObject([{ effect_id: effect, params: SHOWN }]);
  expect((await rig.send('GET', `${WS}/effects?params=no`)).status).toBe(400);
});

it('a list opens a bounded part of what is sealed', async () => {
  for (let n = 0; n < 4; n += 1) await waiting({ reason: 'x'.repeat(180_000) });
  const list = await rig.send('GET', `${WS}/approvals?status=pending&limit=4`);
  const shown = (list.json['approvals'] as unknown as { params?: unknown; params_omitted?: string }[]).map(
    (one) => one.params_omitted ?? 'shown',
  );
  expect(shown[0]).toBe('shown');
  expect(shown.at(-1)).toMatch(/too many/);
});

it('a param that is redacted does not stand in the path either', async () => {
  const { effect } = await waiting();
  const record = await rig.ports.store.effect('demo', effect);
  if (record === null) throw new Error('the effect is there');
  const { set } = rig.ports.policies();
  const policies = () => ({
    set: { ...set, redacted: () => new Set(['payment_id']) },
    mode: 'enforce' as const,
    filesVersion: null,
  });
  const principal = await rig.ports.authenticate(rig.keys.approver);
  if ('failure' in principal) throw new Error('the key is good');
  const shown = readCalls({ ...rig.ports, policies }, principal, 'one');
  expect(shown.action(record)).toMatchObject({ path: '/v1/payments/{payment_id}/refunds' });
  expect(shown.params(record)).toMatchObject({ params: { payment_id: '(redacted)' } });
});

it('who decides is shown the headers that are part of the call, what the agent had asked, and that the tool has changed', async () => {
  const { effect } = await waiting();
  const record = await rig.ports.store.effect('demo', effect);
  const principal = await rig.ports.authenticate(rig.keys.approver);
  if (record === null || 'failure' in principal) throw new Error('the effect is there, and the key is good');
  const headers = { sent: { 'x-account': 'acme' }, bound: { 'x-account': 'acme' } };
  const opened = { params: { payment_id: 'a/b', amount: 5 }, asked: { payment_id: 'a/b', amount: 9 }, headers };
  const shown = readCalls({ ...rig.ports, openParams: () => opened }, principal, 'one');
  expect(shown.params(record)).toEqual({
    params: opened.params,
    asked_params: opened.asked,
    headers: { 'x-account': 'acme' },
  });
  expect(shown.action(record)).toMatchObject({ path: '/v1/payments/a%2Fb/refunds' });
  expect(shown.action(record)).not.toHaveProperty('tool_changed');
  const since = { ...record, action: { ...record.action, toolDigest: 'of before' } };
  expect(shown.action(since)).toMatchObject({ tool_changed: true });
});
