import type { Scenario } from '../play.ts';
import type { KeyName, Segment } from '../segment.ts';

type Body = Record<string, unknown>;

/** A call of the effects API that policy permits. */
export function permitted(at: Segment, mode = 'plain'): Body {
  const idempotency_key = at.fresh();
  const n = at.int(900);
  const text = mode === 'plain' ? `note ${n}` : `mode:${mode} ${n}`;
  switch (at.int(6)) {
    case 0:
      return {
        tool: 'payments.refund',
        params: { payment_id: `pay_${n}`, amount: n, currency: 'EUR', reason: text },
        idempotency_key,
      };
    case 1:
      return { tool: 'payments.charge', params: { amount: n, reason: text }, idempotency_key };
    case 2:
      return {
        tool: 'notes.add',
        params: { text, lang: at.pick(['de', 'en']), more: { list: [n, null, 'é"\\'], n: n / 8 } },
        idempotency_key,
      };
    case 3:
      return { tool: 'notes.batch', params: { items: [text, n, { z: 1, a: [true] }] }, idempotency_key };
    case 4:
      return {
        tool: 'things.put',
        params: { id: `t ${n}/é`, dry: 'x&y', text, nested: { b: 1, a: 2 } },
        idempotency_key,
      };
    default:
      return {
        tool: 'payments.refund',
        action_type: 'mcp.tool_call',
        target: `payment:pay_${n}`,
        params: { payment_id: `pay_${n}`, amount: 1 + n, currency: at.pick(['EUR', 'USD']), reason: text },
        idempotency_key,
      };
  }
}

function by(at: Segment, body: Body): [Body, KeyName] {
  const key = at.pick<KeyName>(['bot', 'bot', 'other', 'cat', 'tom', 'runner']);
  return key === 'tom' || key === 'runner'
    ? [{ ...body, agent_id: at.pick(['bot', 'other-bot', 'cat']) }, key]
    : [body, key];
}

const committed: Scenario = async (at) => {
  const [body, key] = by(at, permitted(at));
  await at.run('committed', body, { key });
};

const repeated: Scenario = async (at) => {
  const [body, key] = by(at, permitted(at));
  await at.run('committed', body, { key });
  await at.run('the same again', body, { key });
  await at.run(
    'the same key for something else',
    { ...body, params: { ...(body['params'] as Body), reason: 'other', text: 'other', items: [9] } },
    { key },
  );
};

const shownInAllWays: Scenario = async (at) => {
  const body = { ...permitted(at), metadata: { ticket: at.int(99), of: { a: [1] } } };
  await at.at('preview', 'POST', '/effects/preview', { key: 'bot', body });
  const { json } = await at.run('committed, with metadata', body);
  const path = `/effects/${json?.effect_id}`;
  await at.at('its stages', 'GET', `${path}/run`, { looks: false });
  await at.at('its receipt', 'GET', `${path}/receipt`, { key: 'bot', looks: false });
  await at.at('its receipt as it was signed', 'GET', `${path}/receipt`, {
    headers: { accept: 'application/jose' },
    looks: false,
  });
  await at.at('to another agent', 'GET', path, { key: 'other', looks: false });
  await at.at('to a key that only reads', 'GET', path, { key: 'readonly', looks: false });
  await at.at('preview of what is done', 'POST', '/effects/preview', { key: 'bot', body });
};

const misbehaved: Scenario = async (at) => {
  const body = permitted(
    at,
    at.pick(['accepted', 'multi', 'empty', 'plain', 'bytes', 'invalid', 'big', 'huge', 'loud', 'links']),
  );
  await at.run('an answer of another form', body);
  await at.run('the same again', body);
};

const failed: Scenario = async (at) => {
  const body = permitted(
    at,
    at.pick(['refuse', 'unavailable', 'busy', 'missing', 'status_400', 'status_401', 'status_405']),
  );
  await at.run('the upstream refuses', body);
  await at.run('another attempt', body);
};

const declined: Scenario = async (at) => {
  const body = {
    tool: 'payments.charge',
    params: { amount: at.int(99), reason: 'mode:declined' },
    idempotency_key: at.fresh(),
  };
  await at.run('declined in the body', body);
};

const unknown: Scenario = async (at) => {
  const body = permitted(at, at.pick(['drop', 'error', 'redirect', 'half', 'conflict']));
  await at.run('nobody knows', body);
  await at.run('the same again', body);
};

const stateChecked: Scenario = async (at) => {
  const payment_id = `pay_${at.fresh()}`;
  at.upstream.state(`/v1/payments/${payment_id}`, { status: 'paid', total: 40, order: { lines: [{ sku: 'a' }] } });
  const check = {
    intent: 'refund',
    required_fields: ['status', 'order.lines.0.sku'],
    conditions: { total: { $gte: 10 } },
  };
  const body = (): Body => ({
    tool: 'payments.refund',
    params: { payment_id, amount: 5, currency: 'EUR' },
    idempotency_key: at.fresh(),
  });
  const with_ = (status: string, on_mismatch: string): Body => ({
    ...check,
    assumed_state: { status, order: { lines: [{ sku: 'a' }] } },
    on_mismatch,
  });
  await at.run('the state is as it was assumed', { ...body(), state_check: with_('paid', 'block') });
  await at.run('the state has drifted', { ...body(), state_check: with_('open', at.pick(['replan', 'block'])) });
  await at.run('a condition does not hold', {
    ...body(),
    state_check: { ...with_('paid', 'block'), conditions: { total: { $lt: 10 } } },
  });
  at.upstream.state(`/v1/payments/${payment_id}`, 'no object');
  await at.run('the state cannot be read', { ...body(), state_check: with_('paid', 'replan') });
};

const inProgress: Scenario = async (at) => {
  const payment_id = `pay_${at.fresh()}`;
  const body = {
    tool: 'payments.refund',
    params: { payment_id, amount: 7, currency: 'EUR', reason: 'mode:held' },
    idempotency_key: at.fresh(),
  };
  await at.whileHeld(
    () => at.run('held at the upstream', body),
    async () => {
      await at.run('the same while it runs', body);
      await at.run('something else under its key', { ...body, params: { ...body.params, amount: 8 } });
      await at.run('on a target that it has claimed', { ...body, idempotency_key: at.fresh() }, { key: 'other' });
      await at.at('budgets while it runs', 'GET', '/budgets', { looks: false });
    },
  );
  await at.run('the same when it is over', body);
};

const withHeaders: Scenario = async (at) => {
  const body = {
    ...permitted(at),
    headers: { 'Stripe-Account': `acct_${at.int(3)}`, 'x-try': '1', 'accept-language': 'de' },
  };
  await at.run('with headers', body);
  await at.run('another volatile header', { ...body, headers: { ...body.headers, 'x-try': '2' } });
  await at.run('another header', { ...body, headers: { ...body.headers, 'Stripe-Account': 'acct_9' } });
};

const erased: Scenario = async (at) => {
  const body = permitted(at);
  const { json } = await at.run('committed', body);
  await at.at('erased', 'DELETE', `/effects/${json?.effect_id}/params`);
  await at.at('what is left', 'GET', `/effects/${json?.effect_id}`, { looks: false });
  await at.run('the same after it was erased', body);
};

const withBrain: Scenario = async (at) => {
  const customer = `cus_${at.int(5)}`;
  const put = (status: string) => ({
    entities: [
      { type: 'customer', id: customer, name: `Customer ${customer}`, attributes: { status, limit: 50 }, links: [] },
    ],
  });
  await at.at('an entity is put', 'PUT', '/brain/entities', { key: 'admin', body: put('active') });
  const body = { tool: 'brain.pay', params: { customer, amount: 40 + at.int(20) }, idempotency_key: at.fresh() };
  await at.run('by a fact of the brain', body);
  await at.at('the entity is changed', 'PUT', '/brain/entities', { key: 'admin', body: put('closed') });
  await at.run('by another fact', { ...body, idempotency_key: at.fresh() });
  await at.at('entities', 'GET', '/brain/entities?type=customer', { looks: false });
};

export const effects: readonly (readonly [number, Scenario])[] = [
  [14, committed],
  [8, repeated],
  [5, shownInAllWays],
  [4, misbehaved],
  [4, failed],
  [1, declined],
  [4, unknown],
  [3, stateChecked],
  [4, inProgress],
  [3, withHeaders],
  [2, erased],
  [2, withBrain],
];
