import { expect, test } from 'vitest';
import { InvalidFiles } from '../../src/diagnostics/render.ts';
import { compilePolicies } from '../../src/policy/load.ts';
import { HEAD, tool } from './fixtures.ts';

/** What is found in a rule whose approval has these fields, as `severity code message`. */
function found(approval: string): readonly string[] {
  const text = `${HEAD}rules:\n  - { id: a, effect: require_approval, match: { tools: [bank.pay] }, approval: { approvers: { users: [ada, tom] }, ${approval} } }\n`;
  const given = {
    tools: [tool('bank.pay', { paramsSchema: null })],
    upstreams: ['bank'],
    pools: new Map<string, number>(),
    roles: [],
    rolesOf: new Map<string, readonly string[]>([
      ['ada', []],
      ['tom', []],
    ]),
  };
  try {
    const { warnings } = compilePolicies([{ file: 'p.yaml', text, lists: new Map() }], given);
    return warnings.map(({ severity, code, message }) => `${severity} ${code} ${message}`);
  } catch (error) {
    if (!(error instanceof InvalidFiles)) throw error;
    return error.findings.map(({ severity, code, message }) => `${severity} ${code} ${message}`);
  }
}

test.each([
  ['escalate: { after: 1h, to: { users: [tom] } }, expires: 2h', []],
  ['escalate: { after: 23h, to: { users: [tom] } }', []],
  [
    'escalate: { after: 24h, to: { users: [tom] } }',
    ["error wrong_value After '24h' the request has expired: nobody would be asked"],
  ],
  [
    'escalate: { after: 2h, to: { users: [tom] } }, expires: 2h',
    ["error wrong_value After '2h' the request has expired: nobody would be asked"],
  ],
  [
    'escalate: { after: 1h, to: { roles: [cfo] } }',
    ["error unknown_role No user has the role 'cfo': nobody could approve"],
  ],
  ['escalate: { after: 1h, to: { users: [eve] } }', ["warning unknown_user The configuration names no user 'eve'"]],
  // Who is asked later counts: without them the call would wait in vain.
  ['quorum: 3', ['error wrong_value A quorum of 3 cannot be reached by 2 users']],
  [
    'quorum: 3, escalate: { after: 1h, to: { users: [eve] } }',
    ["warning unknown_user The configuration names no user 'eve'"],
  ],
])('%s: %j', (approval, expected) => {
  expect(found(approval)).toEqual(expected);
});

test.each(['escalate: { after: 1h }', 'escalate: { to: { users: [tom] } }', 'escalate: { after: 1h, to: {} }'])(
  '%s does not load',
  (approval) => {
    expect(found(approval)[0]).toMatch(/^error /);
  },
);

test.each(['{ times: 1, for: 1s }', '{ times: 100, for: 24h }', '{ times: 5, for: 1d }'])('%s loads', (alike) => {
  expect(found(`allow_alike: ${alike}`)).toEqual([]);
  expect(found(`quorum: 1, allow_alike: ${alike}`)).toEqual([]);
});

test.each([
  ['allow_alike: { times: 0, for: 1h }', /times/],
  ['allow_alike: { times: 101, for: 1h }', /times/],
  ['allow_alike: { times: 1.5, for: 1h }', /times/],
  ['allow_alike: { times: 3 }', /for/],
  ['allow_alike: { for: 1h }', /times/],
  ['allow_alike: { times: 3, for: soon }', /for/],
  ['allow_alike: { times: 3, for: 1h, per: day }', /per/],
  ['allow_alike: { times: 3, for: 25h }', /wrong_value '25h' is longer than 24h/],
  ['quorum: 2, allow_alike: { times: 3, for: 1h }', /wrong_value A quorum of 2 asks several people/],
])('%s does not load', (approval, message) => {
  const [first = '', ...others] = found(approval);
  expect(others).toEqual([]);
  expect(first).toMatch(/^error /);
  expect(first).toMatch(message);
});
