import { RE2JS } from 're2js';
import { canonicalJson } from '../../json/text.ts';
import { escapePointer, type Json, type JsonObject, isJsonObject } from '../../json/value.ts';
import type { RequestFault } from '../model/run-request.ts';
import { CHECK_LIMITS, type Effort, fieldFault, jsonEquals, readField, spend } from './state-fields.ts';

/** Operators that a condition may use instead of a plain value. Several on one field must all hold. */
const CONDITION_OPERATORS = ['$eq', '$ne', '$gt', '$gte', '$lt', '$lte', '$in', '$nin', '$exists', '$regex'] as const;

type Operator = (typeof CONDITION_OPERATORS)[number];

/**
 * Bounds on `$regex`. All but `subjectLength` are for one request in total. Matching takes time linear in the text, and
 * these bounds keep the factor small. `steps` is the sum, over all matches, of program size times text length.
 */
const REGEX_LIMITS = { perRequest: 16, programSize: 500, subjectLength: 4096, steps: 100_000 } as const;

/** The search for faults stops at this number. A request with more is refused in any case. */
const MOST_FAULTS = 100;

/** What the conditions of one request may still cost, and caches for it. */
interface ConditionJudge {
  readonly effort: Effort;
  regexSteps: number;
  readonly compiled: Map<string, RE2JS | string>;
  readonly canonical: Map<Json, string>;
}

export function newConditionJudge(effort: Effort): ConditionJudge {
  return { effort, regexSteps: REGEX_LIMITS.steps, compiled: new Map(), canonical: new Map() };
}

/**
 * The result of a condition on a state. `absent`: the field is missing (and the condition does not ask for that).
 * `undecidable`: the text is too long to match, or the condition itself is faulty.
 */
export type Standing = 'holds' | 'refuted' | 'absent' | 'undecidable';

/**
 * All faults of the conditions: too many, names that are too long, unknown operators, operators mixed with plain names,
 * operands of the wrong type, expressions that do not compile or are too large.
 * @param pointer JSON Pointer of the conditions within the body
 */
export function conditionFaults(conditions: JsonObject, pointer: string): readonly RequestFault[] {
  const entries = Object.entries(conditions);
  if (entries.length > CHECK_LIMITS.conditions)
    return [{ path: pointer, message: `at most ${CHECK_LIMITS.conditions} conditions in one request` }];
  const faults: RequestFault[] = [];
  const expressions: Expressions = { count: 0, size: 0 };
  for (const [field, condition] of entries) {
    if (faults.length >= MOST_FAULTS) break;
    const tooLong = fieldFault(field);
    if (tooLong !== null) faults.push({ path: `${pointer}/${escapePointer(field.slice(0, 100))}`, message: tooLong });
    else if (isOperators(condition))
      faults.push(...operatorFaults(condition, `${pointer}/${escapePointer(field)}`, expressions));
  }
  if (expressions.count > REGEX_LIMITS.perRequest)
    faults.push({ path: pointer, message: `at most ${REGEX_LIMITS.perRequest} $regex in one request` });
  return faults;
}

/** Required fields whose path has too many segments. The schema checks their lengths and their number. */
export function requiredFieldFaults(fields: readonly Json[], pointer: string): readonly RequestFault[] {
  const faults: RequestFault[] = [];
  for (const [index, field] of fields.slice(0, CHECK_LIMITS.fields).entries()) {
    if (typeof field !== 'string' || field.length > CHECK_LIMITS.field || faults.length >= MOST_FAULTS) continue;
    const message = fieldFault(field);
    if (message !== null) faults.push({ path: `${pointer}/${index}`, message });
  }
  return faults;
}

/** Expressions seen so far in one request. */
interface Expressions {
  count: number;
  size: number;
}

function operatorFaults(condition: JsonObject, pointer: string, expressions: Expressions): readonly RequestFault[] {
  const faults: RequestFault[] = [];
  for (const [name, operand] of Object.entries(condition)) {
    if (faults.length >= MOST_FAULTS) break;
    const shown = name.slice(0, 100);
    const path = `${pointer}/${escapePointer(shown)}`;
    if (!isOperator(name)) {
      faults.push({
        path,
        message: `unknown operator "${shown}"; there are ${CONDITION_OPERATORS.join(' ')} (compare with an object through $eq)`,
      });
      continue;
    }
    if (name === '$regex') {
      expressions.count += 1;
      // Compiling takes ms, so expressions beyond the limit are not compiled.
      if (expressions.count > REGEX_LIMITS.perRequest) continue;
    }
    const message = operandFault(name, operand, expressions);
    if (message !== null) faults.push({ path, message });
  }
  return faults;
}

/**
 * Judges one condition. An absent field makes every condition `absent`, except those that `$exists: false` decides. A
 * value of another type than the operator compares does not hold.
 * @throws EffortSpent
 */
export function judgeCondition(state: JsonObject, field: string, condition: Json, judge: ConditionJudge): Standing {
  const value = readField(state, field, judge.effort);
  if (!isOperators(condition)) {
    if (value === undefined) return 'absent';
    return jsonEquals(value, condition, judge.effort) ? 'holds' : 'refuted';
  }
  let result: Standing = 'holds';
  for (const [name, operand] of Object.entries(condition)) {
    const standing = isOperator(name) ? judgeOperator(name, operand, value, judge) : 'undecidable';
    if (standing === 'refuted') return 'refuted';
    if (standing === 'absent' || (standing === 'undecidable' && result === 'holds')) result = standing;
  }
  return result;
}

/**
 * An object with at least one name that begins with `$` holds operators. Every other value is compared for equality.
 */
function isOperators(condition: Json): condition is JsonObject {
  return isJsonObject(condition) && Object.keys(condition).some((name) => name.startsWith('$'));
}

function isOperator(name: string): name is Operator {
  return CONDITION_OPERATORS.some((operator) => operator === name);
}

function operandFault(operator: Operator, operand: Json, expressions: Expressions): string | null {
  switch (operator) {
    case '$eq':
    case '$ne':
      return null;
    case '$gt':
    case '$gte':
    case '$lt':
    case '$lte':
      return typeof operand === 'number' || typeof operand === 'string' ? null : 'must be a number or a string';
    case '$in':
    case '$nin':
      return Array.isArray(operand) ? null : 'must be an array';
    case '$exists':
      return typeof operand === 'boolean' ? null : 'must be true or false';
    case '$regex': {
      if (typeof operand !== 'string') return 'must be a string';
      const compiled = compile(operand);
      if (typeof compiled === 'string') return compiled;
      expressions.size += compiled.programSize();
      return expressions.size > REGEX_LIMITS.programSize
        ? `makes the expressions of this request too large together (${expressions.size} steps, at most ${REGEX_LIMITS.programSize})`
        : null;
    }
  }
}

function judgeOperator(operator: Operator, operand: Json, value: Json | undefined, judge: ConditionJudge): Standing {
  if (operator === '$exists') {
    if (typeof operand !== 'boolean') return 'undecidable';
    if (value === undefined) return operand ? 'absent' : 'holds';
    return operand ? 'holds' : 'refuted';
  }
  if (value === undefined) return 'absent';
  switch (operator) {
    case '$eq':
      return standing(jsonEquals(value, operand, judge.effort));
    case '$ne':
      return standing(!jsonEquals(value, operand, judge.effort));
    case '$gt':
    case '$gte':
    case '$lt':
    case '$lte':
      return judgeOrder(operator, operand, value);
    case '$in':
      return Array.isArray(operand) ? standing(contains(operand, value, judge)) : 'undecidable';
    case '$nin':
      return Array.isArray(operand) ? standing(!contains(operand, value, judge)) : 'undecidable';
    case '$regex':
      return judgeExpression(operand, value, judge);
  }
}

/** Numbers compare with numbers, strings with strings by code unit (so RFC 3339 times in one zone compare by time). */
function judgeOrder(operator: '$gt' | '$gte' | '$lt' | '$lte', operand: Json, value: Json): Standing {
  if (typeof operand === 'number') {
    return standing(typeof value === 'number' && inOrder(operator, Math.sign(value - operand)));
  }
  if (typeof operand === 'string') {
    if (typeof value !== 'string') return 'refuted';
    return standing(inOrder(operator, value < operand ? -1 : value > operand ? 1 : 0));
  }
  return 'undecidable';
}

function inOrder(operator: '$gt' | '$gte' | '$lt' | '$lte', sign: number): boolean {
  switch (operator) {
    case '$gt':
      return sign > 0;
    case '$gte':
      return sign >= 0;
    case '$lt':
      return sign < 0;
    case '$lte':
      return sign <= 0;
  }
}

/** The expression may match anywhere in the text; `^` and `$` anchor it. */
function judgeExpression(operand: Json, value: Json, judge: ConditionJudge): Standing {
  if (typeof operand !== 'string') return 'undecidable';
  const compiled = judge.compiled.get(operand) ?? compile(operand);
  judge.compiled.set(operand, compiled);
  if (typeof compiled === 'string') return 'undecidable';
  if (typeof value !== 'string') return 'refuted';
  if (value.length > REGEX_LIMITS.subjectLength) return 'undecidable';
  judge.regexSteps -= compiled.programSize() * value.length;
  if (judge.regexSteps < 0) return 'undecidable';
  return standing(compiled.test(value));
}

/** @returns the compiled expression, or what is wrong with it */
function compile(pattern: string): RE2JS | string {
  if (pattern.length > REGEX_LIMITS.programSize)
    return `must not be longer than ${REGEX_LIMITS.programSize} characters`;
  // Compiling a far too large program only to count its steps would take seconds.
  const size = expressionSize(pattern);
  if (size > 2 * REGEX_LIMITS.programSize)
    return `is too large an expression (about ${size} steps, at most ${REGEX_LIMITS.programSize})`;
  try {
    const compiled = RE2JS.compile(pattern);
    return compiled.programSize() > REGEX_LIMITS.programSize
      ? `is too large an expression (${compiled.programSize()} steps, at most ${REGEX_LIMITS.programSize})`
      : compiled;
  } catch (error) {
    return `is not a regular expression (RE2 syntax): ${error instanceof Error ? error.message : String(error)}`;
  }
}

function contains(list: readonly Json[], value: Json, judge: ConditionJudge): boolean {
  spend(judge.effort, list.length);
  if (typeof value !== 'object' || value === null) return list.includes(value);
  // Canonical texts are compared. A deep comparison with each item would take time with the product of both sizes.
  const canonical = canonicalOf(value, judge);
  return list.some((item) => typeof item === 'object' && item !== null && canonicalOf(item, judge) === canonical);
}

function canonicalOf(value: Json, judge: ConditionJudge): string {
  const known = judge.canonical.get(value);
  if (known !== undefined) return known;
  const made = canonicalJson(value);
  spend(judge.effort, made.length >> 2);
  judge.canonical.set(value, made);
  return made;
}

function standing(holds: boolean): Standing {
  return holds ? 'holds' : 'refuted';
}

/**
 * An open group while an expression is counted: the size of its complete parts, and of the last part, which may be
 * repeated.
 */
interface Level {
  complete: number;
  last: number;
}

/** The start of a group, with its name or flags. */
const GROUP = /\((?:\?(?:P?<[^>]*>|[A-Za-z-]*:?))?/y;
/** A counted repetition. */
const COUNTED = /\{(\d+)(,(\d*))?\}/y;
/** One unit to match: a class, an escape, any other character. */
const ONE = /\[\^?\]?(?:\[:\^?[a-z]+:\]|\\.|[^\]\\])*\]|\\[pPx]\{[^}]*\}|\\[pP]?.|./suy;

/**
 * Estimates how many steps an expression in RE2 syntax compiles to, from its text alone: the units to match, times the
 * counted repetitions around them. A short text can stand for a program that takes seconds to compile, so the size must
 * be checked first. For a text that is not an expression the number means nothing; compiling it reports the fault.
 */
export function expressionSize(pattern: string): number {
  const outer: Level[] = [];
  let level: Level = { complete: 0, last: 0 };
  const follow = (size: number): void => {
    level.complete += level.last;
    level.last = size;
  };
  let at = 0;
  const take = (token: RegExp): RegExpExecArray | null => {
    token.lastIndex = at;
    const found = token.exec(pattern);
    if (found !== null) at = token.lastIndex;
    return found;
  };
  while (at < pattern.length) {
    const counted = take(COUNTED);
    if (counted !== null) {
      const [, least, range, most] = counted;
      level.last *= range === undefined ? Number(least) : Math.max(Number(least), Number(most), 1);
    } else if (take(GROUP) !== null) {
      outer.push(level);
      level = { complete: 0, last: 0 };
    } else if (pattern[at] === ')') {
      const size = level.complete + level.last;
      level = outer.pop() ?? { complete: 0, last: 0 };
      follow(size);
      at += 1;
    } else if ('*+?|'.includes(pattern[at] ?? '')) {
      at += 1;
    } else {
      take(ONE);
      follow(1);
    }
  }
  return outer.reduce((sum, { complete, last }) => sum + complete + last, level.complete + level.last);
}
