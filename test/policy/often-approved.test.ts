import { expect, it } from 'vitest';
import type { ApprovalRecord } from '../../src/effects/model/approval.ts';
import type { ApprovalRequirement } from '../../src/effects/model/verdict.ts';
import { oftenApproved } from '../../src/policy/suggest.ts';

/* Which requests were approved time and again: what counts, and which groups are looked into where there are many. */

function requirement(rule: string, ruleDigest = `of ${rule}`): ApprovalRequirement {
  const approvers = { users: ['ada'], roles: [] };
  return { rule, ruleDigest, approvers, quorum: 1, expiresMs: 1, summary: '', hold: 'own' };
}

function approval(id: string, over: Partial<ApprovalRecord> = {}): ApprovalRecord {
  return {
    id,
    workspace: 'demo',
    effectId: `eff_${id}`,
    digest: 'd',
    tool: 'payments.refund',
    target: 't',
    requester: { agentId: 'bot', agentOwner: null, user: null, keyId: 'key_1', keyMadeBy: null },
    requirements: [requirement('s/large')],
    costs: [],
    votes: [],
    status: 'used',
    createdAt: 0,
    expiresAt: 1,
    decidedAt: 1,
    stopped: null,
    ...over,
  };
}

const some = (count: number, over: Partial<ApprovalRecord> = {}): readonly ApprovalRecord[] =>
  Array.from({ length: count }, (_, n) => approval(`apr_${n}`, over));

const found = (...approvals: readonly ApprovalRecord[]) =>
  oftenApproved(approvals, (rule) => (rule === 's/gone' ? null : `of ${rule}`));

it.each<[string, number, Partial<ApprovalRecord>]>([
  ['was approved, and has not run', 1, { status: 'granted' }],
  ['ran', 1, { status: 'used' }],
  ['waits', 0, { status: 'pending' }],
  ['expired', 0, { status: 'expired' }],
  ['was asked by the rule before it was changed', 0, { requirements: [requirement('s/large', 'of another')] }],
  ['was asked by a rule that is gone', 0, { requirements: [requirement('s/gone')] }],
  ['another rule asked about as well', 0, { requirements: [requirement('s/large'), requirement('s/two')] }],
  ['no rule asks about', 0, { requirements: [] }],
  ['something else than a gateway wrote', 0, { isForged: true }],
  ['was made with another tool', 0, { tool: 'payments.pay' }],
])('a fifth request that %s counts: %i', (_, groups, over) => {
  expect(found(...some(4), approval('apr_5', over))).toHaveLength(groups);
});

it.each<[string, Partial<ApprovalRecord>]>([
  ['was rejected', { status: 'rejected' }],
  ['was rejected under the rule as it was before', { status: 'rejected', requirements: [requirement('s/large', 'x')] }],
  ['an approver changed', { changed: { by: 'ada', at: 0, params: ['amount'], sealed: null, askedDigest: 'd' } }],
])('where one %s, asking is of use, for this tool alone', (_, over) => {
  const others = some(5, { tool: 'payments.pay' });
  expect(found(...some(5), approval('apr_6', over), ...others).map(({ tool }) => tool)).toEqual(['payments.pay']);
});

it('of many groups the ten that were approved most, and the first fifty of each', () => {
  const groups = Array.from({ length: 12 }, (_, n) => some(5 + n * 5, { tool: `t${n}` }));
  const sizes = found(...groups.flat()).map(({ tool, approvals }) => [tool, approvals.length]);
  expect(sizes).toEqual([11, 10, 9, 8, 7, 6, 5, 4, 3, 2].map((n) => [`t${n}`, Math.min(50, 5 + n * 5)]));
  expect(found(...some(60))[0]?.approvals.at(-1)?.id).toBe('apr_49');
});
