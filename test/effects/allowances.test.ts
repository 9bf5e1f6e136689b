import { expect, it } from 'vitest';
import { type AllowanceRecord, allowanceStatus, mostAlike } from '../../src/effects/model/allowance.ts';
import { admitStep } from '../../src/effects/steps/admission.ts';
import { admitRequest, approvalBy, permit } from '../contract/requests.ts';
import { emptyState, viewOf } from '../contract/map-view.ts';

const given: AllowanceRecord = {
  id: 'alw_1',
  workspace: 'demo',
  likeness: 'refunds',
  approvalId: 'apr_1',
  effectId: 'eff_1',
  agentId: 'support-bot',
  tool: 'payments.refund',
  target: 'payment:42',
  rules: ['payments/large'],
  varies: {},
  by: { user: 'maria', keyId: 'key_1' },
  times: 3,
  used: 0,
  givenAt: 0,
  expiresAt: 1_000,
  epoch: 1,
};

function admitted(allowance: AllowanceRecord, now = 0, mode: 'enforce' | 'observe' = 'enforce') {
  const versions = { policy: '', pauses: 0 };
  const state = { ...emptyState(versions), allowances: new Map([[allowance.id, allowance]]) };
  const verdict = { ...permit([], [approvalBy({ allowAlike: { times: 5, forMs: 1_000 } })]), mode };
  const alike = { likeness: 'refunds', registeredBy: null };
  return admitStep(viewOf(state, now), admitRequest({ seen: versions, verdict, alike }));
}

it('an allowance lets a call in while it is open, and its plan is good for no longer', () => {
  const plan = admitted(given);
  expect(plan).toMatchObject({ reply: { kind: 'dispatch' }, allowances: [{ used: 1 }], validUntil: 1_000 });
  expect(admitted(given, 999).reply.kind).toBe('dispatch');
});

it.each([
  ['used up', { used: 3 }, 'used_up'],
  ['over', { expiresAt: 0 }, 'over'],
  ['of an epoch before, in which uses may have been lost', { epoch: 0 }, 'over'],
  ['of an epoch that is not here', { epoch: 2 }, 'over'],
  ['revoked', { ended: { why: 'revoked', at: 0, by: 'omar' } }, 'revoked'],
  ['replaced', { ended: { why: 'replaced', at: 0, by: 'omar' } }, 'replaced'],
] as const)('one that is %s lets nothing in', (_what, more, status) => {
  const allowance: AllowanceRecord = { ...given, ...more };
  expect(allowanceStatus(allowance, 0, 1)).toBe(status);
  expect(admitted(allowance)).toMatchObject({ reply: { kind: 'pending' } });
});

it('one that somebody put in the place of another lets nothing in', () => {
  const state = emptyState({ policy: '', pauses: 0 });
  const view = { ...viewOf(state, 0), allowanceAlike: () => ({ ...given, likeness: 'others' }) };
  const verdict = permit([], [approvalBy()]);
  const request = admitRequest({ verdict, alike: { likeness: 'refunds', registeredBy: null } });
  expect(admitStep(view, request).reply.kind).toBe('pending');
});

it('no one person allows calls ahead that several have to agree to, and none beyond what each rule lets', () => {
  const alike = (times: number, forMs: number, quorum = 1) => approvalBy({ quorum, allowAlike: { times, forMs } });
  expect(mostAlike([alike(5, 1_000, 2)])).toBeNull();
  expect(mostAlike([alike(5, 1_000), alike(5, 1_000, 2)])).toBeNull();
  expect(mostAlike([alike(5, 1_000), approvalBy()])).toBeNull();
  expect(mostAlike([alike(5, 1_000), alike(3, 2_000)])).toEqual({ times: 3, forMs: 1_000 });
});

it('in observe mode nobody is asked, so none is used', () => {
  const { reply, allowances = [] } = admitted(given, 0, 'observe');
  expect([reply.kind, allowances]).toEqual(['dispatch', []]);
});

it('a call that nobody is asked about looks at none', () => {
  const unread = () => expect.unreachable('an allowance was looked at');
  const view = { ...viewOf(emptyState({ policy: '', pauses: 0 }), 0), allowanceAlike: unread, allowance: unread };
  const alike = { likeness: 'refunds', registeredBy: null };
  expect(admitStep(view, admitRequest({ verdict: permit(), alike })).reply.kind).toBe('dispatch');
  // Nor does one that a rule wants somebody to look at.
  expect(admitStep(view, admitRequest({ verdict: permit([], [approvalBy()]) })).reply.kind).toBe('pending');
});
