import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { DEEP } from '../deep.ts';
import type { Answer } from '../system/gateway.ts';
import { freshKey, startWorld, type World, worldFilesWith } from '../system/world.ts';
import { seededRandom } from '../torture/random.ts';

const CALLS = DEEP ? 320 : 80;

const SCHEMA = `{ type: object, required: [id], properties: { id: { type: string }, dry: { type: boolean }, ids: { type: array, items: { type: integer } }, expand: { type: array, items: { type: string } }, tags: { type: array, items: { type: string } }, labels: { type: array, items: { type: string } }, created: { anyOf: [ { type: integer }, { type: object, properties: { gte: { type: integer }, lt: { type: integer } } } ] }, filter: { type: object }, items: { type: array, items: { type: object, properties: { price: { type: string }, n: { type: integer } } } }, note: { type: string } }, additionalProperties: false }`;
const QUERY =
  'query: [dry, ids, expand, tags, labels, created, filter, items], query_styles: { ids: comma, expand: indices, tags: brackets }';
const TOOLS = `
  - name: lists.write
    upstream: payments
    kind: write
    request: { method: POST, path: "/v1/lists/{id}", ${QUERY}, query_rest: more, body: [note] }
    params_schema: ${SCHEMA}
    target: "list:{id}"
  - name: lists.read
    upstream: payments
    kind: read
    request: { method: GET, path: "/v1/lists/{id}", ${QUERY}, query_rest: more }
    params_schema: ${SCHEMA.replace(', note: { type: string }', '')}
  - name: flat.write
    upstream: payments
    kind: write
    request: { method: POST, path: /v1/flat, query: [a, b], body: "*" }
  - name: flat.read
    upstream: payments
    kind: read
    request: { method: GET, path: /v1/flat, query: [a, b] }
  - name: passed.write
    upstream: payments
    kind: write
    request: { method: POST, path: /v1/passed, query: [a], body: "*" }
routes:
  - upstream: payments
    prefix: /strict
    undeclared_query: refuse
    rules:
      - { match: "POST /v1/lists/:id", tool: lists.write }
  - upstream: payments
    prefix: /open
    undeclared_query: pass
    rules:
      - { match: "POST /v1/passed", tool: passed.write }`;
const RULES = `
      - { match: "POST /v1/lists/:id", tool: lists.write }
      - { match: "GET /v1/lists/:id", tool: lists.read }
      - { match: "POST /v1/flat", tool: flat.write }
      - { match: "GET /v1/flat", tool: flat.read }
      - { match: "POST /v1/passed", tool: passed.write }
pools:`;
const POLICY = `
  - { id: lists, effect: allow, match: { tools: [lists.write, lists.read, flat.write, flat.read, passed.write] } }
  - { id: late, effect: deny, match: { tools: [lists.write, lists.read] }, when: { all: [ { params.created.lt: { exists: true } }, { params.created.lt: { gt: 1000 } } ] } }
  - { id: forced, effect: deny, match: { tools: [lists.write, lists.read] }, when: { params.more.force: { exists: true } } }
  - { id: passed-force, effect: deny, match: { tools: [passed.write] }, when: { params.query.force: { exists: true } } }
  - { id: ask, effect: require_approval, match: { tools: [lists.write] }, when: { params.id: ask }, approval: { approvers: { roles: [finance-lead] }, quorum: 1, expires: 1h, summary: "List" } }
`;

let world: World;
beforeAll(async () => {
  world = await startWorld({ files: worldFilesWith({ tools: TOOLS, routes: RULES, policy: POLICY }) });
});
afterAll(() => world.close());

interface Said {
  readonly status: number;
  readonly decision: string;
  readonly body: Answer['body'];
}

async function call(method: 'GET' | 'POST', path: string, key = freshKey(), body = '{}'): Promise<Said> {
  const response = await fetch(`${world.gateway.url}${path}`, {
    method,
    headers: {
      'x-api-key': world.keys.bot,
      ...(method === 'POST' ? { 'idempotency-key': key, 'content-type': 'application/json' } : {}),
    },
    ...(method === 'POST' ? { body } : {}),
  });
  const text = await response.text();
  return {
    status: response.status,
    decision: String(response.headers.get('svc-decision')),
    body: text === '' ? null : JSON.parse(text),
  };
}

async function last(): Promise<readonly (string | undefined)[]> {
  const { requests } = await world.upstream.ledger();
  const request = requests.at(-1);
  return [request?.method, decodeURIComponent(request?.url ?? ''), request?.url, request?.text];
}

describe('lists and objects in the query', () => {
  it('are governed: params with their types for policy, one fingerprint for all spellings, sent in one', async () => {
    const key = freshKey();
    const path = '/payments/v1/lists/l1';
    const first = await call(
      'POST',
      `${path}?expand[]=a&expand[]=b%26c&ids=1%2C2&created[gte]=5&filter[x][y]=z&labels=p&labels=q&items[0][n]=1`,
      key,
    );
    expect(first.decision, JSON.stringify(first.body)).toBe('committed');
    expect((await last())[2]).toBe(
      '/v1/lists/l1?ids=1,2&expand%5B0%5D=a&expand%5B1%5D=b%26c&labels=p&labels=q&created%5Bgte%5D=5&filter%5Bx%5D%5By%5D=z&items%5B0%5D%5Bn%5D=1',
    );
    const again = await call(
      'POST',
      `${path}?items%5B0%5D%5Bn%5D=1&labels[]=p&labels[]=q&filter[x][y]=z&created[gte]=5&ids=1,2&expand[1]=b%26c&expand[0]=a`,
      key,
    );
    expect(again.decision).toBe('duplicate_blocked');
    const other = await call('POST', `${path}?expand[]=a`, key);
    expect(other.decision).toBe('idempotency_conflict');
    const late = await call('POST', `${path}?created[lt]=1001`);
    expect(late.body).toMatchObject({ decision: 'denied_policy', reason: { rule: 'world/late' } });
    const read = await call('GET', `${path}?created[lt]=1001`);
    expect(read.body).toMatchObject({ decision: 'denied_policy', reason: { rule: 'world/late' } });
  });

  it('what no tool declares is a group of params: seen by policy, part of the action, on record, sent', async () => {
    const key = freshKey();
    const path = '/payments/v1/lists/l2';
    const first = await call('POST', `${path}?page[after]=x&sort=a&sort=b&dry=true`, key);
    expect(first.decision, JSON.stringify(first.body)).toBe('committed');
    expect((await last())[1]).toBe('/v1/lists/l2?dry=true&page[after]=x&sort=a&sort=b');
    const { body } = await world.get(`/effects?tool=lists.write&params=true&limit=1`);
    expect(body.effects[0].params).toEqual({
      id: 'l2',
      dry: true,
      more: { page: { after: 'x' }, sort: ['a', 'b'] },
    });
    expect((await call('POST', `${path}?page[after]=y&sort=a&sort=b&dry=true`, key)).decision).toBe(
      'idempotency_conflict',
    );
    for (const force of ['force=1', 'force[]=1&force[]=2', 'force[x]=1', 'force']) {
      const denied = await call('POST', `${path}?${force}`);
      // A list that is not written as the tool says is refused before a rule sees it.
      if (force.includes('[]')) expect(denied.status).toBe(400);
      else expect(denied.body).toMatchObject({ decision: 'denied_policy', reason: { rule: 'world/forced' } });
    }
  });

  it('an approved call is sent as it was asked for', async () => {
    const asked = await call('POST', '/payments/v1/lists/ask?tags[0]=a&tags[1]=b&more=1');
    expect(asked.body.decision, JSON.stringify(asked.body)).toBe('pending_approval');
    await world.post(`/approvals/${asked.body.approval.id}/approve`, {}, world.keys.approver);
    await expect.poll(async () => (await last())[1]).toBe('/v1/lists/ask?tags[]=a&tags[]=b&more=1');
  });

  it('a route says whether they pass', async () => {
    const strict = await call('POST', '/strict/v1/lists/l3?sort=a&expand[]=x');
    expect([strict.status, strict.body.errors]).toEqual([
      400,
      [{ path: '/query/sort', message: expect.stringContaining('undeclared_query: refuse') }],
    ]);
    expect((await call('POST', '/strict/v1/lists/l3?expand[]=x')).decision).toBe('committed');
    expect((await call('POST', '/open/v1/passed?a=1&b[c]=2')).decision).toBe('committed');
    expect((await last())[1]).toBe('/v1/passed?a=1&b[c]=2');
    const forced = await call('POST', '/open/v1/passed?force=1');
    expect(forced.body).toMatchObject({ decision: 'denied_policy', reason: { rule: 'world/passed-force' } });
    const run = await world.run({
      tool: 'passed.write',
      params: { a: '1', query: { b: { c: '2' } } },
      idempotency_key: freshKey(),
    });
    expect([run.body.decision, (await last())[1]]).toEqual(['committed', '/v1/passed?a=1&b[c]=2']);
  });

  it('reads of single values go on as they came; all else is written anew', async () => {
    expect((await call('GET', '/payments/v1/flat?b=x+y&a=%7e')).status).toBeLessThan(500);
    expect((await last())[2]).toBe('/v1/flat?b=x+y&a=%7e');
    expect((await call('POST', '/payments/v1/flat?b=x+y&a=%7e')).decision).toBe('committed');
    expect((await last())[2]).toBe('/v1/flat?a=~&b=x%20y');
    await call('GET', '/payments/v1/lists/l4?tags[1]=b&tags[0]=a+c');
    expect((await last())[2]).toBe('/v1/lists/l4?tags%5B%5D=a%20c&tags%5B%5D=b');
  });

  it.each([
    ['/payments/v1/flat?c=1', '/query/c', 'add it to query of its request, or query_rest'],
    ['/payments/v1/flat?a=1&a=2', '/query/a', 'type: array'],
    ['/payments/v1/flat?a[]=1', '/query/a[]', 'add it to query'],
    ['/payments/v1/lists/l?expand=a&expand=b', '/query/expand', 'query_lists: repeat'],
    ['/payments/v1/lists/l?created=1&created[lt]=2', '/query/created', 'a value and has parts'],
    ['/payments/v1/lists/l?x[]=1', '/query/x[]', 'query_lists'],
    ['/payments/v1/lists/l?x[__proto__]=1', '/query/x/__proto__', '__proto__'],
    ['/payments/v1/lists/l?_method=DELETE', '/query/_method', 'changes for some servers'],
    ['/payments/v1/lists/l?Expand[]=1', '/query/Expand[]', 'some servers take for a param'],
    ['/payments/v1/lists/l?ids=1,x', '/params/ids/1', 'integer'],
    ['/payments/v1/lists/l?note=1', '/query/note', 'some servers take for a param'],
  ])('%s is refused with its place, and nothing is sent', async (path, at, words) => {
    const before = await world.upstream.counts();
    const answer = await call('POST', path);
    expect([answer.status, answer.body.errors?.[0]]).toEqual([
      400,
      { path: at, message: expect.stringContaining(words) },
    ]);
    expect(await world.upstream.counts()).toEqual(before);
  });
});

const random = seededRandom(20_261_123);
function text(): string {
  const letters = [
    'a',
    'B',
    '7',
    ' ',
    '&',
    '=',
    '[',
    ']',
    '+',
    '%',
    'é',
    '€',
    '"',
    '\\',
    '/',
    ';',
    '😀',
    '#',
    '?',
    '|',
  ];
  return Array.from(
    { length: 1 + Math.floor(random() * 8) },
    () => letters[Math.floor(random() * letters.length)],
  ).join('');
}
function some<T>(make: () => T, least = 1): T[] {
  return Array.from({ length: least + Math.floor(random() * 3) }, make);
}
function maybe<T extends object>(make: () => T): T | Record<string, never> {
  return random() < 0.4 ? make() : {};
}

interface Generated {
  readonly declared: Record<string, unknown>;
  readonly more: Record<string, unknown>;
}

function generate(): Generated {
  return {
    declared: {
      ...maybe(() => ({ dry: random() < 0.5 })),
      ...maybe(() => ({ ids: some(() => Math.floor(random() * 1000)) })),
      ...maybe(() => ({ expand: some(text) })),
      ...maybe(() => ({ tags: some(text) })),
      ...maybe(() => ({ labels: some(text) })),
      ...maybe(() => ({ created: random() < 0.5 ? 7 : { gte: Math.floor(random() * 1000) } })),
      ...maybe(() => ({ filter: { a: { [`k${Math.floor(random() * 9)}`]: text() }, list: some(text, 2) } })),
      ...maybe(() => ({ items: some(text).map((price, n) => ({ price, n })) })),
    },
    more: {
      ...maybe(() => ({ page: { after: text() } })),
      ...maybe(() => ({ sort: some(text, 2) })),
      ...maybe(() => ({ 'x y': text() })),
    },
  };
}

/** As some client would write it: brackets encoded or not, "+" or "%20", lists in each way, in any order. */
function written({ declared, more }: Generated, index: number): string {
  const pairs: string[] = [];
  const encoded = (value: string): string =>
    index % 3 === 0 ? encodeURIComponent(value).replaceAll('%20', '+') : encodeURIComponent(value);
  const put = (name: string, value: unknown, lists: number): void => {
    if (Array.isArray(value))
      value.forEach((item, at) =>
        put(typeof item === 'object' || lists === 1 ? `${name}[${at}]` : lists === 2 ? `${name}[]` : name, item, lists),
      );
    else if (typeof value === 'object' && value !== null)
      for (const [part, member] of Object.entries(value)) put(`${name}[${part}]`, member, lists);
    else pairs.push(`${index % 2 === 0 ? encoded(name) : name.replace(' ', '+')}=${encoded(String(value))}`);
  };
  const bracketed = 1 + (index % 2);
  const groups = Object.entries(declared).map(([name, value]) => {
    if (name === 'ids' && Array.isArray(value)) return `ids=${value.join(index % 2 === 0 ? ',' : '%2C')}`;
    // What is written with its name alone is read so; with brackets it always is.
    put(name, value, name === 'labels' || name === 'filter' ? index % 3 : bracketed);
    return pairs.splice(0).join('&');
  });
  // Of the rest the spelling is that which the tool says. Its order is part of what is sent, as in a body.
  for (const [name, value] of Object.entries(more)) put(name, value, 0);
  return [...groups.toReversed(), ...pairs].join('&');
}

it(`proxy and effects API send the same bytes for ${CALLS} generated calls with lists and objects in the query`, async () => {
  let nested = 0;
  for (let index = 0; index < CALLS; index += 1) {
    const { declared, more } = generate();
    const isRead = index % 4 === 3;
    const tool = isRead ? 'lists.read' : 'lists.write';
    const query = written({ declared, more }, index);
    const params = { id: `g${index}`, ...declared, ...(Object.keys(more).length === 0 ? {} : { more }) };
    const key = freshKey();
    const proxied = await call(isRead ? 'GET' : 'POST', `/payments/v1/lists/g${index}?${query}`, key);
    const which = JSON.stringify([query, params, proxied.body]);
    if (!isRead) expect(proxied.decision, which).toBe('committed');
    else expect(proxied.status, which).not.toBe(400);
    const [method, , url] = await last();
    if (url?.includes('%5B')) nested += 1;
    const run = await world.run({ tool, params, idempotency_key: freshKey() });
    expect(run.status, JSON.stringify(run.body)).toBeLessThan(400);
    const [runMethod, , runUrl] = await last();
    expect([runMethod, runUrl], which).toEqual([method, url]);
    if (isRead) continue;
    const twin = await world.run({ tool, params, idempotency_key: key });
    expect(twin.body.decision, which).toBe('duplicate_blocked');
  }
  expect(nested).toBeGreaterThan(0.6 * CALLS);
});
