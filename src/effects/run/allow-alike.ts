import { type AllowanceDraft, alikeObstacle, mostAlike } from '../model/allowance.ts';
import { type ApprovalRecord, limitsOf } from '../model/approval.ts';
import type { Problem } from '../model/run-request.ts';
import type { EffectPorts } from '../ports.ts';
import { evaluateKnown } from './evaluate.ts';
import { variesIn } from './likeness.ts';
import { grantedCall, type People, recall } from './recall.ts';

/** How many of the next calls a person allows, and until when, ms; `null`: as many, or as long, as the policy lets. */
export interface AskedAlike {
  readonly times: number | null;
  readonly until: number | null;
}

type Allowing =
  | { readonly kind: 'allowance'; readonly allowance: AllowanceDraft }
  | { readonly kind: 'problem'; readonly problem: Problem };

/** Clocks of two gateways differ by less. A page says until when before somebody sends it. */
const CLOCKS_MS = 60_000;

/**
 * What a vote would allow ahead. The call is judged as it would be now: what is allowed is what policy and tool are at
 * the moment of the vote.
 * @param by who votes
 * @param requirements indices of those that this person decides on
 * @param changes whether the vote changes the call
 * @throws StoreUnavailable
 */
export async function allowanceOf(
  ports: EffectPorts,
  people: People,
  approval: ApprovalRecord,
  by: AllowanceDraft['by'],
  requirements: readonly number[],
  asked: AskedAlike,
  changes: boolean,
): Promise<Allowing> {
  const obstacle = alikeObstacle(approval, requirements, changes);
  const most = mostAlike(approval.requirements);
  if (obstacle !== null || most === null) return refused(obstacle ?? '');
  const now = ports.store.now();
  const times = asked.times ?? most.times;
  const until = asked.until ?? now + most.forMs;
  if (times > most.times) return refused(`The policy lets the next ${most.times} be allowed at most.`);
  if (until <= now) return refused('The time until which they would be allowed is over.');
  if (until > now + most.forMs + CLOCKS_MS)
    return refused(`The policy lets them be allowed for ${most.forMs / 60_000} minutes at most.`);
  const effect = await ports.store.effect(approval.workspace, approval.effectId);
  if (effect === null) return refused('The record of the call is gone.');
  const given = await recall(ports, people, effect, effect.sealed);
  if (given.kind === 'gone') return refused(given.reason.message);
  const call = grantedCall(ports, approval, effect, given);
  const { alike, approvalDigest, verdict } = await evaluateKnown(ports, call, limitsOf(approval));
  if (alike === undefined || approvalDigest !== approval.digest || verdict.kind === 'deny')
    return refused('Policy or the tool is no longer as it was when this was asked.');
  const { workspace, agent, tool, target } = call;
  return {
    kind: 'allowance',
    allowance: {
      id: ports.newId('alw'),
      workspace,
      likeness: alike.likeness,
      approvalId: approval.id,
      effectId: effect.id,
      agentId: agent.id,
      tool: tool.name,
      target,
      rules: verdict.approvals.map(({ rule }) => rule),
      varies: variesIn(verdict.approvals, call.params),
      by,
      times,
      until,
    },
  };
}

function refused(detail: string): Allowing {
  const nothing = `${detail} Nothing was decided.`;
  return { kind: 'problem', problem: { code: 'allowance_refused', detail: nothing, errors: [], retryAfterMs: null } };
}
