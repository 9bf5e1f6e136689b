import { once } from 'node:events';
import { request as httpRequest } from 'node:http';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { send } from '../system/gateway.ts';
import { freshKey, refund, startWorld, type World, worldFiles } from '../system/world.ts';

const WS = '/v1/workspaces/demo';
const EFFECTS = `${WS}/effects`;
/** As the gateway of these tests is configured. */
const MOST_VALUES = 700;

let world: World;
let before: { readonly requests: number; readonly effects: number; readonly records: number };
beforeAll(async () => {
  world = await startWorld({
    files: (url) => {
      const { config, policies } = worldFiles(url);
      return { config: `${config}limits: { params_values: ${MOST_VALUES} }\n`, policies };
    },
  });
  before = await counts();
});
afterAll(() => world.close());

/** What arrived and happened upstream, and how many effects the gateway has recorded. */
async function counts(): Promise<typeof before> {
  const { requests, effects } = await world.upstream.counts();
  const { body } = await world.get('/effects?limit=200');
  return { requests, effects, records: body.effects.length };
}

interface Got {
  readonly status: number;
  readonly headers: Readonly<Record<string, string | string[] | undefined>>;
  readonly text: string;
  // Bodies of every shape are looked into.
  // oxlint-disable-next-line no-explicit-any
  readonly body: any;
}

/** Sends bytes as they are; `fetch` would mend some of what is sent here. */
async function sendBytes(
  method: string,
  path: string,
  bytes: Buffer | string | null,
  headers: Readonly<Record<string, string | readonly string[]>> = {},
): Promise<Got> {
  const { hostname, port } = new URL(world.gateway.url);
  const outgoing = httpRequest({
    hostname,
    port,
    method,
    path,
    agent: false,
    headers: {
      'x-api-key': world.keys.bot,
      ...(bytes === null ? {} : { 'content-type': 'application/json', 'content-length': Buffer.byteLength(bytes) }),
      ...(headers as Record<string, string | string[]>),
    },
  });
  outgoing.end(bytes ?? undefined);
  const [incoming] = await once(outgoing, 'response');
  const chunks: Buffer[] = [];
  for await (const chunk of incoming) chunks.push(chunk as Buffer);
  const text = Buffer.concat(chunks).toString('utf8');
  return { status: incoming.statusCode, headers: incoming.headers, text, body: text === '' ? null : JSON.parse(text) };
}

/** A refusal that says what, where and what to do, and that nothing happened; nothing of the inside is in it. */
function expectProblem(got: Got, status: number, code: string, words: RegExp): void {
  expect({ status: got.status, code: got.body.code, text: got.text }).toMatchObject({ status, code });
  expect(got.headers['content-type']).toMatch(/^application\/problem\+json/);
  expect(got.headers['x-should-retry']).toBe('false');
  const said = [
    got.body.detail,
    ...(got.body.errors ?? []).map((fault: { path: string; message: string }) => `${fault.path} ${fault.message}`),
  ];
  expect(said.join('\n')).toMatch(words);
  expect(got.body).toMatchObject({
    did_it_happen: 'no',
    title: expect.any(String),
    type: expect.stringContaining(code),
  });
  expect(got.body.next).toMatch(/^(replan|block|proceed)$/);
  expect(got.text).not.toMatch(/\bat .*\.(ts|js):\d+|node_modules|Error:/);
  expect(got.text).not.toContain(new URL(world.upstream.url).port);
}

/** The text of a run request, with something done to it. */
function runText(change: (text: string) => string = (text) => text): { readonly key: string; readonly text: string } {
  const key = freshKey();
  return { key, text: change(JSON.stringify(refund({}, key))) };
}

const nested = (depth: number): string => `${'['.repeat(depth)}${']'.repeat(depth)}`;
const UTF8 = (text: string): Buffer => Buffer.from(text, 'utf8');

test('the very first call of a workspace, to a tool that is not declared, is a denial like any later one', async () => {
  const call = { tool: 'nothing.here', params: {}, idempotency_key: freshKey() };
  const preview = await world.post('/effects/preview', call, world.keys.bot);
  expect([preview.status, preview.body.would]).toEqual([200, 'denied_policy']);
  const answer = await world.run(call);
  expect(answer.status).toBe(403);
  expect(answer.body).toMatchObject({ decision: 'denied_policy', reason: { code: 'tool_not_declared' } });
});

describe('bodies that are no strict JSON: 400 on the effects API and on the proxy, and the key stays free', () => {
  /** From a good text to bytes that are refused, and what the refusal says. */
  const CORPUS: readonly (readonly [name: string, change: (text: string) => Buffer, words: RegExp])[] = [
    [
      'a name twice',
      (text) => UTF8(text.replace('"amount":1000', '"amount":1,"amount":1000')),
      /"amount".*twice.*line 1, column \d+|line 1, column \d+.*"amount".*twice/,
    ],
    [
      'names equal but for case',
      (text) => UTF8(text.replace('"amount":1000', '"Amount":1,"amount":1000')),
      /amount.*(twice|case)/,
    ],
    [
      'names equal but for an escape',
      (text) => UTF8(text.replace('"amount":1000', String.raw`"\u0061mount":1,"amount":1000`)),
      /amount.*twice/,
    ],
    [
      'names that fold to one (Kelvin sign)',
      (text) => UTF8(text.replace('"amount":1000', '"\u212A":1,"k":2,"amount":1000')),
      /twice/,
    ],
    ['__proto__', (text) => UTF8(text.replace('"amount":1000', '"__proto__":{"amount":1},"amount":1000')), /__proto__/],
    [
      '__proto__ by escapes',
      (text) => UTF8(text.replace('"amount":1000', String.raw`"\u005f_proto__":{},"amount":1000`)),
      /__proto__/,
    ],
    ['2^53', (text) => UTF8(text.replace('1000', '9007199254740992')), /2\^53/],
    ['-2^53', (text) => UTF8(text.replace('1000', '-9007199254740992')), /2\^53/],
    ['an integer that a double rounds', (text) => UTF8(text.replace('1000', '1.00000000000000000001')), /digits/],
    ['1e400', (text) => UTF8(text.replace('1000', '1e400')), /too large/],
    ['NaN', (text) => UTF8(text.replace('1000', 'NaN')), /"N"/],
    ['Infinity', (text) => UTF8(text.replace('1000', 'Infinity')), /"I"/],
    ['a leading zero', (text) => UTF8(text.replace('1000', '01000')), /leading zero/],
    ['hexadecimal', (text) => UTF8(text.replace('1000', '0x3e8')), /"x"/],
    ['a lone surrogate', (text) => UTF8(text.replace('"EUR"', String.raw`"\ud800"`)), /surrogate/],
    [
      'a lone surrogate in a name',
      (text) => UTF8(text.replace('"amount":1000', String.raw`"\udfff":1,"amount":1000`)),
      /surrogate/,
    ],
    ['depth 65', (text) => UTF8(text.replace('1000', nested(65))), /deeper than 64/],
    ['depth 100,000', (text) => UTF8(text.replace('1000', nested(100_000))), /deeper than 64/],
    [
      'more values than are configured',
      (text) => UTF8(text.replace('1000', `[${'0,'.repeat(MOST_VALUES)}0]`)),
      new RegExp(`more than ${MOST_VALUES} values`),
    ],
    ['a byte order mark', (text) => UTF8(`\ufeff${text}`), /byte order mark/],
    [
      'bytes that are not UTF-8',
      (text) => Buffer.concat([UTF8(text.slice(0, -3)), Buffer.from([0xc3, 0x28]), UTF8('"}}')]),
      /UTF-8/,
    ],
    [
      'an overlong encoding',
      (text) => Buffer.concat([UTF8(text.slice(0, -3)), Buffer.from([0xc0, 0xaf]), UTF8('"}}')]),
      /UTF-8/,
    ],
    ['UTF-16', (text) => Buffer.from(`\ufeff${text}`, 'utf16le'), /UTF-8/],
    ['UTF-16 without a mark', (text) => Buffer.from(text, 'utf16le'), /UTF-8|\\u0000/],
    ['trailing garbage', (text) => UTF8(`${text}x`), /after the end/],
    ['two values', (text) => UTF8(`${text}${text}`), /after the end/],
    ['a trailing comma', (text) => UTF8(text.replace(/\}$/, ',}')), /where a name/],
    ['a comment', (text) => UTF8(`/* */${text}`), /"\/"/],
    ['single quotes', (text) => UTF8(text.replaceAll('"', "'")), /"'"/],
    ['half a text', (text) => UTF8(text.slice(0, text.length / 2)), /end of the text|without an end|not complete/],
    ['a control character', (text) => UTF8(text.replace('"EUR"', '"E\nUR"')), /control character/],
    ['an escape that is none', (text) => UTF8(text.replace('"EUR"', String.raw`"\x45UR"`)), /escape/],
    ['only a space', () => UTF8(' '), /end of the text/],
  ];

  test.each(CORPUS)('%s', async (_name, change, words) => {
    const { key, text } = runText();
    expectProblem(await sendBytes('POST', EFFECTS, change(text)), 400, 'invalid_json', words);
    expectProblem(await sendBytes('POST', `${EFFECTS}/preview`, change(text)), 400, 'invalid_json', words);
    const params = '{"amount":1000,"currency":"EUR"}';
    const proxied = await sendBytes('POST', `/payments/v1/payments/pay_${key}/refunds`, change(params), {
      'idempotency-key': key,
    });
    expectProblem(proxied, 400, 'invalid_json', words);
  });

  test.each([
    ['an array', '[]', /object/],
    ['a string', '"run"', /object/],
    ['null', 'null', /object/],
    ['a number', '1', /object/],
  ])('%s where an object belongs', async (_name, text, words) => {
    expectProblem(await sendBytes('POST', EFFECTS, text), 400, 'invalid_request', words);
    const proxied = await sendBytes('POST', '/payments/v1/payments/pay_1/refunds', text, {
      'idempotency-key': freshKey(),
    });
    expectProblem(proxied, 400, 'invalid_request', words);
  });
});

describe('content types, encodings and sizes', () => {
  const { text } = runText();
  test.each([
    ['text', { 'content-type': 'text/plain' }, 415, 'unsupported_media_type', /application\/json/],
    [
      'a form',
      { 'content-type': 'application/x-www-form-urlencoded' },
      415,
      'unsupported_media_type',
      /application\/json/,
    ],
    [
      'several parts',
      { 'content-type': 'multipart/form-data; boundary=x' },
      415,
      'unsupported_media_type',
      /application\/json/,
    ],
    ['json in disguise', { 'content-type': 'text/json' }, 415, 'unsupported_media_type', /application\/json/],
    ['UTF-16 by name', { 'content-type': 'application/json; charset=utf-16' }, 400, 'invalid_request', /UTF-8/],
    ['Latin-1 by name', { 'content-type': 'application/json; charset="iso-8859-1"' }, 400, 'invalid_request', /UTF-8/],
    ['compressed', { 'content-encoding': 'zstd' }, 415, 'unsupported_media_type', /ompress|Content-Encoding/],
  ] as const)('%s', async (_name, headers, status, code, words) => {
    expectProblem(await sendBytes('POST', EFFECTS, text, headers), status, code, words);
    const proxied = await sendBytes('POST', '/payments/v1/payments/pay_1/refunds', '{"amount":1,"currency":"EUR"}', {
      'idempotency-key': freshKey(),
      ...headers,
    });
    expectProblem(proxied, status, code, words);
  });

  test('no content type', async () => {
    const headers = { 'content-type': [] as readonly string[] };
    const got = await sendBytes('POST', EFFECTS, text, headers);
    expectProblem(got, 415, 'unsupported_media_type', /application\/json/);
  });

  test('a body over the limit', async () => {
    const big = JSON.stringify(refund({ reason: 'x'.repeat(1_100_000) }));
    expectProblem(await sendBytes('POST', EFFECTS, big), 413, 'too_large', /limits\.body/);
    const proxied = await sendBytes(
      'POST',
      '/payments/v1/payments/pay_1/refunds',
      JSON.stringify({ amount: 1, currency: 'EUR', reason: 'x'.repeat(1_100_000) }),
      { 'idempotency-key': freshKey() },
    );
    expectProblem(proxied, 413, 'too_large', /larger/);
  });
});

describe('fields of a run request', () => {
  test.each<[name: string, over: Record<string, unknown>, code: string, words: RegExp]>([
    ['a misspelt field', { agentid: 'bot' }, 'invalid_request', /agentid.*did you mean ['"]?agent_id/i],
    [
      'a field of another naming style',
      { idempotencyKey: 'x' },
      'invalid_request',
      /idempotencyKey.*did you mean ['"]?idempotency_key/i,
    ],
    ['a field that is none', { sudo: true }, 'invalid_request', /"sudo"/],
    ['no tool', { tool: undefined }, 'invalid_request', /\/tool is required/],
    ['no key', { idempotency_key: undefined }, 'idempotency_key_required', /\/idempotency_key is required/],
    ['an empty key', { idempotency_key: '' }, 'invalid_request', /\/idempotency_key/],
    ['a key with a space', { idempotency_key: 'a b' }, 'invalid_request', /\/idempotency_key must match/],
    [
      'a key with a letter beyond ASCII',
      { idempotency_key: 'schlüssel' },
      'invalid_request',
      /\/idempotency_key must match/,
    ],
    ['a key that is too long', { idempotency_key: 'k'.repeat(256) }, 'invalid_request', /\/idempotency_key/],
    ['a key that is a number', { idempotency_key: 7 }, 'invalid_request', /\/idempotency_key must be a string/],
    ['params that are a list', { params: [] }, 'invalid_request', /\/params must be an object/],
    ['params that are a text', { params: '{}' }, 'invalid_request', /\/params must be an object/],
    [
      'params of wrong types',
      { params: { payment_id: 1, amount: '1000', currency: 'EUR' } },
      'invalid_request',
      /\/params\/payment_id.*\n?.*\/params\/amount/s,
    ],
    [
      'an amount with a fraction',
      { params: { payment_id: 'p', amount: 1.5, currency: 'EUR' } },
      'invalid_request',
      /\/params\/amount/,
    ],
    [
      'a param that the tool does not have',
      { params: { payment_id: 'p', amount: 1, currency: 'EUR', cc: 'x' } },
      'invalid_request',
      /\/params.*cc/,
    ],
    ['no params where some are required', { params: {} }, 'invalid_request', /payment_id/],
    [
      '.. as a path param',
      { params: { payment_id: '..', amount: 1, currency: 'EUR' } },
      'invalid_request',
      /payment_id/,
    ],
    ['. as a path param', { params: { payment_id: '.', amount: 1, currency: 'EUR' } }, 'invalid_request', /payment_id/],
    [
      'an empty path param',
      { params: { payment_id: '', amount: 1, currency: 'EUR' } },
      'invalid_request',
      /payment_id/,
    ],
    [
      'a control character in a path param',
      { params: { payment_id: 'a\u0000', amount: 1, currency: 'EUR' } },
      'invalid_request',
      /payment_id/,
    ],
    [
      'a slash in a path param',
      { params: { payment_id: '../../admin', amount: 1, currency: 'EUR' } },
      'invalid_request',
      /payment_id/,
    ],
    ['a forged target', { target: 'payment:another' }, 'target_mismatch', /\/target.*payment:pay_/],
    ['a target that is empty', { target: '' }, 'invalid_request', /\/target/],
    ['another action type', { action_type: 'mcp.tool_calls' }, 'invalid_request', /\/action_type.*mcp\.tool_call/],
    ['an agent id that cannot be one', { agent_id: 'a/b' }, 'invalid_request', /\/agent_id must match/],
    ['metadata that is too large', { metadata: { note: 'x'.repeat(4_097) } }, 'invalid_request', /\/metadata.*4096/],
    ['metadata that is a list', { metadata: [] }, 'invalid_request', /\/metadata must be an object/],
    [
      'a state check that lacks half',
      { state_check: { intent: 'x' } },
      'invalid_request',
      /required_fields.*\n.*assumed_state/s,
    ],
    [
      'a state check with an operator that is none',
      {
        state_check: {
          intent: 'x',
          required_fields: [],
          assumed_state: {},
          conditions: { status: { $equals: 1 } },
          on_mismatch: 'replan',
        },
      },
      'invalid_request',
      /\/state_check\/conditions\/status.*\$equals/,
    ],
    [
      'a state check with a live state',
      {
        state_check: {
          intent: 'x',
          required_fields: [],
          assumed_state: {},
          current_state: {},
          conditions: {},
          on_mismatch: 'replan',
        },
      },
      'invalid_request',
      /current_state/,
    ],
  ])('%s', async (_name, over, code, words) => {
    const text = JSON.stringify({ ...refund(), ...over });
    expectProblem(await sendBytes('POST', EFFECTS, text), 400, code, words);
  });

  test('every fault at once', async () => {
    const got = await sendBytes('POST', EFFECTS, JSON.stringify({ tol: 'x', idempotency_key: 7, params: [] }));
    expect(got.body.errors.length).toBeGreaterThanOrEqual(4);
  });

  test('a key in the header that is not the one in the body', async () => {
    const { text } = runText();
    const got = await sendBytes('POST', EFFECTS, text, { 'idempotency-key': 'another' });
    expectProblem(got, 400, 'invalid_request', /\/idempotency_key.*Idempotency-Key/);
  });

  test.each([
    ['several keys', ['one', 'two']],
    ['an empty one', ''],
    ['one with a space', 'a b'],
    ['one in half a quote', '"a'],
    ['one with a quote inside', '"a"b"'],
    ['one that is too long', 'k'.repeat(256)],
  ])('%s in the header', async (_name, header) => {
    const headers = { 'idempotency-key': header };
    const text = JSON.stringify({ ...refund(), idempotency_key: undefined });
    const got = await sendBytes('POST', EFFECTS, text, headers);
    expectProblem(got, 400, 'invalid_request', /idempotency-key must/);
    const refunds = '/payments/v1/payments/pay_1/refunds';
    const proxied = await sendBytes('POST', refunds, '{"amount":1,"currency":"EUR"}', headers);
    expectProblem(proxied, 400, 'invalid_request', /idempotency-key must/);
  });

  test('a query on a run request, and a name twice in a query', async () => {
    const { text } = runText();
    expectProblem(await sendBytes('POST', `${EFFECTS}?dry_run=true`, text), 400, 'invalid_request', /dry_run/);
    expectProblem(
      await sendBytes('GET', `${EFFECTS}?limit=1&limit=2`, null),
      400,
      'invalid_request',
      /limit.*more than once/,
    );
  });
});

describe('ids, cursors, times and limits', () => {
  test.each([
    ['GET', `${EFFECTS}?limit=0`, 400, /limit/],
    ['GET', `${EFFECTS}?limit=201`, 400, /limit/],
    ['GET', `${EFFECTS}?limit=-1`, 400, /limit/],
    ['GET', `${EFFECTS}?limit=ten`, 400, /limit/],
    ['GET', `${EFFECTS}?limit=1e2`, 400, /limit/],
    ['GET', `${EFFECTS}?cursor=not-a-cursor`, 400, /cursor/],
    ['GET', `${EFFECTS}?cursor=`, 400, /cursor/],
    ['GET', `${EFFECTS}?cursor=..%2F`, 400, /cursor/],
    ['GET', `${EFFECTS}?cursor=${'A'.repeat(501)}`, 400, /cursor/],
    ['GET', `${EFFECTS}?since=yesterday`, 400, /since/],
    ['GET', `${EFFECTS}?since=2026-02-30T00:00:00Z`, 400, /since/],
    ['GET', `${EFFECTS}?since=2026-01-01T25:00:00Z`, 400, /since/],
    ['GET', `${EFFECTS}?until=2026-01-01`, 400, /until/],
    ['GET', `${EFFECTS}?state=done`, 400, /state.*committed/],
    ['GET', `${EFFECTS}?decision=maybe`, 400, /decision/],
    ['GET', `${EFFECTS}?sate=committed`, 400, /sate.*did you mean/],
    ['GET', `${EFFECTS}/eff_nothing`, 404, /no such effect/],
    ['GET', `${EFFECTS}/${'x'.repeat(400)}`, 404, /no such effect/],
    ['GET', `${EFFECTS}/${'x'.repeat(600)}`, 404, /nothing at this path/],
    ['GET', `${EFFECTS}/%00`, 404, /no such effect/],
    ['GET', `${EFFECTS}/'%20OR%201=1--/receipt`, 404, /no such effect/],
    ['GET', `${EFFECTS}/eff_nothing/run`, 404, /no such effect/],
    ['GET', `${EFFECTS}/%zz`, 400, /path/],
    ['GET', `${WS}/approvals/apr_nothing`, 404, /no such/],
    ['GET', `${WS}/approvals?status=open`, 400, /status/],
  ] as const)('%s %s', async (method, path, status, words) => {
    expectProblem(await sendBytes(method, path, null), status, status === 404 ? 'not_found' : 'invalid_request', words);
  });

  test.each<[path: string, body: unknown, words: RegExp]>([
    ['/claims', { target: 'payment:p', ttl_s: 0 }, /\/ttl_s/],
    ['/claims', { target: 'payment:p', ttl_s: 3601 }, /\/ttl_s/],
    ['/claims', { target: 'payment:p', ttl_s: -5 }, /\/ttl_s/],
    ['/claims', { target: 'payment:p', ttl_s: '60' }, /\/ttl_s/],
    ['/claims', { taget: 'payment:p', ttl_s: 60 }, /taget.*did you mean ['"]?target/],
    ['/reservations', { pool: 'deploy-slot', units: 0, ttl_s: 60 }, /\/units/],
    ['/reservations', { pool: 'deploy-slot', units: 1.5, ttl_s: 60 }, /\/units/],
    [
      '/reservations',
      { pool: 'deploy-slots', units: 1, ttl_s: 60, agent_id: 'bot' },
      /\/pool.*did you mean.*deploy-slot/,
    ],
    ['/pauses', { scope: {}, reason: 'x' }, /\/scope/],
    ['/pauses', { scope: { tool: 'a', agent: 'b' }, reason: 'x' }, /\/scope/],
    ['/pauses', { scope: { tool: '{a' }, reason: 'x' }, /\/scope/],
    ['/pauses', { scope: { tool: 'a' } }, /\/reason is required/],
    ['/pauses', { scope: { tool: 'a' }, reason: 'x', until: 'tomorrow' }, /\/until/],
    ['/agents', { id: 'a b' }, /\/id/],
    ['/effects/eff_nothing/resolve', { outcome: 'maybe' }, /\/outcome.*happened/],
    ['/effects/eff_nothing/resolve', {}, /\/outcome is required/],
    ['/approvals/apr_nothing/approve', { coment: 'x' }, /coment.*did you mean ['"]?comment/],
  ])('POST %s %j', async (path, body, words) => {
    const got = await sendBytes('POST', `${WS}${path}`, JSON.stringify(body), { 'x-api-key': world.keys.account });
    expectProblem(got, 400, 'invalid_request', words);
  });

  test.each<[body: unknown, words: RegExp]>([
    [{}, /\/name is required/],
    [{ name: 'k' }, /\/profile/],
    [{ name: 'k', profile: 'mcp_readnoly' }, /\/profile.*mcp_readonly/],
    [{ name: 'k', kind: 'root' }, /\/kind.*account/],
    [{ name: 'k', kind: 'agent', workspace: 'demo' }, /\/agent_id/],
    [{ name: 'k', kind: 'account', workspace: 'nowhere' }, /\/workspace/],
    [{ name: 'k', kind: 'account', workspace: 'demo', expires_in: 0 }, /\/expires_in/],
    [{ name: 'k', kind: 'account', workspace: 'demo', expires_in: -1 }, /\/expires_in/],
    [{ name: 'k', kind: 'account', workspace: 'demo', scopes: ['effects:run'] }, /\/scopes/],
    [{ name: 'k', profile: 'mcp_readonly', scopes: ['effects:run'] }, /\/scopes\/0/],
    [{ name: 'k', profile: 'mcp_readonly', read_only: false }, /read_only/],
    [{ name: '\u0007', kind: 'account', workspace: 'demo' }, /\/name/],
  ])('a key %j', async (body, words) => {
    const got = await sendBytes('POST', '/v1/beta/users/tom/keys', JSON.stringify(body), {
      'x-api-key': world.gateway.administrativeKey,
    });
    expectProblem(got, 400, 'invalid_request', words);
  });

  test('a user who cannot be one', async () => {
    const got = await sendBytes('POST', '/v1/beta/users/%2e%2e/keys', '{"name":"k","profile":"mcp_readonly"}', {
      'x-api-key': world.gateway.administrativeKey,
    });
    expectProblem(got, 400, 'invalid_request', /user_id/);
  });
});

describe('the checks', () => {
  test.each<[path: string, body: unknown, code: string, words: RegExp]>([
    ['/state/verify', {}, 'invalid_request', /\/intent is required.*\/on_mismatch is required/s],
    [
      '/state/verify',
      {
        intent: 'x',
        required_fields: 'status',
        assumed_state: {},
        current_state: {},
        conditions: {},
        on_mismatch: 'replan',
      },
      'invalid_request',
      /\/required_fields/,
    ],
    [
      '/state/verify',
      { intent: 'x', required_fields: [], assumed_state: [], current_state: {}, conditions: {}, on_mismatch: 'replan' },
      'invalid_request',
      /\/assumed_state/,
    ],
    [
      '/state/verify',
      { intent: 'x', required_fields: [], assumed_state: {}, current_state: {}, conditions: {}, on_mismatch: 'ignore' },
      'invalid_request',
      /\/on_mismatch.*replan/,
    ],
    [
      '/state/verify',
      {
        intent: 'x',
        required_fields: [],
        assumed_state: {},
        current_state: {},
        conditions: { a: { $regex: '(' } },
        on_mismatch: 'replan',
      },
      'invalid_request',
      /\/conditions\/a/,
    ],
    ['/outcomes/reconcile', { outcome: 'UNKNOWN' }, 'invalid_request', /\/action is required/],
    [
      '/outcomes/reconcile',
      { action: { intent: 'x', tool: 't', params: {} }, outcome: 'FAILED', current_state: {}, conditions: {} },
      'outcome_not_unknown',
      /UNKNOWN/,
    ],
    [
      '/outcomes/reconcile',
      { action: { intent: 'x', tool: 't', params: {} }, outcome: 'unknown', current_state: {}, conditions: {} },
      'outcome_not_unknown',
      /UNKNOWN/,
    ],
  ])('%s %j', async (path, body, code, words) => {
    expectProblem(await sendBytes('POST', path, JSON.stringify(body)), 400, code, words);
  });
});

describe('keys that cannot be keys', () => {
  test.each<[name: string, headers: Record<string, string>, path: string, code: string]>([
    ['none', { 'x-api-key': '' }, EFFECTS, 'missing_key'],
    ['a very long one', { 'x-api-key': `svc_agent_${'a'.repeat(8_000)}` }, EFFECTS, 'invalid_key'],
    ['two that differ', { authorization: `Bearer svc_agent_${'a'.repeat(50)}` }, EFFECTS, 'invalid_key'],
    ['one of another scheme', { 'x-api-key': '', authorization: 'Basic YTpi' }, EFFECTS, 'missing_key'],
    ['one with bytes beyond ASCII', { 'x-api-key': 'svc_agent_\u00e9' }, EFFECTS, 'invalid_key'],
    ['two in the query', { 'x-api-key': '' }, `${EFFECTS}?api_key=a&api_key=b`, 'invalid_key'],
  ])('%s', async (_name, headers, path, code) => {
    const got = await sendBytes('GET', path, null, headers);
    expect({ status: got.status, code: got.body.code }).toEqual({ status: 401, code });
    expect(got.headers['x-should-retry']).toBe('false');
    expect(got.headers['www-authenticate']).toMatch(/^Bearer/);
  });
});

test('a quoted key is the bare one, at both doors', async () => {
  const { url } = world.gateway;
  const key = `${freshKey()}\\"x`;
  const quoted = { 'idempotency-key': `"${key.replaceAll(/["\\]/g, String.raw`\$&`)}"` };
  const note = { tool: 'notes.add', params: { text: 'quoted' } };
  const preview = await send(
    url,
    world.keys.bot,
    'POST',
    `${EFFECTS}/preview`,
    { ...note, idempotency_key: key },
    quoted,
  );
  expect([preview.status, preview.body.would]).toEqual([200, 'committed']);
  expect((await send(url, world.keys.bot, 'POST', EFFECTS, note, quoted)).body).toMatchObject({
    decision: 'committed',
    idempotency_key: key,
  });
  const { headers } = await send(url, world.keys.bot, 'POST', '/payments/v1/notes', note.params, quoted);
  expect(headers.get('svc-decision')).toBe('duplicate_blocked');
  before = { ...before, requests: before.requests + 1, effects: before.effects + 1 };
});

test('after all of this nothing was executed, nothing recorded but denials, nothing lost, and no 500 was answered', async () => {
  const after = await counts();
  expect({ requests: after.requests, effects: after.effects }).toEqual({
    requests: before.requests,
    effects: before.effects,
  });
  const { body } = await world.get('/effects?limit=200');
  for (const { state, tool } of body.effects) expect(state).toBe(tool === 'notes.add' ? 'committed' : 'denied');
  expect(world.gateway.log()).not.toMatch(/"status":50\d|a request failed inside the gateway/);
  // The keys of refused requests are free, and the gateway is well.
  const { key, text } = runText();
  expectProblem(await sendBytes('POST', EFFECTS, `${text}x`), 400, 'invalid_json', /after the end/);
  const run = await send(world.gateway.url, world.keys.bot, 'POST', EFFECTS, refund({}, key));
  expect(run.body.decision).toBe('committed');
  expect((await world.upstream.counts()).effects).toBe(before.effects + 1);
});
