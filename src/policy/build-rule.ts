import type { Json } from '../json/value.ts';
import { type Test, valueReader } from './compiled-condition.ts';
import type { EngineCondition, Symbols } from './engine-form.ts';
import { readerOf } from './fact-path.ts';
import type { PolicyInput } from './input.ts';
import type {
  Bucketing,
  CompiledApproval,
  CompiledBudget,
  CompiledObligation,
  CompiledRule,
  CountOf,
} from './compiled-rule.ts';
import type {
  AmountPlan,
  ApprovalPlan,
  BucketingPlan,
  BudgetPlan,
  CountPlan,
  ObligationPlan,
  RulePlan,
} from './rule-plan.ts';
import { timeIn } from './schedules.ts';
import { buildTemplate } from './template.ts';
import { calendarWindow } from './windows.ts';

/** What all rules need when they are built. */
export interface RuleParts {
  readonly budgets: ReadonlyMap<string, CompiledBudget>;
  /** Units by pool. */
  readonly pools: ReadonlyMap<string, number>;
  readonly testOf: (conditions: Extract<EngineCondition, { all: unknown }>, symbols: Symbols) => Test;
}

/** Compiles a checked rule. Its rank is its place in the order of report. */
export function buildRule(plan: RulePlan, rank: number, parts: RuleParts): CompiledRule {
  const { reason, approval, obligations, ...same } = plan;
  return {
    ...same,
    rank,
    ...split(parts.testOf(plan.conditions, plan.symbols)),
    reason: reason === null ? null : buildTemplate(reason),
    obligations: obligations.map((obligation) => buildObligation(obligation, parts)),
    approval: approval === null ? null : buildApproval(approval),
    plainMatch: { rule: plan.id, effect: plan.effect, unknown: [] },
  };
}

function buildApproval({ summary, hours, ...same }: ApprovalPlan): CompiledApproval {
  return {
    ...same,
    summary: summary === null ? null : buildTemplate(summary),
    ...(hours === undefined ? null : { hours: { name: hours.name, timeIn: timeIn(hours) } }),
  };
}

/** Splits a condition into the part that depends only on the tool, and the rest. */
function split(test: Test): Pick<CompiledRule, 'perTool' | 'perCall'> {
  const parts = test.kind === 'all' ? test.of : [test];
  const perTool = parts.filter((part) => part.fixed);
  const perCall = parts.filter((part) => !part.fixed);
  const [only] = perCall;
  return {
    perTool: { kind: 'all', of: perTool, fixed: true },
    perCall: only !== undefined && perCall.length === 1 ? only : { kind: 'all', of: perCall, fixed: false },
  };
}

export function buildBudget({ window: plan, by, limit, ...same }: BudgetPlan): CompiledBudget {
  const window = plan.kind === 'rolling' ? plan : calendarWindow(plan.per, plan.zone);
  const fixedLimit = limit.kind === 'fixed' ? limit.count : null;
  return { ...same, by: bucketing(by), limit: countOf(limit), fixedLimit, window };
}

function bucketing({ facts, sharing }: BucketingPlan): Bucketing {
  return { facts: facts.map((fact) => ({ text: fact.text, read: readerOf(fact) })), sharing };
}

function countOf(plan: CountPlan): CountOf {
  if (plan.kind === 'fixed') return () => plan.count;
  const read = valueReader(plan.table);
  return (input) => {
    const value = read(input);
    return typeof value === 'number' ? value : null;
  };
}

function amountOf(plan: AmountPlan): (input: PolicyInput) => Json | undefined {
  if (plan.kind !== 'fact') return countOf(plan);
  const read = readerOf(plan.fact);
  return (input) => read(input, undefined);
}

function sourceOf(plan: AmountPlan): string | null {
  return plan.kind === 'fact' ? plan.fact.text : null;
}

function asking(orAsk: ApprovalPlan | undefined): { readonly orAsk?: CompiledApproval } {
  return orAsk === undefined ? {} : { orAsk: buildApproval(orAsk) };
}

function buildObligation(plan: ObligationPlan, { budgets, pools }: RuleParts): CompiledObligation {
  switch (plan.kind) {
    case 'budget': {
      const budget = budgets.get(plan.budget);
      if (budget === undefined) throw new Error(`no such budget: ${plan.budget}`);
      return {
        kind: 'budget',
        budget,
        amount: amountOf(plan.amount),
        amountFrom: sourceOf(plan.amount),
        ...asking(plan.orAsk),
      };
    }
    case 'rate_limit': {
      const { orAsk, ...same } = plan;
      return { ...same, by: bucketing(plan.by), limit: countOf(plan.limit), ...asking(orAsk) };
    }
    case 'claim':
      return { ...plan, on: buildTemplate(plan.on) };
    case 'reserve':
      return { kind: 'reserve', pool: buildTemplate(plan.pool), units: countOf(plan.units), pools };
  }
}
