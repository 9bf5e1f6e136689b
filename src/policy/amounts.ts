import type { Finding } from '../diagnostics/finding.ts';
import type { Tool } from '../effects/model/tool.ts';
import { holds } from './compiled-condition.ts';
import type { CompiledRule } from './compiled-rule.ts';
import type { AmountPlan, RulePlan } from './rule-plan.ts';
import { inputOfTool } from './tool-index.ts';
import { areApart, type HeldFacts, waysToHold } from './value-range.ts';

/** Most pairs of rules to compare. Beyond it, a warning says that not all were compared. */
const MAX_PAIRS = 200_000;

export interface ReadRule {
  readonly plan: RulePlan;
  readonly rule: CompiledRule;
}

interface Charge {
  readonly read: ReadRule;
  /** The amount as written in the file. */
  readonly amount: string;
}

/**
 * Finds rules that may match the same call and put different amounts on one budget. Then the larger amount is held, and
 * perhaps neither rule means that. Two rules are apart if they need different values of some fact. Where that cannot be
 * determined, the rules are assumed to meet, so the result is only a warning. One finding per rule, with the first
 * other rule that differs.
 */
export function differentAmounts(rules: readonly ReadRule[], tools: readonly Tool[]): readonly Finding[] {
  const inputs = tools.map(inputOfTool);
  const toolsOf = remembered(({ rule }) => {
    const own = inputs.map((input) => holds(rule.perTool, input, undefined, rule.unknownIs));
    return new Set(own.flatMap((isOwn, at) => (isOwn ? [at] : [])));
  });
  const waysOf = remembered<readonly HeldFacts[]>(({ plan }) => waysToHold(plan.conditions, plan.symbols));
  const findings: Finding[] = [];
  let pairs = 0;
  for (const [budget, charges] of chargesByBudget(rules))
    for (const [index, charge] of charges.entries()) {
      const other = charges.slice(0, index).find((before) => {
        if (before.amount === charge.amount || pairs > MAX_PAIRS) return false;
        pairs += 1;
        return mayMeet(before.read, charge.read);
      });
      if (other !== undefined) findings.push(finding(budget, other, charge));
    }
  return pairs > MAX_PAIRS
    ? [
        ...findings,
        tooMany('different amounts on one budget to compare each with each', 'use budgets of their own, or one amount'),
      ]
    : findings;

  function mayMeet(a: ReadRule, b: ReadRule): boolean {
    if (a === b) return true;
    if (a.rule.from >= b.rule.until || b.rule.from >= a.rule.until) return false;
    if (!share(toolsOf(a), toolsOf(b))) return false;
    return waysOf(a).some((way) => waysOf(b).some((other) => !areApart(way, other)));
  }
}

function share(a: ReadonlySet<number>, b: ReadonlySet<number>): boolean {
  for (const one of a) if (b.has(one)) return true;
  return false;
}

function chargesByBudget(rules: readonly ReadRule[]): ReadonlyMap<string, readonly Charge[]> {
  const found = new Map<string, Charge[]>();
  for (const read of rules)
    for (const obligation of read.rule.mode === 'enforce' ? read.plan.obligations : []) {
      if (obligation.kind !== 'budget') continue;
      const charges = found.get(obligation.budget) ?? [];
      found.set(obligation.budget, charges);
      charges.push({ read, amount: spelled(obligation.amount) });
    }
  // Most budgets have a single amount.
  return new Map([...found].filter(([, charges]) => new Set(charges.map(({ amount }) => amount)).size > 1));
}

function spelled(amount: AmountPlan): string {
  switch (amount.kind) {
    case 'fixed':
      return String(amount.count);
    case 'value':
      return `$${amount.table.id.slice(amount.table.id.indexOf('/') + 1)}`;
    case 'fact':
      return amount.fact.text;
  }
}

function remembered<Value>(of: (read: ReadRule) => Value): (read: ReadRule) => Value {
  const known = new Map<ReadRule, Value>();
  return (read) => {
    const value = known.get(read) ?? of(read);
    known.set(read, value);
    return value;
  };
}

function finding(
  budget: string,
  { read: { rule: first }, amount }: Charge,
  { read: { rule }, ...own }: Charge,
): Finding {
  const amounts = `${own.amount} and ${amount}`;
  return {
    code: 'different_amounts',
    severity: 'warning',
    message:
      first === rule
        ? `'${rule.id}' puts two amounts on the budget '${budget}' (${amounts}): the larger one is held, not both`
        : `One call may match '${rule.id}' and '${first.id}', which put different amounts on the budget '${budget}' (${amounts}): the larger one is held`,
    hint: 'give them the same amount, conditions that no call meets together, or budgets of their own',
    at: rule.position,
  };
}

/** That not everything was compared. @param rules of which there are too many, and for what */
export function tooMany(rules: string, hint: string): Finding {
  const message = `There are too many rules with ${rules}`;
  return { code: 'not_all_compared', severity: 'warning', message, hint, at: null };
}
