import type { Finding } from '../diagnostics/finding.ts';
import type { Tool } from '../effects/model/tool.ts';
import type { ReadRule } from './amounts.ts';
import { holds } from './compiled-condition.ts';
import type { BudgetPlan } from './rule-plan.ts';
import { inputOfTool } from './rules-by-tool.ts';

/**
 * Finds budgets that count by a param of a call which is redacted. Its values would stand in the names of the buckets, which
 * whoever reads effects, budgets, events and exports is shown.
 */
export function redactedBuckets(
  rules: readonly ReadRule[],
  budgets: readonly BudgetPlan[],
  tools: readonly Tool[],
): readonly Finding[] {
  const redacting = rules.filter(({ plan }) => plan.redact.length > 0);
  if (redacting.length === 0) return [];
  const inputs = tools.map(inputOfTool);
  const isOf = ({ rule }: ReadRule, input: (typeof inputs)[number]): boolean =>
    holds(rule.perTool, input, undefined, rule.unknownIs);
  return rules.flatMap((read) =>
    read.plan.obligations.flatMap((obligation): Finding[] => {
      const by =
        obligation.kind === 'budget' ? budgets.find(({ id }) => id === obligation.budget)?.by.facts : undefined;
      for (const { root, steps, text } of by ?? []) {
        const other =
          root !== 'params'
            ? undefined
            : redacting.find(
                (one) =>
                  one.plan.redact.includes(String(steps[0])) &&
                  inputs.some((input) => isOf(read, input) && isOf(one, input)),
              );
        if (other !== undefined && obligation.kind === 'budget')
          return [
            {
              code: 'redacted_bucket',
              severity: 'error',
              message: `'${read.rule.id}' charges the budget '${obligation.budget}', which counts by ${text}, and '${other.rule.id}' redacts that: buckets have names, and whoever reads effects or budgets would read it`,
              hint: `take ${text} out of the budget's 'by', and count by the agent, the target or another param; or out of 'redact'`,
              at: read.rule.position,
            },
          ];
      }
      return [];
    }),
  );
}
