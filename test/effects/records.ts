import type { AllowanceRecord } from '../../src/effects/model/allowance.ts';
import type { ApprovalRecord } from '../../src/effects/model/approval.ts';
import type { EffectRecord } from '../../src/effects/model/effect.ts';

/** An effect with nothing special about it, of which a test says what matters. */
export const EFFECT: Omit<EffectRecord, 'life'> = {
  id: 'eff_1',
  createdAt: 0,
  workspace: 'demo',
  idempotencyKey: 'k',
  fingerprint: 'f',
  action: { type: 't', tool: 'a.b', toolDigest: 'd', upstream: 'u', kind: 'write', target: 'x:1' },
  actor: { agentId: 'bot', agentOwner: null, keyId: 'k', keyKind: 'agent', user: null, keyMadeBy: null, via: 'mcp' },
  attempt: 1,
  unsent: 0,
  generation: 1,
  firstDispatchAt: null,
  mayHaveHappened: false,
  closed: false,
  holds: [],
  holdState: 'none',
  claims: [],
  uses: [],
  trace: { policyVersion: 'v', matched: [], shadow: [], observed: null },
  stages: [],
  metadata: null,
  sealed: null,
};

/** A request that waits for nobody in particular. */
export const APPROVAL: ApprovalRecord = {
  id: 'apr_1',
  workspace: 'demo',
  effectId: 'eff_1',
  digest: 'd',
  tool: 'a.b',
  target: 'x:1',
  requester: { agentId: 'bot', agentOwner: null, user: null, keyId: 'k', keyMadeBy: null },
  requirements: [],
  costs: [],
  votes: [],
  status: 'pending',
  createdAt: 0,
  expiresAt: 0,
  decidedAt: null,
  stopped: null,
};

/** What the outcome of any call has, besides its reason and its decision. */
export const OUTCOME = {
  workspace: 'demo',
  effectId: 'eff_1',
  tool: 'notes.add',
  target: 'notes',
  agentId: 'bot',
  idempotencyKey: 'k',
  attempt: 1,
  budgets: [],
  observed: null,
  repeat: false,
  retryAfterMs: null,
  next: null,
} as const;

/** The next calls like one that was approved, of which none has been let in. */
export const ALLOWANCE: AllowanceRecord = {
  id: 'alw_1',
  workspace: 'demo',
  likeness: 'alike',
  approvalId: 'apr_1',
  effectId: 'eff_1',
  agentId: 'bot',
  tool: 'payments.refund',
  target: 'payment:pay_1',
  rules: [],
  varies: {},
  by: { user: 'maria', keyId: 'key_1' },
  times: 1,
  used: 0,
  givenAt: 0,
  expiresAt: 0,
  epoch: 0,
};
