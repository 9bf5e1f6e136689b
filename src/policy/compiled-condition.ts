import { Rule, type TopLevelCondition } from 'json-rules-engine';
import type { Json } from '../json/value.ts';
import type { ValueTable } from './expression.ts';
import { type EngineCondition, isGroup, readOperator, referenceOf, type Symbols } from './engine-form.ts';
import { type FactPath, isFixedPerTool, type ReadFact, readerOf } from './fact-path.ts';
import type { PolicyInput } from './input.ts';
import {
  isList,
  isScalar,
  isScalarList,
  judgement,
  judgementInSteps,
  MAX_ELEMENTS,
  type Judge,
  type OperatorName,
  rightSideFault,
  seesAbsence,
  type Truth,
  atOnce,
} from './operators.ts';

/** A condition in its final form: operators and readers of facts are looked up. */
export type Test =
  | { readonly kind: 'all' | 'any'; readonly of: readonly Test[]; readonly fixed: boolean }
  | {
      readonly kind: 'leaf';
      /** Path of the fact, for people. */
      readonly fact: string;
      /** Truth of the leaf where its fact is absent: unknown, or known. */
      readonly absent: 'unknown' | 'known';
      readonly judge: (input: PolicyInput, item: Json | undefined) => Truth;
      /** Set where the leaf holds for exactly these values of the fact, and is unknown for other types. */
      readonly equality: Equality | null;
      readonly fixed: boolean;
      /** The part of the input that the leaf reads; `null` where it compares two facts. */
      readonly reads: FactPath['root'] | null;
    }
  | {
      readonly kind: 'some' | 'every';
      readonly fact: string;
      readonly absent: 'unknown' | 'known';
      readonly read: ReadFact;
      readonly of: Test;
      readonly ifAbsent: boolean | null;
      readonly fixed: boolean;
    };

export interface Equality {
  readonly fact: FactPath;
  readonly read: ReadFact;
  readonly values: readonly (string | number | boolean)[];
}

/** Compiles a condition in the engine's form. The engine's own parser reads it. */
export function compileCondition(condition: Extract<EngineCondition, { all: unknown }>, symbols: Symbols): Test {
  const rule = new Rule({ conditions: condition, event: { type: 'matched' } });
  return compileParsed(rule.conditions, symbols);
}

/**
 * Like {@link compileCondition}, for a condition that the engine's parser has accepted before, perhaps in another
 * thread.
 */
export function compileChecked(condition: Extract<EngineCondition, { all: unknown }>, symbols: Symbols): Test {
  return compileParsed(condition, symbols);
}

function compileParsed(
  condition:
    | (TopLevelCondition | { readonly fact: string; readonly operator: string; readonly value?: unknown })
    | EngineCondition,
  symbols: Symbols,
): Test {
  if ('all' in condition)
    return compileGroup(
      'all',
      condition.all.map((part) => compileParsed(part, symbols)),
    );
  if ('any' in condition)
    return compileGroup(
      'any',
      condition.any.map((part) => compileParsed(part, symbols)),
    );
  if (!('fact' in condition)) throw new Error('a condition in normal form has only all, any and leaves');
  if (!isBlock(condition)) return compileLeaf(condition, symbols);
  if (!isGroup(condition.value)) throw new Error(`${condition.operator} without a block`);
  return compileBlock(condition, compileParsed(condition.value, symbols), symbols);
}

interface Leaf {
  readonly fact: string;
  readonly operator: string;
  readonly value?: unknown;
}

export function isBlock({ operator }: Pick<Leaf, 'operator'>): boolean {
  return /(^|:)(some|every)$/.test(operator);
}

/** Compiles a block over the elements of a list. `of` is the condition on one element. */
export function compileBlock({ fact, operator }: Omit<Leaf, 'value'>, of: Test, symbols: Symbols): Test {
  const { name, ifAbsent } = readOperator(operator);
  if (name !== 'some' && name !== 'every') throw new Error(`${name} has no block`);
  const path = factOf(fact, symbols);
  const absent = ifAbsent === null ? 'unknown' : 'known';
  const fixed = isFixedPerTool(path) && of.fixed;
  return { kind: name, fact: path.text, absent, read: readerOf(path), of, ifAbsent, fixed };
}

function compileLeaf(leaf: Leaf, symbols: Symbols): Test {
  return atOnce(compileLeafInSteps(leaf, symbols));
}

/** Compiles a leaf that is not a block, one pattern per step: there can be thousands. */
export function* compileLeafInSteps({ fact, operator, value: right }: Leaf, symbols: Symbols): Generator<void, Test> {
  const { name, negated, ifAbsent } = readOperator(operator);
  if (name === 'some' || name === 'every') throw new Error(`${name} without a block`);
  const path = factOf(fact, symbols);
  const read = readerOf(path);
  const { judge, fixed } = yield* judgeOfLeaf(name, read, right, { negated, ifAbsent }, symbols);
  const equality = ifAbsent === null ? equalityOf(path, name, negated, read, right) : null;
  return {
    kind: 'leaf',
    fact: path.text,
    absent: ifAbsent === null && !seesAbsence(name) ? 'unknown' : 'known',
    judge,
    equality: path.root === 'item' ? null : equality,
    fixed: fixed && isFixedPerTool(path),
    reads: fixed ? path.root : null,
  };
}

function factOf(name: string, { facts }: Symbols): FactPath {
  const path = facts.get(name);
  if (path === undefined) throw new Error(`no such fact: ${name}`);
  return path;
}

/** A group. Nested groups of the same kind are merged into it. */
export function compileGroup(kind: 'all' | 'any', parts: readonly Test[]): Test {
  const of = parts.flatMap((part) => (part.kind === kind ? part.of : [part]));
  const [only] = of;
  if (only !== undefined && of.length === 1) return only;
  return { kind, of, fixed: of.every((part) => part.fixed) };
}

function equalityOf(
  fact: FactPath,
  name: OperatorName,
  negated: boolean,
  read: ReadFact,
  right: unknown,
): Equality | null {
  if (!isJson(right)) return null;
  if ((negated ? name === 'notEqual' : name === 'equal') && isScalar(right)) return { fact, read, values: [right] };
  const isMembership = negated ? name === 'notIn' : name === 'in';
  return isMembership && isScalarList(right) && right.length > 0 ? { fact, read, values: right } : null;
}

/** Literals come from a file as JSON. The only other objects are references to facts, and they have `fact`. */
function isJson(right: unknown): right is Json {
  return referenceOf(right) === null;
}

/** Combines operator and reader into one function with three truth values. */
function* judgeOfLeaf(
  name: OperatorName,
  read: ReadFact,
  right: unknown,
  { negated, ifAbsent }: { readonly negated: boolean; readonly ifAbsent: boolean | null },
  symbols: Symbols,
): Generator<void, { readonly judge: (input: PolicyInput, item: Json | undefined) => Truth; readonly fixed: boolean }> {
  const absence: Truth = ifAbsent === null ? undefined : ifAbsent !== negated;
  const seesAll = seesAbsence(name);
  const judged = (value: Json | undefined, judge: Judge): Truth => {
    if (!seesAll && (value === undefined || value === null)) return absence;
    const truth = judge(value);
    return truth === undefined || !negated ? truth : !truth;
  };
  if (isJson(right)) {
    const judge = yield* judgementInSteps(name, right);
    // Most leaves take this path, which saves a function call.
    if (!negated && ifAbsent === null) return { judge: (input, item) => judge(read(input, item)), fixed: true };
    return { judge: (input, item) => judged(read(input, item), judge), fixed: true };
  }
  const reference = referenceOf(right) ?? '';
  const table = symbols.tables.get(reference);
  if (table !== undefined) {
    const judges = new Map<Json, Judge>();
    for (const value of [...table.of.values(), table.otherwise]) {
      judges.set(value, yield* judgementInSteps(name, value));
      yield;
    }
    const readValue = valueReader(table);
    const judge = (input: PolicyInput, item: Json | undefined): Truth => {
      const prepared = judges.get(readValue(input));
      return prepared === undefined ? undefined : judged(read(input, item), prepared);
    };
    return { judge, fixed: isFixedPerTool(table.by) };
  }
  const path = symbols.facts.get(reference);
  if (path === undefined) throw new Error(`no such fact: ${reference}`);
  const readRight = readerOf(path);
  const judge = (input: PolicyInput, item: Json | undefined): Truth => {
    const value = readRight(input, item);
    // The left side is checked first, because `if_absent` is about its absence.
    const left = read(input, item);
    if (left === undefined || left === null) return absence;
    if (value === undefined || value === null || rightSideFault(name, value) !== null) return undefined;
    return judged(left, judgement(name, value));
  };
  return { judge, fixed: isFixedPerTool(path) };
}

/** Reads a named value. If its fact is absent or not listed, the result is the value of `else`. */
export function valueReader(table: ValueTable): (input: PolicyInput) => Json {
  const read = readerOf(table.by);
  return (input) => {
    const fact = read(input, undefined);
    return (isScalar(fact) ? table.of.get(String(fact)) : undefined) ?? table.otherwise;
  };
}

/**
 * Whether a condition holds when every leaf that cannot be judged counts as `unknownIs`. `not` occurs only in the names
 * of operators. So in three-valued logic, `holds(…, true)` means "true or unknown" and `holds(…, false)` means "true".
 */
export function holds(test: Test, input: PolicyInput, item: Json | undefined, unknownIs: boolean): boolean {
  switch (test.kind) {
    case 'leaf':
      return test.judge(input, item) ?? unknownIs;
    case 'all':
      for (const part of test.of) if (!holds(part, input, item, unknownIs)) return false;
      return true;
    case 'any':
      for (const part of test.of) if (holds(part, input, item, unknownIs)) return true;
      return false;
    case 'some':
    case 'every':
      return holdsForElements(test, test.read(input, item), input, unknownIs);
  }
}

function holdsForElements(
  test: Extract<Test, { kind: 'some' | 'every' }>,
  value: Json | undefined,
  input: PolicyInput,
  unknownIs: boolean,
): boolean {
  if (value === undefined || value === null) return test.ifAbsent ?? unknownIs;
  if (!isList(value) || value.length > MAX_ELEMENTS) return unknownIs;
  const wanted = test.kind === 'some';
  for (const element of value) if (holds(test.of, input, element, unknownIs) === wanted) return wanted;
  return !wanted;
}

/** Facts that could not be judged, without repeats, in the order of the condition. */
export function unknownFacts(test: Test, input: PolicyInput): readonly string[] {
  const found = new Set<string>();
  collectUnknown(test, input, found);
  return [...found];
}

function collectUnknown(test: Test, input: PolicyInput, found: Set<string>): void {
  switch (test.kind) {
    case 'leaf':
      if (test.judge(input, undefined) === undefined) found.add(test.fact);
      return;
    case 'all':
    case 'any':
      for (const part of test.of) collectUnknown(part, input, found);
      return;
    case 'some':
    case 'every':
      if (holds(test, input, undefined, true) && !holds(test, input, undefined, false)) found.add(test.fact);
  }
}
