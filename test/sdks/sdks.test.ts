import { setTimeout as delay } from 'node:timers/promises';
import { Octokit } from '@octokit/rest';
import { WebClient } from '@slack/web-api';
import axios, { type AxiosInstance, type AxiosResponse } from 'axios';
import OpenAI from 'openai';
import Stripe from 'stripe';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { listenerOf, makeApiKey, startGateway, type TestGateway } from '../system/gateway.ts';
import { type FakeApi, type Said, type Seen, startFakeApi } from './fake-api.ts';

let api: FakeApi;
/** Another origin, which keys must never come to. */
let elsewhere: FakeApi;
let gateway: TestGateway;
let listener: URL;
let key: string;
/** What the fake answers next instead. */
let next: Said | Promise<Said> | null = null;

const TOOL_CALL = {
  id: 'c0',
  object: 'chat.completion',
  choices: [
    {
      index: 0,
      finish_reason: 'tool_calls',
      message: {
        role: 'assistant',
        content: null,
        tool_calls: [{ id: 'call_1', type: 'function', function: { name: 'weather', arguments: '{"city":"Graz"}' } }],
      },
    },
  ],
};

function answer({ method, url, body }: Seen): Said | Promise<Said> {
  if (next !== null) return next;
  if (url.startsWith('/v1/refunds')) return { json: { id: 're_1', object: 'refund', amount: 100, charge: 'ch_1' } };
  if (url.startsWith('/v1/customers'))
    return {
      json: {
        object: 'list',
        url: '/v1/customers',
        has_more: !url.includes('starting_after'),
        data: [{ id: url.includes('starting_after') ? 'cus_2' : 'cus_1', object: 'customer' }],
      },
    };
  if (url === '/v1/chat/completions') {
    // A model that may call a function calls it once, and says what came of it.
    const asksForTool = body.includes('"tools":') && !body.includes('"role":"tool"');
    if (asksForTool) return { json: TOOL_CALL };
    return {
      json: {
        id: 'c1',
        object: 'chat.completion',
        choices: [{ index: 0, finish_reason: 'stop', message: { role: 'assistant', content: 'hello' } }],
      },
    };
  }
  if (method === 'GET' && url.startsWith('/repos/acme/shop/issues')) {
    const page = Number(new URL(url, api.url).searchParams.get('page') ?? '1');
    // As GitHub writes it: whole addresses of its own origin.
    const next = `<${api.url}/repos/acme/shop/issues?page=${page + 1}>; rel="next"`;
    return { ...(page < 3 ? { headers: { link: next } } : {}), json: [{ number: page }] };
  }
  if (url.startsWith('/orders')) {
    const page = Number(new URL(url, api.url).searchParams.get('page') ?? '1');
    const files = { href: `${elsewhere.url}/files` };
    if (method === 'POST')
      return { status: 201, json: { id: 'o_7', _links: { self: { href: `${api.url}/orders/o_7` }, files } } };
    const next = page < 3 ? `${api.url}/orders?page=${page + 1}` : null;
    return { json: { data: [page], paging: { next }, _links: { files } } };
  }
  if (method === 'GET' && url.startsWith('/repos/acme/leaky/'))
    return { status: 302, headers: { location: elsewhere.url, link: `<${elsewhere.url}/i>; rel="next"` }, json: [] };
  if (url.startsWith('/repos/acme/shop/contents/'))
    return { json: { path: decodeURIComponent(url), content: { sha: 's' } } };
  if (url.startsWith('/repos/acme/shop/git/ref/')) return { json: { ref: url } };
  if (url.startsWith('/repos/acme/shop/branches/')) return { json: {} };
  if (method === 'POST' && url === '/repos/acme/shop/issues')
    return { status: 201, json: { number: 7, title: 'Broken' } };
  if (url === '/api/chat.postMessage') return { json: { ok: true, channel: 'C1', ts: '1.2' } };
  return { status: 404, json: { error: { message: 'no such path', type: 'invalid_request_error' } } };
}

const config = (url: string): string => `
server: { host: 127.0.0.1, port: 0 }
store: { kind: embedded, path: "\${SVC_TEST_DATA}" }
users: [ { id: maria, roles: [lead] }, { id: olga, roles: [] } ]
roles: { lead: {} }
workspaces: [ { id: demo, agents: [ { id: bot, team: support, owner: olga } ] } ]
policies: { paths: ["\${SVC_TEST_POLICIES}"] }
upstreams: [ { id: api, url: "${url}", timeout: 10s, credentials: { header: authorization, value: "Bearer \${UPSTREAM_KEY}" } } ]
tools:
  - name: stripe.refund
    upstream: api
    kind: write
    request: { method: POST, path: /v1/refunds, body: "*", body_type: form }
    params_schema: { type: object, properties: { charge: { type: string }, amount: { type: integer }, metadata: { type: object }, expand: { type: array } } }
    idempotent: { header: Idempotency-Key, for: 24h }
  - { name: stripe.customers, upstream: api, kind: read, request: { method: GET, path: /v1/customers, query: [limit, starting_after] } }
  - { name: shop.orders, upstream: api, kind: read, request: { method: GET, path: /orders, query: [page] } }
  - { name: shop.order, upstream: api, kind: write, request: { method: POST, path: /orders, body: "*" } }
  - { name: openai.chat, upstream: api, kind: write, request: { method: POST, path: /v1/chat/completions, body: "*" } }
  - { name: github.issue, upstream: api, kind: write, request: { method: POST, path: "/repos/{owner}/{repo}/issues", body: "*" } }
  - { name: github.issues, upstream: api, kind: read, request: { method: GET, path: "/repos/{owner}/{repo}/issues", query: [page] } }
  - { name: github.file, upstream: api, kind: read, request: { method: GET, path: "/repos/{owner}/{repo}/contents/{+path}" }, target: "file:{owner}:{repo}:{path}" }
  - { name: github.write_file, upstream: api, kind: write, request: { method: PUT, path: "/repos/{owner}/{repo}/contents/{+path}", body: "*" }, target: "file:{owner}:{repo}:{path}" }
  - { name: github.ref, upstream: api, kind: read, request: { method: GET, path: "/repos/{owner}/{repo}/git/ref/{+ref}" } }
  - { name: github.unprotect, upstream: api, kind: write, request: { method: DELETE, path: "/repos/{owner}/{repo}/branches/{branch}/protection" }, target: "branch:{branch}" }
  - { name: slack.post, upstream: api, kind: write, request: { method: POST, path: /api/chat.postMessage, body: "*", body_type: form } }
routes:
  - { upstream: api, prefix: /, listen: "127.0.0.1:0", error_format: stripe, pending_status: 409, rules: [ { match: "POST /v1/refunds", tool: stripe.refund }, { match: "GET /v1/customers", tool: stripe.customers } ] }
  - { upstream: api, prefix: /shop, links: [paging.next, _links.*.href], rules: [ { match: "GET /orders", tool: shop.orders }, { match: "POST /orders", tool: shop.order, idempotency: required, on_duplicate: replay } ] }
  - { upstream: api, prefix: /openai, error_format: openai, pending_status: 409, rules: [ { match: "POST /v1/chat/completions", tool: openai.chat, idempotency: derive } ] }
  - { upstream: api, prefix: /github, error_format: github, pending_status: 409, keys: [token, bearer], rules: [ { match: "POST /repos/:owner/:repo/issues", tool: github.issue, idempotency: derive }, { match: "GET /repos/:owner/:repo/issues", tool: github.issues }, { match: "GET /repos/:owner/:repo/contents/*path", tool: github.file }, { match: "PUT /repos/:owner/:repo/contents/*path", tool: github.write_file, idempotency: derive }, { match: "GET /repos/:owner/:repo/git/ref/*ref", tool: github.ref }, { match: "DELETE /repos/:owner/:repo/branches/:branch/protection", tool: github.unprotect, encoded_slashes: [branch], idempotency: derive } ] }
  - { upstream: api, prefix: /slack, pending_status: 409, rules: [ { match: "POST /api/chat.postMessage", tool: slack.post, idempotency: none } ] }
`;
const POLICY = `
apiVersion: svc-gateway/v1
kind: PolicySet
name: sdks
owner: team
budgets: { refunds: { unit: cent, by: [agent.id], per: year, limit: 5000 } }
rules:
  - { id: refund, effect: allow, match: { tools: [stripe.refund] }, obligations: [ { budget: { use: refunds, amount: params.amount } } ] }
  - { id: large, effect: require_approval, match: { tools: [stripe.refund] }, when: { params.amount: { gt: 4000 } }, approval: { approvers: { roles: [lead] }, quorum: 1, expires: 1h, summary: "Refund" } }
  - { id: rest, effect: allow, match: { tools: [shop.orders, shop.order, stripe.customers, openai.chat, "github.*", slack.post] } }
  - { id: no-workflows, effect: deny, match: { targets: ["file:acme:shop:.github/**", "branch:release/*"] }, reason: "Not these files" }
  - { id: no-chat, effect: deny, match: { tools: [openai.chat] }, when: { params.model: gpt-forbidden }, reason: "Not this model" }
  - { id: no-repo, effect: deny, match: { tools: [github.issue] }, when: { params.repo: secret }, reason: "Not this repository" }
  - { id: no-channel, effect: deny, match: { tools: [slack.post] }, when: { params.channel: C_SECRET }, reason: "Not this channel" }
  - { id: no-charge, effect: deny, match: { tools: [stripe.refund] }, when: { params.charge: ch_locked }, reason: "Locked" }
`;

beforeAll(async () => {
  api = await startFakeApi(answer);
  elsewhere = await startFakeApi(() => ({ json: [] }));
  gateway = await startGateway(
    { config: config(api.url), policies: { 'sdks.yaml': POLICY } },
    { env: { UPSTREAM_KEY: 'sk_upstream' } },
  );
  listener = await listenerOf(gateway, '127.0.0.1:0');
  key = await makeApiKey(gateway, 'olga', { kind: 'agent', workspace: 'demo', agent_id: 'bot' });
});
afterAll(async () => {
  await gateway.dispose();
  await api.close();
  await elsewhere.close();
});
beforeEach(() => {
  api.seen.length = 0;
  next = null;
});

/** What an SDK throws. */
async function thrown(call: Promise<unknown>): Promise<Record<string, unknown> & Error> {
  try {
    await call;
  } catch (error) {
    if (error instanceof Error) return error as Record<string, unknown> & Error;
  }
  throw new Error('nothing was thrown');
}

let keys = 0;
const fresh = (): string => `sdk-${(keys += 1)}`;

/** Host and port of the listener that is Stripe's: the SDK takes no base URL. */
function atStripe(): { readonly host: string; readonly port: number; readonly protocol: 'http' } {
  const { hostname, port } = listener;
  return { host: hostname, port: Number(port), protocol: 'http' };
}

/** Counts the requests that reach the gateway: an SDK that tries again would make more of them. */
function counted(): { readonly fetch: typeof fetch; readonly count: () => number } {
  let count = 0;
  return {
    count: () => count,
    fetch: (input, init) => {
      count += 1;
      return fetch(input, init);
    },
  };
}

describe('stripe', () => {
  function client() {
    const calls = counted();
    const http = Stripe.createFetchHttpClient(calls.fetch);
    const stripe = new Stripe(key, { ...atStripe(), httpClient: http, maxNetworkRetries: 2 });
    return { stripe, count: calls.count };
  }

  it('forms, stripeAccount and idempotency keys arrive as meant', async () => {
    const { stripe, count } = client();
    const refund = await stripe.refunds.create(
      { charge: 'ch_1', amount: 100, metadata: { order: '6735' }, expand: ['charge'] },
      { stripeAccount: 'acct_1', idempotencyKey: fresh() },
    );
    expect(refund.id).toBe('re_1');
    expect([count(), api.seen.length]).toEqual([1, 1]);
    const [seen] = api.seen;
    expect(seen?.headers).toMatchObject({
      authorization: 'Bearer sk_upstream',
      'stripe-account': 'acct_1',
      'idempotency-key': expect.stringMatching(/^eff_.*\.1$/),
    });
    expect(new URLSearchParams(seen?.body.toString())).toEqual(
      new URLSearchParams([
        ['charge', 'ch_1'],
        ['amount', '100'],
        ['metadata[order]', '6735'],
        ['expand[0]', 'charge'],
      ]),
    );
  });

  it('pages', async () => {
    const { stripe } = client();
    const ids: string[] = [];
    for await (const customer of stripe.customers.list({ limit: 1 })) ids.push(customer.id);
    expect(ids).toEqual(['cus_1', 'cus_2']);
  });

  it('throws its own error for each decision, once', async () => {
    const refund = (params: Stripe.RefundCreateParams, options: Stripe.RequestOptions = {}) => {
      const { stripe, count } = client();
      return thrown(stripe.refunds.create(params, { idempotencyKey: fresh(), ...options })).then((error) => ({
        error,
        count: count(),
      }));
    };
    const denied = await refund({ charge: 'ch_locked', amount: 1 });
    expect(denied.error).toBeInstanceOf(Stripe.errors.StripePermissionError);
    expect(denied).toMatchObject({
      count: 1,
      error: { code: 'rule_denied', message: expect.stringContaining('Locked') },
    });
    const pending = await refund({ charge: 'ch_1', amount: 4500 });
    expect(pending).toMatchObject({ count: 1, error: { code: 'approval_required', statusCode: 409 } });
    const budget = await refund({ charge: 'ch_1', amount: 3999 });
    const over = await refund({ charge: 'ch_1', amount: 3999 }).catch(() => budget);
    expect(over).toMatchObject({ count: 1, error: { code: 'budget_exceeded', statusCode: 402 } });
    const same = fresh();
    await client().stripe.refunds.create({ charge: 'ch_1', amount: 5 }, { idempotencyKey: same });
    const duplicate = await refund({ charge: 'ch_1', amount: 5 }, { idempotencyKey: same });
    expect(duplicate.error).toBeInstanceOf(Stripe.errors.StripeAPIError);
    expect(duplicate).toMatchObject({ count: 1, error: { code: 'already_committed', rawType: 'idempotency_error' } });
    const conflict = await refund({ charge: 'ch_1', amount: 5 }, { idempotencyKey: same, stripeAccount: 'acct_2' });
    expect(conflict.error).toBeInstanceOf(Stripe.errors.StripeAPIError);
    expect(conflict).toMatchObject({ count: 1, error: { code: 'key_reused', rawType: 'idempotency_error' } });
    next = {
      status: 402,
      json: { error: { type: 'card_error', code: 'charge_already_refunded', message: 'Already refunded' } },
    };
    const failed = await refund({ charge: 'ch_1', amount: 5 });
    expect(failed.error).toBeInstanceOf(Stripe.errors.StripeCardError);
    expect(failed).toMatchObject({ count: 1, error: { code: 'charge_already_refunded' } });
  });

  it('a key that is wrong is an authentication error', async () => {
    const stripe = new Stripe('svc_agent_wrong', { ...atStripe(), maxNetworkRetries: 0 });
    expect(await thrown(stripe.refunds.create({ charge: 'ch_1' }))).toBeInstanceOf(
      Stripe.errors.StripeAuthenticationError,
    );
  });
});

describe('openai', () => {
  function client() {
    const calls = counted();
    return {
      openai: new OpenAI({ apiKey: key, baseURL: `${gateway.url}/openai/v1`, fetch: calls.fetch, maxRetries: 2 }),
      count: calls.count,
    };
  }
  it('a chat passes, its members in the order in which they came', async () => {
    const { openai, count } = client();
    const chat = await openai.chat.completions.create({ model: 'gpt-5', messages: [{ role: 'user', content: 'hi' }] });
    expect(chat.choices[0]?.message.content).toBe('hello');
    expect([count(), api.seen.length]).toEqual([1, 1]);
    expect(api.seen[0]?.body.toString()).toBe('{"model":"gpt-5","messages":[{"role":"user","content":"hi"}]}');
    expect(api.seen[0]?.headers).toMatchObject({ authorization: 'Bearer sk_upstream', 'x-stainless-lang': 'js' });
  });
  it('a function that the model calls is called, and its result goes back: two calls', async () => {
    const { openai, count } = client();
    const asked: unknown[] = [];
    const runner = openai.chat.completions.runTools({
      model: 'gpt-5',
      messages: [{ role: 'user', content: 'weather?' }],
      tools: [
        {
          type: 'function',
          function: {
            name: 'weather',
            description: 'The weather of a city',
            parameters: { type: 'object', properties: { city: { type: 'string' } }, required: ['city'] },
            parse: JSON.parse,
            function: (given: unknown) => {
              asked.push(given);
              return 'sunny';
            },
          },
        },
      ],
    });
    expect(await runner.finalContent()).toBe('hello');
    expect([asked, count(), api.seen.length]).toEqual([[{ city: 'Graz' }], 2, 2]);
    const [first, second] = api.seen.map(({ body }) => JSON.parse(body.toString()) as Record<string, unknown>);
    expect(first).toMatchObject({ tools: [{ function: { name: 'weather', parameters: { required: ['city'] } } }] });
    expect(second).toMatchObject({
      messages: [
        { role: 'user' },
        TOOL_CALL.choices[0]?.message,
        { role: 'tool', tool_call_id: 'call_1', content: 'sunny' },
      ],
    });
  });
  it('a denial is its own error with our code and message, once', async () => {
    const { openai, count } = client();
    const error = await thrown(openai.chat.completions.create({ model: 'gpt-forbidden', messages: [] }));
    expect(error).toBeInstanceOf(OpenAI.PermissionDeniedError);
    expect(error).toMatchObject({
      status: 403,
      code: 'rule_denied',
      type: 'denied_policy',
      message: expect.stringContaining('Not this model'),
    });
    expect([count(), api.seen.length]).toEqual([1, 0]);
  });
  it('an outcome that nobody knows is not tried again', async () => {
    const { openai, count } = client();
    next = { status: 500, json: { error: { message: 'oops' } } };
    const error = await thrown(
      openai.chat.completions.create({ model: 'gpt-5', messages: [{ role: 'user', content: 'once' }] }),
    );
    expect(error).toBeInstanceOf(OpenAI.APIError);
    expect(error).toMatchObject({ status: 504, code: 'outcome_unknown' });
    expect([count(), api.seen.length]).toEqual([1, 1]);
  });
});

describe('octokit', () => {
  function client() {
    const calls = counted();
    const log = { debug() {}, info() {}, warn() {}, error() {} };
    return {
      octokit: new Octokit({ auth: key, baseUrl: `${gateway.url}/github`, request: { fetch: calls.fetch }, log }),
      count: calls.count,
    };
  }
  it('the key comes as a token, an issue passes', async () => {
    const { octokit, count } = client();
    const { data } = await octokit.issues.create({ owner: 'acme', repo: 'shop', title: 'Broken' });
    expect([data.number, count(), api.seen[0]?.headers.authorization]).toEqual([7, 1, 'Bearer sk_upstream']);
  });
  it('pages by the links of the answers, which lead to the gateway', async () => {
    const { octokit, count } = client();
    const issues = await octokit.paginate(octokit.issues.listForRepo, { owner: 'acme', repo: 'shop' });
    expect(issues.map(({ number }) => number)).toEqual([1, 2, 3]);
    expect([count(), api.seen.length]).toEqual([3, 3]);
    // The upstream got its own key with each page, and never the gateway's.
    for (const { headers } of api.seen) expect(headers.authorization).toBe('Bearer sk_upstream');
  });
  it('neither a page nor a redirect takes the key to another origin', async () => {
    const { octokit } = client();
    await octokit.paginate(octokit.issues.listForRepo, { owner: 'acme', repo: 'leaky' }).catch(() => undefined);
    const path = `${gateway.url}/github/repos/acme/leaky/issues`;
    const answered = await fetch(path, { headers: { authorization: `token ${key}`, 'x-api-key': key } });
    expect([answered.status, answered.headers.get('location')]).toEqual([302, null]);
    expect(answered.headers.get('svc-foreign-location')).toBe(elsewhere.url);
    expect(api.seen.length).toBe(2);
    expect(elsewhere.seen).toEqual([]);
  });
  it('files and refs, whose names have slashes, pass as the library writes them, and policies see them decoded', async () => {
    const { octokit } = client();
    const at = { owner: 'acme', repo: 'shop' };
    const file = { ...at, message: 'm', content: 'eA==' };
    await octokit.repos.getContent({ ...at, path: 'src/a.ts' });
    await octokit.repos.createOrUpdateFileContents({ ...file, path: 'src/a.ts' });
    await octokit.git.getRef({ ...at, ref: 'heads/main' });
    await octokit.repos.deleteBranchProtection({ ...at, branch: 'feature/a' });
    expect(api.seen.map(({ method, url }) => `${method} ${url.slice('/repos/acme/shop'.length)}`)).toEqual([
      'GET /contents/src%2Fa.ts',
      'PUT /contents/src%2Fa.ts',
      'GET /git/ref/heads%2Fmain',
      'DELETE /branches/feature%2Fa/protection',
    ]);
    const denied = [
      () => octokit.repos.getContent({ ...at, path: '.github/workflows/ci.yml' }),
      () => octokit.repos.createOrUpdateFileContents({ ...file, path: '.github/workflows/ci.yml' }),
      () => octokit.repos.deleteBranchProtection({ ...at, branch: 'release/1' }),
    ];
    for (const each of denied)
      expect(await thrown(each())).toMatchObject({ status: 403, message: expect.stringContaining('Not these files') });
    for (const path of ['src/../.github/a', 'src/./a', 'src//a', 'src/a/', 'src/%2e%2e/.github/a', 'a/x;y/b', 'a/b .'])
      expect(await thrown(octokit.repos.getContent({ ...at, path })), path).toMatchObject({ status: 400 });
    const raw = async (path: string): Promise<number> =>
      (await fetch(`${gateway.url}/github/repos/acme/shop/${path}`, { headers: { authorization: `token ${key}` } }))
        .status;
    // The same file spelled with plain slashes is judged alike; what no rule takes stays refused.
    expect(await raw('contents/src/a.ts')).toBe(200);
    expect(await raw('contents/.github/workflows/ci.yml')).toBe(403);
    expect(await raw('contents/src%2F%2e%2e%2F.github/a')).toBe(400);
    expect(await raw('contents/src%2F..%2F.github%2Fa')).toBe(400);
    expect(await raw('issues%2F1')).toBe(400);
    expect(api.seen.at(-1)?.url).toBe('/repos/acme/shop/contents/src/a.ts');
  });
  it('a denial is a RequestError with our message', async () => {
    const { octokit, count } = client();
    const error = await thrown(octokit.issues.create({ owner: 'acme', repo: 'secret', title: 'Broken' }));
    expect(error).toMatchObject({
      name: 'HttpError',
      status: 403,
      message: expect.stringContaining('Not this repository'),
    });
    expect([count(), api.seen.length]).toEqual([1, 0]);
  });
});

describe('links in declared fields of JSON, with axios', () => {
  const client = (): AxiosInstance => axios.create({ headers: { 'x-api-key': key }, validateStatus: null });

  it('pages by them, through the gateway', async () => {
    const pages: number[] = [];
    for (let next: string | null = `${gateway.url}/shop/orders`; next !== null; ) {
      const answer: AxiosResponse<{ data: number[]; paging: { next: string | null } }> = await client().get(next);
      pages.push(...answer.data.data);
      next = answer.data.paging.next;
    }
    expect([pages, api.seen.length, elsewhere.seen]).toEqual([[1, 2, 3], 3, []]);
    for (const { headers } of api.seen) expect(headers).toMatchObject({ authorization: 'Bearer sk_upstream' });
    // What is looked into must not come compressed.
    for (const { headers } of api.seen) expect(headers).not.toHaveProperty('accept-encoding');
  });

  it('an address of another origin is none that a client follows', async () => {
    const { data } = await client().get(`${gateway.url}/shop/orders`);
    expect(data._links.files.href).toBe(`svc-foreign:${elsewhere.url}/files`);
    await expect(client().get(data._links.files.href)).rejects.toThrow(/protocol/i);
    expect(elsewhere.seen).toEqual([]);
  });

  it('of a write, and of its replay; what is kept is what the upstream said', async () => {
    const headers = { 'idempotency-key': fresh() };
    const made = await client().post(`${gateway.url}/shop/orders`, { sku: 'A-1' }, { headers });
    const self = { href: `${gateway.url}/shop/orders/o_7` };
    expect(made.data).toMatchObject({
      id: 'o_7',
      _links: { self, files: { href: `svc-foreign:${elsewhere.url}/files` } },
    });
    expect(made.headers['content-length']).toBe(String(JSON.stringify(made.data).length));
    const again = await client().post(`${gateway.url}/shop/orders`, { sku: 'A-1' }, { headers });
    expect([again.headers['idempotency-replayed'], again.data]).toEqual(['true', made.data]);
    const kept = await client().get(`${gateway.url}/v1/workspaces/demo/effects/${made.headers['svc-effect-id']}`);
    expect(JSON.stringify(kept.data)).toContain(`"href":"${api.url}/orders/o_7"`);
  });

  it('of a write that somebody waited for, who is told of that too', async () => {
    let done = (): void => undefined;
    next = new Promise((resolve) => {
      done = () => resolve({ status: 201, json: { _links: { self: { href: `${api.url}/orders/o_7` } } } });
    });
    const post = (more: Record<string, string>): Promise<AxiosResponse> =>
      client().post(
        `${gateway.url}/shop/orders`,
        { sku: 'A-1' },
        { headers: { 'idempotency-key': 'waited', ...more } },
      );
    const first = post({});
    await expect.poll(() => api.seen.length).toBe(1);
    const twin = post({ prefer: 'wait=20' });
    // Long enough for it to come where it waits.
    expect(await Promise.race([twin, delay(500)])).toBeUndefined();
    done();
    const [{ data }, { headers, data: same }] = await Promise.all([first, twin]);
    expect([headers['preference-applied'], same]).toEqual(['wait=20', data]);
    expect(data._links.self.href).toBe(`${gateway.url}/shop/orders/o_7`);
  });

  it('that nobody can read reach nobody: a read fails, and of a write there is the decision', async () => {
    // The fake says so of plain text; that it is compressed is what the gateway has to believe.
    for (const headers of [{ 'content-encoding': 'gzip' }, { 'content-encoding': 'br' }]) {
      next = { headers, json: { paging: { next: elsewhere.url } } };
      const read = await client().get(`${gateway.url}/shop/orders`, { decompress: false });
      expect([read.status, read.data.reason.code, JSON.stringify(read.data).includes(elsewhere.url)]).toEqual([
        502,
        'upstream_refused',
        false,
      ]);
      const keyed = { headers: { 'idempotency-key': fresh() }, decompress: false };
      const made = await client().post(`${gateway.url}/shop/orders`, { sku: 'A-1' }, keyed);
      expect([made.status, made.data.decision, made.data.paging, made.headers['content-encoding']]).toEqual([
        200,
        'committed',
        undefined,
        undefined,
      ]);
    }
    next = { headers: { 'content-type': 'application/json' }, json: 'plain' };
    expect((await client().get(`${gateway.url}/shop/orders`)).data).toBe('plain');
  });
});

describe('@slack/web-api', () => {
  const client = () => new WebClient(key, { slackApiUrl: `${gateway.url}/slack/api/`, retryConfig: { retries: 0 } });
  it('a message passes as the form that it is', async () => {
    const posted = await client().chat.postMessage({ channel: 'C1', text: 'a & b', blocks: [{ type: 'divider' }] });
    expect(posted.ok).toBe(true);
    const form = new URLSearchParams(api.seen[0]?.body.toString());
    expect([form.get('channel'), form.get('text'), form.get('blocks'), form.get('token')]).toEqual([
      'C1',
      'a & b',
      '[{"type":"divider"}]',
      null,
    ]);
  });
  it('a denial is an error of its own', async () => {
    const error = await thrown(client().chat.postMessage({ channel: 'C_SECRET', text: 'a' }));
    expect(error).toMatchObject({ code: 'slack_webapi_http_error', statusCode: 403 });
    expect(api.seen.length).toBe(0);
  });
});
