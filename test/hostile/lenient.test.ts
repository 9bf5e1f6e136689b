import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { isFile } from '../../src/effects/model/files.ts';
import type { Json } from '../../src/json/value.ts';
import { send } from '../system/gateway.ts';
import { freshKey } from '../system/world.ts';
import { type LenientWorld, startLenientWorld } from './lenient-world.ts';
import { type RawAnswer, sendRaw } from './raw-request.ts';
import { type Trick, TRICKS } from './tricks.ts';

const BODIES: Readonly<Record<string, string>> = {
  json: 'body: "*"',
  form: 'body: "*", body_type: form',
  repeat: 'body: "*", body_type: form, form_lists: repeat',
  parts: 'body: "*", body_type: multipart',
  bytes: 'body_as: body, body_type: opaque',
};

let world: LenientWorld;
beforeAll(async () => {
  const names = Object.keys(BODIES);
  world = await startLenientWorld({
    names,
    tools: names.map(
      (name) =>
        `{ name: lenient.${name}, upstream: lenient, kind: write, request: { method: POST, path: /${name}, query: [q], ${BODIES[name]} } }`,
    ),
    rules: names.map((name) => `{ match: "POST /${name}", tool: lenient.${name} }`),
  });
});
afterAll(() => world.close());

/** Sends a trick byte for byte. */
function play({ path, type, body, headers }: Trick): Promise<RawAnswer> {
  const own = (name: string): boolean => headers.some((line) => line.toLowerCase().startsWith(`${name}:`));
  const head = [
    `POST /l${path} HTTP/1.1`,
    ...(own('host') ? [] : [`Host: ${new URL(world.gateway.url).host}`]),
    `X-API-Key: ${world.key}`,
    `Idempotency-Key: ${freshKey()}`,
    ...(type === null ? [] : [`Content-Type: ${type}`]),
    `Content-Length: ${body.byteLength}`,
    ...(own('connection') ? [] : ['Connection: close']),
    ...headers,
  ];
  return sendRaw(world.gateway.url, head, body);
}

/** Values as a text-based format has them: all leaves are texts. */
function texts(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(texts);
  if (typeof value !== 'object' || value === null) return String(value);
  return Object.fromEntries(Object.entries(value).map(([name, member]) => [name, texts(member)]));
}

/** Names of a form as a flat reader has them. */
function flat(params: Record<string, unknown>): Record<string, unknown> {
  const found: Record<string, unknown> = {};
  const put = (name: string, value: unknown): void => {
    if (Array.isArray(value)) value.forEach((item, index) => put(`${name}[${index}]`, item));
    else if (typeof value === 'object' && value !== null && !isFile(value as Json))
      for (const [part, member] of Object.entries(value)) put(`${name}[${part}]`, member);
    else found[name] = texts(value);
  };
  for (const [name, value] of Object.entries(params)) put(name, value);
  return found;
}

const tally = { same: 0, refused: 0 };

test.each(TRICKS.map((trick, index) => [`${index} ${trick.name}`, trick] as const))('%s', async (_name, trick) => {
  const before = await world.arrivals();
  let said = await play(trick);
  // A busy machine makes the gateway say so; nothing was looked at then.
  while (said.status === 503) said = await play(trick);
  if (said.header('svc-decision') !== 'committed') {
    expect(said.status, said.text.slice(0, 300)).toBeGreaterThanOrEqual(400);
    expect(said.status, said.text.slice(0, 300)).toBeLessThan(500);
    expect(await world.arrivals()).toBe(before);
    tally.refused += 1;
    return;
  }
  expect(await world.arrivals()).toBe(before + 1);
  const got = JSON.parse(said.text);
  const { body } = await send(
    world.gateway.url,
    world.reader,
    'GET',
    `/v1/workspaces/demo/effects/${said.header('svc-effect-id')}`,
  );
  const { q, ...params }: Record<string, unknown> = body.effect.params;
  expect([got.method, got.path]).toEqual(['POST', trick.path.replace(/\?.*/, '')]);
  for (const query of got.query) expect(query).toEqual(q === undefined ? {} : { q });
  switch (got.raw.bytes === 0 ? 'nothing' : trick.path === '/bytes' ? 'opaque' : got.body.kind) {
    case 'nothing':
      expect(params).toEqual({});
      break;
    case 'json':
      expect(got.body.readings).toEqual([params]);
      break;
    case 'form':
      // A name that stands again is no list for `qs` alone.
      if (trick.path.startsWith('/repeat')) break;
      expect(got.body.readings.map(texts)).toEqual([texts(params)]);
      expect(got.body.flat).toEqual(flat(params));
      break;
    case 'multipart':
      expect(got.body.readings.map(texts)).toEqual([flat(params)]);
      break;
    case 'opaque':
      expect(params['body']).toEqual({ content_type: got.raw.type, bytes: got.raw.bytes, sha256: got.raw.sha256 });
      break;
    default:
      throw new Error(`it could not read ${JSON.stringify(got.body)}`);
  }
  // Headers that change what a request is: what arrived is what policy saw, under any spelling.
  const facts: Record<string, string> = body.effect.headers ?? {};
  for (const name of [
    'x_role',
    'stripe_account',
    'x_forwarded_host',
    'x_original_url',
    'x_rewrite_url',
    'x_http_method_override',
    'x_method_override',
  ])
    expect(got.headers[name], name).toBe(facts[name.replaceAll('_', '-')]);
  tally.same += 1;
});

test('the corpus has enough of both kinds, and nothing of it is kept', async () => {
  expect(TRICKS.length).toBeGreaterThanOrEqual(200);
  expect(tally.same, JSON.stringify(tally)).toBeGreaterThan(50);
  expect(tally.refused, JSON.stringify(tally)).toBeGreaterThan(120);
  expect(tally.same + tally.refused).toBe(TRICKS.length);
  expect(await readdir(join(world.gateway.dataFolder, 'uploads'))).toEqual([]);
});
