import type { ApprovalRecord } from '../model/approval.ts';
import type { Reason } from '../model/decision.ts';
import type { EffectRecord } from '../model/effect.ts';
import type { Principal, Scope } from '../model/principal.ts';
import { plainReason, withoutContent } from '../model/without-content.ts';
import type { Standing } from '../run/standing.ts';

/** With the first a profile key reads what calls carried; with the others because it makes such calls, or decides on them. */
const CONTENT_SCOPES: readonly Scope[] = ['params:read', 'effects:preview', 'effects:run', 'approvals:decide'];

/** Stands in place of a text that a rule made from params. */
const WITHHELD = '(not shown: it is made of params, which this key does not read)';

/**
 * Whether a key reads what calls carried: params, answers, values of the live state, and texts that rules make of params.
 * Every read asks here.
 */
export function readsContent(principal: Principal): boolean {
  return principal.kind !== 'profile' || CONTENT_SCOPES.some((scope) => principal.scopes.includes(scope));
}

/** Why a key does not read params and answers of the calls of a tool; `null` where it does. */
export function withheldBecause(principal: Principal, tool: string): string | null {
  const { allowedTools } = principal;
  if (allowedTools !== null && !allowedTools.includes(tool)) return 'the key may not call the tool';
  return readsContent(principal) ? null : 'the key does not have the scope params:read';
}

/** An effect as a key may see it; its params stay sealed in it. */
export function effectFor(principal: Principal, effect: EffectRecord): EffectRecord {
  return withheldBecause(principal, effect.action.tool) === null ? effect : withoutContent(effect);
}

/** A request for approval as a key may see it: what rules made of params for people is not for everybody. */
export function approvalFor(principal: Principal, approval: ApprovalRecord): ApprovalRecord {
  if (withheldBecause(principal, approval.tool) === null) return approval;
  const { requirements, stopped } = approval;
  return {
    ...approval,
    requirements: requirements.map((one) => ({ ...one, summary: WITHHELD })),
    stopped: stopped === null ? null : { ...stopped, reason: plainReason(stopped.reason) },
  };
}

/** Why a call would not be sent, without texts that are made of params where a key does not read these. */
export function standingFor(principal: Principal, { tool }: ApprovalRecord, standing: Standing): Standing {
  return { ...standing, reason: standing.reason && reasonFor(principal, tool, standing.reason) };
}

/** Why a call of a tool is not sent, as a key may read it. */
export function reasonFor(principal: Principal, tool: string, reason: Reason): Reason {
  return withheldBecause(principal, tool) === null ? reason : plainReason(reason);
}
