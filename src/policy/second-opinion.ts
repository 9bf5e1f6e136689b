import { Engine } from 'json-rules-engine';
import type { Json } from '../json/value.ts';
import { valueReader } from './compiled-condition.ts';
import type { CompiledRule } from './compiled-rule.ts';
import { type EngineCondition, isGroup, readOperator, type Symbols } from './engine-form.ts';
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
import { PATTERN_STEPS, patternStepsLeft, withPatternSteps } from './pattern-steps.ts';
import type { CompiledPolicies } from './policies.ts';
import { matchingRules } from './tool-index.ts';

/** A rule of which json-rules-engine says something else than what decided. */
export interface Difference {
  readonly rule: string;
  readonly tool: string;
  readonly policyVersion: string;
  /** Whether the rule matched the call, by what decides and by the engine. */
  readonly here: boolean;
  readonly engine: boolean;
}

/** Where a decision came from: each kind is sampled by itself, so that many calls do not displace simulations. */
export type DecisionKind = 'call' | 'simulation';

/** Most time that one sample takes of the processor, ms. Rules beyond it are compared in later samples. */
const SAMPLE_MS = 10;
/** Time after which other work has its turn, ms. */
const TURN_MS = 5;
/** Most leaves of one rule that are evaluated for one call. A rule with more is not compared. */
const MAX_LEAVES = 1_000;
/** Most characters and values of params that are compared: a pattern takes its time for each of them. */
const MAX_PARAMS = 16_384;

/**
 * Asks json-rules-engine's own `Engine` about a sample of decisions, after they were made and outside their path. On the
 * path of a call it is one comparison; one sample is compared at a time, and others that come meanwhile are left out.
 */
export class SecondOpinion {
  /** When the next decision of a kind is taken, by the time of the store. */
  readonly next: Record<DecisionKind, number> = { call: 0, simulation: 0 };
  #isBusy = false;
  /** Where in the rules the next sample goes on. */
  #at = 0;
  readonly #differs = new Map<string, Difference>();
  readonly #options;

  constructor(options: {
    /** Time between two samples of a kind, ms; `null`: none is taken. */
    readonly everyMs: () => number | null;
    readonly elapsed: () => number;
    /** Runs something once other work has had its turn. */
    readonly later: (run: () => void) => void;
    readonly found: (difference: Difference) => void;
    /** The engine itself failed. */
    readonly failed: (error: unknown) => void;
  }) {
    this.#options = options;
  }

  /** Takes the decision as a sample if one is due. */
  offer(kind: DecisionKind, policies: CompiledPolicies, input: PolicyInput): void {
    if (input.now >= this.next[kind]) this.#take(kind, policies, input);
  }

  /** The rules of a version that differed so far. */
  differences(policyVersion: string): readonly Difference[] {
    return [...this.#differs.values()].filter((difference) => difference.policyVersion === policyVersion);
  }

  #take(kind: DecisionKind, policies: CompiledPolicies, input: PolicyInput): void {
    const everyMs = this.#options.everyMs();
    this.next[kind] = input.now + (everyMs ?? 1_000);
    if (everyMs === null || this.#isBusy) return;
    this.#isBusy = true;
    this.#options.later(() => {
      void this.#compare(policies, input)
        .catch(this.#options.failed)
        .finally(() => {
          this.#isBusy = false;
        });
    });
  }

  async #compare(policies: CompiledPolicies, input: PolicyInput): Promise<void> {
    const { rules, version } = policies;
    const matched = matches(policies, input);
    if (matched === null || leftOf(MAX_PARAMS, input.params) < 0) return;
    const { elapsed, later } = this.#options;
    let spent = 0;
    let begun = elapsed();
    const pause = (): Promise<void> | null => {
      const took = elapsed() - begun;
      if (took < TURN_MS) return null;
      spent += took;
      return new Promise<void>((resolve) => later(resolve)).then(() => {
        begun = elapsed();
      });
    };
    for (const rule of this.#inTurn(rules, matched)) {
      const here = matched.has(rule.id);
      const engine = await opinion(rule, input, pause);
      // Facts of the company brain may have come meanwhile: what decides is asked once more before it is doubted.
      if (engine !== null && engine !== here && matches(policies, input)?.has(rule.id) === here)
        this.#note({ rule: rule.id, tool: input.tool.name, policyVersion: version, here, engine });
      const paused = pause();
      if (spent >= SAMPLE_MS) return;
      await paused;
    }
  }

  /** First the rules that matched, then the others, from where the sample before ended. */
  *#inTurn(rules: readonly CompiledRule[], matched: ReadonlySet<string>): Generator<CompiledRule> {
    for (const rule of rules) if (matched.has(rule.id)) yield rule;
    for (let count = 0; count < rules.length; count += 1) {
      this.#at = (this.#at + 1) % rules.length;
      const rule = rules[this.#at];
      if (rule !== undefined && !matched.has(rule.id)) yield rule;
    }
  }

  #note(difference: Difference): void {
    const known = this.#differs.get(difference.rule)?.policyVersion === difference.policyVersion;
    if (this.#differs.size >= 64 && !this.#differs.has(difference.rule)) this.#differs.clear();
    this.#differs.set(difference.rule, difference);
    if (!known) this.#options.found(difference);
  }
}

/** The rules that match by what decides; `null` where the bound on patterns would decide. */
function matches({ byTool }: CompiledPolicies, input: PolicyInput): ReadonlySet<string> | null {
  const index = byTool.get(input.tool.name);
  if (index === undefined) return new Set();
  return withPatternSteps(() => {
    const found = new Set(matchingRules(index, input).map(({ id }) => id));
    return patternStepsLeft() < 0 ? null : found;
  });
}

/** What the engine says of a rule; `null` where that is too much. */
async function opinion(rule: CompiledRule, input: PolicyInput, pause: Bounds['pause']): Promise<boolean | null> {
  if (input.now < rule.from || input.now >= rule.until) return false;
  const bounds = { leaves: MAX_LEAVES, patternSteps: PATTERN_STEPS, pause };
  try {
    if (sizeOf(rule.conditions) > MAX_LEAVES) return null;
    return await engineTruth(rule.conditions, rule.symbols, input, bounds);
  } catch (error) {
    if (error instanceof TooMuch) return null;
    throw error;
  }
}

/** How many leaves a condition has, with the values that they compare with. */
function sizeOf(condition: EngineCondition): number {
  if ('all' in condition) return condition.all.reduce((sum, part) => sum + sizeOf(part), 0);
  if ('any' in condition) return condition.any.reduce((sum, part) => sum + sizeOf(part), 0);
  if (isGroup(condition.value)) return 1 + sizeOf(condition.value);
  return Array.isArray(condition.value) ? condition.value.length : 1;
}

/** What is left of a number of characters and values after these; it stops counting below zero. */
function leftOf(most: number, value: Json): number {
  if (typeof value === 'string') return most - value.length;
  if (typeof value !== 'object' || value === null) return most - 1;
  let left = most - 1;
  for (const [name, part] of Object.entries(value)) {
    left = leftOf(left - name.length, part);
    if (left < 0) return left;
  }
  return left;
}

interface Bounds {
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
class TooMuch extends Error {}

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
  else if (isGroup(condition.value)) await compilePatterns(condition.value, evaluation, pause);
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
    if (!isList(left) || left.length > MAX_ELEMENTS || !isGroup(right)) return maybe;
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
