import { describe, expect, test } from 'vitest';
import { amountsIn, createEventAmounts } from '../../src/upstreams/http/read-amounts.ts';

const PATHS = { token: [['usage.input_tokens'], ['usage.output_tokens']] };

function read(text: string, size: number, paths: Readonly<Record<string, readonly (readonly string[])[]>> = PATHS) {
  const events = createEventAmounts(paths);
  const bytes = Buffer.from(text);
  for (let at = 0; at < bytes.length; at += size) events.take(bytes.subarray(at, at + size));
  return events.amounts();
}

const event = (data: unknown): string => `event: message_delta\ndata: ${JSON.stringify(data)}\n\n`;

describe('amounts in a stream', () => {
  test('each is read from the last event that has it, wherever pieces end, and they are added up', () => {
    const text = [
      event({ type: 'message_start', message: { usage: { input_tokens: 500, output_tokens: 1 } } }),
      event({ usage: { input_tokens: 3, output_tokens: 1 } }),
      ': ping\n\n',
      'data: {"usage":\ndata: {"output_tokens": 40}}\n\n',
      event({ delta: { text: 'it says "output_tokens": 9' } }),
      'data: [DONE]\n\n',
    ].join('');
    for (const size of [1, 2, 7, 64, text.length]) expect(read(text, size)).toEqual({ token: 43 });
    expect(read(text.replaceAll('\n', '\r\n'), 5)).toEqual({ token: 43 });
    expect(read(text.replaceAll('\n', '\r'), text.length)).toEqual({ token: 43 });
  });

  test('a space behind the colon may be left out', () => {
    expect(read('data:{"usage":{"input_tokens":3,\ndata:"output_tokens":4}}\n\n', 7)).toEqual({ token: 7 });
  });

  test('an event that is not complete says nothing', () => {
    expect(read('data: {"n":1}\n\ndata: {"n":2}\n', 4, { token: [['n']] })).toEqual({ token: 1 });
  });

  test('one that is too long is not looked into, and what came before it may be out of date', () => {
    const long = event({ pad: 'x'.repeat(70_000), n: 2 });
    const paths = { token: [['n']] };
    expect(read(event({ n: 1 }) + long, 1000, paths)).toEqual({ token: null });
    expect(read(event({ n: 1 }) + long + event({ n: 3 }), 1000, paths)).toEqual({ token: 3 });
  });
});

test('of alternatives the first counts that the answer has: Anthropic says its input at the beginning, or at the end too', () => {
  const paths = { token: [['usage.input_tokens', 'message.usage.input_tokens'], ['usage.output_tokens']] };
  const start = event({ type: 'message_start', message: { usage: { input_tokens: 500, output_tokens: 1 } } });
  expect(read(start + event({ usage: { output_tokens: 40 } }), 9, paths)).toEqual({ token: 540 });
  expect(read(start + event({ usage: { input_tokens: 600, output_tokens: 40 } }), 9, paths)).toEqual({ token: 640 });
  expect(read(start, 9, paths)).toEqual({ token: null });
  expect(amountsIn(paths, { usage: { input_tokens: 7, output_tokens: 2 } })).toEqual({ token: 9 });
});

test('amounts in JSON: whole numbers from 0 to 2^53-1, own members only, all of them', () => {
  const at = (json: string, path = 'usage.total') => amountsIn({ token: [[path]] }, JSON.parse(json)).token;
  expect(at('{"usage":{"total":7}}')).toBe(7);
  expect(at('{"usage":{"total":0}}')).toBe(0);
  for (const bad of ['-1', '0.5', '"7"', 'null', '[7]', '9007199254740992'])
    expect(at(`{"usage":{"total":${bad}}}`), bad).toBeNull();
  expect(at('{"usage":{}}', 'usage.constructor.length')).toBeNull();
  expect(amountsIn(PATHS, { usage: { input_tokens: 1 } })).toEqual({ token: null });
  expect(amountsIn(PATHS, undefined)).toEqual({ token: null });
});
