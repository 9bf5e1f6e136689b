import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { createServer, get } from 'node:http';
import { connect } from 'node:http2';
import { createInterface } from 'node:readline';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import Anthropic from '@anthropic-ai/sdk';
import { ApiException, CoreV1Api, KubeConfig } from '@kubernetes/client-node';
import { graphql, GraphqlResponseError } from '@octokit/graphql';
import { Octokit } from '@octokit/rest';
import { WebClient } from '@slack/web-api';
import OpenAI from 'openai';
import Stripe from 'stripe';
import { afterAll, afterEach, beforeAll, expect, test, vi } from 'vitest';
import { blocksOf, filesOf } from '../docs/upstream-pages.ts';
import { listenerOf, makeApiKey, send, startGateway, type TestGateway } from '../system/gateway.ts';
import { type FakeApi, type Said, type Seen, startFakeApi } from './fake-api.ts';

let api: FakeApi;
let say: (seen: Seen) => Said = () => ({ json: {} });
let gateway: TestGateway | null = null;

beforeAll(async () => {
  api = await startFakeApi((seen) => say(seen));
});
afterAll(() => api.close());
afterEach(async () => {
  await gateway?.dispose();
  gateway = null;
  api.seen.length = 0;
  say = () => ({ json: {} });
});

interface Page {
  readonly url: string;
  readonly key: string;
}

/** Starts a gateway with the files of a page, its upstream's address and the folders replaced. */
async function startPage(page: string, upstream = api.url): Promise<Page> {
  const files = await filesOf(page);
  const config = (files.get('gateway.yaml') ?? '')
    .replace(/url: "?https?:\/\/[\w.:-]+"?/, `url: "${upstream}"`)
    .replace('listen: 127.0.0.1:8443', 'listen: "127.0.0.1:0"')
    .replace('[policies]', '["${SVC_TEST_POLICIES}"]')
    .replace(/file: credentials\/\w+/, 'value: "${CREDENTIAL}"');
  const own = 'server: { host: 127.0.0.1, port: 0 }\nstore: { kind: embedded, path: "${SVC_TEST_DATA}" }\n';
  gateway = await startGateway(
    { config: own + config, policies: { 'first.yaml': files.get('policies/first.yaml') ?? '' } },
    { env: { CREDENTIAL: 'Bearer of-the-api' } },
  );
  const key = await makeApiKey(gateway, 'ada', { kind: 'agent', workspace: 'default', agent_id: 'my-agent' });
  return { url: gateway.url, key };
}

async function thrown(call: Promise<unknown>): Promise<unknown> {
  return call.then(
    () => expect.unreachable('nothing was thrown'),
    (error: unknown) => error,
  );
}

function post(page: Page, path: string, body: unknown, headers: Record<string, string> = {}): Promise<Response> {
  const json = { 'content-type': 'application/json', 'x-api-key': page.key, ...headers };
  return fetch(`${page.url}${path}`, { method: 'POST', headers: json, body: JSON.stringify(body) });
}

test('openai', async () => {
  const page = await startPage('openai');
  const openai = new OpenAI({ apiKey: page.key, baseURL: `${page.url}/openai/v1` });
  const message = { role: 'assistant', content: 'hello' };
  say = () => ({ json: { id: 'c1', object: 'chat.completion', choices: [{ index: 0, message }] } });
  const messages = [{ role: 'user' as const, content: 'hi' }];
  const chat = await openai.chat.completions.create({ model: 'gpt-5', messages });
  expect(chat.choices[0]?.message.content).toBe('hello');
  expect(api.seen[0]?.headers.authorization).toBe('Bearer of-the-api');
  // The same question again is asked again.
  await openai.chat.completions.create({ model: 'gpt-5', messages });
  expect(api.seen.length).toBe(2);
  const denied = await thrown(openai.chat.completions.create({ model: 'o9', messages }));
  expect(denied).toBeInstanceOf(OpenAI.PermissionDeniedError);
  expect(api.seen.length).toBe(2);
  say = () => ({ json: { object: 'list', data: [{ id: 'gpt-5' }] } });
  expect((await openai.models.list()).data[0]?.id).toBe('gpt-5');
  say = () => ({ status: 500, json: { error: { message: 'oops' } } });
  const unknown = await thrown(openai.chat.completions.create({ model: 'gpt-5', messages }));
  expect(unknown).toMatchObject({ status: 504, code: 'outcome_unknown' });
  expect(api.seen.length).toBe(4);
});

test('openai and anthropic: a busy API is asked again by the library', async () => {
  const busy = (statuses: number[], json: unknown) => (): Said => {
    const status = statuses.shift();
    return status === undefined ? { json } : { status, headers: { 'retry-after-ms': '1' }, json: {} };
  };
  const messages = [{ role: 'user' as const, content: 'hi' }];
  const openai = await startPage('openai');
  say = busy([429, 503], { id: 'c1', object: 'chat.completion', choices: [] });
  const client = new OpenAI({ apiKey: openai.key, baseURL: `${openai.url}/openai/v1` });
  expect((await client.chat.completions.create({ model: 'gpt-5', messages })).id).toBe('c1');
  expect(api.seen.length).toBe(2 + 1);
  await gateway?.dispose();
  const anthropic = await startPage('anthropic');
  say = busy([529, 429], { id: 'msg_1', type: 'message', role: 'assistant', content: [] });
  const other = new Anthropic({ apiKey: anthropic.key, baseURL: `${anthropic.url}/anthropic` });
  expect((await other.messages.create({ model: 'claude', max_tokens: 10, messages })).id).toBe('msg_1');
  expect(api.seen.length).toBe(2 * (2 + 1));
});

test('ten minutes: the script runs as it is against the stand-in of the list', async () => {
  const [fake = ''] = await blocksOf('README', 'js');
  const folder = await mkdtemp(join(tmpdir(), 'svc-fake-'));
  await writeFile(join(folder, 'fake.mjs'), fake);
  const child = spawn(process.execPath, [join(folder, 'fake.mjs')], { env: { ...process.env, PORT: '0' } });
  try {
    const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
    const page = await startPage('openai', String((await lines.next()).value));
    // What the library takes from the environment.
    vi.stubEnv('OPENAI_API_KEY', page.key);
    vi.stubEnv('OPENAI_BASE_URL', `${page.url}/openai/v1`);
    const chat = await new OpenAI().chat.completions.create({ model: 'gpt-5', messages: [] });
    expect(chat.choices[0]?.message.content).toBe('hello');
    expect((await lines.next()).value).toBe(
      'POST /v1/chat/completions Bearer of-the-api {"model":"gpt-5","messages":[]}',
    );
  } finally {
    vi.unstubAllEnvs();
    child.kill();
    await rm(folder, { recursive: true });
  }
});

test('openai: a stream that answers a write arrives whole', async () => {
  const events = [
    '{"choices":[{"index":0,"delta":{"content":"hel"}}]}',
    '{"choices":[{"index":0,"delta":{"content":"lo"}}]}',
  ];
  const server = createServer((request, response) => {
    request.resume().on('end', () => {
      response.writeHead(200, { 'content-type': 'text/event-stream' });
      response.end([...events, '[DONE]'].map((event) => `data: ${event}\n\n`).join(''));
    });
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  const page = await startPage('openai', `http://127.0.0.1:${port}`);
  const openai = new OpenAI({ apiKey: page.key, baseURL: `${page.url}/openai/v1` });
  const stream = await openai.chat.completions.create({ model: 'gpt-5', messages: [], stream: true });
  let text = '';
  for await (const chunk of stream) text += chunk.choices[0]?.delta.content ?? '';
  expect(text).toBe('hello');
  server.closeAllConnections();
  server.close();
});

test('stripe', async () => {
  const page = await startPage('stripe');
  if (gateway === null) throw new Error('the page has started one');
  const listener = await listenerOf(gateway, '127.0.0.1:0');
  const stripe = new Stripe(page.key, { host: listener.hostname, port: Number(listener.port), protocol: 'http' });
  say = ({ method }) =>
    method === 'POST'
      ? { json: { id: 're_1', object: 'refund' } }
      : {
          json: { object: 'list', url: '/v1/customers', has_more: false, data: [{ id: 'cus_1', object: 'customer' }] },
        };
  expect((await stripe.refunds.create({ charge: 'ch_1', amount: 100, metadata: { order: '6735' } })).id).toBe('re_1');
  expect(api.seen[0]?.body.toString()).toBe('charge=ch_1&amount=100&metadata%5Border%5D=6735');
  expect((await stripe.customers.list({ limit: 1 })).data[0]?.id).toBe('cus_1');
  const seen = api.seen.length;
  const large = await thrown(stripe.refunds.create({ charge: 'ch_1', amount: 10_001 }));
  expect(large).toMatchObject({ code: 'approval_required', statusCode: 409 });
  // docs/upstreams/stripe.md: "The budget cannot count it, so it is refused (`amount_invalid`)."
  const everything = await thrown(stripe.refunds.create({ charge: 'ch_1' }));
  expect(everything).toMatchObject({ code: 'amount_invalid', statusCode: 402 });
  const other = await thrown(stripe.refunds.create({ charge: 'ch_1', amount: 1 }, { stripeAccount: 'acct_1' }));
  expect(other).toBeInstanceOf(Stripe.errors.StripePermissionError);
  expect(api.seen.length).toBe(seen);
});

test('github', async () => {
  const page = await startPage('github');
  const log = { debug() {}, info() {}, warn() {}, error() {} };
  const octokit = new Octokit({ auth: page.key, baseUrl: `${page.url}/github`, log });
  say = ({ method }) =>
    method === 'POST'
      ? { status: 201, json: { number: 7 } }
      : { json: [], headers: { link: '<https://api.github.com/repositories/1/issues?page=2>; rel="next"' } };
  expect((await octokit.issues.create({ owner: 'acme', repo: 'shop', title: 'Broken' })).data.number).toBe(7);
  const again = await thrown(octokit.issues.create({ owner: 'acme', repo: 'shop', title: 'Broken' }));
  expect(again).toMatchObject({ status: 422, message: expect.stringContaining('under this key') });
  await octokit.issues.createComment({ owner: 'acme', repo: 'shop', issue_number: 7, body: 'Seen' });
  const pages = await octokit.issues.listForRepo({ owner: 'acme', repo: 'shop', page: 1, per_page: 10 });
  expect(pages.data).toEqual([]);
  // The fake is not at GitHub's address: that is another origin, which no library may be led to with the key.
  expect(pages.headers.link).toBeUndefined();
  expect(pages.headers['svc-foreign-link']).toContain('https://api.github.com/');
  await octokit.repos.listBranches({ owner: 'acme', repo: 'shop' });
  const at = { owner: 'acme', repo: 'shop' };
  const file = { ...at, message: 'm', content: 'eA==' };
  await octokit.repos.getContent({ ...at, path: 'src/a.ts' });
  await octokit.repos.createOrUpdateFileContents({ ...file, path: 'src/a.ts' });
  await octokit.git.getRef({ ...at, ref: 'heads/main' });
  expect(api.seen.at(-2)).toMatchObject({ method: 'PUT', url: '/repos/acme/shop/contents/src%2Fa.ts' });
  const seen = api.seen.length;
  const workflow = octokit.repos.createOrUpdateFileContents({ ...file, path: '.github/workflows/ci.yml' });
  expect(await thrown(workflow)).toMatchObject({ status: 403 });
  expect(await thrown(octokit.issues.create({ owner: 'else', repo: 'shop', title: 'Broken' }))).toMatchObject({
    status: 403,
  });
  const undeclared = await thrown(octokit.issues.lock({ owner: 'acme', repo: 'shop', issue_number: 7 }));
  expect(String(undeclared)).toContain('PUT /repos/acme/shop/issues/7/lock');
  expect(api.seen.length).toBe(seen);
});

test('slack', async () => {
  const page = await startPage('slack');
  const slack = new WebClient(page.key, { slackApiUrl: `${page.url}/slack/api/` });
  say = () => ({ json: { ok: true, channel: 'C_TEAM', ts: '1.2' } });
  expect((await slack.chat.postMessage({ channel: 'C_TEAM', text: 'Deployed' })).ok).toBe(true);
  say = () => ({ json: { ok: false, error: 'is_archived' } });
  expect(await thrown(slack.chat.postMessage({ channel: 'C_TEAM', text: 'Deployed' }))).toMatchObject({
    data: { ok: false, error: 'is_archived' },
  });
  const form = new URLSearchParams({ channel: 'C_TEAM', text: 'Again' });
  const failed = await fetch(`${page.url}/slack/api/chat.postMessage`, {
    method: 'POST',
    headers: { 'x-api-key': page.key },
    body: form,
  });
  expect(failed.headers.get('svc-decision')).toBe('failed');
  const seen = api.seen.length;
  expect(await thrown(slack.chat.postMessage({ channel: 'C_OTHER', text: 'a' }))).toMatchObject({
    code: 'slack_webapi_platform_error',
    data: { ok: false, error: 'no_rule_allows' },
  });
  expect(await thrown(slack.chat.postMessage({ channel: 'C_TEAM', text: '<!here> a' }))).toMatchObject({
    data: { error: 'rule_denied', message: 'Agents do not notify everybody' },
  });
  expect(api.seen.length).toBe(seen);
});

test('slack: the library’s upload of a file takes the agent’s key to no other address', async () => {
  const page = await startPage('slack');
  const elsewhere = await startFakeApi(() => ({ json: 'OK' }));
  try {
    const upload_url = `${elsewhere.url}/upload/v1/abc`;
    say = ({ url }) =>
      url.endsWith('getUploadURLExternal')
        ? { json: { ok: true, upload_url, file_id: 'F1' } }
        : { json: { ok: true, files: [{ id: 'F1' }] } };
    const slack = new WebClient(page.key, { slackApiUrl: `${page.url}/slack/api/`, retryConfig: { retries: 0 } });
    const bytes = Buffer.from('the report');
    const file = { file: bytes, filename: 'report.txt' };
    expect(await thrown(slack.filesUploadV2({ ...file, channel_id: 'C_TEAM' }))).toMatchObject({
      code: 'slack_webapi_request_error',
    });
    expect(elsewhere.seen).toEqual([]);
    expect(api.seen.map(({ url }) => url)).toEqual(['/api/files.getUploadURLExternal']);
    // As the page has it.
    const asked = await slack.files.getUploadURLExternal({ filename: 'report.txt', length: bytes.length });
    await fetch(asked.upload_url?.replace('svc-foreign:', '') ?? '', { method: 'POST', body: bytes });
    const share = { files: [{ id: asked.file_id ?? '', title: 'report.txt' }] as [{ id: string; title: string }] };
    expect((await slack.files.completeUploadExternal({ ...share, channel_id: 'C_TEAM' })).ok).toBe(true);
    expect(elsewhere.seen.map(({ headers, body }) => [headers.authorization, String(body)])).toEqual([
      [undefined, 'the report'],
    ]);
    expect(await thrown(slack.files.completeUploadExternal({ ...share, channel_id: 'C_OTHER' }))).toMatchObject({
      data: { error: 'no_rule_allows' },
    });
  } finally {
    await elsewhere.close();
  }
});

test('anthropic: what a stream spent is posted, the input from its first event', async () => {
  const events = [
    { type: 'message_start', message: { id: 'm1', content: [], usage: { input_tokens: 500, output_tokens: 1 } } },
    { type: 'message_delta', delta: { stop_reason: 'end_turn' }, usage: { output_tokens: 40 } },
    { type: 'message_stop' },
  ];
  const server = createServer((request, response) => {
    request.resume().on('end', () => {
      response.writeHead(200, { 'content-type': 'text/event-stream' });
      response.end(events.map((event) => `event: ${event.type}\ndata: ${JSON.stringify(event)}\n\n`).join(''));
    });
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  const page = await startPage('anthropic', `http://127.0.0.1:${port}`);
  const client = new Anthropic({ apiKey: page.key, baseURL: `${page.url}/anthropic` });
  const messages = [{ role: 'user' as const, content: 'hi' }];
  const stream = client.messages.stream({ model: 'claude', max_tokens: 100, messages });
  expect((await stream.finalMessage()).usage.output_tokens).toBe(40);
  if (gateway === null) throw new Error('the page has started one');
  const account = await makeApiKey(gateway, 'ada', { kind: 'account', workspace: 'default' });
  const { body } = await send(gateway.url, account, 'GET', '/v1/workspaces/default/budgets');
  expect(body.budgets).toMatchObject([{ budget: 'anthropic/tokens', spent: 540, held: 0 }]);
  server.closeAllConnections();
  server.close();
});

test('anthropic', async () => {
  const page = await startPage('anthropic');
  const anthropic = new Anthropic({ apiKey: page.key, baseURL: `${page.url}/anthropic` });
  say = () => ({ json: { id: 'm1', type: 'message', role: 'assistant', content: [{ type: 'text', text: 'hello' }] } });
  const ask = { model: 'claude-fable-5-1', messages: [{ role: 'user' as const, content: 'hi' }] };
  const { content } = await anthropic.messages.create({ ...ask, max_tokens: 100 });
  expect(content).toEqual([{ type: 'text', text: 'hello' }]);
  expect(api.seen[0]?.headers).toMatchObject({ 'x-api-key': 'Bearer of-the-api' });
  const denied = await thrown(anthropic.messages.create({ ...ask, max_tokens: 5000 }));
  expect(denied).toBeInstanceOf(Anthropic.PermissionDeniedError);
  expect(denied).toMatchObject({ type: 'denied_policy', errorCode: 'no_rule_allows' });
  say = () => ({ json: { data: [], has_more: false } });
  expect((await anthropic.models.list()).data).toEqual([]);
  expect(api.seen.length).toBe(2);
});

test('graphql', async () => {
  const page = await startPage('graphql');
  const ask = graphql.defaults({ baseUrl: `${page.url}/github`, headers: { authorization: `token ${page.key}` } });
  const policy = (await filesOf('graphql')).get('policies/first.yaml') ?? '';
  const [query, mutation] = [...policy.matchAll(/"((?:query|mutation)[^\n]*)"/g)].map(([, text]) =>
    String(JSON.parse(`"${text}"`)),
  );
  say = () => ({ json: { data: { repository: { id: 'R_1' } } } });
  expect(await ask(query ?? '', { owner: 'acme', name: 'shop' })).toEqual({ repository: { id: 'R_1' } });
  say = () => ({ json: { data: { createLabel: { label: { id: 'L_1' } } } } });
  const label = { repo: 'R_acme_shop', name: 'bug' };
  expect(await ask(mutation ?? '', label)).toEqual({ createLabel: { label: { id: 'L_1' } } });
  say = () => ({ json: { data: { createLabel: null }, errors: [{ type: 'FORBIDDEN', message: 'Not you' }] } });
  const refused = await thrown(ask(mutation ?? '', label));
  expect(refused).toMatchObject({ headers: { 'svc-decision': 'failed' }, errors: [{ message: 'Not you' }] });
  say = () => ({ json: { data: null, errors: [{ message: 'oops' }] } });
  const unknown = await thrown(ask(mutation ?? '', label));
  expect(unknown).toMatchObject({ errors: [{ extensions: { code: 'outcome_unknown' } }] });
  const seen = api.seen.length;
  // docs/upstreams/graphql.md: "What is not on the list is refused, whatever it calls itself."
  for (const document of [
    `${query} ${mutation}`,
    mutation?.replace('bug', 'x').replace('createLabel', 'deleteLabel'),
  ]) {
    const denied = await thrown(ask(document ?? '', label));
    expect(denied).toBeInstanceOf(GraphqlResponseError);
    expect(denied).toMatchObject({ errors: [{ extensions: { code: 'no_rule_allows' } }] });
  }
  // docs/upstreams/graphql.md: "Batches (a list of operations as the body) are refused: there is no object around them."
  const batch = await fetch(`${page.url}/github/graphql`, {
    method: 'POST',
    headers: { authorization: `token ${page.key}`, 'content-type': 'application/json' },
    body: JSON.stringify([{ query }, { query: mutation, variables: label }]),
  });
  expect(await batch.json()).toMatchObject({ data: null, errors: [{ message: expect.stringContaining('object') }] });
  const elsewhere = await thrown(ask(mutation ?? '', { ...label, repo: 'R_other' }));
  expect(elsewhere).toMatchObject({ errors: [{ extensions: { decision: 'denied_policy' } }] });
  expect(api.seen.length).toBe(seen);
});

test('kubernetes', async () => {
  const page = await startPage('kubernetes');
  const config = new KubeConfig();
  const server = `${page.url}/kubernetes`;
  config.loadFromClusterAndUser({ name: 'gateway', server, skipTLSVerify: true }, { name: 'agent', token: page.key });
  const client = config.makeApiClient(CoreV1Api);
  say = ({ method }) =>
    method === 'GET'
      ? { json: { kind: 'PodList', items: [] } }
      : { json: { kind: 'ConfigMap', metadata: { name: 'a' } } };
  expect((await client.listNamespacedPod({ namespace: 'prod', limit: 5 })).items).toEqual([]);
  const create = (namespace: string, name: string) =>
    client.createNamespacedConfigMap({ namespace, body: { metadata: { name }, data: { a: '1' } } });
  expect((await create('dev', 'flags')).metadata?.name).toBe('a');
  await client.deleteNamespacedConfigMap({ namespace: 'dev', name: 'flags' });
  expect(api.seen.map(({ method, headers }) => [method, headers.authorization])).toEqual(
    ['GET', 'POST', 'DELETE'].map((method) => [method, 'Bearer of-the-api']),
  );
  for (const [namespace, name, sentence] of [
    ['prod', 'flags', 'No policy rule allows'],
    ['dev', 'settings', 'The settings are changed by people'],
  ] as const) {
    const denied = await thrown(create(namespace, name));
    expect(denied).toBeInstanceOf(ApiException);
    expect(denied).toMatchObject({ code: 403, body: expect.stringContaining(sentence) });
  }
  expect(api.seen.length).toBe(3);
});

test('openapi: the commands of the page', async () => {
  const folder = await mkdtemp(join(tmpdir(), 'svc-page-'));
  const [document = ''] = await blocksOf('openapi', 'yaml');
  const [commands = ''] = await blocksOf('openapi', 'sh');
  await writeFile(join(folder, 'openapi.yaml'), document.replace('http://127.0.0.1:9090', api.url));
  const [init = ''] = commands.split('\n');
  const words = [join(process.cwd(), 'bin', 'svc.mjs'), ...init.split(' ').slice(1)];
  await promisify(execFile)(process.execPath, words, { cwd: folder });
  const config = await readFile(join(folder, 'my-gateway', 'gateway.yaml'), 'utf8');
  const policy = await readFile(join(folder, 'my-gateway', 'policies', 'first.yaml'), 'utf8');
  gateway = await startGateway({
    config: config
      .replace('./my-gateway/data', '${SVC_TEST_DATA}')
      .replace('./my-gateway/policies', '${SVC_TEST_POLICIES}'),
    policies: { 'first.yaml': policy },
  });
  const key = await makeApiKey(gateway, 'operator', { kind: 'agent', workspace: 'default', agent_id: 'my-agent' });
  say = () => ({ status: 201, json: { id: 'o_1' } });
  const page = { url: gateway.url, key };
  const made = await post(page, '/api/orders', { sku: 'A-1', quantity: 2 });
  expect([made.status, made.headers.get('svc-decision'), await made.json()]).toEqual([201, 'committed', { id: 'o_1' }]);
  const seen = api.seen.length;
  await rm(folder, { recursive: true });
  await writeFile(
    gateway.configFile,
    (await readFile(gateway.configFile, 'utf8')).replace('mode: observe', 'mode: enforce'),
  );
  await expect
    .poll(async () => (await post(page, '/api/orders', { sku: 'A-1', quantity: 1000 })).status, { timeout: 30_000 })
    .toBe(400);
  expect(api.seen.length).toBeGreaterThanOrEqual(seen);
});

test('rest', async () => {
  const page = await startPage('rest');
  say = ({ method }) => (method === 'DELETE' ? { status: 409, json: {} } : { status: 201, json: { id: 'o_1' } });
  const order = { sku: 'A-1', quantity: 2 };
  const key = { 'idempotency-key': 'order-1' };
  expect((await post(page, '/shop/orders', order, key)).status).toBe(201);
  expect(await (await post(page, '/shop/orders', order, key)).json()).toMatchObject({ decision: 'duplicate_blocked' });
  expect(await (await post(page, '/shop/orders', { ...order, quantity: 3 }, key)).json()).toMatchObject({
    decision: 'idempotency_conflict',
  });
  expect((await post(page, '/shop/orders', order)).status).toBe(400);
  // docs/upstreams/README.md: "**A write without a rule** is refused with `route_not_declared`, which names the lines that
  // would declare it."
  const undeclared = await post(page, '/shop/returns', order, key);
  expect(await undeclared.json()).toMatchObject({
    reason: { code: 'route_not_declared', message: expect.stringContaining('match: "POST /returns"') },
  });
  expect(api.seen.length).toBe(1);
  const headers = { 'x-api-key': page.key };
  expect((await fetch(`${page.url}/shop/orders/o_1`, { headers })).status).toBe(201);
  const cancelled = await fetch(`${page.url}/shop/orders/o_1?reason=late`, { method: 'DELETE', headers });
  expect([cancelled.status, await cancelled.json()]).toMatchObject([409, { decision: 'pending_approval' }]);
  expect(api.seen.length).toBe(2);
});

test('signed', async () => {
  const page = await startPage('signed');
  const [curl = ''] = await blocksOf('signed', 'sh');
  const body: object = JSON.parse(/-d '(.*)'/.exec(curl)?.[1] ?? '');
  say = () => ({ json: { MessageId: 'm1' } });
  const sent = await post(page, '/queues/', body, { 'idempotency-key': 'job-1' });
  expect([sent.status, await sent.json()]).toEqual([200, { MessageId: 'm1' }]);
  expect(api.seen[0]).toMatchObject({ url: '/', headers: { 'x-amz-target': 'AmazonSQS.SendMessage' } });
  const other = { ...body, QueueUrl: 'https://sqs.eu-central-1.amazonaws.com/1/else' };
  expect((await post(page, '/queues/', other, { 'idempotency-key': 'job-2' })).status).toBe(403);
  // docs/upstreams/signed.md: "A signed request is refused with 401, because its `Authorization` holds no key of the gateway;
  // nothing of it arrives."
  const signed = await fetch(`${page.url}/queues/`, {
    method: 'POST',
    headers: { authorization: 'AWS4-HMAC-SHA256 Credential=AKIA/20261122/eu-central-1/sqs/aws4_request, Signature=00' },
    body: '{}',
  });
  expect(signed.status).toBe(401);
  // docs/upstreams/signed.md: "the gateway speaks HTTP/1.1: a connection that begins with HTTP/2 is refused"
  const session = connect(page.url);
  const [refused] = await once(session, 'error');
  expect(refused).toBeInstanceOf(Error);
  session.destroy();
  expect(api.seen.length).toBe(1);
});

test('streams', async () => {
  const closing: (() => void)[] = [];
  const server = createServer((_request, response) => {
    response.writeHead(200, { 'content-type': 'text/event-stream' });
    response.write('data: first\n\n');
    closing.push(() => response.end());
  });
  let upgradedWith = '';
  server.on('upgrade', (request, socket) => {
    upgradedWith = request.url ?? '';
    socket.write('HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n');
    socket.on('data', (data: Buffer) => socket.write(`heard ${data.toString()}`));
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  const page = await startPage('streams', `http://127.0.0.1:${port}`);
  const events = await fetch(`${page.url}/live/events/news`, { headers: { 'x-api-key': page.key } });
  // The first event is there while the stream goes on.
  const first = await events.body?.getReader().read();
  expect(new TextDecoder().decode(first?.value)).toBe('data: first\n\n');
  for (const close of closing) close();
  const other = await fetch(`${page.url}/live/events/else`, { headers: { 'x-api-key': page.key } });
  expect(other.status).toBe(403);
  const headers = { connection: 'Upgrade', upgrade: 'websocket', 'sec-websocket-version': '13' };
  const asked = get(`${page.url}/live/socket?api_key=${page.key}`, {
    headers: { ...headers, 'sec-websocket-key': 'dGhlIHNhbXBsZSBub25jZQ==' },
  });
  const [, socket] = await once(asked, 'upgrade');
  socket.write('hello');
  const [heard] = await once(socket, 'data');
  expect([String(heard), upgradedWith]).toEqual(['heard hello', '/socket']);
  socket.destroy();
  server.closeAllConnections();
  server.close();
});
