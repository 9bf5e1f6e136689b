import { Engine } from 'json-rules-engine';
import type { Json } from '../json/value.ts';
import { valueReader } from './compiled-condition.ts';
import { type EngineCondition, readOperator, type Symbols } from './engine-form.ts';
import { readerOf } from './fact-path.ts';
import type { PolicyInput } from './input.ts';
import {
  hasPatterns,
  isList,
  type Judge,
  judgement,
  judgementInSteps,
  MAX_ELEMENTS,
  rightSideFault,
  seesAbsence,
} from './operators.ts';
import { patternStepsLeft, withPatternSteps } from './pattern-steps.ts';

export interface Bounds {
  /** Leaves and values that they compare with. */
  readonly leaves: number;
  readonly patternSteps: number;
  /** Called after each pattern that was compiled: other work may have its turn. */
  readonly pause: () => Promise<void> | null;
}

const UNBOUNDED: Bounds = {
  leaves: Number.POSITIVE_INFINITY,
  patternSteps: Number.POSITIVE_INFINITY,
  pause: () => null,
};

/** The evaluation needs more than it may use. */
export class TooMuch extends Error {}

/** Evaluates leaves. It compiles each right side once, and counts what it does. */
interface Evaluation {
  readonly symbols: Symbols;
  readonly input: PolicyInput;
  readonly judges: Map<string, Map<unknown, Judge | null>>;
  /** What is left of the bounds. */
  leaves: number;
  patternSteps: number;
}

/**
 * What json-rules-engine's own evaluation says of a compiled condition: a fresh engine, every operator registered
 * strictly under its compiled name (its ten own names too), facts as they are.
 * @throws TooMuch
 */
export async function engineTruth(
  conditions: Extract<EngineCondition, { all: unknown }>,
  symbols: Symbols,
  input: PolicyInput,
  { leaves, patternSteps, pause }: Bounds = UNBOUNDED,
): Promise<boolean> {
  const evaluation: Evaluation = { symbols, input, judges: new Map(), leaves, patternSteps };
  await compilePatterns(conditions, evaluation, pause);
  const { operators, facts } = usedBy(conditions);
  const engine = new Engine();
  for (const name of operators)
    engine.addOperator(name, (left: Json | undefined, right: unknown) => operate(name, left, right, evaluation));
  for (const name of facts) {
    const path = symbols.facts.get(name);
    const table = symbols.tables.get(name);
    if (path !== undefined && path.root !== 'item') engine.addFact(name, readerOf(path)(input, undefined));
    if (table !== undefined) engine.addFact(name, valueReader(table)(input));
  }
  engine.addRule({ conditions, event: { type: 'matched' } });
  const { events } = await engine.run();
  return events.length === 1;
}

/** Compiles the patterns that the condition itself or its tables name: together they would hold up other work. */
async function compilePatterns(
  condition: EngineCondition,
  evaluation: Evaluation,
  pause: Bounds['pause'],
): Promise<void> {
  if ('all' in condition) for (const part of condition.all) await compilePatterns(part, evaluation, pause);
  else if ('any' in condition) for (const part of condition.any) await compilePatterns(part, evaluation, pause);
  else if (isCondition(condition.value)) await compilePatterns(condition.value, evaluation, pause);
  else {
    const { name } = readOperator(condition.operator);
    const right = valueOf(condition.value, null, evaluation);
    if (name === 'some' || name === 'every' || !hasPatterns(name) || !isJson(right)) return;
    use(evaluation, weightOf(right) * PATTERN_LEAVES);
    const steps = judgementInSteps(name, right);
    let step = steps.next();
    for (; step.done !== true; step = steps.next()) await pause();
    judgesOf(evaluation, name).set(right, step.value);
  }
}

/** What the compilation of a pattern counts for, in leaves. */
const PATTERN_LEAVES = 20;

function weightOf(right: unknown): number {
  return Array.isArray(right) ? right.length : 1;
}

function use(evaluation: Evaluation, leaves: number): void {
  evaluation.leaves -= leaves;
  if (evaluation.leaves < 0) throw new TooMuch();
}

function judgesOf({ judges }: Evaluation, name: string): Map<unknown, Judge | null> {
  const known = judges.get(name) ?? new Map<unknown, Judge | null>();
  judges.set(name, known);
  return known;
}

/** The operators and facts of the condition itself; blocks over elements look theirs up. */
function usedBy(condition: EngineCondition, used = { operators: new Set<string>(), facts: new Set<string>() }) {
  if ('all' in condition) for (const part of condition.all) usedBy(part, used);
  else if ('any' in condition) for (const part of condition.any) usedBy(part, used);
  else {
    used.operators.add(condition.operator);
    used.facts.add(condition.fact);
    const reference = referenceOf(condition.value);
    if (reference !== null) used.facts.add(reference);
  }
  return used;
}

function operate(spelled: string, left: Json | undefined, right: unknown, evaluation: Evaluation): boolean {
  use(evaluation, 1);
  const { maybe, negated, ifAbsent, name } = readOperator(spelled);
  const isAbsent = left === undefined || left === null;
  if (name === 'some' || name === 'every') {
    if (isAbsent) return ifAbsent ?? maybe;
    if (!isList(left) || left.length > MAX_ELEMENTS || !isCondition(right)) return maybe;
    const truth = (item: Json): boolean => blockTruth(right, item, evaluation);
    return name === 'some' ? left.some(truth) : left.every(truth);
  }
  if (isAbsent && !seesAbsence(name)) return ifAbsent === null ? maybe : ifAbsent !== negated;
  const judges = judgesOf(evaluation, name);
  let judge = judges.get(right);
  if (judge === undefined) {
    use(evaluation, weightOf(right));
    judge = isJson(right) && rightSideFault(name, right) === null ? judgement(name, right) : null;
    judges.set(right, judge);
  }
  const truth =
    judge === null
      ? undefined
      : withPatternSteps(() => {
          const seen = judge(left);
          evaluation.patternSteps = patternStepsLeft();
          return seen;
        }, evaluation.patternSteps);
  return truth === undefined ? maybe : truth !== negated;
}

/** The engine has no elements: blocks over them are evaluated here, by the same operators. */
function blockTruth(condition: EngineCondition, item: Json, evaluation: Evaluation): boolean {
  if ('all' in condition) return condition.all.every((part) => blockTruth(part, item, evaluation));
  if ('any' in condition) return condition.any.some((part) => blockTruth(part, item, evaluation));
  const { symbols, input } = evaluation;
  const fact = symbols.facts.get(condition.fact);
  if (fact === undefined) throw new Error(`no such fact: ${condition.fact}`);
  return operate(
    condition.operator,
    readerOf(fact)(input, item),
    valueOf(condition.value, item, evaluation),
    evaluation,
  );
}

function valueOf(value: unknown, item: Json, { symbols, input }: Evaluation): unknown {
  const reference = referenceOf(value);
  if (reference === null) return value;
  const table = symbols.tables.get(reference);
  if (table !== undefined) return valueReader(table)(input);
  const fact = symbols.facts.get(reference);
  return fact === undefined ? undefined : readerOf(fact)(input, item);
}

function referenceOf(value: unknown): string | null {
  if (typeof value !== 'object' || value === null || !('fact' in value)) return null;
  return typeof value.fact === 'string' ? value.fact : null;
}

function isJson(value: unknown): value is Json {
  return value !== undefined;
}

function isCondition(value: unknown): value is EngineCondition {
  return typeof value === 'object' && value !== null && 'all' in value;
}
