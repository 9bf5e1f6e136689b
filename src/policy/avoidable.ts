import type { Finding } from '../diagnostics/finding.ts';
import type { Json } from '../json/value.ts';
import type { Tool } from '../effects/model/tool.ts';
import { tooMany } from './amounts.ts';
import { type Equality, holds, type Test } from './compiled-condition.ts';
import { type EngineCondition, readOperator } from './engine-form.ts';
import { judgedType } from './operators.ts';
import type { CompiledObligation, CompiledRule } from './compiled-rule.ts';
import { inputOfTool } from './tool-index.ts';

/** Most pairs of rules to compare. Beyond it, a warning says that not all were compared. */
const MAX_PAIRS = 2_000_000;
/** Most shared tools that are checked for two rules. */
const MAX_TOOLS = 50;

/** A change of an amount that makes a rule impossible to judge. */
interface Spoiled {
  /** Path of the param. */
  readonly param: string;
  /** `null`: the param is left out. Otherwise it is sent with another type than this one. */
  readonly type: string | null;
}

/**
 * Finds obligations that a caller can avoid by leaving an amount out or by sending it with another type. This happens
 * where a rule with obligations allows only if the number can be judged, and another rule then allows the call with
 * fewer obligations. Params that only choose between rules (a text that equals this or that) are not checked: there the
 * choice is the caller's in any case.
 */
export function avoidableObligations(rules: readonly CompiledRule[], tools: readonly Tool[]): readonly Finding[] {
  const enforced = rules.filter((rule) => rule.mode === 'enforce');
  const asking = enforced.filter((rule) => rule.effect === 'allow' && rule.obligations.length > 0);
  if (asking.length === 0) return [];
  const inputs = tools.map(inputOfTool);
  const toolsOf = new Map<CompiledRule, ReadonlySet<number>>();
  const own = (rule: CompiledRule): ReadonlySet<number> => {
    const known = toolsOf.get(rule);
    if (known !== undefined) return known;
    const found = new Set<number>();
    for (const [at, input] of inputs.entries())
      if (holds(rule.perTool, input, undefined, rule.unknownIs)) found.add(at);
    toolsOf.set(rule, found);
    return found;
  };
  const candidates = findersOf(enforced.filter((rule) => rule.effect === 'allow'));
  const restrictive = enforced.filter((rule) => rule.effect !== 'allow' && rule.unknownIs);
  const findings: Finding[] = [];
  let pairs = 0;
  for (const rule of asking) {
    const found = firstWayAround(rule);
    if (found !== null) findings.push(finding(rule, found.other, found.spoiled));
    if (pairs > MAX_PAIRS) {
      findings.push(
        tooMany(
          'obligations to see whether each of them can be avoided',
          'write obligations into rules of effect: constrain',
        ),
      );
      break;
    }
  }
  return findings;

  function firstWayAround(rule: CompiledRule): { readonly other: CompiledRule; readonly spoiled: Spoiled } | null {
    const ways = waysToSpoil(rule.conditions).filter((spoiled) => !couldHold(rule.conditions, spoiled));
    if (ways.length === 0) return null;
    for (const other of candidates(rule)) {
      pairs += 1;
      if (pairs > MAX_PAIRS) return null;
      if (other === rule || rule.from >= other.until || other.from >= rule.until) continue;
      if (carries(other.obligations, rule.obligations)) continue;
      const shared = [...own(rule)].filter((tool) => own(other).has(tool)).slice(0, MAX_TOOLS);
      if (shared.length === 0) continue;
      for (const spoiled of ways) {
        if (!couldHold(other.conditions, spoiled) || !canBothHold(rule, other, spoiled)) continue;
        if (shared.some((tool) => !isCovered(rule, other, spoiled, tool))) return { other, spoiled };
      }
    }
    return null;
  }

  /** Whether a restrictive rule that certainly applies has the same obligations, or refuses the call. */
  function isCovered(rule: CompiledRule, other: CompiledRule, spoiled: Spoiled, tool: number): boolean {
    const facts = [...equalities(rule.perCall), ...equalities(other.perCall)];
    return restrictive.some((cover) => {
      pairs += 1;
      const isEnough =
        cover.effect === 'deny' || cover.effect === 'pause' || carries(cover.obligations, rule.obligations);
      if (!isEnough || cover.from > rule.from || cover.until < rule.until || !own(cover).has(tool)) return false;
      return mustApply(cover.conditions, spoiled, facts);
    });
  }
}

function finding(rule: CompiledRule, other: CompiledRule, { param, type }: Spoiled): Finding {
  const how = type === null ? `leaving ${param} out` : `sending ${param} as another type than ${type}`;
  return {
    code: 'avoidable_obligation',
    severity: 'error',
    message: `A call avoids the obligations of '${rule.id}' by ${how}: '${other.id}' allows it then, without them`,
    hint: `write them into a rule of effect: constrain with the same match, which applies also where ${param} cannot be judged`,
    at: rule.position,
  };
}

/**
 * Finds the rules that may allow the same calls as a given rule. It looks them up by the fact that most rules compare.
 */
function findersOf(granting: readonly CompiledRule[]): (rule: CompiledRule) => Iterable<CompiledRule> {
  const counts = new Map<string, number>();
  for (const rule of granting)
    for (const name of new Set(equalities(rule.perCall).map(({ fact }) => fact.text)))
      if (!name.startsWith('params')) counts.set(name, (counts.get(name) ?? 0) + 1);
  const [best] = [...counts].sort(([, a], [, b]) => b - a);
  const valuesOf = (rule: CompiledRule): Equality['values'] | null =>
    equalities(rule.perCall).find(({ fact }) => fact.text === best?.[0])?.values ?? null;
  const open: CompiledRule[] = [];
  const byValue = new Map<Json, CompiledRule[]>();
  for (const rule of granting) {
    const values = valuesOf(rule);
    if (values === null) open.push(rule);
    for (const value of values ?? []) byValue.set(value, [...(byValue.get(value) ?? []), rule]);
  }
  return (rule) => {
    const values = valuesOf(rule);
    return values === null ? granting : [...open, ...values.flatMap((value) => byValue.get(value) ?? [])];
  };
}

/** Equalities that must hold for the condition to hold. */
function equalities(test: Test): readonly Equality[] {
  if (test.kind === 'leaf') return test.equality === null ? [] : [test.equality];
  return test.kind === 'all' ? test.of.flatMap((part) => (part.kind === 'leaf' ? equalities(part) : [])) : [];
}

/** Whether each wanted obligation has an equal one. */
function carries(having: readonly CompiledObligation[], wanted: readonly CompiledObligation[]): boolean {
  return wanted.every((one) =>
    having.some((other) =>
      one.kind === 'budget' ? other.kind === 'budget' && other.budget.id === one.budget.id : other.kind === one.kind,
    ),
  );
}

/** Whether the two rules need no different values of any fact other than the spoilt one. */
function canBothHold(rule: CompiledRule, other: CompiledRule, { param }: Spoiled): boolean {
  const asked = new Map(equalities(rule.perCall).map(({ fact, values }) => [fact.text, values]));
  return equalities(other.perCall).every(({ fact, values }) => {
    const wanted = isPartOf(fact.text, param) ? undefined : asked.get(fact.text);
    return wanted === undefined || wanted.some((value) => values.includes(value));
  });
}

function isPartOf(fact: string, param: string): boolean {
  return fact === param || fact.startsWith(`${param}.`) || fact.startsWith(`${param}[`);
}

function waysToSpoil(condition: EngineCondition): readonly Spoiled[] {
  if ('all' in condition) return condition.all.flatMap(waysToSpoil);
  if ('any' in condition) return condition.any.flatMap(waysToSpoil);
  if (!condition.fact.startsWith('params')) return [];
  if (typeOf(condition) !== 'number') return [];
  return [
    { param: condition.fact, type: null },
    { param: condition.fact, type: 'number' },
  ];
}

/** The type that a leaf can judge; `null` where it judges any type, or where a fact on the right decides. */
function typeOf({ operator, value }: { readonly operator: string; readonly value: unknown }): string | null {
  const { name } = readOperator(operator);
  if (name === 'some' || name === 'every') return 'array';
  // With a fact on the right, these operators take only numbers.
  const right = isLiteral(value) ? value : NUMERIC.includes(name) ? 0 : null;
  return right === null ? null : judgedType(name, right);
}

const NUMERIC: readonly string[] = ['greaterThan', 'greaterThanInclusive', 'lessThan', 'lessThanInclusive'];

function isLiteral(value: unknown): value is Json {
  return typeof value !== 'object' || value === null || !('fact' in value);
}

/** Truth of a leaf on the spoilt param. `undefined`: it cannot be judged. `any`: the caller can choose. */
function spoiltTruth(
  leaf: { readonly fact: string; readonly operator: string; readonly value: unknown },
  { param, type }: Spoiled,
): boolean | undefined | 'any' {
  const { name, negated, ifAbsent } = readOperator(leaf.operator);
  const isBlock = name === 'some' || name === 'every';
  // An object or a list may be sent in its place, and what is in it is the caller's choice.
  if (type !== null && leaf.fact !== param) return 'any';
  if (name === 'exists') return (leaf.value === (type !== null)) !== negated;
  if (type === null) {
    if (name === 'type') return negated;
    if (ifAbsent === null) return undefined;
    return isBlock ? ifAbsent : ifAbsent !== negated;
  }
  if (name === 'type') {
    const names: readonly unknown[] = Array.isArray(leaf.value) ? leaf.value : [leaf.value];
    const isOwn = names.every((other) => other === type || (type === 'number' && other === 'integer'));
    return isOwn ? negated : 'any';
  }
  const judged = typeOf(leaf);
  return judged === null || judged === type ? undefined : 'any';
}

/** Whether the condition of an allow rule could hold for some call with the spoilt param. */
function couldHold(condition: EngineCondition, spoiled: Spoiled): boolean {
  if ('all' in condition) return condition.all.every((part) => couldHold(part, spoiled));
  if ('any' in condition) return condition.any.some((part) => couldHold(part, spoiled));
  if (!isPartOf(condition.fact, spoiled.param)) return true;
  const truth = spoiltTruth(condition, spoiled);
  return truth === true || truth === 'any';
}

/** Whether a restrictive rule applies to every call with these values, because it is true or unknown. */
function mustApply(condition: EngineCondition, spoiled: Spoiled, facts: readonly Equality[]): boolean {
  if ('all' in condition) return condition.all.every((part) => mustApply(part, spoiled, facts));
  if ('any' in condition) return condition.any.some((part) => mustApply(part, spoiled, facts));
  // Conditions on the tool were checked before.
  if (condition.fact.startsWith('tool.')) return true;
  if (isPartOf(condition.fact, spoiled.param)) {
    const truth = spoiltTruth(condition, spoiled);
    return truth === true || truth === undefined;
  }
  const { name, negated } = readOperator(condition.operator);
  if (negated || (name !== 'equal' && name !== 'in')) return false;
  const asked: readonly unknown[] = Array.isArray(condition.value) ? condition.value : [condition.value];
  return facts.some(
    ({ fact, values }) => fact.text === condition.fact && values.every((value) => asked.includes(value)),
  );
}
