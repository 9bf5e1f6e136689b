import type { Scenario } from '../play.ts';
import { permitted } from './effects.ts';
import type { Segment } from '../segment.ts';

/** A call that waits for one person, or from 90,001 on for two. */
function large(at: Segment, amount = 50_001 + at.int(9_999), reason = 'plain'): Record<string, unknown> {
  const payment_id = `pay_${at.int(900)}`;
  return {
    tool: 'payments.refund',
    params: { payment_id, amount, currency: 'EUR', reason, card: '4242' },
    idempotency_key: at.fresh(),
  };
}

const approved: Scenario = async (at) => {
  const body = large(at);
  const { json } = await at.run('waits for a person', body);
  const path = `/approvals/${json?.approval?.id}`;
  await at.run('the same while it waits', body);
  await at.at('as approvers see it', 'GET', path, { key: 'maria', looks: false });
  await at.at('a vote of somebody who may not', 'POST', `${path}/approve`, { body: {} });
  await at.at('approved', 'POST', `${path}/approve`, { key: 'maria', body: { comment: 'fine' } });
  await at.at('approved again', 'POST', `${path}/approve`, { key: 'ada', body: {} });
  await at.run('the same when it is done', body);
};

const approvedByTwo: Scenario = async (at) => {
  const { json } = await at.run(
    'waits for two people',
    large(at, 90_001 + at.int(99), at.pick(['plain', 'mode:refuse', 'mode:drop'])),
  );
  const path = `/approvals/${json?.approval?.id}`;
  await at.at('the first vote', 'POST', `${path}/approve`, { key: 'maria', body: {} });
  await at.at('the same person again', 'POST', `${path}/approve`, { key: 'maria', body: {} });
  await at.at('the second vote', 'POST', `${path}/approve`, { key: 'ada', body: {} });
  await at.at('what became of it', 'GET', `/effects/${json?.effect_id}`, { looks: false });
};

const rejected: Scenario = async (at) => {
  const body = large(at);
  const { json } = await at.run('waits for a person', body);
  await at.at('rejected', 'POST', `/approvals/${json?.approval?.id}/reject`, { key: 'maria', body: { comment: 'no' } });
  await at.run('the same after it was rejected', body);
  await at.run('the same under another key', { ...body, idempotency_key: at.fresh() });
  await at.at('a vote that comes late', 'POST', `/approvals/${json?.approval?.id}/approve`, { key: 'ada', body: {} });
};

const waitsAtTheProxy: Scenario = async (at) => {
  const headers = { 'idempotency-key': at.fresh(), 'stripe-account': 'acct_7', authorization: 'Bearer stays-here' };
  const { json } = await at.call(
    'waits, through the proxy',
    'POST',
    `/payments/v1/payments/pay_${at.int(900)}/refunds`,
    { headers, body: { amount: 60_000 + at.int(99), currency: 'USD' } },
  );
  await at.at('the page of the approver', 'GET', `/approvals/${json?.approval?.id}`, { key: 'ada', looks: false });
  await at.at('approved', 'POST', `/approvals/${json?.approval?.id}/approve`, { key: 'ada', body: {} });
};

const ownRequest: Scenario = async (at) => {
  const { json } = await at.run(
    'asked with an approver’s own key',
    { ...large(at), agent_id: 'bot' },
    { key: 'maria' },
  );
  await at.at('a vote for what one has asked', 'POST', `/approvals/${json?.approval?.id}/approve`, {
    key: 'maria',
    body: {},
  });
  await at.at('a vote of an agent', 'POST', `/approvals/${json?.approval?.id}/approve`, { key: 'other', body: {} });
  await at.at('requests that wait', 'GET', '/approvals?status=pending&limit=5', { looks: false });
  await at.at('a vote of another', 'POST', `/approvals/${json?.approval?.id}/reject`, { key: 'ada', body: {} });
};

const resolved: Scenario = async (at) => {
  const body = permitted(at, at.pick(['drop', 'error', 'half']));
  const { json } = await at.run('nobody knows', body);
  const path = `/effects/${json?.effect_id}/resolve`;
  await at.at('an agent may not say', 'POST', path, { key: 'bot', body: { outcome: 'happened' } });
  await at.at('too early to say that it did not happen', 'POST', path, { body: { outcome: 'not_happened' } });
  await at.at('no outcome', 'POST', path, { body: { outcome: 'perhaps' } });
  await at.at('it happened', 'POST', path, {
    body: { outcome: 'happened', comment: 'seen in the books', evidence: { entry: 7 } },
  });
  await at.at('the same again', 'POST', path, { body: { outcome: 'happened' } });
  await at.at('the opposite', 'POST', path, { body: { outcome: 'not_happened' } });
  await at.run('the same call again', body);
};

const tooMany: Scenario = async (at) => {
  for (let n = 0; n < 4; n += 1) await at.run('waits with many others', large(at), { key: 'cat' });
};

export const people: readonly (readonly [number, Scenario])[] = [
  [4, approved],
  [2, approvedByTwo],
  [3, rejected],
  [2, waitsAtTheProxy],
  [1, ownRequest],
  [4, resolved],
  [1, tooMany],
];
