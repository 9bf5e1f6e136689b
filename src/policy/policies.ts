import type { CompiledBudget, CompiledRule } from './compiled-rule.ts';
import type { ToolIndex } from './tool-index.ts';
import type { BudgetRow } from '../effects/model/effect.ts';
import type { BudgetDefinition } from '../effects/policy-store.ts';

/** All policy sets of a gateway, compiled for its tools. Immutable. */
export interface CompiledPolicies {
  /** SHA-256 of the canonical form of all sets and the list files they name, base64url. */
  readonly version: string;
  readonly budgets: readonly BudgetDefinition[];
  /** In the order of report: effect, priority, set, position. */
  readonly rules: readonly CompiledRule[];
  readonly byTool: ReadonlyMap<string, ToolIndex>;
  /** Whether some rule could permit a call of the tool. `tools/list` shows only such tools. */
  couldPermit(tool: string): boolean;
  /** Params of a tool that some rule masks, even if that rule does not match the call. */
  redacted(tool: string): ReadonlySet<string>;
}

/** The budget of this id; `null` where no rule names it. */
export function budgetIn({ rules }: Pick<CompiledPolicies, 'rules'>, id: string): CompiledBudget | null {
  for (const { obligations } of rules)
    for (const obligation of obligations)
      if (obligation.kind === 'budget' && obligation.budget.id === id) return obligation.budget;
  return null;
}

/** A row keeps the limit that the last call was judged with. Policy may have another by now. */
export function limitInForce({ budget, limit }: BudgetRow, set: Pick<CompiledPolicies, 'rules'>): number {
  return budgetIn(set, budget)?.fixedLimit ?? limit;
}
