import { createSecretKey } from 'node:crypto';
import { expect, it } from 'vitest';
import type { Permit } from '../../src/effects/model/verdict.ts';
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

it('is the same whatever rules say that do not ask', () => {
  const more = permit([...asks().obligations, budgetOf(5, 1, { rule: 'payments/unrelated' })], asks().approvals);
  expect(approvalDigest(key, call, more)).toBe(before);
});

it('cannot be guessed without the key of the workspace', () => {
  expect(approvalDigest(createSecretKey(Buffer.alloc(32, 8)), call, asks())).not.toBe(before);
});
