import type { Scenario } from '../play.ts';
import type { KeyName } from '../segment.ts';
import { permitted } from './effects.ts';

const claims: Scenario = async (at) => {
  const payment_id = `pay_${at.fresh()}`;
  const call = () => ({
    tool: 'payments.refund',
    params: { payment_id, amount: 4, currency: 'EUR' },
    idempotency_key: at.fresh(),
  });
  const { json } = await at.at('a claim', 'POST', '/claims', {
    key: 'other',
    body: { target: `payment:${payment_id}`, ttl_s: 3600 },
  });
  await at.at('a claim on what another holds', 'POST', '/claims', {
    key: 'bot',
    body: { target: `payment:${payment_id}`, ttl_s: 60 },
  });
  await at.run('a call on what another holds', call());
  await at.run('a call on what the agent holds', { ...call(), claim_id: json?.id }, { key: 'other' });
  await at.at('renewed', 'POST', `/claims/${json?.id}/renew`, { key: 'other', body: { ttl_s: 120 } });
  await at.at('claims', 'GET', '/claims', { looks: false });
  await at.at('given back', 'DELETE', `/claims/${json?.id}`, { key: 'other' });
  await at.run('a call when it is free', call());
};

const claimsThatRulesAsk: Scenario = async (at) => {
  const id = at.fresh();
  const call = (): Record<string, unknown> => ({
    tool: 'notes.held',
    params: { id, text: 'x' },
    idempotency_key: at.fresh(),
  });
  await at.run('without the claim that a rule asks', call());
  const { json } = await at.at('the claim', 'POST', '/claims', {
    key: 'bot',
    body: { target: `held:${id}`, ttl_s: 3000 },
  });
  await at.run('with it', call());
  await at.call('with it, through the proxy', 'PUT', `/payments/v1/held/${id}`, {
    headers: { 'idempotency-key': at.fresh() },
    body: { text: 'y' },
  });
  await at.at('given back', 'DELETE', `/claims/${json?.id}`, { key: 'bot' });
};

const reservations: Scenario = async (at) => {
  const deploy = () => ({ tool: 'deploy.start', params: { service: at.fresh() }, idempotency_key: at.fresh() });
  const { json } = await at.at('a reservation', 'POST', '/reservations', {
    key: 'other',
    body: { pool: 'slot', units: 1, ttl_s: 3600 },
  });
  await at.at('of a pool that is full', 'POST', '/reservations', {
    key: 'bot',
    body: { pool: 'slot', units: 1, ttl_s: 60 },
  });
  await at.run('a call without room', deploy());
  await at.run('a call with a reservation', { ...deploy(), reservation_id: json?.id }, { key: 'other' });
  await at.at('reservations', 'GET', '/reservations', { looks: false });
  await at.at('given back', 'DELETE', `/reservations/${json?.id}`, { key: 'other' });
  await at.run('a call when there is room', deploy());
};

const desks: Scenario = async (at) => {
  const use = (): Record<string, unknown> => ({
    tool: 'desk.use',
    params: { units: 'mode:held' },
    idempotency_key: at.fresh(),
  });
  await at.whileHeld(
    () => at.run('takes two of five', use()),
    async () => {
      const { json } = await at.at('three reserved by another', 'POST', '/reservations', {
        key: 'cat',
        body: { pool: 'desk', units: 3, ttl_s: 60 },
      });
      await at.run('there is no room', use(), { key: 'other' });
      await at.at('given back', 'DELETE', `/reservations/${json?.id}`, { key: 'cat' });
    },
  );
};

const paused: Scenario = async (at) => {
  const scope = at.pick<Record<string, unknown>>([
    { tool: 'payments.*' },
    { tool: '**' },
    { agent: 'bot' },
    { workspace: true },
    { upstream: 'payments' },
  ]);
  const key = at.pick<KeyName>(['tom', 'admin']);
  const { json } = await at.at('a pause', 'POST', '/pauses', { key, body: { scope, reason: 'incident 7' } });
  const call = { tool: 'payments.charge', params: { amount: at.int(99) }, idempotency_key: at.fresh() };
  await at.run('while it is paused', call);
  await at.call('while it is paused, through the proxy', 'POST', '/payments/v1/charges', {
    headers: { 'idempotency-key': at.fresh() },
    body: { amount: 5 },
  });
  await at.at('pauses', 'GET', '/pauses', { looks: false });
  await at.at('lifted by an agent', 'DELETE', `/pauses/${json?.id}`, { key: 'bot' });
  await at.at('lifted', 'DELETE', `/pauses/${json?.id}`, { key });
  await at.run('when it is lifted', call);
};

const budgets: Scenario = async (at) => {
  const refund = (amount: unknown) => ({
    tool: 'payments.refund',
    params: { payment_id: `pay_${at.int(900)}`, amount, currency: 'EUR' },
    idempotency_key: at.fresh(),
  });
  await at.run('takes of a budget', refund(10_000 + at.int(40_000)), { key: 'cat' });
  await at.run('takes of a budget', refund(10_000 + at.int(40_000)), { key: 'cat' });
  await at.run('an amount that would raise it', refund(-5), { key: 'cat' });
  await at.at('budgets', 'GET', '/budgets', { looks: false });
  await at.at('budgets, to the agent', 'GET', '/budgets', { key: 'cat', looks: false });
};

const rates: Scenario = async (at) => {
  const key = at.pick<KeyName>(['bot', 'other', 'cat']);
  for (let n = 0; n < 2; n += 1)
    await at.run(
      'under a rate',
      { tool: 'notes.limited', action_type: 'http.request', params: { text: `${n}` }, idempotency_key: at.fresh() },
      { key },
    );
  await at.call('under the same rate, through the proxy', 'POST', '/payments/v1/limited', {
    key,
    headers: { 'idempotency-key': at.fresh() },
    body: { text: 'x' },
  });
};

const frozen: Scenario = async (at) => {
  await at.run('a rule that pauses', { tool: 'notes.frozen', params: { text: 'x' }, idempotency_key: at.fresh() });
  await at.at('preview of it', 'POST', '/effects/preview', {
    key: 'bot',
    body: { ...permitted(at), tool: 'notes.frozen', params: { text: 'x' } },
  });
};

export const holdings: readonly (readonly [number, Scenario])[] = [
  [3, claims],
  [2, claimsThatRulesAsk],
  [3, reservations],
  [2, desks],
  [3, budgets],
  [2, rates],
  [1, frozen],
];

export const pauses: readonly (readonly [number, Scenario])[] = [[4, paused]];
