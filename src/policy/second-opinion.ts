import type { CompiledRule } from './compiled-rule.ts';
import { type Bounds, engineTruth, TooMuch } from './engine-truth.ts';
import type { PolicyInput } from './input.ts';
import { PATTERN_STEPS, patternStepsLeft, withPatternSteps } from './pattern-steps.ts';
import type { CompiledPolicies } from './policies.ts';
import { type EngineCondition, isGroup } from './engine-form.ts';
import type { Json } from '../json/value.ts';
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
