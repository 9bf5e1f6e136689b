import { deserialize, serialize } from 'node:v8';
import type { Json } from '../json/value.ts';
import {
  compileBlock,
  compileChecked,
  compileGroup,
  compileLeafInSteps,
  isBlock,
  type Test,
} from './compiled-condition.ts';
import { type EngineCondition, isGroup, readOperator, referenceOf, type Symbols } from './engine-form.ts';
import { hasPatterns } from './operators.ts';

/** Longer lists are packed once for all conditions that use them. */
const LONG_LIST = 16;
/** Conditions up to this weight are unpacked in one step, larger ones leaf by leaf. */
const IN_ONE_STEP = 64;
/** Weight of a pattern in other leaves, chosen so that two patterns are more than one step. */
const LEAVES_FOR_A_PATTERN = 33;
/** Parts of a large condition that make one piece. */
const IN_ONE_PIECE = 100;

/** A condition on its way to another thread: itself, or the number of separate pieces if it is large. */
export type PackedCondition = Shortened | { readonly pieces: number };

/** A condition with numbers in place of long lists. */
type Shortened =
  | { readonly all: readonly Shortened[] }
  | { readonly any: readonly Shortened[] }
  | Leaf
  | { readonly fact: string; readonly operator: string; readonly block: Shortened };

type Leaf =
  | { readonly fact: string; readonly operator: string; readonly value: unknown }
  | { readonly fact: string; readonly operator: string; readonly long: { readonly list: number } };

function withoutLists(condition: EngineCondition, lists: Map<readonly Json[], number>): Shortened {
  if ('all' in condition) return { all: condition.all.map((part) => withoutLists(part, lists)) };
  if ('any' in condition) return { any: condition.any.map((part) => withoutLists(part, lists)) };
  const { fact, operator, value } = condition;
  if (isLongList(value)) {
    const list = lists.get(value) ?? lists.size;
    lists.set(value, list);
    return { fact, operator, long: { list } };
  }
  return isBlock(condition) && isGroup(value)
    ? { fact, operator, block: withoutLists(value, lists) }
    : { fact, operator, value };
}

/** Whether a value is a list that is packed only once. */
export function isLongList(value: unknown): value is readonly Json[] {
  return Array.isArray(value) && value.length > LONG_LIST;
}

function withLists(condition: Shortened, lists: readonly (readonly Json[])[]): EngineCondition {
  if ('all' in condition) return { all: condition.all.map((part) => withLists(part, lists)) };
  if ('any' in condition) return { any: condition.any.map((part) => withLists(part, lists)) };
  const { fact, operator } = condition;
  if ('long' in condition) return { fact, operator, value: lists[condition.long.list] };
  if ('block' in condition) return { fact, operator, value: withLists(condition.block, lists) };
  return { fact, operator, value: condition.value };
}

/**
 * A part of a large condition. All parts of a group or a block come before it. So the condition can be rebuilt with a
 * stack, with a break after any part.
 */
type Part =
  | { readonly leaf: Leaf }
  | { readonly group: 'all' | 'any'; readonly of: number }
  | { readonly block: { readonly fact: string; readonly operator: string } };

/**
 * Packs a condition. @param lists gets the long lists and their numbers @param large gets the pieces of large
 * conditions
 */
export function packCondition(
  condition: EngineCondition,
  symbols: Symbols,
  lists: Map<readonly Json[], number>,
  large: Uint8Array[],
): PackedCondition {
  const short = withoutLists(condition, lists);
  const parts: Part[] = [];
  addParts(short, parts);
  if (weightOf(parts, symbols) <= IN_ONE_STEP) return short;
  const before = large.length;
  for (let at = 0; at < parts.length; at += IN_ONE_PIECE)
    large.push(new Uint8Array(serialize(parts.slice(at, at + IN_ONE_PIECE))));
  return { pieces: large.length - before };
}

/** The work to compile it, measured in leaves without patterns. */
function weightOf(parts: readonly Part[], symbols: Symbols): number {
  return parts.reduce((weight, part) => weight + ('leaf' in part ? weightOfLeaf(part.leaf, symbols) : 1), 0);
}

function weightOfLeaf(leaf: Leaf, { tables }: Symbols): number {
  const ofOne = hasPatterns(readOperator(leaf.operator).name) ? LEAVES_FOR_A_PATTERN : 1;
  if ('long' in leaf) return ofOne * LONG_LIST;
  const { value } = leaf;
  if (Array.isArray(value)) return ofOne * Math.max(1, value.length);
  // Every value that the name can have is compiled.
  const table = tables.get(referenceOf(value) ?? '');
  return table === undefined ? ofOne : ofOne * (table.of.size + 1);
}

function addParts(condition: Shortened, parts: Part[]): void {
  if ('all' in condition || 'any' in condition) {
    const [group, of] = 'all' in condition ? (['all', condition.all] as const) : (['any', condition.any] as const);
    for (const part of of) addParts(part, parts);
    parts.push({ group, of: of.length });
  } else if ('block' in condition) {
    addParts(condition.block, parts);
    parts.push({ block: { fact: condition.fact, operator: condition.operator } });
  } else parts.push({ leaf: condition });
}

/** A condition as data, and compiled. */
interface Unpacked {
  readonly conditions: EngineCondition;
  readonly test: Test;
}

/** Unpacks a condition, a large one in small steps. @param large the pieces of large conditions, in order */
export function* unpackCondition(
  packed: PackedCondition,
  large: Iterator<Uint8Array>,
  lists: readonly (readonly Json[])[],
  symbols: Symbols,
): Generator<void, { readonly conditions: Extract<EngineCondition, { all: unknown }>; readonly test: Test }> {
  if (!('pieces' in packed)) {
    const conditions = topOf(withLists(packed, lists));
    return { conditions, test: compileChecked(conditions, symbols) };
  }
  const stack: Unpacked[] = [];
  for (let left = packed.pieces; left > 0; left -= 1) {
    const piece = large.next();
    if (piece.done === true) throw new Error('a condition of the policies ends too early');
    const parts: readonly Part[] = deserialize(piece.value);
    yield;
    for (const part of parts) {
      stack.push(yield* unpackPart(part, stack, lists, symbols));
      yield;
    }
  }
  const [whole, ...rest] = stack;
  if (whole === undefined || rest.length > 0) throw new Error('a condition of the policies is not whole');
  return { conditions: topOf(whole.conditions), test: whole.test };
}

function* unpackPart(
  part: Part,
  stack: Unpacked[],
  lists: readonly (readonly Json[])[],
  symbols: Symbols,
): Generator<void, Unpacked> {
  if ('leaf' in part) {
    const conditions = withLists(part.leaf, lists);
    if (!('fact' in conditions)) throw new Error('a leaf of the policies is none');
    return { conditions, test: yield* compileLeafInSteps(conditions, symbols) };
  }
  const wanted = 'block' in part ? 1 : part.of;
  if (stack.length < wanted) throw new Error('a group of the policies has too few parts');
  const of = stack.splice(stack.length - wanted);
  if ('block' in part) {
    const [only] = of;
    if (only === undefined) throw new Error('a block of the policies is empty');
    return {
      conditions: { ...part.block, value: only.conditions },
      test: compileBlock(part.block, only.test, symbols),
    };
  }
  const conditions = of.map((one) => one.conditions);
  const test = compileGroup(
    part.group,
    of.map((one) => one.test),
  );
  return { conditions: part.group === 'all' ? { all: conditions } : { any: conditions }, test };
}

function topOf(condition: EngineCondition): Extract<EngineCondition, { all: unknown }> {
  return 'all' in condition ? condition : { all: [condition] };
}
