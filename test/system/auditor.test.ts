import { readFile } from 'node:fs/promises';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { makeApiKey, send, startGateway, type TestFiles, type TestGateway } from './gateway.ts';

/*
 * An auditor reads no params and no answers: every route that reads, every tool of the control plane, the stream and each
 * form of the export are asked with its key, and searched for values that params, answers, an approver's change and the
 * live state had. An account key, asked the same, reads them: they are there to be found.
 */

const PARAM = 'canary-param';
const ANSWER = 'canary-answer';
const CHANGED = 'canary-changed';
const LIVE = 'canary-live';
const CANARY = /canary-\w+/g;

const files = (url: string): TestFiles => ({
  config: `
server: { host: 127.0.0.1, port: 0 }
store: { kind: embedded, path: "\${SVC_TEST_DATA}" }
auth: { profiles: [ { name: examiner, read_only: true, scopes: [traces:read, approvals:read, ledger:read, policy:simulate, params:read] } ] }
users: [ { id: maria, roles: [lead] }, { id: tom, roles: [] }, { id: olga, roles: [] } ]
roles: { lead: {} }
workspaces: [ { id: demo, agents: [ { id: bot, team: support, owner: olga } ] } ]
policies: { paths: ["\${SVC_TEST_POLICIES}"] }
receipts: { params: each }
upstreams: [ { id: notes, url: "${url}", timeout: 5s } ]
tools:
  - name: notes.add
    title: Note
    upstream: notes
    kind: write
    request: { method: POST, path: "/v1/notes/{text}", body: [level] }
    params_schema: { type: object, required: [text, level], properties: { text: { type: string }, level: { type: string } }, additionalProperties: false }
    target: notes
    timeout: 3s
    state: { request: { method: GET, path: /v1/state } }
`,
  policies: {
    'notes.yaml': `
apiVersion: svc-gateway/v1
kind: PolicySet
name: notes
owner: team-test
rules:
  - { id: plain, effect: allow, match: { tools: [notes.add] }, when: { params.level: { in: [plain, refused] }, params.text: { ne: nothing } } }
  - { id: barred, effect: deny, match: { tools: [notes.add] }, when: { params.level: { eq: barred } }, reason: "Never \${params.text}" }
  - id: asked
    effect: require_approval
    match: { tools: [notes.add] }
    when: { params.level: { eq: asked } }
    approval: { approvers: { roles: [lead] }, expires: 1h, summary: "Note \${params.text}", editable: { text: { max_length: 40 } } }
`,
  },
});

let upstream: Server;
let gateway: TestGateway;
let keys: Readonly<Record<'auditor' | 'examiner' | 'account' | 'approver' | 'bot', string>>;
let effects: readonly string[];
let approvals: readonly string[];
let counter = 0;

const WS = '/v1/workspaces/demo';

const run = (level: string, more: object = {}) =>
  send(gateway.url, keys.bot, 'POST', `${WS}/effects`, {
    action_type: 'mcp.tool_call',
    tool: 'notes.add',
    params: { text: PARAM, level },
    idempotency_key: `audited-${(counter += 1)}`,
    ...more,
  });

beforeAll(async () => {
  upstream = createServer((request, response) => {
    request.resume().once('end', () => {
      const body = request.method === 'GET' ? { state: LIVE } : { answer: ANSWER };
      response.statusCode = counter === 2 ? 422 : 200;
      response.setHeader('content-type', 'application/json');
      response.end(JSON.stringify(body));
    });
  });
  await new Promise<void>((resolve) => upstream.listen(0, '127.0.0.1', resolve));
  gateway = await startGateway(files(`http://127.0.0.1:${(upstream.address() as AddressInfo).port}`));
  const demo = { workspace: 'demo' };
  keys = {
    auditor: await makeApiKey(gateway, 'olga', { profile: 'auditor', ...demo }),
    examiner: await makeApiKey(gateway, 'olga', { profile: 'examiner', ...demo }),
    account: await makeApiKey(gateway, 'tom', { kind: 'account', ...demo }),
    approver: await makeApiKey(gateway, 'maria', { kind: 'account', ...demo }),
    bot: await makeApiKey(gateway, 'olga', { kind: 'agent', agent_id: 'bot', ...demo }),
  };
  const check = {
    intent: 'x',
    required_fields: ['state'],
    assumed_state: { state: PARAM },
    conditions: {},
    on_mismatch: 'block',
  };
  const ran = [
    await run('plain'),
    await run('refused'),
    await run('barred'),
    await run('asked'),
    await run('asked'),
    await run('asked'),
    await run('plain', { state_check: check }),
  ];
  effects = ran.map(({ body }) => body.effect_id);
  approvals = ran.flatMap(({ body }) => body.approval?.id ?? []);
  const [changed, rejected] = approvals;
  const decide = (path: string, body: object) =>
    send(gateway.url, keys.approver, 'POST', `${WS}/approvals/${path}`, body);
  const granted = await decide(`${changed}/approve`, { changes: { text: CHANGED } });
  await decide(`${rejected}/reject`, { comment: 'no' });
  expect([...ran, granted].map(({ body }) => body.decision ?? body.effect?.decision)).toEqual([
    'committed',
    'failed',
    'denied_policy',
    'pending_approval',
    'pending_approval',
    'pending_approval',
    'denied_claim',
    'committed',
  ]);
});
afterAll(async () => {
  await gateway.dispose();
  upstream.close();
});

/** What every route that reads is asked with; a new one has to be named here. */
function paths(): Readonly<Record<string, readonly string[]>> {
  const of = (ids: readonly string[], ...ends: readonly string[]) => ids.flatMap((id) => ends.map((end) => id + end));
  return {
    '/v1/workspaces/{ws}/effects': ['', '?params=true', '?params=true&decision=failed'],
    '/v1/workspaces/{ws}/effects/{id}': of(effects, ''),
    '/v1/workspaces/{ws}/effects/{id}/receipt': of(effects, '', '?disclosure=1', '?disclosure=1&fields=params.text'),
    '/v1/workspaces/{ws}/effects/{id}/run': of(effects, ''),
    '/v1/workspaces/{ws}/effects/{id}/budgets': of(effects, ''),
    '/v1/workspaces/{ws}/approvals': ['', '?status=pending', '?status=used'],
    '/v1/workspaces/{ws}/approvals/{id}': of(approvals, ''),
    '/v1/workspaces/{ws}/ledger': ['?limit=100'],
    '/v1/workspaces/{ws}/export': [
      '',
      '?what=effects',
      '?format=bundle',
      '?format=csv',
      '?format=csv&what=events',
      '?format=csv&what=receipts',
    ],
    '/v1/workspaces/{ws}/observed-reads': ['?all=true'],
    '/approve/{ws}/{id}': of(approvals, ''),
  };
}

/** They tell of no call, are open without a key, or only say which doors there are. */
const OF_NO_CALL =
  /^\/(openapi\.json|livez|readyz|metrics|\.well-known\/|docs|mcp|v1\/mcp|v1\/beta\/(keys|users|ledger|notifications|policies)|v1\/workspaces$|v1\/workspaces\/\{ws\}\/(allowances|claims|reservations|pauses|budgets|brain|agents|tools|policies|pins))/;

async function readAll(key: string): Promise<readonly { readonly at: string; readonly text: string }[]> {
  const read: { at: string; text: string }[] = [];
  const signed = await fetch(`${gateway.url}/console/session`, {
    method: 'POST',
    headers: { 'content-type': 'application/json', 'svc-console': '1' },
    body: JSON.stringify({ key }),
  });
  const cookie = (signed.headers.get('set-cookie') ?? '').split(';')[0] ?? '';
  for (const [route, ends] of Object.entries(paths()))
    for (const end of ends) {
      const place = fitted(route, end);
      for (const headers of [{ 'x-api-key': key }, { cookie, 'svc-console': '1' }]) {
        const answer = await fetch(gateway.url + place, { headers, redirect: 'manual' });
        // A receipt is opened to no profile, and is there for what ran; the page is for those who decide.
        const isRefused = place.includes('/receipt') || place.startsWith('/approve/');
        if (!isRefused) expect([place, answer.status]).toEqual([place, 200]);
        read.push({ at: `${Object.keys(headers)[0]} ${place}`, text: await answer.text() });
      }
    }
  return read;
}

/** The path of a route, with an id and a query: `ID?query`. */
function fitted(route: string, end: string): string {
  const [id = '', query] = end.split('?');
  return route.replace('{ws}', 'demo').replace('{id}', id) + (query === undefined ? '' : `?${query}`);
}

/** What each tool of the control plane is called with; a new one has to be named here. */
function calls(): Readonly<Record<string, readonly object[]>> {
  const byEffect = effects.map((effect_id) => ({ effect_id }));
  return {
    'svc.executions.list': [{}],
    'svc.executions.get': byEffect,
    'svc.executions.trace': byEffect,
    'svc.receipts.verify': byEffect,
    'svc.approvals.list': [{}],
    'svc.approvals.get': approvals.map((approval_id) => ({ approval_id })),
    'svc.policy.explain': byEffect,
    'svc.observability.summary': [{ window: '1h' }],
    'svc.governance.readiness': [{}],
    'svc.tools.search': [{ query: 'note' }],
    'svc.tools.describe': [{ tool: 'notes.add' }],
    'svc.company_brain.query': [{ query: 'note', entity_type: 'customer' }],
    'svc.preflight.check': [{ tool: 'notes.add', agent_id: 'bot', params: { text: 'x', level: 'asked' } }],
    'svc.policy.simulate': [{ action: 'notes.add', agent_id: 'bot', params: { text: 'x', level: 'asked' } }],
  };
}

const rpc = async (key: string, method: string, params: object): Promise<string> => {
  const answer = await send(gateway.url, key, 'POST', '/v1/mcp', { jsonrpc: '2.0', id: 1, method, params });
  expect(answer.status).toBe(200);
  // An effect without a receipt has none to verify.
  const isError = answer.body.result?.isError === true && !JSON.stringify(params).includes('receipts.verify');
  expect(isError ? answer.body.result.content : []).toEqual([]);
  return JSON.stringify(answer.body);
};

async function callAll(key: string): Promise<readonly { readonly at: string; readonly text: string }[]> {
  const said: { at: string; text: string }[] = [];
  for (const [name, all] of Object.entries(calls()))
    for (const given of all)
      said.push({
        at: `${name} ${JSON.stringify(given)}`,
        text: await rpc(key, 'tools/call', { name, arguments: given }),
      });
  return said;
}

/** What the stream says of a call that is refused and of one that runs. */
async function streamed(key: string): Promise<string> {
  const gone = new AbortController();
  const { body } = await fetch(`${gateway.url}${WS}/effects/stream`, {
    headers: { 'x-api-key': key },
    signal: gone.signal,
  });
  if (body === null) throw new Error('no stream');
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let text = '';
  for (let ran = 0; !/"state":"committed"/.test(text) || !/"state":"denied"/.test(text); ran += 1) {
    text += (await reader.read()).value ?? '';
    // The first look at the ledger is where it begins: what ran before is not told.
    if (ran < 4) {
      await run('barred');
      await run('plain');
    }
  }
  gone.abort();
  return text;
}

const found = (all: readonly { readonly at: string; readonly text: string }[]) =>
  all.flatMap(({ at, text }) => (text.match(CANARY) ?? []).map((canary) => `${at}: ${canary}`));

const kinds = (all: readonly { readonly text: string }[]): ReadonlySet<string> =>
  new Set(all.flatMap(({ text }) => text.match(CANARY) ?? []));

describe('what an auditor reads', () => {
  it('each route that reads is asked, or tells of no call', async () => {
    const { paths: documented } = JSON.parse(
      await readFile(new URL('../../schemas/openapi.json', import.meta.url), 'utf8'),
    );
    const reading = Object.keys(documented).filter((path) => 'get' in documented[path] && !OF_NO_CALL.test(path));
    expect(reading.toSorted()).toEqual([...Object.keys(paths()), '/v1/workspaces/{ws}/effects/stream'].toSorted());
  });

  it('each tool that its key may call is called', async () => {
    const listed: string = await rpc(keys.auditor, 'tools/list', {});
    const names = [...new Set(listed.match(/"name":"svc\.[\w.]+"/g))].map((name) => name.slice(8, -1));
    expect(Object.keys(calls())).toEqual(expect.arrayContaining(names));
  });

  it('no route gives it params, answers, changed params or live state, with its key or a session of the console', async () => {
    expect(found(await readAll(keys.auditor))).toEqual([]);
    expect(kinds(await readAll(keys.account))).toEqual(new Set([PARAM, ANSWER, CHANGED, LIVE]));
  });

  it('no tool of the control plane does', async () => {
    expect(found(await callAll(keys.auditor))).toEqual([]);
    expect(kinds(await callAll(keys.account)).has(CHANGED)).toBe(true);
  });

  it('the stream of effects does not', async () => {
    expect(found([{ at: 'stream', text: await streamed(keys.auditor) }])).toEqual([]);
    expect(await streamed(keys.account)).toContain(PARAM);
  });

  it('a preflight does not tell it whether params that it guesses were those of a call', async () => {
    const ask = async (key: string, text: string, level: string, more: object = {}) => {
      const given = { tool: 'notes.add', agent_id: 'bot', params: { text, level }, ...more };
      const { result } = JSON.parse(await rpc(key, 'tools/call', { name: 'svc.preflight.check', arguments: given }));
      return JSON.stringify(result.structuredContent).replaceAll(text, 'the text');
    };
    const used = { idempotency_key: 'audited-1' };
    for (const [level, more] of [
      ['plain', used],
      ['asked', {}],
    ] as const) {
      expect(await ask(keys.auditor, PARAM, level, more)).toEqual(await ask(keys.auditor, 'another', level, more));
      expect(await ask(keys.examiner, PARAM, level, more)).not.toEqual(
        await ask(keys.examiner, 'another', level, more),
      );
    }
  });

  it('a key that may not call a tool reads no texts that rules made of its params, and no live state', async () => {
    const more = { profile: 'examiner', workspace: 'demo', allowed_tools: ['svc.executions.get'] };
    const key = await makeApiKey(gateway, 'olga', more);
    const read = async (path: string) => ({
      at: path,
      text: JSON.stringify((await send(gateway.url, key, 'GET', `${WS}/${path}`)).body),
    });
    const all = [
      ...(await Promise.all(effects.map((id) => read(`effects/${id}`)))),
      ...(await Promise.all(approvals.map((id) => read(`approvals/${id}`)))),
      await read('effects?params=true'),
      await read('approvals'),
    ];
    for (const { text } of all) expect(text).toContain('notes.add');
    expect(found([...all, { at: 'stream', text: await streamed(key) }])).toEqual([]);
  });

  it('an export gives them to nobody', async () => {
    const all = await readAll(keys.account);
    expect(found(all.filter(({ at }) => at.includes('/export')))).toEqual([]);
  });

  it('it is told why, and what it may read instead', async () => {
    const { body } = await send(gateway.url, keys.auditor, 'GET', `${WS}/effects/${effects[2]}`);
    expect(body.effect.params_omitted).toBe('the key does not have the scope params:read');
    expect(body.effect.reason.message).toBe('The rule notes/barred refuses this call.');
    const approval = await send(gateway.url, keys.auditor, 'GET', `${WS}/approvals/${approvals[2]}`);
    expect(approval.body.summary).toBe('(not shown: it is made of params, which this key does not read)');
  });

  it('a profile with params:read reads them', async () => {
    const { body } = await send(gateway.url, keys.examiner, 'GET', `${WS}/effects/${effects[0]}`);
    expect(body.effect).toMatchObject({ params: { text: PARAM }, result: { answer: ANSWER } });
  });
});
