import type { Json } from '../json/value.ts';
import { jsonEquals } from '../effects/checks/state-fields.ts';
import { type AddressKind, type CompiledAddresses, compileAddresses } from './addresses.ts';
import { compilePattern, MAX_SUBJECT, type PatternKind } from './glob.ts';
import { takePatternSteps } from './pattern-steps.ts';

/** `undefined` is the third truth value of Kleene logic: it could not be judged. */
export type Truth = boolean | undefined;

/** Judges the value of a fact. Absent and null are unknown, except for `exists` and `type`. */
export type Judge = (left: Json | undefined) => Truth;

/** Canonical names. Where the engine has the operator, it is the engine's name. */
export const OPERATOR_NAMES = [
  'equal',
  'notEqual',
  'in',
  'notIn',
  'greaterThan',
  'greaterThanInclusive',
  'lessThan',
  'lessThanInclusive',
  'deepEqual',
  'starts_with',
  'ends_with',
  'substring',
  'glob',
  'regex',
  'regex_find',
  'email_in',
  'domain_in',
  'contains',
  'contains_all',
  'exists',
  'type',
] as const;

export type OperatorName = (typeof OPERATOR_NAMES)[number];

/** Short names, as maps of conditions write them. */
export const SHORT_NAMES: ReadonlyMap<string, OperatorName> = new Map([
  ['eq', 'equal'],
  ['ne', 'notEqual'],
  ['in', 'in'],
  ['nin', 'notIn'],
  ['gt', 'greaterThan'],
  ['gte', 'greaterThanInclusive'],
  ['lt', 'lessThan'],
  ['lte', 'lessThanInclusive'],
  ['equals', 'deepEqual'],
  ['starts_with', 'starts_with'],
  ['ends_with', 'ends_with'],
  ['substring', 'substring'],
  ['glob', 'glob'],
  ['regex', 'regex'],
  ['regex_find', 'regex_find'],
  ['email_in', 'email_in'],
  ['domain_in', 'domain_in'],
  ['contains', 'contains'],
  ['contains_all', 'contains_all'],
  ['exists', 'exists'],
  ['type', 'type'],
]);

/** Operators of the format that this version does not support yet. */
export const LATER_OPERATORS = [
  'before',
  'after',
  'older_than',
  'newer_than',
  'cidr_in',
  'url_in',
  'path_in',
  'during',
  'outside',
  'as',
];

/** The names that `type` accepts. */
const TYPE_NAMES = ['string', 'number', 'integer', 'boolean', 'array', 'object', 'null'];

/** Longer lists in facts are unknown. */
export const MAX_ELEMENTS = 10_000;

export type Scalar = string | number | boolean;

/** Whether the operator has an answer for a value that is absent or null. */
export function seesAbsence(name: OperatorName): boolean {
  return name === 'exists' || name === 'type';
}

const LITERAL_ONLY: readonly OperatorName[] = [
  'glob',
  'regex',
  'regex_find',
  'email_in',
  'domain_in',
  'exists',
  'type',
];

/** Whether the right side consists of patterns, which are slow to compile. */
export function hasPatterns(name: OperatorName | 'some' | 'every'): name is PatternKind | AddressKind {
  return ['glob', 'regex', 'regex_find', 'email_in', 'domain_in'].includes(name);
}

/** Whether the right side may be a fact. Patterns, type names and the value of `exists` must be literals. */
export function takesFact(name: OperatorName): boolean {
  return !LITERAL_ONLY.includes(name);
}

/**
 * What is wrong with a right side; `null` where it fits. A literal that does not fit is an error at load. The value of
 * a fact that does not fit makes the leaf unknown.
 */
export function rightSideFault(name: OperatorName, right: Json): string | null {
  switch (name) {
    case 'equal':
    case 'notEqual':
      return isScalar(right) ? null : 'needs a string, a number or true/false';
    case 'in':
    case 'notIn':
    case 'contains_all':
      return isScalarList(right) ? null : 'needs a list of strings, of numbers or of true/false, all of one type';
    case 'greaterThan':
    case 'greaterThanInclusive':
    case 'lessThan':
    case 'lessThanInclusive':
      return isFiniteNumber(right) ? null : 'needs a number';
    case 'deepEqual':
      return right === null ? 'cannot be null; write exists: false' : null;
    case 'starts_with':
    case 'ends_with':
    case 'substring':
      return isTexts(right) ? null : 'needs a string or a list of strings, none of them empty';
    case 'glob':
    case 'regex':
    case 'regex_find':
      return isTexts(right) ? patternFault(name, textsOf(right)) : 'needs a pattern or a list of patterns';
    case 'email_in':
    case 'domain_in':
      return isTexts(right) ? addressFault(name, right) : 'needs a pattern or a list of patterns';
    case 'contains':
      return isScalar(right) ? null : 'needs a string, a number or true/false';
    case 'exists':
      return typeof right === 'boolean' ? null : 'needs true or false';
    case 'type':
      return isTexts(right) && textsOf(right).every((text) => TYPE_NAMES.includes(text))
        ? null
        : `needs one or more of ${TYPE_NAMES.join(', ')}`;
  }
}

/** The only type that an operator judges with this right side; all others are unknown. `null`: it judges any type. */
export function judgedType(name: OperatorName, right: Json): string | null {
  switch (name) {
    case 'equal':
    case 'notEqual':
    case 'deepEqual':
      return typeName(right);
    case 'in':
    case 'notIn': {
      const [first] = isList(right) ? right : [];
      return first === undefined ? null : typeName(first);
    }
    case 'greaterThan':
    case 'greaterThanInclusive':
    case 'lessThan':
    case 'lessThanInclusive':
      return 'number';
    case 'starts_with':
    case 'ends_with':
    case 'substring':
    case 'glob':
    case 'regex':
    case 'regex_find':
    case 'email_in':
    case 'domain_in':
      return 'string';
    case 'contains':
    case 'contains_all':
      return 'array';
    case 'exists':
    case 'type':
      return null;
  }
}

function patternFault(kind: PatternKind, patterns: readonly string[]): string | null {
  for (const pattern of patterns) {
    const compiled = compilePattern(kind, pattern);
    if (!compiled.ok) return `has a pattern that cannot be used: ${compiled.message}`;
  }
  return null;
}

function addressFault(kind: AddressKind, right: Json): string | null {
  const compiled = atOnce(addressTable(kind, right));
  return compiled.ok ? null : `has a pattern that cannot be used: ${compiled.message}`;
}

/**
 * Makes the judgement for an operator and a right side that fits (see {@link rightSideFault}). Nothing is coerced. A
 * value of another type than the right side needs is unknown, also for the negative operators.
 */
export function judgement(name: OperatorName, right: Json): Judge {
  const bound = typeof right === 'number' ? right : Number.NaN;
  switch (name) {
    case 'equal':
      return (left) => {
        if (left === right) return true;
        return typeof left === typeof right && isScalar(left) ? false : undefined;
      };
    case 'notEqual':
      return (left) => (isScalar(left) && typeof left === typeof right ? left !== right : undefined);
    case 'in':
      return membership(right, true);
    case 'notIn':
      return membership(right, false);
    case 'greaterThan':
      return (left) => (isFiniteNumber(left) ? left > bound : undefined);
    case 'greaterThanInclusive':
      return (left) => (isFiniteNumber(left) ? left >= bound : undefined);
    case 'lessThan':
      return (left) => (isFiniteNumber(left) ? left < bound : undefined);
    case 'lessThanInclusive':
      return (left) => (isFiniteNumber(left) ? left <= bound : undefined);
    case 'deepEqual':
      return (left) => (left !== undefined && typeName(left) === typeName(right) ? jsonEquals(left, right) : undefined);
    case 'starts_with':
      return someText(right, (text, part) => text.startsWith(part));
    case 'ends_with':
      return someText(right, (text, part) => text.endsWith(part));
    case 'substring':
      return someText(right, (text, part) => text.includes(part));
    case 'glob':
    case 'regex':
    case 'regex_find':
      return atOnce(patterns(name, textsOf(right)));
    case 'email_in':
    case 'domain_in':
      return atOnce(addresses(name, right));
    case 'contains':
      return (left) => (isList(left) ? hasElement(left, right) : undefined);
    case 'contains_all': {
      const wanted = isList(right) ? right : [];
      return (left) => (isList(left) ? all(wanted, (value) => hasElement(left, value)) : undefined);
    }
    case 'exists':
      return (left) => (left !== undefined && left !== null) === right;
    case 'type': {
      const names = new Set(textsOf(right));
      return (left) =>
        left !== undefined && (names.has(typeName(left)) || (Number.isInteger(left) && names.has('integer')));
    }
  }
}

/** Like {@link judgement}, but compiles a list of patterns one pattern per step, because that is slow. */
export function* judgementInSteps(name: OperatorName, right: Json): Generator<void, Judge> {
  if (!hasPatterns(name)) return judgement(name, right);
  if (name === 'email_in' || name === 'domain_in') return yield* addresses(name, right);
  return yield* patterns(name, textsOf(right));
}

/** Kleene's conjunction over a list. */
function all(values: readonly Json[], judge: (value: Json) => Truth): Truth {
  let result: Truth = true;
  for (const value of values) {
    const truth = judge(value);
    if (truth === false) return false;
    if (truth === undefined) result = undefined;
  }
  return result;
}

/**
 * Strict membership, like `some` element `eq`. An element of another type may be meant as equal, so it makes the answer
 * unknown.
 */
function hasElement(list: readonly Json[], wanted: Json): Truth {
  if (list.length > MAX_ELEMENTS) return undefined;
  let result: Truth = false;
  for (const element of list) {
    if (element === wanted) return true;
    if (typeof element !== typeof wanted || element === null) result = undefined;
  }
  return result;
}

/** Sets made of literal lists. Rules that name the same list share one. */
const sets = new WeakMap<readonly Json[], ReadonlySet<Json>>();

/** Stores the members of a list that were collected before its first use. */
export function rememberMembers(list: readonly Json[], members: ReadonlySet<Json>): void {
  sets.set(list, members);
}

function setOf(list: readonly Json[]): ReadonlySet<Json> {
  const known = sets.get(list);
  if (known !== undefined) return known;
  const made = new Set(list);
  sets.set(list, made);
  return made;
}

function membership(right: Json, whenMember: boolean): Judge {
  const list = isList(right) ? right : [];
  const members = setOf(list);
  const type = typeof list[0];
  // An empty list has no type, so it is certain that no scalar is in it.
  return (left) =>
    isScalar(left) && (typeof left === type || list.length === 0) ? members.has(left) === whenMember : undefined;
}

function someText(right: Json, test: (text: string, part: string) => boolean): Judge {
  const parts = textsOf(right);
  const [only, ...others] = parts;
  if (only !== undefined && others.length === 0)
    return (left) => (typeof left === 'string' ? test(left, only) : undefined);
  return (left) => (typeof left === 'string' ? parts.some((part) => test(left, part)) : undefined);
}

function* patterns(kind: PatternKind, texts: readonly string[]): Generator<void, Judge> {
  const tests: ((text: string) => boolean)[] = [];
  let size = 0;
  for (const text of texts) {
    const compiled = compilePattern(kind, text);
    if (!compiled.ok) throw new Error(`pattern compiled at load and not now: ${text}`);
    tests.push(compiled.test);
    size += compiled.size;
    yield;
  }
  return (left) =>
    typeof left === 'string' && left.length <= MAX_SUBJECT && takePatternSteps(size * left.length)
      ? tests.some((test) => test(left))
      : undefined;
}

/** Tables made of literal lists. Rules that name the same list share one. */
const addressTables: Readonly<Record<AddressKind, WeakMap<readonly Json[], CompiledAddresses>>> = {
  email_in: new WeakMap(),
  domain_in: new WeakMap(),
};

function* addressTable(kind: AddressKind, right: Json): Generator<void, CompiledAddresses> {
  const known = isList(right) ? addressTables[kind].get(right) : undefined;
  if (known !== undefined) return known;
  const compiled = yield* compileAddresses(kind, textsOf(right));
  if (isList(right)) addressTables[kind].set(right, compiled);
  return compiled;
}

function* addresses(kind: AddressKind, right: Json): Generator<void, Judge> {
  const compiled = yield* addressTable(kind, right);
  if (!compiled.ok) throw new Error(`patterns compiled at load and not now: ${compiled.message}`);
  return (left) => (typeof left === 'string' ? compiled.test(left) : undefined);
}

function textsOf(right: Json): readonly string[] {
  if (typeof right === 'string') return [right];
  return isList(right) ? right.filter((text) => typeof text === 'string') : [];
}

function isTexts(right: Json): boolean {
  if (typeof right === 'string') return right !== '';
  return isList(right) && right.length > 0 && right.every((text) => typeof text === 'string' && text !== '');
}

export function isScalarList(value: Json | undefined): value is readonly Scalar[] {
  if (!isList(value)) return false;
  const type = typeof value[0];
  return value.every((element) => isScalar(element) && typeof element === type);
}

/** Whether a value is a string, a finite number or a boolean. */
export function isScalar(value: Json | undefined): value is Scalar {
  return typeof value === 'string' || typeof value === 'boolean' || isFiniteNumber(value);
}

function isFiniteNumber(value: Json | undefined): value is number {
  return typeof value === 'number' && Number.isFinite(value);
}

/** Whether a value is a list. `Array.isArray` does not narrow readonly arrays. */
export function isList(value: Json | undefined): value is readonly Json[] {
  return Array.isArray(value);
}

function typeName(value: Json): string {
  if (value === null) return 'null';
  return isList(value) ? 'array' : typeof value;
}

/** Runs a generator to its end without a break. */
export function atOnce<Value>(work: Generator<void, Value>): Value {
  for (;;) {
    const step = work.next();
    if (step.done === true) return step.value;
  }
}
