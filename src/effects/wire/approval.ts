import { type ApprovalCost, type ApprovalRecord, escalatesAt } from '../model/approval.ts';
import { mostAlike } from '../model/allowance.ts';
import { editableToWire } from '../model/editable.ts';
import { variesIn } from '../run/likeness.ts';
import { type BudgetRow, decisionOf, type EffectRecord } from '../model/effect.ts';
import type { ApprovalResult, Became } from '../run/decide-approval.ts';
import type { Principal } from '../model/principal.ts';
import type { Standing } from '../run/standing.ts';
import { approvalToWire } from '../run/render.ts';
import type { CallReader } from './calls.ts';
import { sentence } from './effect.ts';
import { optionalTimeToWire, timeToWire } from './time.ts';
import { approvalFor, reasonFor } from './withheld.ts';

/** A request for approval as `GET …/approvals` shows it. */
export function requestToWire(approval: ApprovalRecord, publicUrl: string) {
  const { requester, stopped, changed } = approval;
  return {
    ...approvalToWire(approval, publicUrl),
    workspace: approval.workspace,
    effect_id: approval.effectId,
    tool: approval.tool,
    target: approval.target,
    summary: approval.requirements[0]?.summary ?? null,
    requested_by: {
      agent_id: requester.agentId,
      agent_owner: requester.agentOwner,
      user: requester.user,
      key_id: requester.keyId,
    },
    requirements: approval.requirements.map(({ rule, approvers, quorum, summary, ...may }, index) => ({
      ...(may.beyond === undefined ? {} : { beyond: may.beyond }),
      ...(may.hours === undefined ? {} : { hours: may.hours.schedule }),
      ...(may.escalate === undefined
        ? {}
        : {
            escalates: {
              at: timeToWire(escalatesAt(approval, may)),
              to: { roles: may.escalate.to.roles, users: may.escalate.to.users },
            },
          }),
      ...(may.editable === undefined ? {} : { editable: editableToWire(may.editable) }),
      ...(may.requireReason === undefined ? {} : { require_reason: true }),
      rule,
      approvers: { roles: approvers.roles, users: approvers.users },
      quorum,
      approvals: approvalsOf(approval, index),
      summary,
    })),
    ...(changed === undefined
      ? {}
      : { changed: { by: changed.by, at: timeToWire(changed.at), params: changed.params } }),
    votes: approval.votes.map(({ user, keyId, verdict, at, comment, salt }) => ({
      user,
      key_id: keyId,
      verdict,
      at: timeToWire(at),
      comment,
      ...(salt === undefined ? {} : { comment_salt: salt }),
    })),
    created_at: timeToWire(approval.createdAt),
    decided_at: optionalTimeToWire(approval.decidedAt),
    ...(stopped === null
      ? {}
      : {
          stopped: {
            at: timeToWire(stopped.at),
            decision: stopped.decision,
            code: stopped.reason.code,
            message: stopped.reason.message,
            ...(stopped.reason.rule === undefined ? {} : { rule: stopped.reason.rule }),
          },
        }),
  };
}

/**
 * What is asked: the action and where it goes, its params, and what it costs.
 * @param forAgent whether the reader is an agent
 * @param budgets their current rows, if they are shown
 */
export function askedToWire(
  approval: ApprovalRecord,
  effect: EffectRecord | null,
  calls: CallReader,
  forAgent: boolean,
  budgets: readonly BudgetRow[] | null,
) {
  return {
    costs: approval.costs.map((cost) => costToWire(cost, effect, forAgent, budgets)),
    ...(effect === null
      ? { params_omitted: 'the record of the call is gone' }
      : askedCall(approval, effectAsAsked(approval, effect), calls)),
  };
}

function askedCall(approval: ApprovalRecord, effect: EffectRecord, calls: CallReader) {
  const shown = calls.params(effect);
  const most = approval.changed === undefined ? mostAlike(approval.requirements) : null;
  const alike =
    most === null || !('params' in shown) || shown.params === undefined
      ? {}
      : {
          allow_alike: {
            times: most.times,
            for_s: most.forMs / 1000,
            varies: editableToWire(variesIn(approval.requirements, shown.params)),
          },
        };
  return { action: calls.action(effect), ...shown, ...alike, attempt: effect.attempt };
}

/** The effect with the params that people are asked about: as an approver changed them, where one has. */
export function effectAsAsked({ changed }: ApprovalRecord, effect: EffectRecord): EffectRecord {
  return changed?.sealed == null ? effect : { ...effect, sealed: changed.sealed };
}

/** An agent sees only what its call takes from a budget, because others may share the budget. */
function costToWire(
  cost: ApprovalCost,
  effect: EffectRecord | null,
  forAgent: boolean,
  budgets: readonly BudgetRow[] | null,
) {
  const { budget, unit, amount, limit } = cost;
  if (forAgent) return { budget, unit, amount };
  const row = rowOf(cost, effect, budgets ?? []);
  if (row === null) return { budget, unit, amount, limit };
  const { spent, held, resetsAt } = row;
  return { budget, unit, amount, limit, spent, held, resets_at: optionalTimeToWire(resetsAt) };
}

/**
 * The budget that a call takes from, as it is now, with what is set aside for the call itself while it waits: that is
 * what it may take. `null` if nothing was ever taken from it.
 */
export function rowOf(
  { budget, bucket, window }: ApprovalCost,
  effect: EffectRecord | null,
  budgets: readonly BudgetRow[],
): BudgetRow | null {
  const isSame = (one: Pick<BudgetRow, 'budget' | 'bucket' | 'window'>): boolean =>
    one.budget === budget && one.bucket === bucket && one.window === window;
  const row = budgets.find(isSame);
  if (row === undefined) return null;
  const own = effect?.life.state === 'pending_approval' && effect.holdState === 'held' ? effect.holds : [];
  return { ...row, held: own.filter(isSame).reduce((held, { amount }) => held - amount, row.held) };
}

/** Each rule that asks: its purpose, and what it could not judge. */
export function whyAsked(
  approval: ApprovalRecord,
  effect: EffectRecord | null,
  rules: readonly { readonly id: string; readonly description: string | null }[],
) {
  return approval.requirements.map(({ rule, summary }) => ({
    rule,
    summary,
    description: rules.find(({ id }) => id === rule)?.description ?? null,
    unknown: effect?.trace.matched.find((matched) => matched.rule === rule)?.unknown ?? [],
  }));
}

/**
 * What keeps an approval from being followed by the call, as far as that is known before; empty where nothing does. Whoever
 * shows it writes its times as its reader has them.
 */
export function foreseenText({ changed, expiresAt }: ApprovalRecord, standing: Standing | null): string {
  if (standing === null) return '';
  const { kind, reason, pausedBy } = standing;
  const end = timeToWire(expiresAt);
  const then = changed === undefined ? 'people are asked anew, as policy and tool are now' : 'the request ends';
  const stops = {
    asked: '',
    unasked: '',
    stale: `Policy or the tool was changed since this was asked. If you approve, nothing is sent, and ${then}.`,
    refused: `Policy refuses it now: ${reason?.message ?? ''} If you approve, nothing is sent unless that changes before ${end}.`,
    gone: 'The agent, its key or the tool is no longer there. If you approve, nothing is sent.',
  }[kind];
  if (pausedBy === null) return stops;
  const over = pausedBy.until === null ? 'until somebody lifts the pause' : `until ${timeToWire(pausedBy.until)}`;
  const waits = `Paused: ${sentence(pausedBy.reason)} If you approve, it waits ${over}; if that is not before ${end}, nothing is sent.`;
  return `${stops} ${waits}`.trimStart();
}

/** The answer to a vote: the request as it is now, the call, and its outcome. */
export function voteToWire(
  { approval: kept, effect, became, votedAlready, allowanceId }: Extract<ApprovalResult, { kind: 'decided' }>,
  principal: Principal,
  publicUrl: string,
) {
  const approval = approvalFor(principal, kept);
  return {
    ...requestToWire(approval, publicUrl),
    effect: { effect_id: effect.id, state: effect.life.state, decision: decisionOf(effect) },
    ...(allowanceId === undefined ? {} : { allowance_id: allowanceId }),
    voted_already: votedAlready,
    became: becameToWire(became, approval, principal, votedAlready),
  };
}

function becameToWire(became: Became, approval: ApprovalRecord, principal: Principal, votedAlready: boolean) {
  switch (became.kind) {
    case 'waiting': {
      const count = countToText(approval);
      return {
        what: became.kind,
        message: votedAlready ? `You voted already: ${count}.` : `Your vote counts: ${count}.`,
      };
    }
    case 'rejected':
      return { what: became.kind, message: 'Rejected. Nothing is sent, and the same action is refused for 24 hours.' };
    case 'dispatched': {
      const { decision, reason, effectId } = became.outcome;
      const receipt = became.outcome.decision === 'committed' ? { receipt_id: became.outcome.receipt.id } : {};
      const message = `Approved, and sent: ${decision}. ${sentence(reason.message)}`;
      return { what: became.kind, decision, code: reason.code, effect_id: effectId, ...receipt, message };
    }
    case 'stopped': {
      const { code, message, rule } = reasonFor(principal, approval.tool, became.reason);
      const until = `It is tried again by itself until ${timeToWire(approval.expiresAt)}.`;
      return {
        what: became.kind,
        decision: became.decision,
        code,
        ...(rule === undefined ? {} : { rule }),
        message: `Approved, and stopped: ${message} ${until}`,
      };
    }
    case 'asked_anew':
      return {
        what: became.kind,
        approval_id: became.approvalId,
        message: `What would run now is not what was approved, so nothing was sent. People are asked anew: ${became.approvalId}.`,
      };
    case 'ended':
      return { what: became.kind, code: became.reason.code, message: became.reason.message };
  }
}

/** How many have approved, of how many: `1 of 2 approvals`; where there are several requirements, each with its rule. */
export function countToText(approval: ApprovalRecord): string {
  const counts = approval.requirements.map(({ rule, quorum }, index) => ({
    rule,
    text: `${approvalsOf(approval, index)} of ${quorum}`,
  }));
  const [only] = counts;
  if (only !== undefined && counts.length === 1) return `${only.text} approvals`;
  return counts.map(({ rule, text }) => `${text} for ${rule}`).join(', ');
}

export function approvalsOf({ votes }: ApprovalRecord, requirement: number): number {
  const counted = votes.filter((vote) => vote.verdict === 'approve' && vote.requirements.includes(requirement));
  return new Set(counted.map(({ user }) => user)).size;
}
