import { type AllowanceDraft, alikeObstacle, mostAlike } from '../model/allowance.ts';
import type { ApprovalRecord } from '../model/approval.ts';
import { problem } from '../model/run-request.ts';
import type { EffectPorts } from '../ports.ts';
import { variesIn } from './likeness.ts';
import type { People } from './recall.ts';
import { ASK_ANEW, judgeAsked } from './standing.ts';

/** How many of the next calls a person allows, and until when, ms; `null`: as many, or as long, as the policy lets. */
export interface AskedAlike {
  readonly times: number | null;
  readonly until: number | null;
}

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
): Promise<{ readonly kind: 'allowance'; readonly allowance: AllowanceDraft } | ReturnType<typeof problem>> {
  const obstacle = alikeObstacle(approval, requirements, changes);
  const most = mostAlike(approval.requirements);
  if (obstacle !== null || most === null) return refused(obstacle ?? '');
  const at = ports.store.now();
  const times = asked.times ?? most.times;
  const until = asked.until ?? at + most.forMs;
  if (times > most.times) return refused(`The policy lets the next ${most.times} be allowed at most.`);
  if (until <= at) return refused('The time until which they would be allowed is over.');
  if (until > at + most.forMs + CLOCKS_MS)
    return refused(`The policy lets them be allowed for ${most.forMs / 60_000} minutes at most.`);
  const effect = await ports.store.effect(approval.workspace, approval.effectId);
  if (effect === null) return refused('The record of the call is gone.');
  const now = await judgeAsked(ports, people, approval, effect);
  if (now.kind === 'gone') return refused(now.reason.message);
  const { call, standing } = now;
  const { alike, verdict } = now.request;
  if (alike === undefined || standing.kind !== 'asked' || verdict.kind === 'deny')
    return refused('Policy or the tool is no longer as it was when this was asked.', ASK_ANEW);
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

/** @param then what goes on from here */
function refused(detail: string, then = ''): ReturnType<typeof problem> {
  return problem('allowance_refused', `${detail} Nothing was decided. ${then}`.trimEnd());
}
