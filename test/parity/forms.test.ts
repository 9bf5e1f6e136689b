import { brotliCompressSync, deflateSync, gzipSync } from 'node:zlib';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { DEEP } from '../deep.ts';
import type { Answer } from '../system/gateway.ts';
import { freshKey, startWorld, type World, worldFilesWith } from '../system/world.ts';
import { seededRandom } from '../torture/random.ts';

const CALLS = DEEP ? 300 : 75;

const TOOLS = `
  - name: stripe.refund
    upstream: payments
    kind: write
    request: { method: POST, path: /v1/refunds, body: "*", body_type: form }
    params_schema: { type: object, required: [charge], properties: { charge: { type: string }, amount: { type: integer }, metadata: { type: object, additionalProperties: { type: string } }, expand: { type: array, items: { type: string } }, items: { type: array, items: { type: object, properties: { price: { type: string }, quantity: { type: integer } } } }, live: { type: boolean } }, additionalProperties: false }
    target: "charge:{charge}"
    idempotent: { header: Idempotency-Key, for: 1h }
  - name: notes.rails
    upstream: payments
    kind: write
    request: { method: POST, path: "/v1/people/{id}", query: [dry], body: [tags, name], body_type: form, form_lists: brackets }
  - name: notes.json
    upstream: payments
    kind: write
    request: { method: POST, path: "/v1/things/{id}", query: [dry], body: "*" }
  - name: notes.batch
    upstream: payments
    kind: write
    request: { method: POST, path: /v1/batches, body_as: items }
    params_schema: { type: object, required: [items], properties: { items: { type: array, maxItems: 3 } } }
routes:`;
const RULES = `
      - { match: "POST /v1/refunds", tool: stripe.refund }
      - { match: "POST /v1/people/:id", tool: notes.rails }
      - { match: "POST /v1/things/:id", tool: notes.json }
      - { match: "POST /v1/batches", tool: notes.batch }
pools:`;
const POLICY = `
  - { id: forms, effect: allow, match: { tools: [stripe.refund, notes.rails, notes.json, notes.batch] } }
  - { id: large, effect: deny, match: { tools: [stripe.refund] }, when: { all: [ { params.amount: { exists: true } }, { params.amount: { gt: 1000 } } ] } }
  - { id: ask, effect: require_approval, match: { tools: [stripe.refund] }, when: { params.charge: ch_ask }, approval: { approvers: { roles: [finance-lead] }, quorum: 1, expires: 1h, summary: "Refund" } }
`;

let world: World;
beforeAll(async () => {
  world = await startWorld({ files: worldFilesWith({ tools: TOOLS, routes: RULES, policy: POLICY }) });
});
afterAll(() => world.close());

async function post(
  path: string,
  body: string,
  type: string,
  key = freshKey(),
): Promise<{ status: number; decision: string; body: Answer['body'] }> {
  const response = await fetch(`${world.gateway.url}/payments${path}`, {
    method: 'POST',
    headers: { 'x-api-key': world.keys.bot, 'idempotency-key': key, 'content-type': type },
    body,
  });
  const answer = JSON.parse(await response.text());
  return { status: response.status, decision: String(response.headers.get('svc-decision')), body: answer };
}
const FORM = 'application/x-www-form-urlencoded';

async function last(): Promise<readonly (string | undefined)[]> {
  const { requests } = await world.upstream.ledger();
  const request = requests.at(-1);
  const type = request?.headers['content-type'];
  return [request?.method, request?.url, typeof type === 'string' ? type : undefined, request?.text];
}

describe('forms', () => {
  it('are governed: params with their types for policy, fingerprint over what they mean, sent in one spelling', async () => {
    const key = freshKey();
    const first = await post(
      '/v1/refunds',
      'charge=ch_1&amount=100&expand[]=charge&metadata[order id]=6735'.replace(' ', '%20'),
      FORM,
      key,
    );
    expect(first.decision).toBe('committed');
    expect(await last()).toEqual([
      'POST',
      '/v1/refunds',
      FORM,
      'charge=ch_1&amount=100&expand%5B0%5D=charge&metadata%5Border%20id%5D=6735',
    ]);
    const again = await post(
      '/v1/refunds',
      'metadata%5Border+id%5D=6735&expand[0]=charge&amount=100&charge=ch_1',
      FORM,
      key,
    );
    expect(again.body.decision).toBe('duplicate_blocked');
    const other = await post('/v1/refunds', 'charge=ch_1&amount=101', FORM, key);
    expect(other.body.decision).toBe('idempotency_conflict');
    const large = await post('/v1/refunds', 'charge=ch_1&amount=1001', FORM);
    expect(large.body).toMatchObject({ decision: 'denied_policy', reason: { rule: 'world/large' } });
  });

  it('an approved form is sent as it was asked for', async () => {
    const asked = await post('/v1/refunds', 'charge=ch_ask&items[0][price]=p&items[0][quantity]=2', FORM);
    expect(asked.body.decision).toBe('pending_approval');
    await world.post(`/approvals/${asked.body.approval.id}/approve`, {}, world.keys.approver);
    await expect
      .poll(last)
      .toEqual(['POST', '/v1/refunds', FORM, 'charge=ch_ask&items%5B0%5D%5Bprice%5D=p&items%5B0%5D%5Bquantity%5D=2']);
  });

  it.each([
    ['a name twice', '/v1/refunds', 'charge=ch_1&charge=ch_2', FORM, 400, '/body/charge'],
    ['a value with parts', '/v1/refunds', 'charge=ch_1&charge[x]=1', FORM, 400, '/body/charge'],
    ['another method', '/v1/refunds', 'charge=ch_1&_method=DELETE', FORM, 400, '/body/_method'],
    ['bytes that are no text', '/v1/refunds', 'charge=%ff', FORM, 400, '/body'],
    ['another charset', '/v1/refunds', 'charge=ch_1', `${FORM}; charset=utf-16`, 400, undefined],
    ['JSON where a form is declared', '/v1/refunds', '{"charge":"ch_1"}', 'application/json', 415, undefined],
    ['a form where JSON is declared', '/v1/things/1', 'a=1', FORM, 415, undefined],
  ])('%s is refused with its place, and nothing is sent', async (_name, path, body, type, status, at) => {
    const before = await world.upstream.counts();
    const answer = await post(path, body, type);
    expect([answer.status, answer.body.errors?.[0]?.path]).toEqual([status, at]);
    expect(await world.upstream.counts()).toEqual(before);
    if (status === 415 && type === FORM) expect(answer.body.detail).toContain('body_type: form');
  });
});

describe('JSON of any value', () => {
  it('is one param, the same through both doors', async () => {
    const key = freshKey();
    const items = [{ z: 1, a: [null, 'é'] }, 'text', 7];
    const first = await post('/v1/batches', JSON.stringify(items, null, 2), 'application/json', key);
    expect(first.decision).toBe('committed');
    const atProxy = await last();
    expect(atProxy.at(-1)).toBe(JSON.stringify(items));
    const run = await world.run({ tool: 'notes.batch', params: { items }, idempotency_key: freshKey() });
    expect([run.body.decision, await last()]).toEqual(['committed', atProxy]);
    const twin = await world.run({ tool: 'notes.batch', params: { items }, idempotency_key: key });
    expect(twin.body.decision).toBe('duplicate_blocked');
    const long = await post('/v1/batches', '[1,2,3,4]', 'application/json');
    expect([long.status, long.body.errors[0].path]).toEqual([400, '/params/items']);
    const list = await post('/v1/things/1', '[1]', 'application/json');
    expect([list.status, list.body.errors[0].message]).toEqual([400, expect.stringContaining('body_as')]);
  });
});

describe('Content-Encoding', () => {
  async function encoded(
    body: Buffer,
    coding: string,
    key = freshKey(),
  ): Promise<{ status: number; body: Answer['body'] }> {
    const response = await fetch(`${world.gateway.url}/payments/v1/things/1`, {
      method: 'POST',
      headers: {
        'x-api-key': world.keys.bot,
        'idempotency-key': key,
        'content-type': 'application/json',
        'content-encoding': coding,
      },
      body: new Uint8Array(body),
    });
    return { status: response.status, body: JSON.parse(await response.text()) };
  }
  const text = Buffer.from('{"a":1}');
  it.each([
    ['gzip', gzipSync(text)],
    ['deflate', deflateSync(text)],
    ['BR', brotliCompressSync(text)],
    ['identity', text],
  ])('%s is decoded, evaluated, and sent plain', async (coding, bytes) => {
    expect((await encoded(bytes, coding)).status).toBe(201);
    const { requests } = await world.upstream.ledger();
    expect(requests.at(-1)).toMatchObject({ text: '{"a":1}' });
    expect(requests.at(-1)?.headers).not.toHaveProperty('content-encoding');
  });
  it.each([
    ['a bomb', gzipSync(Buffer.alloc(200 * 1024 * 1024)), 'gzip', 413],
    ['half of it', gzipSync(text).subarray(0, 12), 'gzip', 400],
    ['another coding than it says', deflateSync(text), 'gzip', 400],
    ['a key inside', gzipSync(Buffer.from('{"a":"KEY"}')), 'gzip', 400],
    ['a coding within a coding', gzipSync(gzipSync(text)), 'gzip, gzip', 415],
    ['a coding that nobody knows', text, 'rot13', 415],
  ])('%s is refused, and nothing is sent', async (name, bytes, coding, status) => {
    const before = await world.upstream.counts();
    const body = name === 'a key inside' ? gzipSync(Buffer.from(`{"a":"${world.keys.bot}"}`)) : bytes;
    expect((await encoded(body, coding)).status).toBe(status);
    expect(await world.upstream.counts()).toEqual(before);
  });
});

const random = seededRandom(20_261_122);
function text(): string {
  const letters = ['a', 'B', '7', ' ', '&', '=', '[', ']', '+', '%', 'é', '€', '"', '\\', '/', ';', '😀'];
  return Array.from(
    { length: 1 + Math.floor(random() * 8) },
    () => letters[Math.floor(random() * letters.length)],
  ).join('');
}
function words(): string[] {
  return Array.from({ length: 1 + Math.floor(random() * 3) }, text);
}

it(`proxy and effects API send the same bytes for ${CALLS} generated calls`, async () => {
  const kinds = [
    () => ({
      tool: 'stripe.refund',
      path: '/v1/refunds',
      body: {
        charge: `ch_${text()}`,
        ...(random() < 0.5 ? { amount: Math.floor(random() * 1000) } : {}),
        ...(random() < 0.5 ? { metadata: { [`k${Math.floor(random() * 9)}`]: text() } } : {}),
        ...(random() < 0.5 ? { expand: words() } : {}),
        ...(random() < 0.5 ? { items: words().map((price, quantity) => ({ price, quantity })) } : {}),
        ...(random() < 0.5 ? { live: random() < 0.5 } : {}),
      },
      more: {},
      lists: 'indices',
    }),
    () => {
      const id = `p_${Math.floor(random() * 1000)} x`;
      return {
        tool: 'notes.rails',
        path: `/v1/people/${encodeURIComponent(id)}?dry=1`,
        body: { tags: words(), name: text() },
        more: { id, dry: '1' },
        lists: 'brackets',
      };
    },
    () => {
      const id = `t_${Math.floor(random() * 1000)}é`;
      return {
        tool: 'notes.json',
        path: `/v1/things/${encodeURIComponent(id)}`,
        body: { z: random() * 1e6, a: { text: text(), list: words() }, n: null },
        more: { id },
        lists: null,
      };
    },
  ];
  for (let index = 0; index < CALLS; index += 1) {
    const call = (kinds[index % kinds.length] ?? kinds[0])?.();
    if (call === undefined) throw new Error('no kind');
    const key = freshKey();
    const proxied =
      call.lists === null
        ? await post(call.path, JSON.stringify(call.body, null, index % 2), 'application/json', key)
        : await post(call.path, written(call.body, index % 2 === 0), FORM, key);
    expect(proxied.decision, JSON.stringify([call, proxied.body])).toBe('committed');
    const atProxy = await last();
    const run = await world.run({
      tool: call.tool,
      params: { ...call.more, ...call.body },
      idempotency_key: freshKey(),
    });
    expect(run.body.decision, JSON.stringify(run.body)).toBe('committed');
    expect(await last(), JSON.stringify(call)).toEqual(atProxy);
    const twin = await world.run({ tool: call.tool, params: { ...call.more, ...call.body }, idempotency_key: key });
    expect(twin.body.decision, JSON.stringify(call)).toBe('duplicate_blocked');
  }
});

/** As some client would write it: brackets encoded or not, lists with numbers or without. */
function written(body: object, plain: boolean): string {
  const pairs: string[] = [];
  const put = (name: string, value: unknown): void => {
    if (Array.isArray(value))
      value.forEach((item, index) => put(plain && typeof item !== 'object' ? `${name}[]` : `${name}[${index}]`, item));
    else if (typeof value === 'object' && value !== null)
      for (const [part, member] of Object.entries(value)) put(`${name}[${part}]`, member);
    else
      pairs.push(
        `${plain ? name : encodeURIComponent(name)}=${encodeURIComponent(String(value)).replaceAll('%20', '+')}`,
      );
  };
  for (const [name, value] of Object.entries(body)) put(name, value);
  return pairs.join('&');
}
