import { expect, test } from 'vitest';
import { headersBack, isJson, readAnswer } from '../../src/upstreams/http/answer.ts';

const answer = (text: string) => ({
  status: 200,
  headers: { 'content-type': 'application/json' },
  body: Buffer.from(text),
  whole: true,
});
const listOf = (count: number): string => JSON.stringify(Array.from({ length: count }, () => 0));

test('an answer that is not kept whole is read as JSON only where somebody looks into it', () => {
  const raw = answer(`{"text":"${'x'.repeat(100)}"}`);
  expect(readAnswer(raw, { responseKeptBytes: 50, setCookie: false, wantsJson: false }).json).toBeUndefined();
  const wanted = readAnswer(raw, { responseKeptBytes: 50, setCookie: false, wantsJson: true });
  expect(wanted.json).toBeDefined();
  // That somebody has read it does not make it shorter.
  expect(wanted.result).toMatchObject({ truncated: true, body: { kind: expect.not.stringMatching('json') } });
  expect(readAnswer(raw, { responseKeptBytes: 500, setCookie: false, wantsJson: false }).json).toBeDefined();
});

test('an answer of up to 20,000 values is read as JSON, and kept as a text beyond that', () => {
  const options = { responseKeptBytes: 1_000_000, setCookie: false, wantsJson: true };
  expect(readAnswer(answer(listOf(19_999)), options).result.body.kind).toBe('json');
  const long = readAnswer(answer(listOf(20_000)), options);
  expect([long.json, long.result.body.kind, long.result.truncated]).toEqual([undefined, 'text', false]);
});

test('one of up to 64 levels is read as JSON, and none that is deeper', () => {
  const options = { responseKeptBytes: 1_000_000, setCookie: false, wantsJson: true };
  const nested = (levels: number) => answer(`${'['.repeat(levels)}${']'.repeat(levels)}`);
  expect(readAnswer(nested(64), options).json).toBeDefined();
  expect(readAnswer(nested(65), options).json).toBeUndefined();
});

/** What is kept of a text, at most 10 bytes. */
function kept(
  text: string | Buffer,
  changes: { readonly headers?: Record<string, string>; readonly whole?: boolean } = {},
) {
  const { headers = { 'content-type': 'text/plain' }, whole = true } = changes;
  const raw = { status: 200, headers, body: Buffer.from(text), whole };
  const { result, answer } = readAnswer(raw, { responseKeptBytes: 10, setCookie: false, wantsJson: false });
  // The caller gets all of it.
  expect(answer.body.equals(raw.body)).toBe(true);
  return result;
}

test('an answer is kept up to its limit, and never to the middle of a character', () => {
  expect(kept('0123456789')).toMatchObject({ body: { kind: 'text', value: '0123456789' }, truncated: false });
  expect(kept('0123456789a')).toMatchObject({ body: { kind: 'text', value: '0123456789' }, truncated: true });
  for (const [text, head] of [
    ['012345678é', '012345678'],
    ['01234567€', '01234567'],
    ['0123456😀', '0123456'],
    ['01234567😀', '01234567'],
    ['012345😀', '012345😀'],
  ] as const)
    expect(kept(text).body, text).toEqual({ kind: 'text', value: head });
  const odd = Buffer.from([0xff, 0xfe]);
  expect(kept(odd)).toMatchObject({ body: { kind: 'base64', value: odd.toString('base64') }, truncated: false });
  // A whole answer that ends in half a character is no text.
  expect(kept(Buffer.from('é').subarray(0, 1)).body.kind).toBe('base64');
  expect(kept(Buffer.from('é').subarray(0, 1), { whole: false })).toMatchObject({
    body: { kind: 'text', value: '' },
    truncated: true,
  });
});

test('an answer that is packed is kept as bytes, and one that broke off as no JSON', () => {
  const headers = { 'content-type': 'application/json', 'content-encoding': 'gzip' };
  expect(kept('abc', { headers }).body).toEqual({ kind: 'base64', value: 'YWJj' });
  const json = { 'content-type': 'application/json' };
  expect(kept('{"a":1}', { headers: json })).toMatchObject({
    body: { kind: 'json', value: { a: 1 } },
    truncated: false,
  });
  expect(kept('{"a":1}', { headers: json, whole: false })).toMatchObject({
    body: { kind: 'text', value: '{"a":1}' },
    truncated: true,
  });
});

test('of the headers those are kept that say how to read it, or name what was made', () => {
  const keeps = {
    'content-type': 'text/plain',
    'content-language': 'de',
    'content-encoding': 'br',
    etag: '"1"',
    'last-modified': 'today',
    location: '/v1/notes/1',
  };
  expect(
    kept('', { headers: { ...keeps, server: 'x', 'retry-after': '1', date: 'today', 'x-any': '1' } }).headers,
  ).toEqual(keeps);
});

test('of a header that came more than once, all of it is kept', () => {
  const headers = { 'content-type': 'text/plain', 'content-language': ['de', 'en'] };
  const raw = { status: 200, headers, body: Buffer.from(''), whole: true };
  const { result } = readAnswer(raw, { responseKeptBytes: 10, setCookie: false, wantsJson: false });
  expect(result.headers).toEqual({ 'content-type': 'text/plain', 'content-language': 'de, en' });
});

test('no header goes back that is of the connection, of the gateway, or would act at the gateway’s origin', () => {
  const stays = { 'content-type': 'a', 'x-request-id': 'b', 'retry-after': '1', 'x-frame-options': 'c', etag: 'd' };
  const ends = [
    'connection',
    'keep-alive',
    'proxy-authenticate',
    'proxy-authorization',
    'proxy-connection',
    'te',
    'trailer',
    'transfer-encoding',
    'upgrade',
    'svc-decision',
    'svc-anything',
    'x-should-retry',
    'refresh',
    'clear-site-data',
    'service-worker-allowed',
    'access-control-allow-origin',
    'access-control-allow-credentials',
    'set-cookie',
    'set-cookie2',
  ];
  const all = { ...stays, ...Object.fromEntries(ends.map((name) => [name, 'keep-alive'])) };
  expect(headersBack(all, false)).toEqual(stays);
  expect(headersBack(all, true)).toEqual({ ...stays, 'set-cookie': 'keep-alive', 'set-cookie2': 'keep-alive' });
  // What the answer itself calls a matter of the connection.
  const named = { ...stays, connection: 'close, X-Request-Id', 'set-cookie': 'e' };
  const { 'x-request-id': _id, ...others } = stays;
  expect(headersBack(named, true)).toEqual({ ...others, 'set-cookie': 'e' });
  expect(headersBack({ ...named, connection: ['ETag', ' x-request-id'] }, false)).toEqual({
    'content-type': 'a',
    'retry-after': '1',
    'x-frame-options': 'c',
  });
});

test.each([
  ['application/json', true],
  ['application/json; charset=utf-8', true],
  ['Application/JSON ;a=b', true],
  ['application/problem+json', true],
  ['application/vnd.api+json;v=1', true],
  ['application/jsonl', false],
  ['application/json-seq', false],
  ['text/json', false],
  ['text/html; application/json', false],
])('%s is JSON: %s', (type, is) => {
  expect(isJson(type)).toBe(is);
});
