import { readFileSync } from 'node:fs';
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
    // One that is not answered at all is as wrong as any.
    signal: AbortSignal.timeout(4_000),
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
  // A refusal is no answer to keep: the same key may be used for what is right. All that is left can be refunded.
  expect((await call('POST', '/v1/payments/pay_1/refunds', { ...refund, amount: 50_000 }, 'k2'))[0]).toBe(201);
  expect(await call('GET', '/v1/payments/pay_1')).toMatchObject([200, { refunded: 250_000, status: 'refunded' }]);
  expect((await call('POST', '/v1/payments/pay_1/refunds', { ...refund, amount: -1 }))[0]).toBe(400);
  expect((await call('POST', '/v1/payments/pay_2/refunds', { amount: 1, currency: 'USD' }))[0]).toBe(422);
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
  const tooLong = { to: 'a@b.c', subject: 's'.repeat(64 * 1024) };
  expect((await call('POST', '/v1/mails', tooLong))[0]).toBe(400);
  for (const amount of [0, 1.5, '5', 2 ** 53])
    expect((await call('POST', '/v1/payments', { amount, currency: 'EUR', customer: 'cus' }))[0]).toBe(400);
  const [, deployment] = await call('POST', '/v1/deployments', { service: 'web', version: '2' });
  const { id } = deployment as { id: string };
  expect(await call('GET', `/v1/deployments/${id}?expand=all`)).toEqual([200, deployment]);
  expect((await call('GET', '/v1/nothing'))[0]).toBe(404);
  expect((await call('DELETE', '/v1/payments/pay_1'))[0]).toBe(405);
});

test('a path that is none is at nothing, and ends nothing', async () => {
  expect((await call('GET', '/v1/payments/%zz'))[0]).toBe(404);
  expect((await call('GET', '/v1/refunds/by-key/%'))[0]).toBe(404);
  expect((await call('POST', '/v1/payments/%ff/refunds', { amount: 1, currency: 'EUR' }))[0]).toBe(404);
  // Keys of callers are any text.
  const [, refund] = await call('POST', '/v1/payments/pay_1/refunds', { amount: 1, currency: 'EUR' }, 'a/b %');
  expect(await call('GET', `/v1/refunds/by-key/${encodeURIComponent('a/b %')}`)).toEqual([200, refund]);
});

test('an answer is lost on request, the effect is not', async () => {
  api.loseNextAnswer();
  const refund = { amount: 1, currency: 'EUR' };
  // Neither a read nor what is refused changes anything: their answers come.
  expect((await call('GET', '/v1/payments/pay_2'))[0]).toBe(200);
  expect((await call('POST', '/v1/payments/pay_2/refunds', { ...refund, amount: 0 }))[0]).toBe(400);
  await expect(call('POST', '/v1/payments/pay_2/refunds', refund)).rejects.toThrow();
  expect(await call('GET', '/v1/payments/pay_2')).toMatchObject([200, { refunded: 1 }]);
  expect((await call('POST', '/v1/payments/pay_2/refunds', refund))[0]).toBe(201);
  // By hand, with no program around it.
  const byHand = { ...refund, reason: 'lose the answer' };
  await expect(call('POST', '/v1/payments/pay_2/refunds', byHand)).rejects.toThrow();
  expect(await call('GET', '/v1/payments/pay_2')).toMatchObject([200, { refunded: 3 }]);
});

test('is for this machine alone', async () => {
  // Another address of the same interface: whoever listens on all has it as well.
  await expect(fetch(api.url.replace('127.0.0.1', '127.0.0.2'))).rejects.toThrow();
});

test('the desk closes tickets, and tells how often it mailed about one', async () => {
  const use = async (name: string, ticket: string): Promise<unknown> => {
    const params = { name, arguments: { ticket_id: ticket } };
    const [, answer] = await call('POST', '/mcp', { jsonrpc: '2.0', id: 1, method: 'tools/call', params });
    return answer;
  };
  const says = (text: string) => ({ jsonrpc: '2.0', id: 1, result: { content: [{ type: 'text', text }] } });
  expect(await use('find_ticket', 'T-1')).toEqual(says('T-1 is open; mails sent: 0'));
  for (const _ of [1, 2])
    expect(await use('close_ticket', 'T-1')).toEqual(says('T-1 is closed, and its customer has a mail'));
  expect(await use('find_ticket', 'T-1')).toEqual(says('T-1 is closed; mails sent: 2'));
  expect(await use('find_ticket', 'T-2')).toEqual(says('T-2 is open; mails sent: 0'));
  expect(await use('delete_ticket', 'T-1')).toEqual(says('T-1 is gone'));
  expect(await use('find_ticket', 'T-1')).toEqual(says('T-1 is open; mails sent: 0'));
  expect(await use('open_ticket', 'T-1')).toMatchObject({ result: { isError: true } });
});

test('the desk begins sessions, lists its tools, and says what it does not know', async () => {
  const ask = async (method: string, more: object = { id: 7 }): Promise<unknown> => {
    const [status, answer] = await call('POST', '/mcp', { jsonrpc: '2.0', method, ...more });
    return [status, answer];
  };
  const result = (of: unknown) => [200, { jsonrpc: '2.0', id: 7, result: of }];
  expect(await ask('initialize')).toMatchObject(result({ protocolVersion: '2025-11-25', capabilities: { tools: {} } }));
  expect(await ask('ping')).toEqual(result({}));
  // What the demo's lock file has approved.
  const pinned: readonly { readonly tool: object }[] = JSON.parse(readFileSync('config/desk.lock.json', 'utf8')).tools;
  expect(await ask('tools/list')).toMatchObject(
    result({ tools: expect.arrayContaining(pinned.map(({ tool }) => expect.objectContaining(tool))) }),
  );
  expect(await ask('resources/list')).toEqual([
    200,
    { jsonrpc: '2.0', id: 7, error: { code: -32_601, message: 'Method not found' } },
  ]);
  expect((await fetch(`${api.url}/mcp`)).status).toBe(405);
  const told = await fetch(`${api.url}/mcp`, {
    method: 'POST',
    body: JSON.stringify({ jsonrpc: '2.0', method: 'notifications/initialized' }),
  });
  expect([told.status, await told.text()]).toEqual([202, '']);
  expect(await ask('tools/call', { id: 7, params: { name: 'close_ticket', arguments: {} } })).toEqual(
    result({ content: [{ type: 'text', text: 'ticket_id is missing' }], isError: true }),
  );
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
