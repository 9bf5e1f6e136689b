import { afterAll, beforeAll, expect, test } from 'vitest';
import { send } from '../system/gateway.ts';
import { freshKey } from '../system/world.ts';
import { type LenientWorld, startLenientWorld } from './lenient-world.ts';
import { QUERY_TRICKS } from './query-tricks.ts';
import { type RawAnswer, sendRaw } from './raw-request.ts';

const REQUEST =
  'path: /q, query: [q, l, i, b, c, o], query_styles: { i: indices, b: brackets, c: comma }, query_rest: more';
const LIST = '{ type: array, items: { type: string } }';
const SCHEMA = `{ type: object, properties: { a: { type: string }, q: { type: string }, l: ${LIST}, i: ${LIST}, b: ${LIST}, c: ${LIST}, o: { type: object } } }`;

let world: LenientWorld;
beforeAll(async () => {
  world = await startLenientWorld({
    names: ['write', 'read'],
    tools: [
      `{ name: lenient.write, upstream: lenient, kind: write, request: { method: POST, ${REQUEST}, body: [a] }, params_schema: ${SCHEMA} }`,
      `{ name: lenient.read, upstream: lenient, kind: read, request: { method: GET, ${REQUEST} }, params_schema: ${SCHEMA} }`,
    ],
    rules: ['{ match: "POST /q", tool: lenient.write }', '{ match: "GET /q", tool: lenient.read }'],
  });
});
afterAll(() => world.close());

async function play(method: 'GET' | 'POST', query: string): Promise<RawAnswer> {
  const body = method === 'GET' ? '' : '{"a":"1"}';
  const lines = [
    `${method} /l/q?${query} HTTP/1.1`,
    `Host: ${new URL(world.gateway.url).host}`,
    `X-API-Key: ${world.key}`,
    'Connection: close',
    ...(method === 'GET'
      ? []
      : [`Idempotency-Key: ${freshKey()}`, 'Content-Type: application/json', `Content-Length: ${body.length}`]),
  ];
  // A busy machine makes the gateway say so; nothing was looked at then.
  for (;;) {
    const said = await sendRaw(world.gateway.url, lines, Buffer.from(body));
    if (said.status !== 503) return said;
  }
}

type Params = Readonly<Record<string, unknown>>;

/** What a reader of nested names has to make of params. A list of one that repeats its name is a text to it. */
function nested({ c, l, o, more, ...params }: Params): unknown {
  const names = Object.keys(Object(o));
  return {
    ...params,
    // That an object has numbers for names is what its schema says; a reader without one takes it for a list.
    ...(o === undefined ? {} : { o: names.includes('0') && names.includes('1') ? Object.values(Object(o)) : o }),
    ...(Array.isArray(c) ? { c: c.join(',') } : {}),
    ...(Array.isArray(l) ? { l: l.length === 1 ? l[0] : l } : {}),
    ...Object(more),
  };
}

/** What a reader of plain names has to make of params: pairs, in order of name. */
function flat({ c, more, ...params }: Params): readonly (readonly [string, string])[] {
  const pairs: (readonly [string, string])[] = [];
  const put = (name: string, value: unknown, lists: string): void => {
    if (Array.isArray(value))
      value.forEach((item, index) =>
        put(lists === 'i' ? `${name}[${index}]` : lists === 'b' ? `${name}[]` : name, item, lists),
      );
    else if (typeof value === 'object' && value !== null)
      for (const [part, member] of Object.entries(value)) put(`${name}[${part}]`, member, lists);
    else pairs.push([name, String(value)]);
  };
  for (const [name, value] of Object.entries({ ...params, ...Object(more) })) put(name, value, name);
  if (Array.isArray(c)) pairs.push(['c', c.join(',')]);
  return inOrder(pairs);
}

function inOrder(pairs: readonly (readonly [string, string])[]): readonly (readonly [string, string])[] {
  return pairs.toSorted(([one], [other]) => (one < other ? -1 : one > other ? 1 : 0));
}

const tally = { same: 0, refused: 0 };

test.each(QUERY_TRICKS.map((query, index) => [`${index} ${query.slice(0, 60)}`, query] as const))(
  '%s',
  async (_name, query) => {
    const before = await world.arrivals();
    const said = await play('POST', query);
    const read = await play('GET', query);
    if (said.header('svc-decision') !== 'committed') {
      for (const { status, text } of [said, read]) {
        expect(status, text.slice(0, 300)).toBeGreaterThanOrEqual(400);
        expect(status, text.slice(0, 300)).toBeLessThan(500);
      }
      // What has a place in the request is named.
      if (said.status === 400 && said.text.includes('"errors"'))
        expect(JSON.parse(said.text).errors[0].path, said.text).toMatch(/^\/(?:query|params)/);
      expect(await world.arrivals()).toBe(before);
      tally.refused += 1;
      return;
    }
    expect(await world.arrivals()).toBe(before + 2);
    const got = JSON.parse(said.text);
    const effectId = said.header('svc-effect-id');
    const { body } = await send(world.gateway.url, world.reader, 'GET', `/v1/workspaces/demo/effects/${effectId}`);
    const { a, ...params }: Params = body.effect.params;
    expect([got.method, got.path, a]).toEqual(['POST', '/q', '1']);
    expect(got.queries.qs).toEqual(nested(params));
    for (const reading of [got.queries.querystring, got.queries.url]) expect(inOrder(reading)).toEqual(flat(params));
    // A read is sent as the write is, so that it was evaluated as that.
    expect([read.status, JSON.parse(read.text).queries]).toEqual([200, got.queries]);
    tally.same += 1;
  },
);

test('the corpus has enough of both kinds', () => {
  expect(QUERY_TRICKS.length).toBeGreaterThanOrEqual(100);
  expect(new Set(QUERY_TRICKS).size).toBe(QUERY_TRICKS.length);
  expect(tally.same, JSON.stringify(tally)).toBeGreaterThan(25);
  expect(tally.refused, JSON.stringify(tally)).toBeGreaterThan(50);
});
