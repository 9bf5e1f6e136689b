import type { Expression, RightSide, ValueTable } from './expression.ts';
import type { FactPath } from './fact-path.ts';
import { OPERATOR_NAMES, type OperatorName } from './operators.ts';

/**
 * A condition in the engine's rule format, in negation normal form: `not` occurs only in the names of operators. The
 * name also says how an unknown leaf counts, so that the engine, with two truth values, and our evaluation, with three,
 * agree:
 *
 * ```
 * [maybe:][not:][absent_true:|absent_false:]operator
 * ```
 */
export type EngineCondition =
  | { all: EngineCondition[] }
  | { any: EngineCondition[] }
  | { fact: string; operator: string; value: unknown };

/** The facts and tables that names in engine conditions refer to. {@link toEngineForm} fills it. */
export interface Symbols {
  readonly facts: Map<string, FactPath>;
  readonly tables: Map<string, ValueTable>;
}

export function noSymbols(): Symbols {
  return { facts: new Map(), tables: new Map() };
}

export interface DecoratedOperator {
  /** Unknown counts as true (restrictive rules). */
  readonly maybe: boolean;
  readonly negated: boolean;
  readonly ifAbsent: boolean | null;
  readonly name: OperatorName | 'some' | 'every';
}

/** Most leaves of one rule after its named conditions are written out. */
const MAX_LEAVES = 20_000;

/** Thrown where named conditions make a rule larger than the limit. */
export class RuleTooLarge extends Error {}

/**
 * Converts an expression to negation normal form.
 * @param unknownIs what an unknown leaf counts as: true for restrictive rules, false for allow
 * @param symbols filled with the facts and tables that the result names
 * @returns a group, because the engine needs one at the top
 * @throws RuleTooLarge
 */
export function toEngineForm(
  expression: Expression,
  unknownIs: boolean,
  symbols: Symbols,
): Extract<EngineCondition, { all: unknown }> {
  const pass: Pass = { symbols, leaves: 0 };
  return { all: [normalise(expression, { negated: false, maybe: unknownIs }, pass)] };
}

interface Pass {
  readonly symbols: Symbols;
  leaves: number;
}

interface Polarity {
  readonly negated: boolean;
  readonly maybe: boolean;
}

function normalise(expression: Expression, polarity: Polarity, pass: Pass): EngineCondition {
  switch (expression.kind) {
    case 'all':
    case 'any': {
      const of = expression.of.map((part) => normalise(part, polarity, pass));
      return (expression.kind === 'all') === polarity.negated ? { any: of } : { all: of };
    }
    case 'not':
      return normalise(expression.of, { ...polarity, negated: !polarity.negated }, pass);
    case 'leaf': {
      count(pass);
      const operator = spellOperator({ ...polarity, ifAbsent: expression.ifAbsent, name: expression.operator });
      return { fact: factName(expression.fact, pass), operator, value: engineValue(expression.right, pass) };
    }
    case 'some':
    case 'every': {
      count(pass);
      // The negation moves inside (not some = every not), and the truth on absence changes with it.
      const name = (expression.kind === 'some') === polarity.negated ? 'every' : 'some';
      const ifAbsent = expression.ifAbsent === null ? null : expression.ifAbsent !== polarity.negated;
      const operator = spellOperator({ maybe: polarity.maybe, negated: false, ifAbsent, name });
      // In a group, so that the engine does not mistake the block's `fact` for a reference.
      return {
        fact: factName(expression.fact, pass),
        operator,
        value: { all: [normalise(expression.of, polarity, pass)] },
      };
    }
  }
}

function count(pass: Pass): void {
  pass.leaves += 1;
  if (pass.leaves > MAX_LEAVES)
    throw new RuleTooLarge(`The rule has more than ${MAX_LEAVES} conditions with its named ones written out`);
}

function factName(fact: FactPath, pass: Pass): string {
  pass.symbols.facts.set(fact.text, fact);
  return fact.text;
}

function engineValue(right: RightSide, pass: Pass): unknown {
  switch (right.kind) {
    case 'literal':
      return right.value;
    case 'fact':
      return { fact: factName(right.fact, pass) };
    case 'value': {
      const name = `$${right.table.id}`;
      pass.symbols.tables.set(name, right.table);
      return { fact: name };
    }
  }
}

/** Whether the right side of `some` or `every` is a block, as it must be. */
export function isGroup(value: unknown): value is Extract<EngineCondition, { all: unknown }> {
  return typeof value === 'object' && value !== null && 'all' in value;
}

function spellOperator({ maybe, negated, ifAbsent, name }: DecoratedOperator): string {
  const absence = ifAbsent === null ? '' : `absent_${ifAbsent}:`;
  return `${maybe ? 'maybe:' : ''}${negated ? 'not:' : ''}${absence}${name}`;
}

/** Splits an operator's name. @throws Error on a name that {@link toEngineForm} does not make */
export function readOperator(spelled: string): DecoratedOperator {
  const found = /^(maybe:)?(not:)?(?:absent_(true|false):)?([A-Za-z_]+)$/.exec(spelled);
  const word = found?.[4];
  const name = word === 'some' || word === 'every' ? word : OPERATOR_NAMES.find((known) => known === word);
  if (found === null || name === undefined) throw new Error(`no operator: ${spelled}`);
  return {
    maybe: found[1] !== undefined,
    negated: found[2] !== undefined,
    ifAbsent: found[3] === undefined ? null : found[3] === 'true',
    name,
  };
}

/** The name of the fact or named value that a right side refers to; `null` for a literal. */
export function referenceOf(right: unknown): string | null {
  if (typeof right !== 'object' || right === null || !('fact' in right)) return null;
  return typeof right.fact === 'string' ? right.fact : null;
}
