import { expect, it } from 'vitest';
import { commit } from '../../src/effects/model/commit.ts';
import type { EffectRecord } from '../../src/effects/model/effect.ts';
import { admitStep } from '../../src/effects/steps/admission.ts';
import { resolveStep, settleStep } from '../../src/effects/steps/settlement.ts';
import { expireOverdueStep, voteStep } from '../../src/effects/steps/voting.ts';
import type { SettleOutcome } from '../../src/effects/store.ts';
import { applyPlan, emptyState, type MapState, viewOf } from '../contract/map-view.ts';
import {
  type AdmitOverrides,
  admitRequest,
  approvalBy,
  committed,
  FAILED,
  leaseOf,
  permit,
  resolveRequest,
  settleRequest,
  voteRequest,
  WORKSPACE,
} from '../contract/requests.ts';

/* What the ledger says of a step, member by member: once a record has aged out, an audit has only this. */

const NOW = 1_750_000_000_000;

function admitted(state: MapState, overrides: AdmitOverrides = {}): EffectRecord {
  const reply = applyPlan(state, admitStep(viewOf(state, NOW), admitRequest(overrides)), NOW);
  if (reply.kind !== 'dispatch') throw new Error(reply.kind);
  return reply.effect;
}

function asked(state: MapState, overrides: AdmitOverrides = {}) {
  const verdict = permit([], [approvalBy({ expiresMs: 1_000, escalate: ESCALATE })]);
  const plan = admitStep(viewOf(state, NOW), admitRequest({ verdict, ...overrides }));
  const reply = applyPlan(state, plan, NOW);
  if (reply.kind !== 'pending') throw new Error(reply.kind);
  return { approval: reply.approval, events: plan.events };
}

const ESCALATE = { afterMs: 500, to: { roles: ['cfo'], users: ['omar'] } };

const CHECKED = [{ stage: 'state_check', status: 'passed', startedAt: NOW, durationMs: 1, detail: null }] as const;
const DRIFTED: SettleOutcome = {
  kind: 'denied',
  decision: 'denied_claim',
  reason: { code: 'state_drift', message: 'The state is another.' },
  mismatches: [{ field: 'status', assumed: 'open', current: 'closed' }],
};

it.each([
  [
    'that happened',
    committed('jws', 'rcp_1'),
    [
      ['state.verified', { attempt: 1 }],
      ['execution.started', { attempt: 1, at: '2023-11-14T22:13:20.003Z' }],
      ['execution.succeeded', { attempt: 1, code: 'http_status', status: 201 }],
      ['receipt.issued', { receipt_id: 'rcp_1' }],
    ],
  ],
  [
    'that failed',
    FAILED,
    [
      ['state.verified', { attempt: 1 }],
      ['execution.started', { attempt: 1, at: '2023-11-14T22:13:20.003Z' }],
      ['execution.failed', { attempt: 1, code: 'http_status', status: 201 }],
    ],
  ],
  [
    'whose state was another',
    DRIFTED,
    [
      ['state.verified', { attempt: 1 }],
      ['state.drifted', { attempt: 1, fields: ['status'] }],
      ['effect.denied', { attempt: 1, decision: 'denied_claim', code: 'state_drift' }],
    ],
  ],
] as const)(
  'of an attempt %s it says when it began, what was answered, and what was checked',
  (_what, outcome, told) => {
    const state = emptyState({ policy: '', pauses: 0 });
    const effect = admitted(state);
    const { events } = settleStep(viewOf(state, NOW), settleRequest(effect, outcome, { stages: CHECKED }));
    expect(events?.map(({ kind, data }) => [kind, data])).toEqual(told);
  },
);

it('of one that somebody settles whose lease was over it says that it was lost before, and until when it may be under way', () => {
  const state = emptyState({ policy: '', pauses: 0 });
  const effect = admitted(state);
  const { leaseEnd, quiesceUntil } = leaseOf(effect);
  const { events } = resolveStep(viewOf(state, leaseEnd), resolveRequest(effect, 'happened'));
  expect(events?.map(({ kind }) => kind)).toEqual(['execution.lost', 'effect.resolved', 'receipt.issued']);
  expect(events?.[0]?.data).toEqual({
    attempt: 1,
    code: 'lease_over',
    owner_ended: false,
    quiet_at: new Date(quiesceUntil).toISOString(),
  });
});

it('of a request for approval it says which rules ask, under which policy, until when, and instead of which', () => {
  const state = emptyState({ policy: 'v7', pauses: 0 });
  const call = { idempotencyKey: 'k', seen: { policy: 'v7', pauses: 0 } };
  const first = asked(state, { ...call, approvalDigest: 'before' });
  const second = asked(state, { ...call, approvalDigest: 'after' });
  const said = { rules: ['payments/large'], expires_at: new Date(NOW + 1_000).toISOString(), policy_version: 'v7' };
  expect([...(first.events ?? []), ...(second.events ?? [])].map(({ kind, data }) => [kind, data])).toEqual([
    ['approval.requested', { approval_id: first.approval.id, ...said }],
    ['approval.renewed', { approval_id: second.approval.id, instead_of: first.approval.id, ...said }],
  ]);
});

it('of a vote it says by whom, with which key and passkey, on what, and whether it was void or the last one needed', () => {
  const state = emptyState({ policy: '', pauses: 0 });
  const { approval } = asked(state);
  const vote = (more: Parameters<typeof voteRequest>[1]) =>
    voteStep(viewOf(state, NOW), voteRequest(approval, { passkey: 'psk_1', ...more })).events?.map(({ kind, data }) => [
      kind,
      data,
    ]);
  const said = { approval_id: approval.id, user: 'maria', key_id: 'key_acct00000001', passkey_id: 'psk_1' };
  const { digest } = approval;
  expect(vote({})).toEqual([['approval.granted', { ...said, complete: true, digest }]]);
  expect(vote({ isVoid: true })).toEqual([['approval.granted', { ...said, complete: true, void: true, digest }]]);
  const salt = 'AAAAAAAAAAAAAAAAAAAAAA';
  expect(vote({ verdict: 'reject', comment: 'Too much.', salt })).toEqual([
    ['approval.rejected', { ...said, digest, comment: commit(salt, 'Too much.') }],
  ]);
});

it('of an escalation it says by which rules, and to which roles and users', () => {
  const state = emptyState({ policy: '', pauses: 0 });
  const { approval } = asked(state);
  const step = expireOverdueStep(viewOf(state, NOW + 500), { workspace: WORKSPACE, approvalId: approval.id });
  expect(step.events?.map(({ kind, data }) => [kind, data])).toEqual([
    [
      'approval.escalated',
      {
        approval_id: approval.id,
        rules: ['payments/large'],
        roles: ['cfo'],
        users: ['omar'],
        expires_at: new Date(NOW + 1_000).toISOString(),
      },
    ],
  ]);
});
