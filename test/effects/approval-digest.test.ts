import { createSecretKey } from 'node:crypto';
import { expect, it } from 'vitest';
import type { Obligation, Permit } from '../../src/effects/model/verdict.ts';
import { approvalBy, budgetOf, permit } from '../contract/requests.ts';
import { approvalDigest } from '../../src/effects/run/evaluate.ts';

const key = createSecretKey(Buffer.alloc(32, 7));
const call = { fingerprint: 'fp1:one', tool: { digest: 'sha256:tool' } };
const asks = (more: Parameters<typeof approvalBy>[0] = {}): Permit =>
  permit([budgetOf(100, 60, { rule: 'payments/large' })], [approvalBy(more)]);
const before = approvalDigest(key, call, asks());

it('stays the same for the same question', () => {
  expect(approvalDigest(key, structuredClone(call), structuredClone(asks()))).toBe(before);
  expect(before).not.toBe('');
});

it.each([
  ['params, target, agent', { ...call, fingerprint: 'fp1:two' }, asks()],
  ['the tool', { ...call, tool: { digest: 'sha256:other' } }, asks()],
  ['the rule', call, asks({ rule: 'payments/other' })],
  ['when the rule asks', call, asks({ ruleDigest: 'sha256:other' })],
  ['the summary', call, asks({ summary: 'Refund 5,001 EUR to customer 42' })],
  ['the expiry', call, asks({ expiresMs: 3_600_001 })],
  ['the quorum', call, asks({ quorum: 2 })],
  ['the roles', call, asks({ approvers: { roles: ['finance'], users: [] } })],
  ['the users', call, asks({ approvers: { roles: ['finance-lead'], users: ['ada'] } })],
  ['the limit that it would go beyond', call, asks({ beyond: 'budget:payments/daily' })],
  ['what it holds meanwhile', call, asks({ hold: 'all' })],
  [
    'another rule that asks',
    call,
    permit(asks().obligations, [...asks().approvals, approvalBy({ rule: 'payments/b' })]),
  ],
  ['the cost', call, permit([budgetOf(100, 61, { rule: 'payments/large' })], asks().approvals)],
  ['the budget', call, permit([budgetOf(101, 60, { rule: 'payments/large' })], asks().approvals)],
] as const)('is another when %s changed', (_what, changed, verdict) => {
  expect(approvalDigest(key, changed, verdict)).not.toBe(before);
});

/** What a rule that asks demands, by what it says, and of each what the digest is of. */
const rule = 'payments/large';
const DEMANDS: readonly (readonly [Obligation, ...Partial<Record<string, string | number>>[]])[] = [
  [
    budgetOf(100, 60, { rule }),
    { budget: 'other' },
    { unit: 'other' },
    { bucket: 'other' },
    { limit: 101 },
    { amount: 61 },
  ],
  [
    { kind: 'rate_limit', rule, id: 'calls', bucket: 'a', windowMs: 1_000, limit: 5 },
    { id: 'other' },
    { bucket: 'b' },
    { limit: 6 },
  ],
  [{ kind: 'claim', rule, target: 'payment:1', hold: 'call' }, { target: 'payment:2' }, { hold: 'existing' }],
  [{ kind: 'reserve', rule, pool: 'gpus', units: 2, capacity: 8 }, { pool: 'other' }, { units: 3 }],
];

it.each(DEMANDS.flatMap(([demand, ...changes]) => changes.map((change) => [demand.kind, change, demand] as const)))(
  'is another when of a %s changed: %j',
  (_, change, demand) => {
    const digest = (of: Obligation): string => approvalDigest(key, call, permit([of], asks().approvals));
    expect(digest({ ...demand, ...change })).not.toBe(digest(demand));
  },
);

it('is another for a rule of another name, also where neither demands anything', () => {
  const digest = (of: string): string => approvalDigest(key, call, permit([], [approvalBy({ rule: of })]));
  expect(digest('payments/other')).not.toBe(digest(rule));
});

it('is the same whatever rules say that do not ask', () => {
  const more = permit([...asks().obligations, budgetOf(5, 1, { rule: 'payments/unrelated' })], asks().approvals);
  expect(approvalDigest(key, call, more)).toBe(before);
});

it('cannot be guessed without the key of the workspace', () => {
  expect(approvalDigest(createSecretKey(Buffer.alloc(32, 8)), call, asks())).not.toBe(before);
});
