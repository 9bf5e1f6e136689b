import { describe, expect, test } from 'vitest';
import { type KeptResult, stateOfAnswer } from '../../src/effects/model/answer.ts';
import type { Probe, Tool } from '../../src/effects/model/tool.ts';
import { filledIn, judgeProbe } from '../../src/effects/checks/judge-probe.ts';
import type { Json, JsonObject } from '../../src/json/value.ts';
import { makeTool } from '../upstreams/tool.ts';

const READ: Tool = makeTool();

const probe = (happened: JsonObject, notHappened: JsonObject = {}): Probe => ({
  read: READ,
  params: {},
  happened,
  notHappened,
  everyMs: 1,
  afterMs: 1,
  forMs: 1,
});

const http = (status: number, value: Json): KeptResult => ({
  kind: 'http',
  status,
  headers: {},
  body: { kind: 'json', value },
  truncated: false,
});
const message = (value: Json): KeptResult => ({ kind: 'message', body: { kind: 'json', value }, truncated: false });

function findingOf(answer: KeptResult, by: Probe, given: JsonObject = {}): string {
  const state = stateOfAnswer(answer);
  return typeof state === 'string' ? state : judgeProbe(by, answer.kind, state, given).finding;
}

describe('what an answer to a probe says', () => {
  const order = probe({ state: 'done' }, { http_status: 404 });
  test.each([
    ['all conditions hold', http(200, { state: 'done' }), 'happened'],
    ['the other set holds', http(404, {}), 'not_happened'],
    ['neither holds', http(200, { state: 'pending' }), 'unknown'],
    ['the field is not there', http(200, {}), 'unknown'],
    ['an upstream that fails shows nothing, whatever stands in its body', http(503, { state: 'done' }), 'unknown'],
    ['a login page is no order', http(401, { state: 'done' }), 'unknown'],
    ['an answer that sends elsewhere shows nothing', http(302, { state: 'done' }), 'unknown'],
    ['the last of the answers that show something', http(299, { state: 'done' }), 'happened'],
    ['a body cannot say what its status is', http(503, { state: 'done', http_status: 404 }), 'unknown'],
    ['a body that is no JSON', { ...http(404, null), body: { kind: 'text', value: 'gone' } } as const, 'not_happened'],
  ])('%s', (_, answer, expected) => {
    expect(findingOf(answer, order)).toBe(expected);
  });

  test('both sets hold: nothing is known', () => {
    expect(findingOf(http(200, { state: 'done' }), probe({ state: 'done' }, { state: { $exists: true } }))).toBe(
      'unknown',
    );
  });
  test('a set without conditions never holds', () => {
    expect(findingOf(http(200, {}), probe({ state: 'done' }))).toBe('unknown');
    expect(findingOf(http(200, { state: 'done' }), probe({ state: 'done' }))).toBe('happened');
  });
  test('lists are read by their places', () => {
    expect(findingOf(http(200, [{ id: 7 }]), probe({ '0.id': 7 }))).toBe('happened');
  });
  test('what was cut shows nothing', () => {
    expect(findingOf({ ...http(404, {}), truncated: true }, order)).toMatch(/longer than/);
  });

  test.each([
    [
      'the text of a tool is read where it is JSON',
      { content: [{ type: 'text', text: '{"found":true}' }] },
      'happened',
    ],
    [
      'an error of the tool shows nothing',
      { content: [{ type: 'text', text: '{"found":true}' }], isError: true },
      'unknown',
    ],
    [
      'an error of the server shows nothing',
      { error: { code: 1 }, content: [{ type: 'text', text: '{"found":true}' }] },
      'unknown',
    ],
    [
      'two texts are not one',
      {
        content: [
          { type: 'text', text: '{"found":true}' },
          { type: 'text', text: '' },
        ],
      },
      'unknown',
    ],
  ])('%s', (_, result, expected) => {
    expect(findingOf(message(result), probe({ 'json.found': true }))).toBe(expected);
  });
});

describe('what the call has in place of {name}', () => {
  test('is compared, and never read as a condition', () => {
    const by = probe({ state: '{wanted}' });
    expect(findingOf(http(200, { state: 'open' }), by, { wanted: 'open' })).toBe('happened');
    expect(findingOf(http(200, { state: 'open' }), by, { wanted: { $exists: true } })).toBe('unknown');
    expect(findingOf(http(200, { state: 'open' }), by, { wanted: '{other}', other: 'open' })).toBe('unknown');
  });
  test('stands as the operand of an operator too, but not as an expression', () => {
    expect(findingOf(http(200, { n: 7 }), probe({ n: { $gte: '{least}' } }), { least: 5 })).toBe('happened');
    expect(findingOf(http(200, { n: 'x' }), probe({ n: { $regex: '{all}' } }), { all: '.*' })).toBe('unknown');
  });
  test('shows that it did not happen as well as that it did', () => {
    const by = probe({ amount: '{amount}' }, { amount: { $eq: '{before}' } });
    const given = { amount: 12, before: 7 };
    expect(findingOf(http(200, { amount: 12 }), by, given)).toBe('happened');
    expect(findingOf(http(200, { amount: 7 }), by, given)).toBe('not_happened');
  });
  test('is not there: nothing is known', () => {
    expect(findingOf(http(200, { state: null }), probe({ state: '{wanted}' }))).toBe('unknown');
    // As an operand it would be null, and every other value is another than that.
    const other = probe({ state: { $ne: '{before}' } });
    expect(findingOf(http(200, { state: 'open' }), other)).toBe('unknown');
    expect(findingOf(http(200, { state: 'open' }), other, { before: 'closed' })).toBe('happened');
  });
  test('fills the params of the read; what the call does not have is left out', () => {
    const given = { order: 'a-1', lines: [1, 2] };
    expect(
      filledIn({ id: '{order}', in: { all: ['{lines}', '{gone}'] }, gone: '{gone}', as: 'it {order}' }, given),
    ).toEqual({
      id: 'a-1',
      in: { all: [[1, 2]] },
      as: 'it {order}',
    });
  });
});
