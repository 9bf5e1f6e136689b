import { expect, test } from 'vitest';
import { InvalidFiles } from '../../src/diagnostics/render.ts';
import { boundsFault } from '../../src/effects/model/editable.ts';
import { compilePolicies } from '../../src/policy/load.ts';
import { HEAD, tool } from './fixtures.ts';

const PAY = tool('bank.pay', {
  target: 'account:{account}',
  paramsSchema: {
    type: 'object',
    properties: {
      account: { type: 'string' },
      amount: { type: 'integer', minimum: 1, maximum: 1000 },
      rate: { type: 'number' },
      currency: { enum: ['EUR', 'USD'] },
      note: { type: 'string', minLength: 5 },
      urgent: { type: 'boolean' },
      level: { enum: [1, 5, 10] },
    },
    additionalProperties: false,
  },
});
const WIRE = tool('bank.wire', { paramsSchema: { type: 'object', properties: { amount: { type: 'integer' } } } });
const MOVE = tool('bank.move', {
  target: 'account:{from}/{to.iban}',
  paramsSchema: { type: 'object', properties: { from: { type: 'string' }, to: { type: 'object' } } },
});
const ANY = tool('bank.any', { paramsSchema: null });

/** What is found in the bounds of one param of one rule, as `severity code message`. */
function found(name: string, bounds: string, tools = 'bank.pay'): readonly string[] {
  const text = `${HEAD}rules:\n  - { id: a, effect: require_approval, match: { tools: [${tools}] }, approval: { approvers: { users: [ada] }, editable: { ${name}: ${bounds} } } }\n`;
  const given = {
    tools: [PAY, WIRE, MOVE, ANY],
    upstreams: ['bank'],
    pools: new Map<string, number>(),
    roles: [],
    rolesOf: new Map([['ada', []]]),
  };
  const findings = ((): InvalidFiles['findings'] => {
    try {
      return compilePolicies([{ file: 'p.yaml', text, lists: new Map() }], given).warnings;
    } catch (error) {
      if (error instanceof InvalidFiles) return error.findings;
      throw error;
    }
  })();
  return findings.map(({ severity, code, message, hint }) => `${severity} ${code} ${message} ${hint}`);
}

test.each([
  ['amount', '{ min: 1, max: asked }'],
  ['amount', '{ min: 500, max: 5000 }'],
  ['rate', '{ min: 0.2, max: 0.8 }'],
  ['currency', '{ one_of: [USD, CHF] }'],
  ['note', '{ max_length: 5 }'],
  ['urgent', '{ one_of: [false] }'],
  ['level', '{ max: 1 }'],
  ['level', '{ min: 10 }'],
])('%s: %s can be met', (name, bounds) => expect(found(name, bounds)).toEqual([]));

test.each([
  ['amount', '{ min: 10, max: 9 }', /no number is from 10 to 9/],
  ['amount', '{ min: 1, one_of: [1] }', /min and max, or one_of, or max_length/],
  ['amount', '{}', /./],
  ['amount', '{ one_of: [] }', /./],
  ['amount', '{ min: soon }', /./],
  ['amount', '{ min: 1001 }', /no value within the bounds fits/],
  ['amount', '{ min: 0.2, max: 0.8 }', /no value within the bounds fits/],
  ['amount', '{ max_length: 3 }', /no value within the bounds fits/],
  ['amount', '{ one_of: [many] }', /no value within the bounds fits/],
  ['currency', '{ one_of: [CHF] }', /no value within the bounds fits/],
  ['level', '{ min: 6, max: 9 }', /no value within the bounds fits/],
  ['note', '{ max_length: 4 }', /no value within the bounds fits/],
  ['note', '{ min: 1 }', /no value within the bounds fits/],
  ['amuont', '{ min: 1 }', /has no such param.*did you mean 'amount'/],
  ['account', '{ max_length: 9 }', /names the target/],
])('%s: %s does not load', (name, bounds, message) => {
  const [first = '', ...others] = found(name, bounds);
  expect(others).toEqual([]);
  expect(first).toMatch(/^error /);
  expect(first).toMatch(message);
});

test.each(['from', 'to'])('%s cannot be changed either: it is a part of the target', (name) => {
  expect(found(name, '{ max_length: 9 }', 'bank.move')).toEqual([expect.stringMatching(/^error .*names the target/)]);
});

test('where only some tools of the rule lack the param it is a warning, and where nothing is known nothing is said', () => {
  expect(found('rate', '{ min: 1 }', 'bank.pay, bank.wire')).toEqual([expect.stringMatching(/^warning not_editable/)]);
  expect(found('rate', '{ min: 1 }', 'bank.any')).toEqual([]);
});

test('a value is within its bounds or a sentence says why not', () => {
  const range = { kind: 'range', min: 100, max: 'asked' } as const;
  expect(boundsFault(range, 500, 100)).toBeNull();
  expect(boundsFault(range, 500, 500)).toBeNull();
  for (const [asked, value] of [
    [500, 99],
    [500, 501],
    [500, '200'],
    [500, null],
    [500, Number.NaN],
    [500, Number.POSITIVE_INFINITY],
    ['500', 200],
    [undefined, 200],
    [Number.MAX_SAFE_INTEGER, 2 ** 53],
  ] as const)
    expect(boundsFault(range, asked, value), String(value)).toMatch(/./);
  // A bound that is left out lets no number in that would be another one on its way.
  const atLeast = { kind: 'range', min: 1, max: null } as const;
  expect(boundsFault(atLeast, 1, Number.MAX_SAFE_INTEGER)).toBeNull();
  expect(boundsFault(atLeast, 1, Number.MAX_SAFE_INTEGER + 1)).toMatch(/larger than what is known exactly/);
  const choice = { kind: 'choice', of: ['EUR', 1, false] } as const;
  for (const value of ['EUR', 1, false]) expect(boundsFault(choice, null, value)).toBeNull();
  for (const value of ['USD', '1', 0, null, ['EUR'], {}]) expect(boundsFault(choice, null, value)).toMatch(/one of/);
  const text = { kind: 'text', maxLength: 3 } as const;
  expect(boundsFault(text, null, 'abc')).toBeNull();
  for (const value of ['abcd', 1, null]) expect(boundsFault(text, null, value)).toMatch(/./);
});
