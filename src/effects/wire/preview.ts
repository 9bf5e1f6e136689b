import { entitiesToWire } from '../model/entity.ts';
import type { ApprovalRequirement, Obligation } from '../model/verdict.ts';
import type { Preview } from '../run/preview-effect.ts';
import { budgetToWire } from '../run/render.ts';
import { reasonToWire } from './effect.ts';

/**
 * What a call would get, as a preview shows it.
 * @param forAgent whether the reader is an agent: of shared budgets it sees only a level
 */
export function previewToWire(preview: Preview, forAgent: boolean) {
  return {
    would: preview.would,
    http_status: preview.httpStatus,
    reason: reasonToWire(preview.reason),
    tool: preview.tool,
    target: preview.target,
    agent_id: preview.agentId,
    obligations: [
      ...preview.obligations.map((obligation) => obligationToWire(obligation, forAgent)),
      ...preview.approvals.map(requirementToWire),
    ],
    policies: preview.matched.map((matched) => ({
      rule: matched.rule,
      effect: matched.effect,
      unknown: matched.unknown,
    })),
    policy_version: preview.policyVersion,
    ...(preview.entities === undefined ? {} : { entities: entitiesToWire(preview.entities) }),
    budgets: preview.budgets.map((budget) => budgetToWire(budget, forAgent)),
    ...(preview.observed === null ? {} : { observed: { would: preview.observed.would, rule: preview.observed.rule } }),
  };
}

export function obligationToWire(obligation: Obligation, forAgent: boolean) {
  const { rule } = obligation;
  switch (obligation.kind) {
    case 'budget':
      return {
        kind: obligation.kind,
        rule,
        budget: obligation.budget,
        unit: obligation.unit,
        amount: obligation.amount,
        ...(forAgent && obligation.sharing === 'shared' ? {} : { limit: obligation.limit }),
        ...(obligation.beyond === undefined ? {} : { or_ask: true }),
      };
    case 'rate_limit':
      return {
        kind: obligation.kind,
        rule,
        id: obligation.id,
        window_ms: obligation.windowMs,
        limit: obligation.limit,
        ...(obligation.beyond === undefined ? {} : { or_ask: true }),
      };
    case 'claim':
      return { kind: obligation.kind, rule, target: obligation.target, hold: obligation.hold };
    case 'reserve':
      return { kind: obligation.kind, rule, pool: obligation.pool, units: obligation.units };
  }
}

export function requirementToWire(requirement: ApprovalRequirement) {
  return {
    kind: 'approval' as const,
    rule: requirement.rule,
    approvers: { roles: requirement.approvers.roles, users: requirement.approvers.users },
    quorum: requirement.quorum,
    expires_ms: requirement.expiresMs,
    ...(requirement.beyond === undefined ? null : { beyond: requirement.beyond }),
    ...(requirement.hours === undefined ? null : { hours: requirement.hours.schedule }),
    summary: requirement.summary,
  };
}
