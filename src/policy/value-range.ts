import type { ValueTable } from './expression.ts';
import { type EngineCondition, readOperator, referenceOf, type Symbols } from './engine-form.ts';
import type { OperatorName, Scalar } from './operators.ts';

interface End {
  readonly at: number;
  readonly open: boolean;
}

/** An end that is not known before the call, such as a named value or another fact. */
interface NamedEnd {
  readonly name: string;
  readonly open: boolean;
}

/** Values of a fact. Where they are known only in part, the set is larger than the true one, never smaller. */
type Values =
  | { readonly kind: 'any' }
  | { readonly kind: 'these'; readonly values: readonly Scalar[] }
  | { readonly kind: 'others'; readonly values: readonly Scalar[] }
  | {
      readonly kind: 'numbers';
      readonly low: End;
      readonly high: End;
      readonly lows: readonly NamedEnd[];
      readonly highs: readonly NamedEnd[];
    };

/** What is known about one fact when a condition holds. */
interface Held {
  readonly values: Values;
  /** Whether it can also be absent. */
  readonly absent: boolean;
}

/** What is known about facts, by their paths, when a condition without `any` holds. */
export type HeldFacts = ReadonlyMap<string, Held>;

/** Most ways to hold that are examined for one condition. With more, nothing is assumed about it. */
const MOST_WAYS = 64;

const EVERYTHING: Values = { kind: 'any' };
const NOTHING: Values = { kind: 'these', values: [] };

/** The ways in which a condition can hold. Whenever it is true, at least one of them applies. */
export function waysToHold(condition: EngineCondition, symbols: Symbols): readonly HeldFacts[] {
  const ways = waysOf(condition, symbols);
  return ways.length > MOST_WAYS ? [new Map()] : ways;
}

function waysOf(condition: EngineCondition, symbols: Symbols): readonly HeldFacts[] {
  if ('any' in condition) return condition.any.flatMap((part) => waysToHold(part, symbols));
  if (!('all' in condition)) return [new Map([[condition.fact, heldByLeaf(condition, symbols)]])];
  let ways: readonly HeldFacts[] = [new Map()];
  for (const part of condition.all) {
    const more = waysToHold(part, symbols);
    // Leaving a part out makes the set of calls larger, which is safe.
    if (ways.length * more.length > MOST_WAYS) continue;
    ways = ways.flatMap((way) => more.map((other) => bothHold(way, other)));
  }
  return ways;
}

/** Whether no call can be in both. */
export function areApart(some: HeldFacts, others: HeldFacts): boolean {
  for (const [fact, held] of some) {
    const other = others.get(fact);
    if (other !== undefined && isNothing(common(held, other))) return true;
  }
  return false;
}

/**
 * A fact whose conditions contradict each other in every way in which a condition could hold; `null` where there is none.
 * What is asked of a fact's presence or type alone is left out: a fact that cannot be judged may satisfy it.
 */
export function contradictoryFact(condition: EngineCondition, symbols: Symbols): string | null {
  const facts = waysToHold(ofValues(condition), symbols).map((way) => {
    for (const [fact, held] of way) if (isNothing(held) && !asksForNothing(condition, fact)) return fact;
    return null;
  });
  return facts.every((fact) => fact !== null) ? (facts[0] ?? null) : null;
}

function ofValues(condition: EngineCondition): EngineCondition {
  if ('all' in condition) return { all: condition.all.map(ofValues) };
  if ('any' in condition) return { any: condition.any.map(ofValues) };
  const { name } = readOperator(condition.operator);
  return name === 'exists' || name === 'type' ? { all: [] } : condition;
}

/** Whether an empty list is compared with: the name that it came from is warned of already. */
function asksForNothing(condition: EngineCondition, fact: string): boolean {
  if ('all' in condition) return condition.all.some((part) => asksForNothing(part, fact));
  if ('any' in condition) return condition.any.some((part) => asksForNothing(part, fact));
  return condition.fact === fact && Array.isArray(condition.value) && condition.value.length === 0;
}

function bothHold(some: HeldFacts, others: HeldFacts): HeldFacts {
  const both = new Map(some);
  for (const [fact, held] of others) {
    const known = both.get(fact);
    both.set(fact, known === undefined ? held : common(known, held));
  }
  return both;
}

function common(a: Held, b: Held): Held {
  return { values: commonValues(a.values, b.values), absent: a.absent && b.absent };
}

function commonValues(a: Values, b: Values): Values {
  if (a.kind === 'any') return b;
  if (b.kind === 'any') return a;
  if (a.kind === 'these') return { kind: 'these', values: a.values.filter((value) => isOf(value, b)) };
  if (b.kind === 'these') return commonValues(b, a);
  if (a.kind === 'others') return b.kind === 'others' ? { kind: 'others', values: [...a.values, ...b.values] } : b;
  if (b.kind === 'others') return a;
  return {
    kind: 'numbers',
    low: a.low.at > b.low.at || (a.low.at === b.low.at && a.low.open) ? a.low : b.low,
    high: a.high.at < b.high.at || (a.high.at === b.high.at && a.high.open) ? a.high : b.high,
    lows: [...a.lows, ...b.lows],
    highs: [...a.highs, ...b.highs],
  };
}

function isOf(value: Scalar, values: Values): boolean {
  switch (values.kind) {
    case 'any':
      return true;
    case 'these':
      return values.values.includes(value);
    case 'others':
      return !values.values.includes(value);
    case 'numbers': {
      const { low, high } = values;
      if (typeof value !== 'number') return false;
      return (low.open ? value > low.at : value >= low.at) && (high.open ? value < high.at : value <= high.at);
    }
  }
}

function isNothing({ values, absent }: Held): boolean {
  if (absent || values.kind === 'any' || values.kind === 'others') return false;
  if (values.kind === 'these') return values.values.length === 0;
  const { low, high, lows, highs } = values;
  if (low.at > high.at || (low.at === high.at && (low.open || high.open))) return true;
  return lows.some((end) => highs.some((other) => end.name === other.name && (end.open || other.open)));
}

function heldByLeaf(leaf: { fact: string; operator: string; value: unknown }, { tables }: Symbols): Held {
  const { name, negated, ifAbsent } = readOperator(leaf.operator);
  if (name === 'exists') return (leaf.value === true) === negated ? { values: NOTHING, absent: true } : present();
  const absent = (ifAbsent !== null && ifAbsent !== negated) || (name === 'type' && negated);
  const values = name === 'some' || name === 'every' ? EVERYTHING : valuesOf(name, negated, leaf.value, tables);
  return { values, absent };
}

function present(): Held {
  return { values: EVERYTHING, absent: false };
}

/** What an operator compares with. `open`: the end of the range is excluded. */
interface Comparison {
  readonly kind: 'these' | 'others' | 'above' | 'below';
  readonly open: boolean;
}

/** The operators that can show two sets of values to be apart. */
const COMPARISONS: Readonly<Partial<Record<OperatorName, Comparison>>> = {
  equal: { kind: 'these', open: false },
  in: { kind: 'these', open: false },
  notEqual: { kind: 'others', open: false },
  notIn: { kind: 'others', open: false },
  greaterThan: { kind: 'above', open: true },
  greaterThanInclusive: { kind: 'above', open: false },
  lessThan: { kind: 'below', open: true },
  lessThanInclusive: { kind: 'below', open: false },
};

const OPPOSITES = { these: 'others', others: 'these', above: 'below', below: 'above' } as const;

function valuesOf(
  name: OperatorName,
  negated: boolean,
  right: unknown,
  tables: ReadonlyMap<string, ValueTable>,
): Values {
  const asked = COMPARISONS[name];
  if (asked === undefined) return EVERYTHING;
  // A value that the operator cannot judge satisfies neither the comparison nor its opposite.
  const { kind, open } = negated ? { kind: OPPOSITES[asked.kind], open: !asked.open } : asked;
  const reference = referenceOf(right);
  const table = reference === null ? undefined : tables.get(reference);
  const rights: readonly unknown[] =
    reference === null ? [right] : table === undefined ? [] : [...table.of.values(), table.otherwise];
  const named: readonly NamedEnd[] = reference === null ? [] : [{ name: reference, open }];
  switch (kind) {
    case 'these': {
      const values = scalarsOf(rights);
      return values === null ? EVERYTHING : { kind, values };
    }
    case 'others': {
      const values = reference === null ? scalarsOf([right]) : null;
      return values === null ? EVERYTHING : { kind, values };
    }
    case 'above': {
      const low = { at: Math.min(...numbers(rights, Number.NEGATIVE_INFINITY)), open };
      return { kind: 'numbers', low, high: NO_HIGH, lows: named, highs: [] };
    }
    case 'below': {
      const high = { at: Math.max(...numbers(rights, Number.POSITIVE_INFINITY)), open };
      return { kind: 'numbers', low: NO_LOW, high, lows: [], highs: named };
    }
  }
}

const NO_LOW: End = { at: Number.NEGATIVE_INFINITY, open: false };
const NO_HIGH: End = { at: Number.POSITIVE_INFINITY, open: false };

function numbers(rights: readonly unknown[], otherwise: number): readonly number[] {
  return rights.length === 0 ? [otherwise] : rights.map((one) => (typeof one === 'number' ? one : otherwise));
}

/** Scalars, also from lists; `null` where there are none, or where something else is among them. */
function scalarsOf(rights: readonly unknown[]): readonly Scalar[] | null {
  const scalars: Scalar[] = [];
  for (const value of rights.flat()) {
    if (typeof value !== 'string' && typeof value !== 'number' && typeof value !== 'boolean') return null;
    scalars.push(value);
  }
  return scalars.length === 0 ? null : scalars;
}
