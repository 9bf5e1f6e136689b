import { createHash } from 'node:crypto';
import { didYouMean } from '../diagnostics/nearest.ts';
import type { Position } from '../diagnostics/finding.ts';
import type { DataPath } from '../diagnostics/yaml-source.ts';
import type { Expression } from './expression.ts';
import { compileApproval } from './compile-approval.ts';
import { compileBudget, compileObligation } from './compile-obligations.ts';
import { noSymbols, RuleTooLarge, type Symbols, toEngineForm } from './engine-form.ts';
import { parseCondition } from './condition.ts';
import { matchExpressions } from './match.ts';
import { type ListFiles, namesOf } from './names.ts';
import { below, type Reporter } from './reporter.ts';
import { limitName } from '../effects/model/verdict.ts';
import type { BudgetPlan, ObligationPlan, RulePlan } from './rule-plan.ts';
import type { ObligationSource, PolicyFile, RuleSource } from './schema.ts';
import type { SetContext, Surroundings } from './set-context.ts';
import { parseTemplate } from './template.ts';
import { compileSchedule, type SchedulePlan } from './schedules.ts';
import { isTimeZone, parseInstant } from './windows.ts';
import type { BudgetDefinition } from '../effects/policy-store.ts';

/** Compiles a file of the right shape. Faults are reported, and the result must be used only if there are none. */
export function compileSet(
  file: PolicyFile,
  listFiles: ListFiles,
  surroundings: Surroundings,
  report: Reporter,
  at: (path: DataPath) => Position,
): {
  readonly rules: readonly RulePlan[];
  readonly budgets: readonly BudgetPlan[];
  readonly definitions: readonly BudgetDefinition[];
} {
  const wanted = file.timezone ?? 'UTC';
  const known = isTimeZone(wanted);
  if (!known)
    report.error(
      'unknown_zone',
      ['timezone'],
      [`Unknown time zone '${wanted}'`, didYouMean(wanted, Intl.supportedValuesOf('timeZone'))],
    );
  const zone = known ? wanted : 'UTC';
  const names = namesOf(file, listFiles, report);

  const budgets = new Map<string, BudgetPlan>();
  const definitions: BudgetDefinition[] = [];
  for (const [name, source] of Object.entries(file.budgets ?? {})) {
    const made = compileBudget({ set: file.name, name, source, zone, names, report });
    if (made === null) continue;
    budgets.set(name, made.budget);
    definitions.push(made.definition);
  }

  const schedules = new Map(
    Object.entries(file.schedules ?? {}).map(([name, source]) => [
      name,
      compileSchedule(name, source, zone, names, report),
    ]),
  );
  const context: SetContext = { set: file.name, zone, names, budgets, schedules, surroundings, report };
  const seen = new Set<string>();
  const rules: RulePlan[] = [];
  for (const [index, source] of file.rules.entries()) {
    const path: DataPath = ['rules', index];
    if (seen.has(source.id))
      report.error('duplicate_rule', below(path, 'id'), `The set has another rule '${source.id}'`);
    seen.add(source.id);
    const rule = compileRule(source, path, context, at([...path, 'id']));
    if (rule !== null) rules.push(rule);
  }
  warnOfUnusedBudgets(budgets, file.rules, report);
  return { rules, budgets: [...budgets.values()], definitions };
}

function warnOfUnusedBudgets(
  budgets: ReadonlyMap<string, BudgetPlan>,
  rules: readonly RuleSource[],
  report: Reporter,
): void {
  const used = new Set(rules.flatMap(({ obligations = [] }) => obligations.map(({ budget }) => budget?.use)));
  for (const name of budgets.keys())
    if (!used.has(name)) report.warning('unused_budget', ['budgets', name], `No rule uses the budget '${name}'`, 'key');
}

function compileRule(source: RuleSource, path: DataPath, context: SetContext, position: Position): RulePlan | null {
  const { report } = context;
  const { effect } = source;
  checkFields(source, path, report);
  const unknownIs = effect !== 'allow' && source.on_unknown !== 'skip';
  if (source.on_unknown === 'skip' && effect !== 'allow')
    report.warning('fails_open', below(path, 'on_unknown'), [
      `'${source.id}' does not apply where a value is absent or of another type: it fails open`,
      'prefer if_absent on the one path that may be absent',
    ]);

  const expression = wholeCondition(source, path, context);
  const bounds = boundsOf(source, path, context);
  const reason =
    source.reason === undefined ? null : parseTemplate(source.reason, [...path, 'reason'], report, 'people');
  const id = `${context.set}/${source.id}`;
  let rateLimits = 0;
  const obligations = (source.obligations ?? []).map((obligation, index) => {
    if (obligation.rate_limit !== undefined) rateLimits += 1;
    const rateId = rateLimits <= 1 ? id : `${id}#${rateLimits}`;
    return compileObligation(obligation, [...path, 'obligations', index], rateId, context);
  });
  const approval =
    source.approval === undefined ? null : compileApproval(source.approval, [...path, 'approval'], context);
  if (expression === null || bounds === null) return null;

  const compiled = compileExpression(expression, unknownIs, path, report);
  if (compiled === null) return null;
  return {
    id,
    set: context.set,
    effect,
    description: source.description ?? null,
    mode: source.mode ?? 'enforce',
    position,
    priority: source.priority ?? 0,
    unknownIs,
    ...bounds,
    ...compiled,
    reason,
    obligations: obligations.flatMap((obligation, index) =>
      obligation === null ? [] : [withDigest(obligation, source, index, compiled, bounds)],
    ),
    redact: (source.obligations ?? []).flatMap(({ redact }) => redact?.params ?? []),
    approval:
      approval === null
        ? null
        : { ...approval, ruleDigest: digestOf(source.effect, source.approval, compiled, bounds, approval.hours) },
  };
}

/** An obligation whose limit asks, with the digest that approvals of going beyond it are bound to. */
function withDigest(
  obligation: ObligationPlan,
  { effect, obligations = [] }: RuleSource,
  index: number,
  compiled: Pick<RulePlan, 'conditions' | 'symbols'>,
  bounds: { readonly from: number; readonly until: number },
): ObligationPlan {
  const source = obligations[index];
  if (source === undefined || !('orAsk' in obligation) || obligation.orAsk === undefined) return obligation;
  const { orAsk } = obligation;
  const ruleDigest = digestOf(effect, [limitName(obligation), source], compiled, bounds, orAsk.hours);
  return { ...obligation, orAsk: { ...orAsk, ruleDigest } };
}

/** The digest of a rule that approvals are bound to. Lists and named values count by their content. */
function digestOf(
  effect: RuleSource['effect'],
  approval: RuleSource['approval'] | readonly [limit: string, obligation: ObligationSource],
  { conditions, symbols: { tables } }: Pick<RulePlan, 'conditions' | 'symbols'>,
  { from, until }: { readonly from: number; readonly until: number },
  hours: SchedulePlan | undefined,
): string {
  const named = [...tables].map(([name, { by, of, otherwise }]) => [name, by.text, [...of], otherwise]);
  const terms = [
    effect,
    conditions,
    named,
    String(from),
    String(until),
    approval,
    ...(hours === undefined ? [] : [hours]),
  ];
  return createHash('sha256').update(JSON.stringify(terms)).digest('base64url');
}

/** Reports fields that a rule with this effect must not have, or lacks. */
function checkFields(source: RuleSource, path: DataPath, report: Reporter): void {
  const { effect } = source;
  const misplaced = (field: string, message: string, hint: string | null = null): void =>
    report.error('misplaced_field', below(path, field), [message, hint], 'key');
  if (effect === 'deny' || effect === 'pause') {
    if (source.obligations !== undefined)
      misplaced('obligations', `A rule that ${effect === 'deny' ? 'denies' : 'pauses'} has no obligations`);
    if (source.approval !== undefined)
      misplaced('approval', `A rule that ${effect === 'deny' ? 'denies' : 'pauses'} asks nobody`);
  } else if (source.reason !== undefined) {
    report.warning(
      'reason_not_shown',
      below(path, 'reason'),
      ['A reason is told only by rules that deny or pause', 'use description, or the summary of the approval'],
      'key',
    );
  }
  if (effect === 'allow' && source.approval !== undefined)
    report.warning(
      'approval_on_allow',
      below(path, 'approval'),
      [
        'A rule that allows and asks is a rule that requires approval',
        'use effect: require_approval, which also asks where a value cannot be judged',
      ],
      'key',
    );
  if (effect === 'allow' && source.on_unknown === 'skip')
    misplaced('on_unknown', 'A rule that allows never applies where it cannot be judged', 'remove it');
  if (effect === 'require_approval' && source.approval === undefined)
    report.error(
      'missing_field',
      path,
      [`'${source.id}' needs 'approval'`, 'say who approves: approval: { approvers: { roles: […] } }'],
      'key',
    );
  if (effect === 'constrain' && source.approval === undefined && source.obligations === undefined)
    report.error(
      'missing_field',
      path,
      [`'${source.id}' constrains nothing`, 'give it obligations or an approval'],
      'key',
    );
}

/** The whole condition: match AND when AND NOT unless. */
function wholeCondition(source: RuleSource, path: DataPath, context: SetContext): Expression | null {
  const { names, report, surroundings } = context;
  const matched =
    source.match === undefined ? [] : matchExpressions(source.match, [...path, 'match'], surroundings, report);
  const when = source.when === undefined ? undefined : parseCondition(source.when, [...path, 'when'], names, report);
  const unless =
    source.unless === undefined ? undefined : parseCondition(source.unless, [...path, 'unless'], names, report);
  if (matched === null || when === null || unless === null) return null;
  const of: Expression[] = [...matched];
  if (when !== undefined) of.push(when);
  if (unless !== undefined) of.push({ kind: 'not', of: unless });
  return { kind: 'all', of };
}

function boundsOf(
  source: RuleSource,
  path: DataPath,
  { zone, report }: SetContext,
): { readonly from: number; readonly until: number } | null {
  const bound = (name: 'from' | 'until', otherwise: number): number | null => {
    const text = source[name];
    if (text === undefined) return otherwise;
    const instant = parseInstant(text, zone);
    if (instant === null) report.error('wrong_value', below(path, name), `There is no date '${text}'`);
    return instant;
  };
  const from = bound('from', Number.NEGATIVE_INFINITY);
  const until = bound('until', Number.POSITIVE_INFINITY);
  if (from === null || until === null) return null;
  if (from < until) return { from, until };
  report.error('wrong_value', below(path, 'until'), `'until' is not after 'from': the rule would never apply`);
  return null;
}

/** Converts the condition to normal form, as data, for what unknown means in this rule. */
function compileExpression(
  expression: Expression,
  unknownIs: boolean,
  path: DataPath,
  report: Reporter,
): Pick<RulePlan, 'conditions' | 'symbols'> | null {
  const symbols: Symbols = noSymbols();
  try {
    return { conditions: toEngineForm(expression, unknownIs, symbols), symbols };
  } catch (error) {
    if (!(error instanceof RuleTooLarge)) throw error;
    report.error('too_large', path, error.message);
    return null;
  }
}
