import { expect, test } from 'vitest';
import { makeKey } from '../../src/identity/key-format.ts';
import { holdsOwnKey } from '../../src/effects/run/check-call.ts';

const { key, handle } = makeKey('agent');
const keyId = `key_${handle}`;

test.each([[{ a: key }], [{ a: [{ b: `Bearer ${key}!` }] }], [{ [key]: 1 }], [{ a: `${keyId} ${key}` }]])(
  'the key stands in it: %#',
  (params) => {
    expect(holdsOwnKey(params, keyId)).toBe(true);
  },
);

test.each([
  [{}],
  [{ a: keyId, b: 1, c: null, d: [true] }],
  [{ a: makeKey('agent').key }],
  [{ a: `svc_agent_${handle}` }],
  [{ a: handle }],
])('the key does not stand in it: %#', (params) => {
  expect(holdsOwnKey(params, keyId)).toBe(false);
});
