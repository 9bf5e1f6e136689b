import { describe, expect, test } from 'vitest';
import { plainText, snakeWord, word } from '../../packages/init/src/openapi/words.ts';
import { riskOf } from '../../packages/init/src/openapi/risk.ts';
import {
  isTaken,
  plainFolder,
  shellWord,
  toOrigin,
  upstreamId,
  upstreamName,
} from '../../packages/init/src/options.ts';
import { groupOf } from '../../packages/init/src/tool-groups.ts';

describe('what is at stake in an operation', () => {
  test.each([
    ['DELETE', '/v1/notes/{id}', 'deleteNote', 'high'],
    ['DELETE', '/v1/accounts', 'x', 'critical'],
    ['DELETE', '/v1/Projects/{id}', 'x', 'critical'],
    ['DELETE', '/v1/accounts/{id}/notes', 'x', 'high'],
    ['DELETE', '/v1/refunds/{id}', 'x', 'critical'],
    ['POST', '/v1/refunds', 'x', 'critical'],
    ['POST', '/v1/things', 'createRefund', 'critical'],
    ['PUT', '/v1/payments/{id}', 'x', 'critical'],
    ['POST', '/v1/tokens', 'x', 'high'],
    ['POST', '/v1/things/{id}/rotate', 'x', 'high'],
    ['POST', '/v1/notes', 'addNote', 'medium'],
    ['PATCH', '/v1/notes/{id}', 'x', 'medium'],
    ['POST', '/v1/notes/search', 'x', 'low'],
    // A word for harmless work makes no grave one harmless, and counts for POST only.
    ['POST', '/v1/search', 'deleteFound', 'high'],
    ['PUT', '/v1/search', 'x', 'medium'],
    ['POST', '/v1/payments/preview', 'x', 'low'],
    // What stands in braces is a name of whoever wrote the document.
    ['POST', '/v1/{refund}', 'x', 'medium'],
  ] as const)('%s %s (%s): %s', (method, path, id, risk) => {
    expect(riskOf(method, path, id)).toBe(risk);
  });
});

describe('the group of a tool of an MCP server', () => {
  const group = (name: string, annotations?: object) => {
    const found = groupOf({
      name,
      ...(annotations !== undefined && { annotations: JSON.parse(JSON.stringify(annotations)) }),
    });
    return [found.group, found.risk, found.doubt === null ? 'sure' : 'doubted'];
  };

  test.each<[string, object | undefined, ReturnType<typeof group>]>([
    ['get_note', { readOnlyHint: true }, ['reads', null, 'sure']],
    ['frobnicate', { readOnlyHint: true }, ['reads', null, 'sure']],
    // The server says that it only reads, and its name says something else.
    ['delete_note', { readOnlyHint: true }, ['destructive', 'high', 'doubted']],
    ['send_payment', { readOnlyHint: true }, ['destructive', 'critical', 'doubted']],
    // Many servers put a word of their own before what a tool does.
    ['github_delete_note', { readOnlyHint: true }, ['destructive', 'high', 'doubted']],
    ['get_note', undefined, ['writes', 'low', 'doubted']],
    ['add_note', undefined, ['writes', 'medium', 'doubted']],
    ['create_payment', undefined, ['destructive', 'critical', 'doubted']],
    ['frobnicate', undefined, ['destructive', 'high', 'doubted']],
    ['', undefined, ['destructive', 'high', 'doubted']],
    ['get_note', { readOnlyHint: false }, ['destructive', 'high', 'sure']],
    ['get_note', { destructiveHint: true }, ['destructive', 'high', 'sure']],
    ['update_note', { destructiveHint: false }, ['writes', 'medium', 'sure']],
    ['delete_note', { destructiveHint: false }, ['destructive', 'high', 'doubted']],
    ['pay_refund', { destructiveHint: false }, ['destructive', 'critical', 'doubted']],
    ['get_note', { readOnlyHint: 'yes' }, ['destructive', 'high', 'sure']],
  ])('%s %j: %j', (name, annotations, found) => {
    expect(group(name, annotations)).toEqual(found);
  });

  test('tells what fails cleanly, what is meant each time, and a title that says more than the name', () => {
    expect(groupOf({ name: 'get_note' })).toMatchObject({ failsCleanly: true, isMeantEachTime: false, title: null });
    expect(groupOf({ name: 'set_note', annotations: { idempotentHint: true } }).failsCleanly).toBe(true);
    expect(groupOf({ name: 'set_note', annotations: { idempotentHint: 1 } }).failsCleanly).toBe(false);
    expect(groupOf({ name: 'browser_click' }).isMeantEachTime).toBe(true);
    expect(groupOf({ name: 'clicks_of_page' }).isMeantEachTime).toBe(false);
    expect(groupOf({ name: 'a', title: ' Do\n it ', annotations: { title: 'Other' } }).title).toBe('Do it');
    expect(groupOf({ name: 'a', title: '', annotations: { title: 'Other' } }).title).toBe('Other');
    expect(groupOf({ name: 'a', title: 'a' }).title).toBeNull();
  });
});

test('texts of a document cannot steer a terminal, nor hide what they say', () => {
  expect(plainText(' a\r\n\tb \u001b[2J\u202ec\u200bd ', 80)).toBe('a b [2Jcd');
  expect(plainText('x'.repeat(100), 10)).toBe('x'.repeat(10));
  expect(plainText(`${'x'.repeat(9)}😀`, 10)).toBe('x'.repeat(9));
  expect(word('  9 lives! ')).toBe('x_9_lives');
  expect(word('ä')).toBe('x');
  expect(word(`${'a'.repeat(89)}_b`)).toBe('a'.repeat(89));
  expect(snakeWord('getPaymentById')).toBe('get_payment_by_id');
  expect(snakeWord('createHTTPRoute')).toBe('create_http_route');
});

describe('the upstream', () => {
  test('is an origin without credentials', () => {
    expect(toOrigin('HTTPS://Api.Example.com/')).toBe('https://api.example.com');
    expect(toOrigin('http://127.0.0.1:9090')).toBe('http://127.0.0.1:9090');
    for (const odd of ['ftp://a', 'a', 'http://u@a', 'http://:p@a', 'http://a/b', 'http://a/?b', 'http://a/#b'])
      expect(() => toOrigin(odd), odd).toThrow('--upstream');
  });

  test('is called by what tells it from others, and by no name of the gateway', () => {
    expect(upstreamName('https://api.stripe.com')).toBe('stripe');
    expect(upstreamName('https://www.app.example.co.uk')).toBe('example');
    for (const none of ['http://127.0.0.1:1', 'http://localhost:1', 'https://api.com', 'https://docs.example.com'])
      expect(upstreamName(none), none).toBe('api');
    expect(isTaken('api')).toBe(false);
    for (const own of ['svc', 'v1', 'V1', 'mcp', 'console', 'docs']) expect(isTaken(own), own).toBe(true);
    expect(() => upstreamId('v1', 'https://a.b')).toThrow('--name');
    expect(() => upstreamId('1a', 'https://a.b')).toThrow('cannot be the id');
    expect(() => upstreamId('a'.repeat(32), 'https://a.b')).toThrow('cannot be the id');
    expect(upstreamId('a'.repeat(31), 'https://a.b')).toBe('a'.repeat(31));
  });
});

test('what is shown to be typed is quoted for a shell', () => {
  expect(shellWord('/a/b-c_1.mjs')).toBe('/a/b-c_1.mjs');
  expect(shellWord("it's $HOME")).toBe(String.raw`'it'\''s $HOME'`);
  expect([plainFolder('./my-gateway/'), plainFolder('/'), plainFolder('a//b/')]).toEqual(['my-gateway', '/', 'a/b']);
});
