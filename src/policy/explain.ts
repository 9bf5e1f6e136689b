import { type Json, isJsonArray, isJsonObject } from '../json/value.ts';
import type { Tool } from '../effects/model/tool.ts';
import { holds, type Test } from './compiled-condition.ts';
import type { CompiledRule } from './compiled-rule.ts';
import { type EngineCondition, readOperator, referenceOf } from './engine-form.ts';
import { isPathFault, parseFactPath, readerOf } from './fact-path.ts';
import type { PolicyInput } from './input.ts';
import { withPatternSteps } from './pattern-steps.ts';
import { inputOfTool } from './tool-index.ts';

/** Most conditions that are shown of one rule, and most characters of a value. */
const MOST_CONDITIONS = 40;
const MOST_SHOWN = 200;
const REDACTED = '(redacted)';

/** A condition of a rule, and how it is judged for one call. */
export interface ExplainedCondition {
  readonly fact: string;
  /** As in the rule, with `not ` before it where it is negated. */
  readonly operator: string;
  /** What the fact is compared with; another fact as `{fact}`. */
  readonly expected: Json;
  /** The fact in this call, cut where it is long; `null` where it is absent. */
  readonly value: Json;
  readonly holds: 'yes' | 'no' | 'unknown';
}

/** A rule, and why it matches a call or does not. */
export interface ExplainedRule {
  readonly matches: boolean;
  /** One change would make it match: exactly one of the parts that all have to hold does not. */
  readonly nearMiss: boolean;
  /** Outside of its `from` and `until`. */
  readonly inForce: boolean;
  readonly conditions: readonly ExplainedCondition[];
}

/** Which rules can apply to a tool: those whose conditions on the tool itself can hold. */
export function ruleFilter(tool: Tool): (rule: CompiledRule) => boolean {
  const input = inputOfTool(tool);
  return (rule) => holds(rule.perTool, input, undefined, rule.unknownIs);
}

/** Whose values are not shown: some params, with what rules compare them with; or all that the call itself says. */
export interface Masked {
  readonly params: ReadonlySet<string>;
  readonly call: boolean;
}

/** Judges one rule for a call, condition by condition. What is masked is judged all the same. */
export function explainRule(rule: CompiledRule, input: PolicyInput, masked: Masked): ExplainedRule {
  return withPatternSteps(() => explainWithin(rule, input, masked));
}

function explainWithin(rule: CompiledRule, input: PolicyInput, masked: Masked): ExplainedRule {
  const inForce = input.now >= rule.from && input.now < rule.until;
  const parts = [...partsOf(rule.perTool), ...partsOf(rule.perCall)];
  const missing = parts.filter((part) => !holds(part, input, undefined, rule.unknownIs)).length;
  const tests = byFact([rule.perTool, rule.perCall]);
  const conditions = leavesOf(rule.conditions)
    .slice(0, MOST_CONDITIONS)
    .map(({ fact, operator, value }): ExplainedCondition => {
      const { negated, name } = readOperator(operator);
      const test = tests.get(fact)?.shift();
      const expected = expectedOf(value);
      return {
        fact,
        operator: negated ? `not ${name}` : name,
        expected: isRedacted(fact, masked.params) && !isJsonObject(expected) ? REDACTED : expected,
        value: (masked.call && isOfCall(fact)) || isRedacted(fact, masked.params) ? REDACTED : valueOf(fact, input),
        holds: test === undefined ? 'unknown' : truthOf(test, input),
      };
    });
  return { matches: inForce && missing === 0, nearMiss: inForce && missing === 1, inForce, conditions };
}

function partsOf(test: Test): readonly Test[] {
  return test.kind === 'all' ? test.of : [test];
}

function truthOf(test: Test, input: PolicyInput): ExplainedCondition['holds'] {
  if (holds(test, input, undefined, false)) return 'yes';
  return holds(test, input, undefined, true) ? 'unknown' : 'no';
}

/** The tests on each fact, in the order of the condition. */
function byFact(tests: readonly Test[]): Map<string, Test[]> {
  const found = new Map<string, Test[]>();
  const add = (test: Test): void => {
    switch (test.kind) {
      case 'all':
      case 'any':
        for (const part of test.of) add(part);
        return;
      case 'leaf':
      case 'some':
      case 'every':
        found.set(test.fact, [...(found.get(test.fact) ?? []), test]);
    }
  };
  for (const test of tests) add(test);
  return found;
}

function leavesOf(condition: EngineCondition): readonly Extract<EngineCondition, { fact: string }>[] {
  const found: Extract<EngineCondition, { fact: string }>[] = [];
  const add = (part: EngineCondition): void => {
    if (found.length > MOST_CONDITIONS) return;
    if ('all' in part) for (const one of part.all) add(one);
    else if ('any' in part) for (const one of part.any) add(one);
    else found.push(part);
  };
  add(condition);
  return found;
}

/** Params, headers that repeat them, and elements of params are masked by the name of the param. */
function isRedacted(fact: string, redacted: ReadonlySet<string>): boolean {
  const path = parseFactPath(fact, 'block', null);
  if (isPathFault(path)) return false;
  // The target may be made of any param.
  if (path.root === 'target') return redacted.size > 0;
  return path.root === 'params' && redacted.has(String(path.steps[0]));
}

/** Whether the caller wrote it: params, target, headers. */
function isOfCall(fact: string): boolean {
  return /^(?:params|target|request)\b/.test(fact);
}

function valueOf(fact: string, input: PolicyInput): Json {
  // Of the company brain no value is shown: it is business data, and the ledger says which version was seen.
  const path = parseFactPath(fact, 'rule', null);
  if (isPathFault(path)) return null;
  return short(readerOf(path)(input, undefined) ?? null);
}

function expectedOf(value: unknown): Json {
  const reference = referenceOf(value);
  if (reference !== null) return { fact: reference };
  return isJson(value) ? short(value) : '(a block of conditions on each element)';
}

/** Literals come from files as JSON; the only other values are blocks. */
function isJson(value: unknown): value is Json {
  return typeof value !== 'object' || value === null || Array.isArray(value);
}

function short(value: Json): Json {
  if (typeof value === 'string') return value.length <= MOST_SHOWN ? value : `${value.slice(0, MOST_SHOWN)}…`;
  if (isJsonArray(value)) {
    const few = value.slice(0, 10).map((item) => (isJsonArray(item) || isJsonObject(item) ? '…' : short(item)));
    return value.length > few.length ? [...few, `… (${value.length - few.length} more)`] : few;
  }
  return isJsonObject(value)
    ? `(an object with ${Object.keys(value).slice(0, 10).join(', ')})`.slice(0, MOST_SHOWN)
    : value;
}
