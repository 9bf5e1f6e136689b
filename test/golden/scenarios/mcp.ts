import type { Scenario } from '../play.ts';
import type { Answer, CallOptions, Segment } from '../segment.ts';

type Params = Record<string, unknown>;

function say(
  at: Segment,
  door: string,
  title: string,
  method: string,
  params: Params = {},
  options: CallOptions = {},
): Promise<Answer> {
  const headers = { accept: 'application/json, text/event-stream', ...options.headers };
  return at.call(title, 'POST', door, {
    ...options,
    headers,
    body: { jsonrpc: '2.0', id: at.int(1000), method, params },
  });
}

function use(at: Segment, name: string, given: Params, more: Params = {}, options: CallOptions = {}): Promise<Answer> {
  return say(at, '/mcp/crm', `crm.${name}`, 'tools/call', { name, arguments: given, ...more }, options);
}

const keyed = (at: Segment): Params => ({ _meta: { 'dev.svc-gateway/idempotency-key': at.fresh() } });

const committed: Scenario = async (at) => {
  const given = { n: at.int(900), text: at.pick(['é', '"', 'plain']), deep: { list: [1, null] } };
  const more = keyed(at);
  await use(at, 'echo', given, more);
  await use(at, 'echo', given, more);
  await use(at, 'echo', { ...given, n: -1 }, more);
};

const derived: Scenario = async (at) => {
  const n = at.fresh();
  await use(at, 'echo', { n });
  await use(at, 'echo', { n });
  await use(at, 'look', { n });
  await use(at, 'look', { n });
  await use(at, 'strict', { n: at.int(1_000_000) });
};

const sessions: Scenario = async (at) => {
  const begun = await say(at, '/mcp/crm', 'a session begins', 'initialize', {
    protocolVersion: at.pick(['2025-11-25', '2025-06-18', '2025-03-26']),
    capabilities: {},
    clientInfo: { name: 'golden', version: '1' },
  });
  const id = begun.headers.find((line) => line.startsWith('mcp-session-id: '))?.slice('mcp-session-id: '.length) ?? '';
  const headers = { 'mcp-session-id': id };
  await at.call('it is initialized', 'POST', '/mcp/crm', {
    headers,
    body: { jsonrpc: '2.0', method: 'notifications/initialized' },
  });
  await say(at, '/mcp/crm', 'the tools', 'tools/list', {}, { headers });
  await use(at, 'echo', { in: 'a session' }, keyed(at), { headers });
  await say(
    at,
    '/mcp/crm',
    'a resource',
    'resources/read',
    { uri: at.pick(['file:///open', 'file:///secret']) },
    { headers },
  );
  await say(at, '/mcp/crm', 'a session of another', 'ping', {}, { headers, key: 'cat' });
  await at.call('it ends', 'DELETE', '/mcp/crm', { headers });
};

const answers: Scenario = async (at) => {
  const name = at.pick(['fail', 'typed', 'says', 'sends', 'cut', 'drop', 'forbidden', 'strict', 'unknown']);
  const given = {
    says: { answer: { result: { content: [], structuredContent: { a: at.int(9) } } } },
    sends: { events: ['{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":1}}'] },
    typed: { id: at.int(99) },
    strict: { n: 'no number' },
  }[name] ?? { n: at.fresh() };
  const more = keyed(at);
  await use(at, name, given, more);
  await use(at, name, given, more);
};

const waits: Scenario = async (at) => {
  const more = keyed(at);
  const given = { n: at.fresh() };
  const asked = await use(at, 'ask', given, more);
  const id = /apr_\w+/.exec(asked.body)?.[0];
  await use(at, 'ask', given, more);
  await at.at('it is decided', 'POST', `/approvals/${id}/${at.pick(['approve', 'reject'])}`, {
    key: 'maria',
    body: {},
  });
  await use(at, 'ask', given, more);
};

const federated: Scenario = async (at) => {
  const begun = await say(at, '/mcp', 'all servers at one address', 'initialize', {
    protocolVersion: '2025-11-25',
    capabilities: {},
    clientInfo: { name: 'golden', version: '1' },
  });
  const id = begun.headers.find((line) => line.startsWith('mcp-session-id: '))?.slice('mcp-session-id: '.length) ?? '';
  const headers = id === '' ? {} : { 'mcp-session-id': id };
  await say(at, '/mcp', 'their tools', 'tools/list', {}, { headers });
  await say(
    at,
    '/mcp',
    'one of them',
    'tools/call',
    { name: 'crm__echo', arguments: { n: at.int(900) }, ...keyed(at) },
    { headers },
  );
  await say(at, '/mcp', 'one that is not there', 'tools/call', { name: 'crm__nothing', arguments: {} }, { headers });
};

const otherDoors: Scenario = async (at) => {
  const idempotency_key = at.fresh();
  const params = { n: at.int(900) };
  await at.run('a tool of MCP through the effects API', { tool: 'crm.echo', params, idempotency_key });
  await use(at, 'echo', params, { _meta: { 'dev.svc-gateway/idempotency-key': idempotency_key } });
  await use(at, 'echo', params, {}, { headers: { 'idempotency-key': idempotency_key } });
  await use(at, 'echo', params, keyed(at), { key: 'limited' });
  await use(at, 'look', params, keyed(at), { key: 'limited' });
  await use(at, 'echo', params, keyed(at), { key: 'readonly' });
  await use(at, 'echo', params, keyed(at), { key: 'tom', headers: { 'svc-agent-id': 'cat' } });
};

const malformed: Scenario = async (at) => {
  const texts = [
    '[]',
    '{"jsonrpc":"2.0","id":null,"method":"ping"}',
    '{"jsonrpc":"2.0","id":1,"id":2,"method":"ping"}',
    '{"jsonrpc":"1.0","id":1,"method":"ping"}',
    '{"jsonrpc":"2.0","id":1,"method":"no/such"}',
    '{"jsonrpc":"2.0","method":"tools/call","params":{"name":"echo"}}',
    '{',
    '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{}}',
  ] as const;
  await at.call('a message that is refused', 'POST', '/mcp/crm', {
    headers: { accept: 'application/json, text/event-stream' },
    body: at.pick(texts),
  });
  await use(at, 'echo', { n: 1 }, {}, { headers: { 'mcp-method': 'ping' } });
  await use(at, 'echo', { n: 1 }, {}, { key: 'none' });
};

const controlPlane: Scenario = async (at) => {
  const tool = (name: string, given: Params, options: CallOptions = {}): Promise<Answer> =>
    say(at, '/v1/mcp', name, 'tools/call', { name, arguments: given }, { looks: false, ...options });
  await say(
    at,
    '/v1/mcp',
    'the control plane',
    at.pick(['tools/list', 'initialize', 'ping', 'server/discover']),
    { protocolVersion: '2025-11-25', capabilities: {}, clientInfo: { name: 'golden', version: '1' } },
    { looks: false },
  );
  await tool(
    'svc.policy.simulate',
    {
      agent_id: 'bot',
      action: 'payments.refund',
      params: { payment_id: 'p', amount: at.pick([5, 60_000, -1]), currency: at.pick(['EUR', 'JPY']) },
    },
    { key: at.pick(['readonly', 'bot', 'tom']) },
  );
  await tool(
    'svc.preflight.check',
    { tool: 'payments.charge', params: { amount: at.int(9) }, agent_id: 'bot' },
    { key: 'readonly' },
  );
  await tool(
    'svc.tools.search',
    { query: at.pick(['refund', 'note', 'crm']), limit: 3 },
    { key: at.pick(['bot', 'readonly']) },
  );
  await tool('svc.tools.describe', { tool: at.pick(['payments.refund', 'crm.strict', 'no.such']) });
  await tool('svc.approvals.list', { status: 'pending' }, { key: 'maria' });
  const { json } = await at.run('committed', {
    tool: 'notes.add',
    params: { text: 'traced' },
    idempotency_key: at.fresh(),
  });
  for (const name of ['svc.executions.get', 'svc.executions.trace', 'svc.policy.explain'])
    await tool(name, { effect_id: json?.effect_id }, { key: 'tom' });
  await tool('svc.receipts.verify', { receipt: json?.receipt?.jws }, { key: 'tom' });
};

const slow: Scenario = async (at) => {
  const more = keyed(at);
  await at.mcpHeld(() => use(at, 'slow', { n: at.fresh() }, more));
};

export const mcp: readonly (readonly [number, Scenario])[] = [
  [5, committed],
  [3, derived],
  [3, sessions],
  [5, answers],
  [3, waits],
  [2, federated],
  [3, otherDoors],
  [2, malformed],
  [3, controlPlane],
  [1, slow],
];
