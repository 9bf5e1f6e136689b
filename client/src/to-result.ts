import { SvcError } from './error.ts';
import type { Json } from './json.ts';
import type { CallResult } from './result.ts';
import { camel, isObject } from './wire.ts';

/** Fields that every result has, if the gateway sent them. */
const COMMON: Readonly<Record<string, Json | undefined>> = {
  effectId: undefined,
  tool: undefined,
  target: undefined,
  agentId: undefined,
  idempotencyKey: undefined,
  attempt: undefined,
  reason: undefined,
  didItHappen: undefined,
  safeToRetry: false,
  next: undefined,
  observed: undefined,
  budgets: undefined,
  retryAfterMs: undefined,
  links: undefined,
};

/** The further fields of each status, with the value to use if the gateway sent none. */
const OWN: Readonly<Record<CallResult['status'], Readonly<Record<string, Json | undefined>>>> = {
  committed: {
    receipt: undefined,
    result: null,
    upstreamStatus: undefined,
    accepted: false,
    responseTruncated: false,
    settlement: undefined,
  },
  duplicate_blocked: { receipt: undefined, result: undefined, resultExpired: false },
  pending_approval: { approval: undefined },
  in_progress: {},
  denied_permission: {},
  denied_policy: {},
  denied_identity: {},
  denied_budget: { budgets: [] },
  denied_claim: { mismatches: [] },
  replan_required: { mismatches: [] },
  idempotency_conflict: {},
  denied_reservation: {},
  denied_paused: {},
  failed: { result: undefined, upstreamStatus: undefined },
  unknown_effect: {},
};

/**
 * Turns the body of a run answer, or the effect of a get, into the union. A changed state under `on_mismatch: replan`
 * is `denied_claim` in the answer and `replan_required` here.
 * @param idempotencyKey of the call, for the error
 * @throws SvcError `bad_answer` if it has no decision that this client knows
 */
export function toResult(body: Json, idempotencyKey: string | null): CallResult {
  const answer = camel(body);
  const details = { idempotencyKey, didItHappen: 'maybe' } as const;
  if (!isObject(answer)) throw new SvcError('bad_answer', 'The answer is not an object', details);
  const { decision, reason } = answer;
  const drifted = isObject(reason) && reason['code'] === 'state_drift' && answer['next'] === 'replan';
  const status = decision === 'denied_claim' && drifted ? 'replan_required' : decision;
  if (typeof status !== 'string' || !Object.hasOwn(OWN, status))
    throw new SvcError('bad_answer', `This client does not know the decision ${JSON.stringify(decision)}`, details);
  const out: Record<string, Json> = { status };
  const fields = { ...COMMON, ...OWN[status as CallResult['status']] };
  for (const [name, otherwise] of Object.entries(fields)) {
    const value = answer[name] ?? otherwise;
    if (value !== undefined) out[name] = value;
  }
  return out as unknown as CallResult;
}
