import type { Scenario } from '../play.ts';
import { permitted } from './effects.ts';

const byPolicy: Scenario = async (at) => {
  const params = { payment_id: `pay_${at.int(900)}`, amount: at.int(999), currency: at.pick(['JPY', 'eur']) };
  const call = { tool: 'payments.refund', params, idempotency_key: at.fresh() };
  await at.run('denied by a rule', call);
  await at.run('the key stays free', { ...call, params: { ...params, currency: 'EUR' } });
  await at.call('denied by a rule, through the proxy', 'POST', `/payments/v1/payments/${params.payment_id}/refunds`, {
    headers: { 'idempotency-key': at.fresh() },
    body: { amount: 1, currency: params.currency },
  });
  await at.run('no rule allows it', { tool: 'notes.secret', params: { text: 'x' }, idempotency_key: at.fresh() });
  await at.run('no such tool', { tool: 'notes.burn', params: {}, idempotency_key: at.fresh() });
};

const byIdentity: Scenario = async (at) => {
  await at.run('another agent than the key’s', { ...permitted(at), agent_id: 'other-bot' });
  await at.run('an agent that nobody has declared', { ...permitted(at), agent_id: 'nobody' }, { key: 'tom' });
  await at.run('an agent that is disabled', { ...permitted(at), agent_id: 'off' }, { key: 'tom' });
  await at.call('no agent, through the proxy', 'POST', '/payments/v1/charges', {
    key: 'tom',
    headers: { 'idempotency-key': at.fresh() },
    body: { amount: 1 },
  });
};

const byPermission: Scenario = async (at) => {
  await at.run('a key that only reads', permitted(at), { key: 'readonly' });
  await at.run('an administrative key', { ...permitted(at), agent_id: 'bot' }, { key: 'admin' });
  await at.run('a key of another workspace', permitted(at), { key: 'elsewhere' });
  await at.run(
    'a key for other tools',
    { tool: 'payments.charge', params: { amount: 1 }, idempotency_key: at.fresh() },
    { key: 'limited' },
  );
  await at.run(
    'an agent of another team',
    { tool: 'payments.refund', params: { payment_id: 'p', amount: 1, currency: 'EUR' }, idempotency_key: at.fresh() },
    { key: 'intern' },
  );
  await at.call('a key that only reads, through the proxy', 'POST', '/payments/v1/charges', {
    key: 'readonly',
    headers: { 'idempotency-key': at.fresh() },
    body: { amount: 1 },
  });
};

const unauthenticated: Scenario = async (at) => {
  await at.run('no key', permitted(at), { key: 'none' });
  await at.run('no such key', permitted(at), { key: 'none', headers: { 'x-api-key': 'svc_agent_mistyped' } });
  await at.call('no key, through the proxy', 'POST', '/payments/v1/charges', { key: 'none', body: { amount: 1 } });
  await at.call('two keys', 'POST', '/payments/v1/charges', {
    headers: { authorization: `Bearer ${at.key('cat')}` },
    body: { amount: 1 },
  });
};

const malformed: Scenario = async (at) => {
  const idempotency_key = at.fresh();
  const texts = [
    '{',
    '[]',
    '"x"',
    '{"tool":"notes.add","tool":"notes.add"}',
    '{"tool":7}',
    '{}',
    '\uFEFF{}',
    '{"tool":"notes.add","params":{},"idempotency_key":"é"}',
    `{"tool":"notes.add","params":${'['.repeat(70)}${']'.repeat(70)},"idempotency_key":"x"}`,
    '{"tool":"notes.add","params":{"n":1e999},"idempotency_key":"x"}',
    '{"tool":"notes.add","params":{"a":"\\ud800"},"idempotency_key":"x"}',
  ] as const;
  await at.at('a body that cannot be read', 'POST', '/effects', { key: 'bot', body: at.pick(texts) });
  await at.run('a field that nobody knows', { ...permitted(at), extra: 1 });
  await at.run('no idempotency key', { tool: 'notes.add', params: {} });
  await at.run('params against the schema', {
    tool: 'payments.refund',
    params: { payment_id: 7, amount: 1.5, more: true },
    idempotency_key,
  });
  await at.run('another target than the params say', {
    tool: 'payments.refund',
    target: 'payment:other',
    params: { payment_id: 'p', amount: 1, currency: 'EUR' },
    idempotency_key,
  });
  await at.run('another kind of action', { ...permitted(at), action_type: 'shell.run' });
  await at.run('a header that may not be sent', {
    ...permitted(at),
    headers: { 'X-API-Key': 'k', 'content-type': 'text/plain' },
  });
};

const malformedAtTheProxy: Scenario = async (at) => {
  const headers = { 'idempotency-key': at.fresh() };
  await at.call('JSON that has two readings', 'POST', '/payments/v1/notes', { headers, body: '{"a":1,"a":2}' });
  await at.call('another type of body', 'POST', '/payments/v1/notes', {
    headers: { ...headers, 'content-type': 'text/xml' },
    body: '<a/>',
  });
  await at.call('a body that is too large', 'POST', '/payments/v1/notes', {
    headers,
    body: { text: 'x'.repeat(1_100_000) },
  });
  await at.call('no such route', 'POST', '/payments/v1/nothing', { headers, body: {} });
  await at.call('a route of another method', 'PATCH', '/payments/v1/notes', { headers, body: {} });
  await at.call(
    'a path with tricks',
    'POST',
    `/payments/v1/payments/${at.pick(['..', '%2e%2e', 'a%2fb', 'a//b', '%00'])}/refunds`,
    { headers, body: { amount: 1, currency: 'EUR' } },
  );
  await at.call('a key in the body', 'POST', '/payments/v1/notes', { headers, body: { text: at.key('bot') } });
  await at.call('no such prefix', 'GET', '/nowhere/at/all');
};

export const refused: readonly (readonly [number, Scenario])[] = [
  [5, byPolicy],
  [2, byIdentity],
  [2, byPermission],
  [1, unauthenticated],
  [3, malformed],
  [2, malformedAtTheProxy],
];
