import { describe, expect, it } from 'vitest';
import { type RpcMessage, type RpcRefusal, errorMessage, messageFrom, readMessage } from '../../src/mcp/jsonrpc.ts';

const LIMITS = { depth: 16, values: 20_000 };

const read = async (text: string | Buffer): Promise<RpcMessage | RpcRefusal> =>
  readMessage(typeof text === 'string' ? Buffer.from(text) : text, LIMITS);

describe('a message', () => {
  it.each<[string, RpcMessage]>([
    [
      '{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{}}',
      { kind: 'request', id: 1, method: 'tools/list', params: {} },
    ],
    ['{"jsonrpc":"2.0","id":"a","method":"ping"}', { kind: 'request', id: 'a', method: 'ping', params: {} }],
    ['{"jsonrpc":"2.0","id":0,"method":"ping"}', { kind: 'request', id: 0, method: 'ping', params: {} }],
    ['{"jsonrpc":"2.0","id":"","method":"ping"}', { kind: 'request', id: '', method: 'ping', params: {} }],
    [
      '{"jsonrpc":"2.0","method":"notifications/initialized"}',
      { kind: 'notification', method: 'notifications/initialized', params: {} },
    ],
    [
      '{"jsonrpc":"2.0","id":7,"result":{"action":"accept"}}',
      { kind: 'response', id: 7, answer: { kind: 'result', result: { action: 'accept' } } },
    ],
    [
      '{"jsonrpc":"2.0","id":7,"error":{"code":-1,"message":"no"}}',
      { kind: 'response', id: 7, answer: { kind: 'error', error: { code: -1, message: 'no' } } },
    ],
  ])('%s', async (text, message) => {
    expect(await read(text)).toEqual(message);
  });

  it('may have an id of 256 characters, and a method of 128, and no longer ones', async () => {
    const ping = (id: string, method: string) => read(JSON.stringify({ jsonrpc: '2.0', id, method }));
    expect(await ping('i'.repeat(256), 'm'.repeat(128))).toMatchObject({ kind: 'request' });
    for (const refusal of [await ping('i'.repeat(257), 'm'), await ping('i', 'm'.repeat(129))])
      expect(refusal).toMatchObject({ kind: 'refused', status: 400, error: { code: -32_600 } });
  });

  it('of many bytes is read in parts, and says the same', async () => {
    const params = { list: Array.from({ length: 9_000 }, (_, index) => `value ${index}`) };
    const text = JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'tools/call', params });
    expect(text.length).toBeGreaterThan(100_000);
    const reading = readMessage(Buffer.from(text), LIMITS);
    expect(reading).toBeInstanceOf(Promise);
    expect(await reading).toEqual({ kind: 'request', id: 1, method: 'tools/call', params });
  });
});

describe('what is refused', () => {
  const LONG = 'x'.repeat(257);

  it.each<[string, string | Buffer, number, number | string | null, RegExp]>([
    ['no bytes', '', -32_700, null, /empty/],
    [
      'a member in another case',
      '{"jsonrpc":"2.0","id":1,"method":"ping","Params":{}}',
      -32_600,
      1,
      /no member "Params"/,
    ],
    ['no method', '{"jsonrpc":"2.0","id":1,"method":""}', -32_600, 1, /method must be a text of 1 to 128/],
    ['no JSON', '{"jsonrpc"', -32_700, null, /not strict JSON.*line 1/],
    ['no JSON from somewhere on', '{"jsonrpc":\n  x', -32_700, null, /\(line 2, column 3\)\.$/],
    [
      'another member with a long name',
      `{"jsonrpc":"2.0","id":1,"method":"ping","${LONG}":1}`,
      -32_600,
      1,
      /no member "x{100}" beside/,
    ],
    ['two texts', '{"jsonrpc":"2.0","id":1,"method":"ping"} {}', -32_700, null, /after the end/],
    ['a byte order mark', '\uFEFF{"jsonrpc":"2.0","id":1,"method":"ping"}', -32_700, null, /byte order mark/],
    ['no UTF-8', Buffer.from([0x7b, 0xff, 0x7d]), -32_700, null, /not UTF-8/],
    ['UTF-16', Buffer.from('{"jsonrpc":"2.0","id":1,"method":"ping"}', 'utf16le'), -32_700, null, /not strict JSON/],
    [
      'a name that stands twice',
      '{"jsonrpc":"2.0","id":1,"method":"ping","method":"tools/call"}',
      -32_700,
      null,
      /twice/,
    ],
    ['a name in two cases', '{"jsonrpc":"2.0","id":1,"method":"ping","Method":"tools/call"}', -32_700, null, /twice/],
    [
      'a name twice, deep inside',
      '{"jsonrpc":"2.0","id":1,"method":"a","params":{"b":{"c":1,"c":2}}}',
      -32_700,
      null,
      /twice/,
    ],
    ['a lone surrogate', String.raw`{"jsonrpc":"2.0","id":1,"method":"\ud800"}`, -32_700, null, /surrogate/],
    [
      'a number that no double holds',
      '{"jsonrpc":"2.0","id":9007199254740993,"method":"ping"}',
      -32_700,
      null,
      /beyond/,
    ],
    ['a batch', '[{"jsonrpc":"2.0","id":1,"method":"ping"}]', -32_600, null, /[Bb]atch/],
    ['an empty batch', '[]', -32_600, null, /[Bb]atch/],
    ['a text', '"ping"', -32_600, null, /object/],
    ['another version', '{"jsonrpc":"1.0","id":1,"method":"ping"}', -32_600, 1, /jsonrpc/],
    ['no version', '{"id":1,"method":"ping"}', -32_600, 1, /jsonrpc/],
    ['an id of null', '{"jsonrpc":"2.0","id":null,"method":"ping"}', -32_600, null, /must not be null/],
    ['a broken id', '{"jsonrpc":"2.0","id":1.5,"method":"ping"}', -32_600, null, /whole number/],
    ['an id that is an object', '{"jsonrpc":"2.0","id":{},"method":"ping"}', -32_600, null, /whole number/],
    ['a long id', `{"jsonrpc":"2.0","id":"${LONG}","method":"ping"}`, -32_600, null, /256/],
    ['no method', '{"jsonrpc":"2.0","id":1}', -32_600, 1, /method is missing/],
    ['a method that is no text', '{"jsonrpc":"2.0","id":1,"method":5}', -32_600, 1, /method/],
    ['a long method', `{"jsonrpc":"2.0","id":1,"method":"${LONG}"}`, -32_600, 1, /method/],
    [
      'params as a list',
      '{"jsonrpc":"2.0","id":1,"method":"ping","params":[]}',
      -32_600,
      1,
      /params must be an object/,
    ],
    [
      'params of null',
      '{"jsonrpc":"2.0","id":1,"method":"ping","params":null}',
      -32_600,
      1,
      /params must be an object/,
    ],
    ['another member', '{"jsonrpc":"2.0","id":1,"method":"ping","auth":"x"}', -32_600, 1, /no member "auth"/],
    ['a method and a result', '{"jsonrpc":"2.0","id":1,"method":"ping","result":{}}', -32_600, 1, /no member "result"/],
    ['result and error', '{"jsonrpc":"2.0","id":1,"result":{},"error":{}}', -32_600, 1, /not both/],
    ['a result without id', '{"jsonrpc":"2.0","result":{}}', -32_600, null, /has an id/],
    ['a result that is a list', '{"jsonrpc":"2.0","id":1,"result":[]}', -32_600, 1, /object/],
  ])('%s', async (_what, text, code, id, message) => {
    const refusal = await read(text);
    expect(refusal).toMatchObject({ kind: 'refused', status: 400, id, error: { code } });
    expect(refusal.kind === 'refused' ? refusal.error.message : '').toMatch(message);
  });

  it('is answered with the id that the message had, else with null', () => {
    const refusal = messageFrom({ jsonrpc: '2.0', id: 'mine', method: 3 });
    if (refusal.kind !== 'refused') throw new Error('the message was taken');
    expect(errorMessage(refusal.id, refusal.error)).toEqual({
      jsonrpc: '2.0',
      id: 'mine',
      error: { code: -32_600, message: 'The member method must be a text of 1 to 128 characters.' },
    });
    expect(errorMessage(null, { code: -1, message: 'm', data: { a: 1 } })).toEqual({
      jsonrpc: '2.0',
      id: null,
      error: { code: -1, message: 'm', data: { a: 1 } },
    });
  });
});
