import { compileApproval } from './compile-approval.ts';
import { didYouMean } from '../diagnostics/nearest.ts';
import type { DataPath } from '../diagnostics/yaml-source.ts';
import type { Json } from '../json/value.ts';
import type { SetContext } from './set-context.ts';
import type { Names } from './expression.ts';
import { type FactPath, factType, isPathFault, parseFactPath } from './fact-path.ts';
import { nearName } from './names.ts';
import { below, type Reporter } from './reporter.ts';
import type { AmountPlan, ApprovalPlan, BucketingPlan, BudgetPlan, CountPlan, ObligationPlan } from './rule-plan.ts';
import type { BudgetSource, ObligationSource } from './schema.ts';
import type { OrAskSource } from './schema-approval.ts';
import { constantText, parseTemplate } from './template.ts';
import { readDuration } from './windows.ts';
import type { BudgetDefinition } from '../effects/policy-store.ts';

/** Checks a budget of a set. Also returns the definition that the store needs. */
export function compileBudget(options: {
  readonly set: string;
  readonly name: string;
  readonly source: BudgetSource;
  readonly zone: string;
  readonly names: Names;
  readonly report: Reporter;
}): { readonly budget: BudgetPlan; readonly definition: BudgetDefinition } | null {
  const { set, name, source, zone, names, report } = options;
  const path: DataPath = ['budgets', name];
  if (!/^[A-Za-z0-9][A-Za-z0-9_-]{0,62}$/.test(name))
    report.error(
      'wrong_value',
      path,
      [`The budget '${name}' has a name that cannot be used`, 'letters, digits, - and _'],
      'key',
    );
  const { per, rolling } = source;
  if ((per === undefined) === (rolling === undefined)) {
    report.error('missing_field', path, `The budget '${name}' needs either 'per' or 'rolling'`, 'key');
    return null;
  }
  const by = bucketing(source.by ?? [], [...path, 'by'], names, report);
  const limit = countOf(source.limit, 0, [...path, 'limit'], names, report);
  const ms = rolling === undefined ? 0 : readDuration(rolling, [...path, 'rolling'], report);
  if (by === null || limit === null || ms === null) return null;
  const id = `${set}/${name}`;
  const window = per === undefined ? ({ kind: 'rolling', ms } as const) : ({ kind: 'calendar', per, zone } as const);
  const counted = per === undefined ? `rolling ${ms}` : `${per} ${zone}`;
  return {
    budget: { id, unit: source.unit, by, window, limit, warnAt: source.warn_at ?? null },
    definition: { budget: id, unit: source.unit, window: counted, reset: source.reset ?? false },
  };
}

/** Checks the paths of `by`. A list cannot name a row, so it is refused where the type is known. */
function bucketing(texts: readonly string[], path: DataPath, names: Names, report: Reporter): BucketingPlan | null {
  const facts: FactPath[] = [];
  let sound = true;
  const fault = (index: number, code: string, message: string, hint: string | null = null): void => {
    sound = false;
    report.error(code, below(path, index), [message, hint]);
  };
  for (const [index, text] of texts.entries()) {
    const parsed = parseFactPath(text, 'rule', names.entities);
    if (isPathFault(parsed)) fault(index, parsed.code, parsed.message, parsed.hint);
    else if (factType(parsed) === 'array')
      fault(index, 'wrong_value', `'${parsed.text}' is a list and cannot name a row`);
    else if (facts.some((fact) => fact.text === parsed.text))
      fault(index, 'wrong_value', `'${parsed.text}' stands twice`);
    else facts.push(parsed);
  }
  const sharing = facts.some((fact) => fact.text === 'agent.id') ? 'own' : 'shared';
  return sound ? { facts, sharing } : null;
}

/** A whole number, or the `$name` of one. */
function countOf(
  source: string | number,
  minimum: number,
  path: DataPath,
  names: Names,
  report: Reporter,
): CountPlan | null {
  if (typeof source === 'number') return { kind: 'fixed', count: source };
  const right = names.right(source.slice(1));
  if (right === null) {
    report.error('unknown_name', path, [`There is no value '${source}'`, nearName(source.slice(1), names)]);
    return null;
  }
  const alternatives = right.kind === 'literal' ? [right.value] : [...right.table.of.values(), right.table.otherwise];
  const unfit = alternatives.find((value) => !isCount(value, minimum));
  if (unfit !== undefined) {
    report.error(
      'wrong_value',
      path,
      `'${source}' must be a whole number of at least ${minimum}, not ${JSON.stringify(unfit)}`,
    );
    return null;
  }
  if (right.kind === 'value') return { kind: 'value', table: right.table };
  return { kind: 'fixed', count: typeof right.value === 'number' ? right.value : null };
}

function isCount(value: Json, minimum: number): boolean {
  return typeof value === 'number' && Number.isSafeInteger(value) && value >= minimum;
}

/**
 * Checks an obligation of a rule.
 * @param rateId the id under which attempts are counted, if it is a rate limit
 * @returns `null` where it is faulty (reported)
 */
export function compileObligation(
  source: ObligationSource,
  path: DataPath,
  rateId: string,
  context: SetContext,
): ObligationPlan | null {
  const { report, names } = context;
  if (source.budget !== undefined) return compileBudgetUse(source.budget, [...path, 'budget'], context);
  if (source.rate_limit !== undefined) {
    const { by, limit, per } = source.rate_limit;
    const rows = bucketing(by ?? [], [...path, 'rate_limit', 'by'], names, report);
    const count = countOf(limit, 1, [...path, 'rate_limit', 'limit'], names, report);
    const windowMs = rateWindow(per, [...path, 'rate_limit', 'per'], report);
    const orAsk = askedBeyond(source.rate_limit.or_ask, [...path, 'rate_limit'], context);
    if (rows === null || count === null || windowMs === null || orAsk === null) return null;
    const plan = { kind: 'rate_limit', id: rateId, by: rows, windowMs, limit: count } as const;
    return orAsk === undefined ? plan : { ...plan, orAsk };
  }
  if (source.claim !== undefined) {
    const on = parseTemplate(source.claim.on, [...path, 'claim', 'on'], report);
    return on === null ? null : { kind: 'claim', on, hold: source.claim.hold ?? 'call' };
  }
  return source.reserve === undefined ? null : compileReserve(source.reserve, [...path, 'reserve'], context);
}

function rateWindow(per: string, path: DataPath, report: Reporter): number | null {
  switch (per) {
    case 'minute':
      return 60_000;
    case 'hour':
      return 3_600_000;
    case 'day':
      return 86_400_000;
    default:
      return readDuration(per, path, report);
  }
}

function compileBudgetUse(
  source: NonNullable<ObligationSource['budget']>,
  path: DataPath,
  context: SetContext,
): ObligationPlan | null {
  const { budgets, names, report } = context;
  const budget = budgets.get(source.use);
  if (budget === undefined)
    report.error('unknown_budget', below(path, 'use'), [
      `There is no budget '${source.use}'`,
      didYouMean(source.use, budgets.keys()),
    ]);
  const amount = amountReader(source.amount, [...path, 'amount'], names, report);
  const orAsk = askedBeyond(source.or_ask, path, context);
  if (budget === undefined || amount === null || orAsk === null) return null;
  return { kind: 'budget', budget: budget.id, amount, ...(orAsk === undefined ? null : { orAsk }) };
}

/** Whom a limit asks. Its digest is that of the whole rule, which is not known here. */
function askedBeyond(
  source: OrAskSource | undefined,
  path: DataPath,
  context: SetContext,
): ApprovalPlan | null | undefined {
  if (source === undefined) return undefined;
  const plan = compileApproval(source, [...path, 'or_ask'], context);
  return plan === null ? null : { ...plan, ruleDigest: '' };
}

function amountReader(source: string | number, path: DataPath, names: Names, report: Reporter): AmountPlan | null {
  if (typeof source === 'number' || source.startsWith('$')) return countOf(source, 0, path, names, report);
  const parsed = parseFactPath(source, 'rule', names.entities);
  if (isPathFault(parsed)) {
    report.error(parsed.code, path, [parsed.message, parsed.hint]);
    return null;
  }
  if (factType(parsed) !== null) {
    report.error('wrong_value', path, [
      `'${parsed.text}' is never a whole number`,
      'write a path such as params.amount',
    ]);
    return null;
  }
  return { kind: 'fact', fact: parsed };
}

function compileReserve(
  source: NonNullable<ObligationSource['reserve']>,
  path: DataPath,
  { names, report, surroundings }: SetContext,
): ObligationPlan | null {
  const { pools } = surroundings;
  const pool = parseTemplate(source.pool, [...path, 'pool'], report);
  const units = countOf(source.units ?? 1, 1, [...path, 'units'], names, report);
  if (pool === null || units === null) return null;
  const name = constantText(pool);
  if (name !== null && !pools.has(name)) {
    report.error('unknown_pool', below(path, 'pool'), [
      `There is no pool '${name}'`,
      didYouMean(name, pools.keys()) ?? "declare it under 'pools' in the configuration",
    ]);
    return null;
  }
  const capacity = name === null ? undefined : pools.get(name);
  if (typeof source.units === 'number' && capacity !== undefined && source.units > capacity)
    report.warning(
      'never_fits',
      below(path, 'units'),
      `The pool '${name}' has only ${capacity} units: no call will ever fit`,
    );
  return { kind: 'reserve', pool, units };
}
