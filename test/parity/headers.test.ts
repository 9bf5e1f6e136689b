import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { freshKey, startWorld, type World, worldFiles } from '../system/world.ts';
import { send } from '../system/gateway.ts';

let world: World;
beforeAll(async () => {
  world = await startWorld({
    files: (url) => {
      const { config, policies } = worldFiles(url);
      return {
        config: config
          .replace('timeout: 10s }', 'timeout: 10s, headers: { volatile: [x-try], set: { x-by: "{agent_id}" } } }')
          .replace('prefix: /payments', 'prefix: /payments\n    headers: { drop: [x-internal-*] }'),
        policies: {
          'world.yaml': String(policies['world.yaml']).concat(
            '  - { id: account, effect: deny, match: { tools: [payments.refund] }, when: { all: [ { request.headers.Stripe-Account: { exists: true } }, { request.headers.stripe-account: acct_closed } ] }, reason: "Closed" }\n',
          ),
        },
      };
    },
  });
});
afterAll(() => world.close());

const refund = { amount: 3, currency: 'EUR' };

function proxied(key: string, headers: Record<string, string>, body: object = refund, payment = 'pay_h') {
  return send(world.gateway.url, world.keys.bot, 'POST', `/payments/v1/payments/${payment}/refunds`, body, {
    'idempotency-key': key,
    ...headers,
  });
}

async function lastRequest(): Promise<Record<string, string>> {
  const { requests } = await world.upstream.ledger();
  return (requests.at(-1)?.headers ?? {}) as Record<string, string>;
}

describe('headers', () => {
  it('a retry with another Stripe-Account is a conflict, with another volatile header a duplicate', async () => {
    const key = freshKey();
    const first = await proxied(key, { 'stripe-account': 'acct_1', 'x-try': '1', 'user-agent': 'a' });
    expect(first.headers.get('svc-decision')).toBe('committed');
    expect(await lastRequest()).toMatchObject({
      'stripe-account': 'acct_1',
      'x-try': '1',
      'user-agent': 'a',
      'x-by': 'bot',
    });
    const again = await proxied(key, { 'stripe-account': 'acct_1', 'x-try': '2', 'user-agent': 'b' });
    expect(again.body.decision).toBe('duplicate_blocked');
    const other = await proxied(key, { 'stripe-account': 'acct_2', 'x-try': '1' });
    expect([other.status, other.body.decision]).toEqual([409, 'idempotency_conflict']);
    const none = await proxied(key, {});
    expect(none.body.decision).toBe('idempotency_conflict');
  });

  it('the same header through the effects API is the same action, and is sent alike', async () => {
    const key = freshKey();
    const params = { payment_id: 'pay_h', ...refund };
    const run = await world.run({
      tool: 'payments.refund',
      params,
      headers: { 'Stripe-Account': 'acct_1' },
      idempotency_key: key,
    });
    expect(run.body.decision).toBe('committed');
    expect((await lastRequest())['stripe-account']).toBe('acct_1');
    expect((await proxied(key, { 'stripe-account': 'acct_1' })).body.decision).toBe('duplicate_blocked');
    expect((await proxied(key, { 'stripe-account': 'acct_2' })).body.decision).toBe('idempotency_conflict');
    for (const [name, value] of [
      ['X-API-Key', 'k'],
      ['Content-Type', 'text/plain'],
      ['X-Forwarded-For', '1.1.1.1'],
      ['a_b', 'x'],
      ['x-line', 'a\nb'],
    ] as const) {
      const refused = await world.run({
        tool: 'payments.refund',
        params,
        headers: { [name]: value },
        idempotency_key: freshKey(),
      });
      expect([refused.status, refused.body.errors?.[0]?.path], name).toEqual([
        400,
        expect.stringMatching(new RegExp(`^/headers/${name}$`, 'i')),
      ]);
    }
  });

  it('policy sees it, and an approved call is sent with it', async () => {
    const denied = await proxied(freshKey(), { 'stripe-account': 'acct_closed' });
    expect(denied.body).toMatchObject({ decision: 'denied_policy', reason: { rule: 'world/account' } });
    const large = await proxied(
      freshKey(),
      { 'stripe-account': 'acct_7' },
      { amount: 60_000, currency: 'EUR' },
      'pay_l',
    );
    expect(large.body.decision).toBe('pending_approval');
    const approvals = `/approvals/${large.body.approval.id}`;
    const shown = await world.get(approvals, world.keys.approver);
    expect(shown.body).toMatchObject({ headers: { 'stripe-account': 'acct_7' } });
    const voted = await world.post(`${approvals}/approve`, {}, world.keys.approver);
    expect(voted.status).toBe(200);
    await expect
      .poll(async () => (await world.upstream.ledger()).requests.at(-1)?.path)
      .toBe('/v1/payments/pay_l/refunds');
    expect(await lastRequest()).toMatchObject({ 'stripe-account': 'acct_7', 'x-by': 'bot' });
  });

  it('what a rule drops stays here, and what has two readings is refused', async () => {
    const dropped = await proxied(freshKey(), { 'x-internal-note': 'n', 'x-open': 'o' });
    expect(dropped.headers.get('svc-decision')).toBe('committed');
    const seen = await lastRequest();
    expect([seen['x-internal-note'], seen['x-open']]).toEqual([undefined, 'o']);
    const refused = await proxied(freshKey(), { stripe_account: 'acct_1' });
    expect([refused.status, refused.body.errors[0].path]).toEqual([400, '/headers/stripe_account']);
  });

  it('the receipt covers it', async () => {
    const key = freshKey();
    const first = await proxied(key, { 'stripe-account': 'acct_1' }, { amount: 4, currency: 'EUR' });
    const id = String(first.headers.get('svc-effect-id'));
    const { body } = await world.get(`/effects/${id}/receipt?disclosure=1`, world.keys.account);
    expect(body.disclosure.values.request.headers).toEqual({ 'stripe-account': 'acct_1' });
  });
});
