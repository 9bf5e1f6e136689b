import type { ApprovalRecord } from '../../src/effects/model/approval.ts';
import type { ClaimRecord } from '../../src/effects/model/claim.ts';
import type { KeyRecord } from '../../src/effects/model/key.ts';
import type { EffectRecord } from '../../src/effects/model/effect.ts';
import type { LedgerActor } from '../../src/effects/model/ledger.ts';
import type {
  Admission,
  AdmitRequest,
  EffectFilter,
  EffectStore,
  ResolveRequest,
  SettleOutcome,
  SettleRequest,
} from '../../src/effects/store.ts';
import type { VoteRequest } from '../../src/effects/approval-store.ts';
import type { ApprovalRequirement, Obligation, Permit } from '../../src/effects/model/verdict.ts';

type PauseRequest = Parameters<EffectStore['setPause']>[0];

/** Requests to a store as the gateway makes them, with what a test does not care about filled in. */

export const WORKSPACE = 'demo';
export const AGENT: LedgerActor = { type: 'agent', id: 'support-bot' };
export const PERSON: LedgerActor = { type: 'user', id: 'maria' };

let counter = 0;

/** An id like the gateway's: prefix and 26 characters; grows. */
export function newId(prefix: string): string {
  counter += 1;
  return `${prefix}_01k${counter.toString(36).padStart(23, '0')}`;
}

export function permit(
  obligations: readonly Obligation[] = [],
  approvals: readonly ApprovalRequirement[] = [],
): Permit {
  return {
    kind: 'permit',
    mode: 'enforce',
    obligations,
    approvals,
    trace: {
      policyVersion: '',
      matched: [{ rule: 'payments/refunds', effect: 'constrain', unknown: [] }],
      shadow: [],
      observed: null,
    },
  };
}

export function budgetOf(
  limit: number,
  amount: number | null,
  more: Partial<Extract<Obligation, { kind: 'budget' }>> = {},
): Obligation {
  return {
    kind: 'budget',
    rule: 'payments/refunds',
    budget: 'payments/daily',
    unit: 'EUR-cent',
    bucket: '["support-bot"]',
    sharing: 'own',
    window: { kind: 'rolling', ms: 86_400_000 },
    limit,
    amount,
    ...more,
  };
}

export function rateOf(
  limit: number,
  windowMs: number,
  more: Partial<Extract<Obligation, { kind: 'rate_limit' }>> = {},
): Obligation {
  return { kind: 'rate_limit', rule: 'payments/rate', id: 'payments/rate', bucket: '[]', windowMs, limit, ...more };
}

export function approvalBy(more: Partial<ApprovalRequirement> = {}): ApprovalRequirement {
  return {
    rule: 'payments/large',
    ruleDigest: 'sha256:rule',
    approvers: { roles: ['finance-lead'], users: [] },
    quorum: 1,
    expiresMs: 3_600_000,
    summary: 'Refund 5,000 EUR to customer 42',
    hold: 'own',
    ...more,
  };
}

/** Fields that a test names; the rest is filled in. */
export interface AdmitOverrides extends Partial<Omit<AdmitRequest, 'action' | 'actor' | 'times'>> {
  readonly action?: Partial<AdmitRequest['action']>;
  readonly actor?: Partial<AdmitRequest['actor']>;
  readonly times?: Partial<AdmitRequest['times']>;
}

export function admitRequest(overrides: AdmitOverrides = {}): AdmitRequest {
  const key = overrides.idempotencyKey ?? newId('order');
  return {
    workspace: WORKSPACE,
    effectId: newId('eff'),
    approvalId: newId('apr'),
    generationMs: null,
    fingerprint: `fp:${key}`,
    verdict: permit(),
    approvalDigest: `digest:${key}`,
    dispatches: null,
    pausedBy: null,
    seen: { policy: '', pauses: 0 },
    owner: 'boot_1',
    nonce: newId('n'),
    claimId: null,
    reservationId: null,
    metadata: null,
    sealed: `sealed.${'x'.repeat(400)}`,
    stages: [
      { stage: 'authenticate', status: 'passed', startedAt: 1_700_000_000_000, durationMs: 1, detail: null },
      { stage: 'policy', status: 'passed', startedAt: 1_700_000_000_001, durationMs: 1, detail: null },
      { stage: 'admission', status: 'passed', startedAt: 1_700_000_000_002, durationMs: null, detail: null },
    ],
    ...overrides,
    idempotencyKey: key,
    action: {
      type: 'mcp.tool_call',
      tool: 'payments.refund',
      toolDigest: 'sha256:7d1a',
      upstream: 'payments',
      kind: 'write',
      target: `payment:${key}`,
      ...overrides.action,
    },
    actor: {
      agentId: 'support-bot',
      agentOwner: 'olga',
      keyId: 'key_agent0000001',
      keyKind: 'agent',
      user: null,
      keyMadeBy: 'adam',
      via: 'effects_api',
      ...overrides.actor,
    },
    times: {
      dispatchWindowMs: 2_000,
      timeoutMs: 5_000,
      maxProcessingMs: 60_000,
      idempotentForMs: null,
      ...overrides.times,
    },
  };
}

type Dispatched = Extract<Admission, { kind: 'dispatch' }>;

/** Admits, and fails unless the call may be sent. */
export async function dispatched(store: EffectStore, overrides: AdmitOverrides = {}): Promise<Dispatched> {
  const admission = await store.admit(admitRequest(overrides));
  if (admission.kind !== 'dispatch') throw new Error(`expected dispatch, was ${JSON.stringify(admission)}`);
  return admission;
}

/** The lease of an executing or unknown effect. */
export function leaseOf({ life }: EffectRecord) {
  if (life.state !== 'executing' && life.state !== 'unknown') throw new Error(`no lease in state ${life.state}`);
  return life.lease;
}

export function committed(jws: string = `jws.${newId('r')}`, id: string = newId('rcp')): SettleOutcome {
  return {
    kind: 'committed',
    receipt: { id, jws },
    result: {
      kind: 'http',
      status: 201,
      headers: {},
      body: { kind: 'json', value: { refund: 're_1' } },
      truncated: false,
    },
    accepted: false,
    responseTruncated: false,
  };
}

export const FAILED: SettleOutcome = { kind: 'failed', result: null };
export const UNKNOWN: SettleOutcome = { kind: 'unknown' };

/** What was seen of an attempt that sent nothing. */
export const NOTHING_SENT: Pick<SettleRequest, 'evidence'> = {
  evidence: {
    code: 'not_dispatched',
    message: 'The time to send was over.',
    answered: null,
    startedAt: null,
    endedAt: 1,
  },
};

export function settleRequest(
  effect: EffectRecord,
  outcome: SettleOutcome,
  overrides: Partial<SettleRequest> = {},
): SettleRequest {
  return {
    workspace: effect.workspace,
    effectId: effect.id,
    fence: leaseOf(effect).fence,
    outcome,
    settledBy: { by: 'owner' },
    evidence: {
      code: 'http_status',
      message: 'The upstream answered 201.',
      answered: { kind: 'http', status: 201 },
      startedAt: 1_700_000_000_003,
      endedAt: 1_700_000_000_030,
    },
    stages: [{ stage: 'execute', status: 'passed', startedAt: 1_700_000_000_003, durationMs: 27, detail: null }],
    ...overrides,
  };
}

export function resolveRequest(
  effect: EffectRecord,
  outcome: ResolveRequest['outcome']['kind'],
  overrides: Partial<ResolveRequest> = {},
): ResolveRequest {
  return {
    workspace: effect.workspace,
    effectId: effect.id,
    outcome:
      outcome === 'happened'
        ? { kind: 'happened', receipt: { id: newId('rcp'), jws: 'jws.resolved' } }
        : { kind: 'not_happened' },
    settledBy: {
      by: 'resolve',
      keyId: 'key_acct00000001',
      user: 'maria',
      forced: false,
      comment: null,
      evidence: null,
    },
    actor: PERSON,
    fence: leaseOf(effect).fence,
    force: false,
    ...overrides,
  };
}

export function voteRequest(
  { id: approvalId, digest }: Pick<ApprovalRecord, 'id' | 'digest'>,
  overrides: Partial<VoteRequest> = {},
): VoteRequest {
  return {
    workspace: WORKSPACE,
    approvalId,
    digest,
    change: null,
    verdict: 'approve',
    user: 'maria',
    keyId: 'key_acct00000001',
    voterSince: 0,
    comment: null,
    requirements: [0],
    escalated: [],
    actor: PERSON,
    ...overrides,
  };
}

export function keyRecord(overrides: Partial<KeyRecord> = {}): KeyRecord {
  // With a letter in it, so that it has an upper case.
  const handle = `h${newId('h').slice(-11)}`;
  return {
    id: `key_${handle}`,
    handle,
    hash: 'hmac-of-the-key',
    kind: 'account',
    name: 'test',
    user: 'maria',
    madeBy: null,
    workspace: WORKSPACE,
    agentId: null,
    profile: null,
    scopes: ['effects:run'],
    allowedTools: null,
    readOnly: false,
    createdAt: 1_700_000_000_000,
    expiresAt: null,
    revokedAt: null,
    lastUsedAt: null,
    replacedBy: null,
    ...overrides,
  };
}

export function claimRequest(
  target: string,
  overrides: { agentId?: string; keyId?: string; ttlMs?: number; id?: ClaimRecord['id'] } = {},
) {
  return {
    id: newId('clm'),
    workspace: WORKSPACE,
    target,
    agentId: 'support-bot',
    keyId: 'key_agent0000001',
    ttlMs: 60_000,
    actor: AGENT,
    ...overrides,
  };
}

export function reservationRequest(
  overrides: { agentId?: string; keyId?: string; units?: number; capacity?: number; ttlMs?: number } = {},
) {
  return {
    id: newId('rsv'),
    workspace: WORKSPACE,
    pool: 'gpu',
    capacity: 4,
    units: 1,
    agentId: 'support-bot',
    keyId: 'key_agent0000001',
    ttlMs: 60_000,
    actor: AGENT,
    ...overrides,
  };
}

/** A pause of the whole workspace, by a person with an account key. */
export function pauseRequest(overrides: Partial<PauseRequest> = {}): PauseRequest {
  return {
    id: newId('pau'),
    workspace: WORKSPACE,
    scope: { kind: 'workspace' },
    reason: 'incident',
    until: null,
    by: { keyId: 'key_1', keyKind: 'account', user: 'maria' },
    actor: PERSON,
    ...overrides,
  };
}

export const ANY: EffectFilter = {
  state: null,
  decision: null,
  tool: null,
  agentId: null,
  since: null,
  until: null,
  limit: 50,
  cursor: null,
};
