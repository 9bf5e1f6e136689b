import type { Finding } from '../diagnostics/finding.ts';
import type { Json } from '../json/value.ts';
import type { Tool } from '../effects/model/tool.ts';
import { type Equality, holds, type Test } from './compiled-condition.ts';
import { type EngineCondition, readOperator } from './engine-form.ts';
import { judgedType } from './operators.ts';
import type { CompiledObligation, CompiledRule } from './compiled-rule.ts';
import { inputOfTool } from './rules-by-tool.ts';

/** Pairs of rules that are compared at most; beyond, a warning says that not all were. */
const MAX_PAIRS = 2_000_000;
/** Tools that two rules share and that are looked at. */
const MAX_TOOLS = 50;

/** What a caller does to an amount so that a rule cannot be judged. */
interface Spoiled {
  /** Path of the param. */
  readonly param: string;
  /** `null`: it is left out. Otherwise it is sent, and not as a value of this type. */
  readonly type: string | null;
}

/**
 * Obligations that a caller gets rid of by leaving an amount out, or by sending another type: those of a rule that
 * allows only where the number can be judged, while another rule allows the call then, and asks less. Params by which
 * rules tell calls apart (a text that is equal to this or that) are the caller's choice anyway.
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
      findings.push(tooMany());
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

  /** Whether a restrictive rule that certainly applies asks the same, or refuses the call. */
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

function tooMany(): Finding {
  return {
    code: 'not_all_compared',
    severity: 'warning',
    message: 'There are too many rules with obligations to see whether each of them can be avoided',
    hint: 'write obligations into rules of effect: constrain',
    at: null,
  };
}

/** The rules that may allow the same calls as a rule, found by the one fact that most of them ask for. */
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

/** Equalities that have to hold for a condition to hold. */
function equalities(test: Test): readonly Equality[] {
  if (test.kind === 'leaf') return test.equality === null ? [] : [test.equality];
  return test.kind === 'all' ? test.of.flatMap((part) => (part.kind === 'leaf' ? equalities(part) : [])) : [];
}

/** Whether every obligation has one that does the same. */
function carries(having: readonly CompiledObligation[], wanted: readonly CompiledObligation[]): boolean {
  return wanted.every((one) =>
    having.some((other) =>
      one.kind === 'budget' ? other.kind === 'budget' && other.budget.id === one.budget.id : other.kind === one.kind,
    ),
  );
}

/** Whether no fact beside the spoilt one has to have different values for the two. */
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

/** The type that a leaf can judge; `null` where it judges any, or a fact says. */
function typeOf({ operator, value }: { readonly operator: string; readonly value: unknown }): string | null {
  const { name } = readOperator(operator);
  if (name === 'some' || name === 'every') return 'array';
  // Of what another fact says, these take numbers alone.
  const right = isLiteral(value) ? value : NUMERIC.includes(name) ? 0 : null;
  return right === null ? null : judgedType(name, right);
}

const NUMERIC: readonly string[] = ['greaterThan', 'greaterThanInclusive', 'lessThan', 'lessThanInclusive'];

function isLiteral(value: unknown): value is Json {
  return typeof value !== 'object' || value === null || !('fact' in value);
}

/** Truth of a leaf on the spoilt param: `undefined` where it cannot be judged, `any` where the caller may choose. */
function spoiltTruth(
  leaf: { readonly fact: string; readonly operator: string; readonly value: unknown },
  { param, type }: Spoiled,
): boolean | undefined | 'any' {
  const { name, negated, ifAbsent } = readOperator(leaf.operator);
  const isBlock = name === 'some' || name === 'every';
  if (type === null || leaf.fact !== param) {
    if (name === 'exists') return (leaf.value === false) !== negated;
    if (name === 'type') return negated;
    if (ifAbsent === null) return undefined;
    return isBlock ? ifAbsent : ifAbsent !== negated;
  }
  if (name === 'exists') return (leaf.value === true) !== negated;
  if (name === 'type') {
    const names: readonly unknown[] = Array.isArray(leaf.value) ? leaf.value : [leaf.value];
    const isOwn = names.every((other) => other === type || (type === 'number' && other === 'integer'));
    return isOwn ? negated : 'any';
  }
  const judged = typeOf(leaf);
  return judged === null || judged === type ? undefined : 'any';
}

/** Whether a condition of a rule that allows could hold, whatever else the call is. */
function couldHold(condition: EngineCondition, spoiled: Spoiled): boolean {
  if ('all' in condition) return condition.all.every((part) => couldHold(part, spoiled));
  if ('any' in condition) return condition.any.some((part) => couldHold(part, spoiled));
  if (!isPartOf(condition.fact, spoiled.param)) return true;
  const truth = spoiltTruth(condition, spoiled);
  return truth === true || truth === 'any';
}

/** Whether a restrictive rule applies to every call with these values of facts: on true, and on unknown. */
function mustApply(condition: EngineCondition, spoiled: Spoiled, facts: readonly Equality[]): boolean {
  if ('all' in condition) return condition.all.every((part) => mustApply(part, spoiled, facts));
  if ('any' in condition) return condition.any.some((part) => mustApply(part, spoiled, facts));
  // The tool was asked before.
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
