import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { expectSilentFsckIn } from '../silent-fsck.ts';
import { type Answer, makeApiKey, send, startGateway, type TestGateway, untilSent } from './gateway.ts';
import { type LossyShop, startLossyShop } from './lossy-shop.ts';
import { lockOf } from './mcp/lenient-server.ts';

const EFFECTS = '/v1/workspaces/demo/effects';

const config = (url: string, pins: string): string => `
server: { host: 127.0.0.1, port: 0 }
store: { kind: embedded, path: "\${SVC_TEST_DATA}" }
users: [ { id: olga, roles: [] } ]
workspaces: [ { id: demo, agents: [ { id: bot, team: shop, owner: olga }, { id: cat, team: shop, owner: olga } ] } ]
policies: { paths: ["\${SVC_TEST_POLICIES}"] }
upstreams:
  - { id: shop, url: "${url}", timeout: 1s }
  - id: stall
    timeout: 1s
    mcp:
      url: "${url}/mcp"
      pins: "${pins}"
      trust_annotations: true
      tools:
        - name: place
          max_processing: 3s
          probe:
            tool: find
            arguments: { order: "{order}" }
            happened: { json.found: true, json.item: "{item}" }
            not_happened: { json.found: false }
            every: 200ms
            for: 0s
            accept_state_evidence: true
tools:
  - name: shop.order
    upstream: shop
    kind: write
    request: { method: POST, path: /orders, body: [order] }
    params_schema: { type: object, required: [order], properties: { order: { type: string } }, additionalProperties: false }
    max_processing: 3s
    idempotent: { header: Idempotency-Key, for: 1s }
    probe:
      request: { method: GET, path: "/orders/{idempotency_key}" }
      happened: { state: done }
      not_happened: { http_status: 404 }
      every: 200ms
      for: 0s
  - name: shop.plain
    upstream: shop
    kind: write
    request: { method: POST, path: /orders, body: [order] }
    params_schema: { type: object, required: [order], properties: { order: { type: string } }, additionalProperties: false }
`;

const POLICY = `
apiVersion: svc-gateway/v1
kind: PolicySet
name: shop
owner: team
rules:
  - { id: all, effect: allow, match: { upstreams: [shop, stall] } }
`;

let shop: LossyShop;
let gateway: TestGateway;
let folder: string;
const keys = { bot: '', cat: '', reader: '', limited: '', operator: '' };

async function pinned(): Promise<string> {
  const answer = await fetch(`${shop.url}/mcp`, {
    method: 'POST',
    headers: { 'content-type': 'application/json', accept: 'application/json, text/event-stream' },
    body: JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'tools/list' }),
  });
  const { result } = (await answer.json()) as { readonly result: { readonly tools: Parameters<typeof lockOf>[1] } };
  return lockOf('stall', result.tools);
}

beforeAll(async () => {
  shop = await startLossyShop();
  folder = await mkdtemp(join(tmpdir(), 'svc-probes-'));
  const pins = join(folder, 'stall.lock.json');
  await writeFile(pins, await pinned());
  gateway = await startGateway({ config: config(shop.url, pins), policies: { 'shop.yaml': POLICY } });
  const agent = (id: string, more: object = {}): Promise<string> =>
    makeApiKey(gateway, 'olga', { kind: 'agent', workspace: 'demo', agent_id: id, ...more });
  keys.bot = await agent('bot');
  keys.cat = await agent('cat');
  keys.reader = await makeApiKey(gateway, 'olga', { kind: 'profile', profile: 'mcp_readonly', workspace: 'demo' });
  keys.limited = await agent('bot', { allowed_tools: ['shop.plain'] });
  keys.operator = await makeApiKey(gateway, 'olga', { kind: 'account', workspace: 'demo' });
});
afterAll(async () => {
  await gateway.dispose(() => expectSilentFsckIn(gateway.dataFolder));
  await shop.close();
  await rm(folder, { recursive: true });
});

let calls = 0;

async function order(tool: string, id: string): Promise<Answer> {
  calls += 1;
  const params = tool === 'stall.place' ? { order: id, item: 'book' } : { order: id };
  const body = { action_type: 'mcp.tool_call', tool, target: id, params, idempotency_key: `k-${calls}` };
  return untilSent(() => send(gateway.url, keys.bot, 'POST', EFFECTS, body));
}

const probe = (id: string, key = keys.bot): Promise<Answer> => send(gateway.url, key, 'POST', `${EFFECTS}/${id}/probe`);

/** Probes as an agent does: again when there may be more to see, and not for ever. */
async function settled(id: string): Promise<Answer> {
  for (const end = performance.now() + 40_000; performance.now() < end; ) {
    const answer = await probe(id);
    if (answer.status === 200 && answer.body.probe.settled) return answer;
    if (answer.body.code === 'not_unknown') return send(gateway.url, keys.bot, 'GET', `${EFFECTS}/${id}`);
    await delay(answer.body.probe?.retry_after_ms ?? answer.body.retry_after_ms ?? 500);
  }
  throw new Error(`${id} is not settled`);
}

describe.each(['shop.order', 'stall.place'])('lost answers of %s', (tool) => {
  test.concurrent('after its probes each effect is what the upstream did: none wrong, none unknown', async () => {
    const ids = ['answered', 'lost_after', 'lost_before', 'late'].flatMap((fate) =>
      Array.from({ length: fate === 'answered' ? 1 : 8 }, (_, n) => `${fate}-${tool}-${n}`),
    );
    const states = await Promise.all(
      ids.map(async (id, n) => {
        const first = await order(tool, id);
        const { effect_id: effect, decision } = first.body;
        if (decision === 'committed') return [id, 'committed'];
        expect(first.body).toMatchObject({ decision: 'unknown_effect', safe_to_retry: expect.any(Boolean) });
        expect(first.body.links.probe).toBe(`${gateway.url}${EFFECTS}/${effect}/probe`);
        // Some agents ask at once, while nothing is to be seen yet; others come back when everything is over.
        await delay(n % 2 === 0 && !id.endsWith('3') ? 0 : 9_000);
        const { effect: now } = (await settled(effect)).body;
        expect(now.settled_by.by).toBe('probe');
        return [id, now.state];
      }),
    );
    expect(Object.fromEntries(states)).toEqual(
      Object.fromEntries(ids.map((id) => [id, shop.done.get(id) === 1 ? 'committed' : 'failed'])),
    );
    expect([...shop.done.values()].filter((times) => times !== 1)).toEqual([]);
  });

  test.concurrent('what it rests on stands in the ledger and in the receipt', async () => {
    const { effect_id: id } = (await order(tool, `lost_after-${tool}-evidence`)).body;
    const { effect } = (await settled(id)).body;
    const { ledger } = (await send(gateway.url, keys.bot, 'GET', `${EFFECTS}/${id}`)).body;
    const events: { kind: string; actor: object; data: Record<string, unknown> }[] = ledger;
    const last = events.findLast(({ kind }) => kind === 'effect.reconciled');
    expect(last).toMatchObject({ actor: { type: 'agent', id: 'bot' }, data: { outcome: 'happened', attempt: 1 } });
    expect(last?.data['evidence']).toEqual(effect.settled_by.evidence);
    expect(effect.settled_by.evidence).toMatchObject({
      said: 'happened',
      fields: tool === 'stall.place' ? ['json.found', 'json.item'] : ['state'],
      read: tool === 'stall.place' ? 'stall.find' : 'shop.order',
      answer_sha256: expect.stringMatching(/^[\w-]{43}$/),
    });
    const { receipt, disclosure } = (await send(gateway.url, keys.bot, 'GET', `${EFFECTS}/${id}/receipt?disclosure=1`))
      .body;
    expect(receipt.effect.settled_by).toMatchObject({ by: 'probe', evidence: expect.any(String) });
    expect(disclosure.values.evidence).toEqual(effect.settled_by.evidence);
  });

  test.concurrent('that it did not happen is concluded twice, each time after everything is over', async () => {
    const { effect_id: id } = (await order(tool, `lost_before-${tool}-twice`)).body;
    const quiesce = Date.parse(
      (await send(gateway.url, keys.bot, 'GET', `${EFFECTS}/${id}`)).body.effect.quiesce_until,
    );
    const { effect } = (await settled(id)).body;
    expect(effect).toMatchObject({ state: 'failed', reason: { code: 'resolved_not_happened' } });
    const { evidence } = effect.settled_by;
    expect(Date.parse(evidence.before.read_at)).toBeGreaterThanOrEqual(quiesce);
    expect(Date.parse(evidence.read_at)).toBeGreaterThanOrEqual(Date.parse(evidence.before.read_at) + 200);
    expect([evidence.said, evidence.before.said]).toEqual(['not_happened', 'not_happened']);
    // The key runs again now: the upstream has done nothing under it.
    expect(effect.safe_to_retry).toBe(true);
  });
});

test('who may start it: the agent itself and operators, with keys that may call the tool and change something', async () => {
  const { effect_id: id } = (await order('shop.order', 'lost_after-who')).body;
  expect((await probe(id, keys.cat)).body.code).toBe('not_found');
  expect((await probe(id, keys.reader)).body.code).toBe('wrong_key_kind');
  expect((await probe(id, keys.limited)).body.code).toBe('insufficient_scope');
  await delay(2_000);
  const answers = await Promise.all([probe(id), probe(id, keys.operator), probe(id)]);
  expect(answers.map(({ status }) => status)).toEqual([200, 200, 200]);
  const reads = shop.reads();
  const again = await probe(id);
  expect(['too_early', 'not_unknown']).toContain(again.body.code);
  expect(shop.reads()).toBe(reads);
});

test('a tool without a probe says so, and promises nobody that anybody will find out', async () => {
  const first = await order('shop.plain', 'lost_after-plain');
  expect(first.body.links).not.toHaveProperty('probe');
  expect(await probe(first.body.effect_id)).toMatchObject({ status: 409, body: { code: 'no_probe' } });
  calls -= 1;
  const again = await order('shop.plain', 'lost_after-plain');
  expect(again.body).toMatchObject({ decision: 'unknown_effect', effect_id: first.body.effect_id });
  expect(again.body).not.toHaveProperty('retry_after_ms');
  expect(again.headers.get('retry-after')).toBeNull();
});

test.each([
  ['shop.order', { upstream: 'shop' }],
  ['stall.place', { tool: 'stall.place' }],
  ['stall.place', { tool: 'stall.find' }],
])('a pause holds the probe of %s back as it holds calls back: %j', async (tool, scope) => {
  const { effect_id: id } = (await order(tool, `lost_after-paused-${Object.values(scope).join('')}`)).body;
  const pause = await send(gateway.url, keys.operator, 'POST', '/v1/workspaces/demo/pauses', {
    scope,
    reason: 'broken',
  });
  expect(pause.status).toBe(201);
  const reads = shop.reads();
  expect(await probe(id)).toMatchObject({ status: 409, body: { detail: expect.stringContaining('paused') } });
  expect(shop.reads()).toBe(reads);
  await send(gateway.url, keys.operator, 'DELETE', `/v1/workspaces/demo/pauses/${pause.body.id}`);
});

test('a model starts it over MCP', async () => {
  const { effect_id: id } = (await order('stall.place', 'lost_after-model')).body;
  await delay(2_000);
  const ask = (name: string): Promise<Answer> =>
    send(
      gateway.url,
      keys.bot,
      'POST',
      '/v1/mcp',
      {
        jsonrpc: '2.0',
        id: 1,
        method: name === '' ? 'tools/list' : 'tools/call',
        params: name === '' ? {} : { name, arguments: { effect_id: id } },
      },
      { accept: 'application/json, text/event-stream', 'mcp-protocol-version': '2025-06-18' },
    );
  const { tools } = (await ask('')).body.result;
  const listed = tools.find(({ name }: { readonly name: string }) => name === 'svc.executions.probe');
  expect(listed.annotations).toMatchObject({ readOnlyHint: false, destructiveHint: false });
  let result = (await ask('svc.executions.probe')).body.result;
  for (let tries = 0; !result.structuredContent.settled && tries < 10; tries += 1) {
    await delay(300);
    result = (await ask('svc.executions.probe')).body.result;
  }
  expect(result.structuredContent).toMatchObject({
    effect_id: id,
    decision: 'committed',
    said: 'happened',
    settled: true,
  });
});

test('a tool at another address than the call was sent to shows nothing of it', async () => {
  const { effect_id: id } = (await order('shop.order', 'lost_after-moved')).body;
  await gateway.stop();
  const text = await readFile(gateway.configFile, 'utf8');
  const moved = `{ id: shop, url: "${shop.url.replace('127.0.0.1', 'localhost')}"`;
  await writeFile(gateway.configFile, text.replace(`{ id: shop, url: "${shop.url}"`, moved));
  const { url } = await gateway.restart();
  const reads = shop.reads();
  const answer = await send(url, keys.bot, 'POST', `${EFFECTS}/${id}/probe`);
  expect(answer).toMatchObject({ status: 409, body: { detail: expect.stringContaining('not what it was') } });
  expect(shop.reads()).toBe(reads);
});
