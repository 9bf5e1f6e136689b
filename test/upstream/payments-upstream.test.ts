import { afterEach, beforeEach, expect, test } from 'vitest';
import { type PaymentsUpstream, startPaymentsUpstream } from '../../packages/demo/src/payments-upstream.ts';

let api: PaymentsUpstream;
beforeEach(async () => {
  api = await startPaymentsUpstream({ port: 0 });
});
afterEach(async () => {
  await api.close();
});

async function call(method: string, path: string, body?: unknown, key?: string): Promise<[number, unknown]> {
  const answer = await fetch(`${api.url}${path}`, {
    method,
    ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    headers: key === undefined ? {} : { 'idempotency-key': key },
  });
  return [answer.status, await answer.json()];
}

test('refunds, never more than was paid, and once per key', async () => {
  const refund = { amount: 200_000, currency: 'EUR', reason: 'late' };
  const [status, first] = await call('POST', '/v1/payments/pay_1/refunds', refund, 'k1');
  expect([status, first]).toMatchObject([201, { payment_id: 'pay_1', amount: 200_000, status: 'succeeded' }]);
  expect(await call('POST', '/v1/payments/pay_1/refunds', refund, 'k1')).toEqual([201, first]);
  expect(await call('GET', '/v1/payments/pay_1')).toMatchObject([
    200,
    { refunded: 200_000, status: 'partly_refunded' },
  ]);
  expect(await call('GET', '/v1/refunds/by-key/k1')).toEqual([200, first]);
  expect((await call('POST', '/v1/payments/pay_1/refunds', refund, 'k2'))[0]).toBe(422);
  expect((await call('POST', '/v1/payments/pay_1/refunds', { ...refund, amount: -1 }))[0]).toBe(400);
  expect((await call('POST', '/v1/payments/pay_1/refunds', { amount: 1, currency: 'USD' }))[0]).toBe(422);
  expect((await call('POST', '/v1/payments/nobody/refunds', refund))[0]).toBe(404);
});

test('payments, mails, deployments', async () => {
  const [, payment] = await call('POST', '/v1/payments', { amount: 5, currency: 'EUR', customer: 'cus' });
  expect(await call('GET', `/v1/payments/${(payment as { id: string }).id}`)).toEqual([200, payment]);
  const [mailStatus, mail] = await call('POST', '/v1/mails', { to: 'a@b.c', subject: 's', text: 't' });
  expect(mailStatus).toBe(202);
  expect(await call('GET', `/v1/mails/${(mail as { id: string }).id}`)).toEqual([200, mail]);
  expect((await call('POST', '/v1/deployments', { service: 'web', version: '1' }))[0]).toBe(201);
  expect((await call('POST', '/v1/deployments', { service: 'web' }))[0]).toBe(400);
  expect((await call('POST', '/v1/mails'))[0]).toBe(400);
  expect((await call('GET', '/v1/nothing'))[0]).toBe(404);
  expect((await call('DELETE', '/v1/payments/pay_1'))[0]).toBe(405);
});

test('an answer is lost on request, the effect is not', async () => {
  api.loseNextAnswer();
  const refund = { amount: 1, currency: 'EUR' };
  await expect(call('POST', '/v1/payments/pay_2/refunds', refund)).rejects.toThrow();
  expect(await call('GET', '/v1/payments/pay_2')).toMatchObject([200, { refunded: 1 }]);
  expect((await call('POST', '/v1/payments/pay_2/refunds', refund))[0]).toBe(201);
});

test('listens where it is wanted, and elsewhere where that port is taken', async () => {
  const port = Number(new URL(api.url).port);
  const beside = await startPaymentsUpstream({ port });
  expect(beside.url).not.toBe(api.url);
  await beside.close();
  await api.close();
  const { url } = api;
  api = await startPaymentsUpstream({ port });
  expect(api.url).toBe(url);
});
