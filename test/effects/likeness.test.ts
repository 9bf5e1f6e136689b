import { createSecretKey } from 'node:crypto';
import { expect, it } from 'vitest';
import type { JsonObject } from '../../src/json/value.ts';
import { NO_HEADERS } from '../../src/effects/model/action-call.ts';
import type { Obligation } from '../../src/effects/model/verdict.ts';
import { likenessOf, variesIn } from '../../src/effects/run/likeness.ts';
import { approvalBy, budgetOf, permit } from '../contract/requests.ts';
import { tool } from '../policy/fixtures.ts';

const key = createSecretKey(Buffer.alloc(32, 7));
const agent = { id: 'bot', workspace: 'demo', disabled: false, team: null, owner: 'olga', roles: [], attributes: {} };
const actor = {
  agentId: 'bot',
  agentOwner: 'olga',
  keyId: 'key_1',
  keyKind: 'agent',
  user: 'olga',
  keyMadeBy: null,
  via: 'effects_api',
} as const;
const call = {
  workspace: 'demo',
  agent,
  actor,
  tool: tool('payments.refund', { digest: 'sha256:tool' }),
  target: 'payment:42',
  headers: NO_HEADERS,
  params: { amount: 500, currency: 'EUR', note: 'late', account: 'a1' } as JsonObject,
};
const editable = {
  amount: { kind: 'range', min: 1, max: 1000 },
  currency: { kind: 'choice', of: ['EUR', 'USD'] },
  note: { kind: 'text', maxLength: 10 },
} as const;
const allowAlike = { times: 5, forMs: 3_600_000 };
const asks = (more: Parameters<typeof approvalBy>[0] = {}, amount = 500) =>
  permit([budgetOf(1_000, amount, { rule: 'payments/large' })], [approvalBy({ editable, allowAlike, ...more })]);
const withParams = (params: JsonObject) => ({ ...call, params: { ...call.params, ...params } });
const before = likenessOf(key, call, asks());

it('is that of calls which differ in what an approver may set, within its bounds, and in what follows from that', () => {
  expect(before).toMatch(/^[\w-]{43}$/);
  expect(likenessOf(key, withParams({ amount: 1000, currency: 'USD', note: '' }), asks({}, 1000))).toBe(before);
  const other = asks({ summary: 'Refund 7 EUR' }, 7);
  expect(likenessOf(key, withParams({ amount: 7 }), other)).toBe(before);
  const unrelated = permit([...asks().obligations, budgetOf(5, 1, { rule: 'payments/other' })], asks().approvals);
  expect(likenessOf(key, call, unrelated)).toBe(before);
});

const { note: _, ...withoutNote } = call.params;

it.each([
  ['the workspace', { ...call, workspace: 'other' }, asks()],
  ['the agent', { ...call, agent: { ...agent, id: 'other-bot' } }, asks()],
  ['the tool', { ...call, tool: { ...call.tool, name: 'payments.void' } }, asks()],
  ['the action', { ...call, tool: { ...call.tool, actionType: 'http.request' } }, asks()],
  ['how the tool is declared', { ...call, tool: { ...call.tool, digest: 'sha256:other' } }, asks()],
  ['the target', { ...call, target: 'payment:43' }, asks()],
  ['a header that counts', { ...call, headers: { ...NO_HEADERS, bound: { 'x-team': 'a' } } }, asks()],
  ['a param that nobody may set', withParams({ account: 'a2' }), asks()],
  ['a param more', withParams({ urgent: true }), asks()],
  ['a param that may be set and is left out', { ...call, params: withoutNote }, asks()],
  ['a number beyond its bounds', withParams({ amount: 1001 }), asks()],
  ['a number as a text', withParams({ amount: '500' }), asks()],
  ['a word that is none of those', withParams({ currency: 'CHF' }), asks()],
  ['a text that is too long', withParams({ note: 'x'.repeat(11) }), asks()],
  ['the rule', call, asks({ rule: 'payments/other' })],
  ['when the rule asks', call, asks({ ruleDigest: 'sha256:other' })],
  ['whom it asks', call, asks({ approvers: { roles: ['finance-lead'], users: ['ada'] } })],
  ['the role that it asks', call, asks({ approvers: { roles: ['other-lead'], users: [] } })],
  ['how long it waits', call, asks({ expiresMs: 1 })],
  ['the key that asks', { ...call, actor: { ...actor, keyId: 'key_2' } }, asks()],
  ['what it holds', call, asks({ hold: 'all' })],
  ['whether it wants a reason', call, asks({ requireReason: true })],
  ['a bound', call, asks({ editable: { ...editable, amount: { kind: 'range', min: 1, max: 999 } } })],
  ['how often', call, asks({ allowAlike: { ...allowAlike, times: 4 } })],
  ['for how long', call, asks({ allowAlike: { ...allowAlike, forMs: 1 } })],
  ['another rule that asks', call, permit(asks().obligations, [...asks().approvals, approvalBy({ allowAlike })])],
  ['what the rule makes it owe', call, permit([budgetOf(999, 500, { rule: 'payments/large' })], asks().approvals)],
] as const)('is another where %s differs', (_what, other, verdict) => {
  const likeness = likenessOf(key, other, verdict);
  expect(likeness).not.toBe(before);
  expect(likeness).not.toBeNull();
});

/** What a rule that asks demands, and what of it makes another call; the rest each call is held to by itself. */
const rule = 'payments/large';
const DEMANDS: readonly (readonly [Obligation, ...Partial<Record<string, string | number>>[]])[] = [
  [budgetOf(100, 60, { rule }), { budget: 'other' }, { unit: 'other' }, { limit: 101 }, { amount: 61 }],
  [{ kind: 'rate_limit', rule, id: 'calls', bucket: 'a', windowMs: 1_000, limit: 5 }, { id: 'other' }, { limit: 6 }],
  [{ kind: 'claim', rule, target: 'payment:1', hold: 'call' }, { hold: 'existing' }],
  [{ kind: 'reserve', rule, pool: 'gpus', units: 2, capacity: 8 }, { units: 3 }, { capacity: 9 }],
];

it.each(DEMANDS.flatMap(([demand, ...changes]) => changes.map((change) => [demand.kind, change, demand] as const)))(
  'is another where of a %s differs: %j',
  (_, change, demand) => {
    const likeness = (of: Obligation) => likenessOf(key, call, permit([of], [approvalBy({ allowAlike })]));
    expect(likeness({ ...demand, ...change })).not.toBe(likeness(demand));
  },
);

it('is another for a rule of another name, also where neither demands anything', () => {
  const likeness = (of: string) => likenessOf(key, call, permit([], [approvalBy({ rule: of, allowAlike })]));
  expect(likeness('payments/other')).not.toBe(likeness(rule));
});

it('is another where a header that counts has another value', () => {
  const ofTenant = (tenant: string) =>
    likenessOf(key, { ...call, headers: { ...NO_HEADERS, bound: { 'x-tenant': tenant } } }, asks());
  expect(ofTenant('a')).toBe(ofTenant('a'));
  expect(ofTenant('b')).not.toBe(ofTenant('a'));
});

it('is another where people would be shown another amount that no param says, such as that of an entity', () => {
  expect(likenessOf(key, call, asks({}, 60_000))).not.toBe(before);
  const large = (amount: number) =>
    permit([budgetOf(1_000_000, amount, { rule: 'payments/large' })], [approvalBy({ allowAlike })]);
  expect(likenessOf(key, call, large(600))).not.toBe(likenessOf(key, call, large(60_000)));
  expect(likenessOf(key, withParams({ amount: 600 }), large(600))).not.toBe(likenessOf(key, call, large(500)));
  const pool = (units: number) =>
    permit([{ kind: 'reserve', rule: 'payments/large', pool: 'p', units, capacity: 9 }], [approvalBy({ allowAlike })]);
  expect(likenessOf(key, call, pool(1))).toBe(likenessOf(key, call, pool(1)));
  expect(likenessOf(key, call, pool(1))).not.toBe(likenessOf(key, call, pool(2)));
});

it('is of no call where one of the rules wants each looked at', () => {
  expect(likenessOf(key, call, permit([], [approvalBy({ editable })]))).toBeNull();
  expect(likenessOf(key, call, permit([], [approvalBy({ allowAlike }), approvalBy({ rule: 'b' })]))).toBeNull();
  expect(likenessOf(key, call, asks({ quorum: 2 }))).toBeNull();
  expect(likenessOf(key, call, permit([], []))).toBeNull();
});

it('cannot be guessed without the key of the workspace', () => {
  expect(likenessOf(createSecretKey(Buffer.alloc(32, 8)), call, asks())).not.toBe(before);
});

it('leaves open only what every rule leaves open, within the same bounds that hold for any call', () => {
  expect(variesIn(asks().approvals, call.params)).toEqual(editable);
  expect(variesIn(asks().approvals, { amount: 5000, note: 'a' })).toEqual({ note: editable.note });
  const asked = { amount: { kind: 'range', min: 1, max: 'asked' }, note: editable.note } as const;
  expect(variesIn([approvalBy({ editable: asked })], call.params)).toEqual({ note: editable.note });
  const least = { amount: { kind: 'range', min: 'asked', max: 9000 } } as const;
  expect(variesIn([approvalBy({ editable: least })], call.params)).toEqual({});
  const other = approvalBy({ rule: 'b', editable: { ...editable, amount: { kind: 'range', min: 2, max: 1000 } } });
  expect(Object.keys(variesIn([...asks().approvals, other], call.params))).toEqual(['currency', 'note']);
  expect(variesIn([...asks().approvals, approvalBy({ rule: 'c' })], call.params)).toEqual({});
  expect(variesIn([approvalBy({ editable: { toString: editable.note } })], call.params)).toEqual({});
});
