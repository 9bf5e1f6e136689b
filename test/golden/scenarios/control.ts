import type { Scenario } from '../play.ts';

const lists: Scenario = async (at) => {
  const { json } = await at.at('effects, a page', 'GET', `/effects?limit=${1 + at.int(4)}&params=true`, {
    looks: false,
  });
  await at.at('the next page', 'GET', `/effects?limit=2&cursor=${encodeURIComponent(String(json?.next_cursor))}`, {
    looks: false,
  });
  await at.at(
    'effects of a kind',
    'GET',
    `/effects?${at.pick(['state=committed', 'state=denied', 'decision=denied_policy', 'tool=payments.refund', 'agent_id=cat'])}&limit=3`,
    { looks: false },
  );
  await at.at('effects, to an agent', 'GET', '/effects?limit=2', { key: 'cat', looks: false });
};

const settings: Scenario = async (at) => {
  const path = at.pick([
    '/policies',
    '/tools',
    '/agents',
    '/pins',
    '/budgets',
    '/claims',
    '/reservations',
    '/pauses',
    '/approvals?limit=3',
    '/nothing',
  ]);
  await at.at(path, 'GET', path, { key: at.pick(['tom', 'bot', 'readonly', 'admin']), looks: false });
};

const keys: Scenario = async (at) => {
  const make = (body: Record<string, unknown>) =>
    at.call('a key is made', 'POST', '/v1/beta/users/olga/keys', {
      key: 'admin',
      body: { name: 'made', workspace: at.workspace, ...body },
    });
  const { json } = await make({ kind: 'agent', agent_id: 'bot', expires_in: '1h' });
  await make({ kind: 'agent' });
  const path = `/v1/beta/users/olga/keys/${json?.id}`;
  const headers = { 'x-api-key': String(json?.key) };
  const body = { tool: 'notes.add', params: { text: 'by a new key' }, idempotency_key: at.fresh() };
  await at.run('a call with it', body, { key: 'none', headers });
  await at.call('rotated', 'POST', `${path}/rotate`, { key: 'admin', body: { overlap: 60 } });
  await at.call('revoked', 'DELETE', path, { key: 'admin' });
  await at.run(
    'a call with it after it was revoked',
    { ...body, idempotency_key: at.fresh() },
    { key: 'none', headers },
  );
};

const checks: Scenario = async (at) => {
  const state = { status: at.pick(['paid', 'open']), total: at.int(9) };
  await at.call('state', 'POST', '/state/verify', {
    body: {
      intent: 'i',
      required_fields: ['status', 'total'],
      assumed_state: { status: 'paid', total: 4 },
      current_state: state,
      conditions: { total: { $gte: 2 } },
      on_mismatch: at.pick(['replan', 'block']),
    },
  });
  await at.call('outcome', 'POST', '/outcomes/reconcile', {
    body: {
      action: { intent: 'i', tool: 't', params: { total: 4 } },
      outcome: at.pick(['UNKNOWN', 'KNOWN']),
      current_state: state,
      conditions: { status: 'paid' },
    },
  });
};

const brain: Scenario = async (at) => {
  const entities = [
    {
      type: 'order',
      id: `ord_${at.int(9)}`,
      name: `Order of ${at.pick(['Acme', 'Zeta'])}`,
      attributes: { total: at.int(99) },
      links: [{ rel: 'placed_by', type: 'customer', id: 'cus_1' }],
    },
  ];
  await at.at('entities are put', 'PUT', '/brain/entities', { key: 'admin', body: { entities } });
  await at.at('search', 'GET', '/brain/search?query=acme&entity_type=order', { looks: false });
  await at.at('removed', 'DELETE', `/brain/entities/order/${entities[0]?.id}`, { key: 'admin' });
};

export const control: readonly (readonly [number, Scenario])[] = [
  [3, lists],
  [3, settings],
  [1, keys],
  [2, checks],
  [1, brain],
];
