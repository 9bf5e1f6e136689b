import type { Scenario } from '../play.ts';
import type { Answer, CallOptions, KeyName, Segment } from '../segment.ts';

/** A write through the proxy, with an idempotency key of its own. */
function write(at: Segment, title: string, path: string, body: unknown, options: CallOptions = {}): Promise<Answer> {
  const headers = { 'idempotency-key': at.fresh(), ...options.headers };
  return at.call(title, 'POST', path, { ...options, headers, body });
}

const committed: Scenario = async (at) => {
  const key = at.pick<KeyName>(['bot', 'other', 'cat', 'tom']);
  const agent = key === 'tom' ? { 'svc-agent-id': at.pick(['bot', 'cat']) } : {};
  const n = at.int(900);
  const headers = { 'idempotency-key': at.fresh(), ...agent };
  const path = `/payments/v1/payments/pay_${n}/refunds`;
  const body = { amount: n, currency: 'EUR', reason: 'plain' };
  await write(at, 'committed', path, body, { key, headers });
  await write(
    at,
    'the same again, spelt otherwise',
    path,
    `{ "reason":"plain",\n"currency":"EUR", "amount": ${n}.0 }`,
    { key, headers },
  );
  await write(at, 'another amount under the key', path, { ...body, amount: n + 1 }, { key, headers });
};

const replayed: Scenario = async (at) => {
  const headers = { 'idempotency-key': `"${at.fresh()}"`, 'x-note-language': at.pick(['de', 'en']) };
  const body = {
    text: at.pick(['plain', 'mode:big', 'mode:plain', 'mode:loud', 'mode:empty', 'shadowed']),
    n: at.int(99),
  };
  await write(at, 'committed', '/payments/v1/notes', body, { headers });
  await write(at, 'replayed', '/payments/v1/notes', body, { headers });
};

const bothDoors: Scenario = async (at) => {
  const idempotency_key = at.fresh();
  const params = { payment_id: `pay_${at.int(900)}`, amount: 7, currency: 'EUR' };
  const { payment_id, ...body } = params;
  await at.run('through the effects API', { tool: 'payments.refund', params, idempotency_key });
  await write(at, 'the same through the proxy', `/payments/v1/payments/${payment_id}/refunds`, body, {
    headers: { 'idempotency-key': idempotency_key },
  });
};

const headers: Scenario = async (at) => {
  const path = `/payments/v1/payments/pay_${at.int(900)}/refunds`;
  const body = { amount: 3, currency: 'EUR' };
  const sent = {
    'idempotency-key': at.fresh(),
    'stripe-account': `acct_${at.int(2)}`,
    'x-try': '1',
    'x-internal-note': 'stays here',
    'x-open': 'goes on',
    'x-request-id': 'given-7',
    traceparent: '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01',
    referer: 'https://caller.example/',
    'user-agent': 'golden/1',
    cookie: 'mine=1',
    authorization: 'Bearer of-the-upstream',
    'x-http-method-override': 'DELETE',
    'accept-encoding': 'gzip',
  };
  await write(at, 'with many headers', path, body, { headers: sent });
  await write(at, 'volatile headers change', path, body, {
    headers: { ...sent, 'x-try': '2', 'user-agent': 'golden/2' },
  });
  await write(at, 'another account', path, body, { headers: { ...sent, 'stripe-account': 'acct_9' } });
  await write(at, 'a rule sees a header', path, body, { headers: { 'stripe-account': 'acct_closed' } });
  await write(at, 'a name with an underscore', path, body, { headers: { stripe_account: 'acct_1' } });
};

const answers: Scenario = async (at) => {
  const mode = at.pick([
    'accepted',
    'multi',
    'empty',
    'plain',
    'bytes',
    'invalid',
    'big',
    'huge',
    'loud',
    'links',
    'refuse',
    'busy',
    'missing',
    'unavailable',
    'drop',
    'error',
    'redirect',
    'half',
  ]);
  const sent = { 'idempotency-key': at.fresh() };
  const body = { text: `mode:${mode}`, n: at.int(99) };
  await write(at, `answered: ${mode}`, '/payments/v1/notes', body, { headers: sent });
  await write(at, 'the same again', '/payments/v1/notes', body, { headers: sent });
};

const idempotentUpstream: Scenario = async (at) => {
  const sent = { 'idempotency-key': at.fresh() };
  const body = { amount: at.int(99), reason: 'mode:drop' };
  await write(at, 'lost, and the upstream removes duplicates', '/payments/v1/charges', body, { headers: sent });
  await write(at, 'sent again under the upstream’s key', '/payments/v1/charges', body, { headers: sent });
};

const keysOfOtherKinds: Scenario = async (at) => {
  const id = at.int(900);
  await at.call('a derived key', 'PUT', `/payments/v1/things/t${id}?dry=1`, { body: { a: id } });
  await at.call('the same within the time', 'PUT', `/payments/v1/things/t${id}?dry=1`, { body: { a: id } });
  await at.call('no key', 'DELETE', `/payments/v1/things/t${id}`);
  await at.call('no key, once more', 'DELETE', `/payments/v1/things/t${id}`);
  await at.call('the key that a route requires', 'POST', '/payments/v1/charges', { body: { amount: 1 } });
};

const families: Scenario = async (at) => {
  const form = { 'content-type': 'application/x-www-form-urlencoded' };
  await at.call('in the form of Stripe', 'POST', '/stripe/v1/refunds', {
    headers: form,
    body: `charge=ch_${at.int(90)}&amount=5000`,
  });
  await at.call('waits, in the form of Stripe', 'POST', '/stripe/v1/refunds', { headers: form, body: 'charge=ch_ask' });
  await write(at, 'in the form of GitHub', '/github/v1/payments/p/refunds', { amount: 1, currency: 'JPY' });
  await write(at, 'in the form of OpenAI', '/openai/chat', { text: 'mode:drop' });
  await write(at, 'in the form of Slack', '/slack/v1/notes', { text: 'mode:refuse' });
  const secret = at.key('bot');
  await at.call('a key as bearer', 'POST', '/stripe/v1/refunds', {
    key: 'none',
    headers: { ...form, authorization: `Bearer ${secret}` },
    body: `charge=ch_${at.int(90)}`,
  });
  await at.call('a key in the query', 'POST', `/payments/v1/passed?a=1&api_key=${secret}`, {
    key: 'none',
    headers: { 'idempotency-key': at.fresh() },
    body: { b: 1 },
  });
};

const credentials: Scenario = async (at) => {
  await write(
    at,
    'with the credentials of the upstream',
    '/vault/v1/vault',
    { secret: at.int(99) },
    { headers: { authorization: 'Bearer of-the-caller' } },
  );
};

const reads: Scenario = async (at) => {
  const id = `pay_${at.int(900)}`;
  await at.call('a read', 'GET', `/payments/v1/payments/${id}?fields=a,b`);
  await at.call('HEAD of a read', 'HEAD', `/payments/v1/payments/${id}`);
  await at.call(
    'a read that misbehaves',
    'GET',
    `/payments/v1/payments/mode:${at.pick(['loud', 'refuse', 'error', 'redirect', 'big', 'links', 'status_404', 'drop'])}`,
  );
  await at.call('not changed', 'GET', '/payments/v1/payments/mode:cached', { headers: { 'if-none-match': '"v7"' } });
  await at.call('events', 'GET', '/payments/events/mode:events', {
    headers: { accept: 'text/event-stream', 'last-event-id': '7' },
  });
  await at.call('a read that no rule names', 'GET', `/open/v1/anything/${at.int(9)}?x=1`);
};

const countedReads: Scenario = async (at) => {
  const key = at.pick<KeyName>(['bot', 'other', 'cat']);
  for (const n of [1, 2]) await at.call('a read that a rate limits', 'GET', `/payments/v1/counted/${n}`, { key });
};

const held: Scenario = async (at) => {
  const sent = { 'idempotency-key': at.fresh() };
  const body = { text: 'mode:held', n: at.int(99) };
  await at.whileHeld(
    () => write(at, 'held at the upstream', '/payments/v1/notes', body, { headers: sent }),
    async () => {
      await write(at, 'the same while it runs', '/payments/v1/notes', body, { headers: sent });
    },
  );
  await write(at, 'the same when it is over', '/payments/v1/notes', body, { headers: sent });
};

export const proxy: readonly (readonly [number, Scenario])[] = [
  [8, committed],
  [5, replayed],
  [3, bothDoors],
  [3, headers],
  [7, answers],
  [2, idempotentUpstream],
  [2, keysOfOtherKinds],
  [2, families],
  [2, credentials],
  [2, held],
];

export const proxyReads: readonly (readonly [number, Scenario])[] = [
  [60, reads],
  [8, countedReads],
];
