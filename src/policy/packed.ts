import { deserialize, serialize } from 'node:v8';
import type { Json } from '../json/value.ts';
import type { Tool } from '../effects/model/tool.ts';
import { buildBudget, buildRule, type RuleParts } from './build-rule.ts';
import type { ValueTable } from './expression.ts';
import { noSymbols } from './engine-form.ts';
import { type FactPath, readerOf } from './fact-path.ts';
import type { PolicyPlan } from './load.ts';
import { rememberMembers } from './operators.ts';
import { isLongList, packCondition, type PackedCondition, unpackCondition } from './packed-condition.ts';
import type { CompiledPolicies } from './policies.ts';
import type { CompiledBudget, CompiledRule } from './compiled-rule.ts';
import type { BudgetPlan, RulePlan } from './rule-plan.ts';
import { type KeyIndex, NOTHING_REDACTED, type RuleIndex, type ToolIndex } from './tool-index.ts';
import type { BudgetDefinition } from '../effects/policy-store.ts';

/**
 * Compiled policies on their way to another thread. They are split into small pieces of bytes, so that the receiver can
 * do other work between two pieces. The bytes are transferred without copying.
 */
export interface PackedPolicies {
  readonly version: string;
  /** Long lists, in parts `{ list, part }`. Conditions refer to them by number. */
  readonly lists: readonly Uint8Array[];
  readonly definitions: readonly Uint8Array[];
  readonly budgets: readonly Uint8Array[];
  readonly rules: readonly Uint8Array[];
  /** Conditions that are too large for one step, in the order of their rules (see `packed-condition.ts`). */
  readonly conditions: readonly Uint8Array[];
  /** What the names in conditions stand for. A name means the same in all conditions. */
  readonly symbols: { readonly facts: readonly Uint8Array[]; readonly tables: readonly Uint8Array[] };
  /** The values that the index uses, in the order of their numbers. */
  readonly values: readonly Uint8Array[];
  readonly facts: Uint8Array;
  /** Which rules apply to which tool, and how to find them (see `packIndex`). */
  readonly index: Int32Array;
}

/** How many rules, budgets, facts, named values or texts make one piece. */
const IN_ONE_PIECE = 16;
const FACTS_IN_ONE_PIECE = 250;
const NAMED_IN_ONE_PIECE = 250;
const TEXTS_IN_ONE_PIECE = 1_000;
/** Numbers of the index that are read without a break. */
const NUMBERS_IN_ONE_GO = 1_000;

/** Packs policies from their checked and their compiled form. Tools are numbered by their place in the list. */
export function packPolicies(plan: PolicyPlan, set: CompiledPolicies, tools: readonly Tool[]): PackedPolicies {
  const lists = new Map<readonly Json[], number>();
  const conditions: Uint8Array[] = [];
  const named = noSymbols();
  const rules = plan.rules.map(({ symbols, ...rule }): PackedRule => {
    for (const [name, fact] of symbols.facts) named.facts.set(name, fact);
    for (const [name, table] of symbols.tables) named.tables.set(name, table);
    return { ...rule, conditions: packCondition(rule.conditions, symbols, lists, conditions) };
  });
  const tables = [...named.tables].flatMap(([name, table]) => packTable(name, table, lists));
  const { values, facts, index } = packIndex(set, tools);
  return {
    version: plan.version,
    lists: [...lists].flatMap(([items, list]) => parts(items, TEXTS_IN_ONE_PIECE).map((part) => bytes({ list, part }))),
    definitions: pieces(plan.definitions, IN_ONE_PIECE),
    budgets: pieces(plan.budgets, IN_ONE_PIECE),
    rules: pieces(rules, IN_ONE_PIECE),
    conditions,
    symbols: { facts: pieces([...named.facts], FACTS_IN_ONE_PIECE), tables },
    values: pieces(values, TEXTS_IN_ONE_PIECE),
    facts: bytes(facts),
    index,
  };
}

export function buffersOf(packed: PackedPolicies): ArrayBufferLike[] {
  const { lists, definitions, budgets, rules, conditions, symbols, values, facts, index } = packed;
  const { facts: named, tables } = symbols;
  const pieces = [...lists, ...definitions, ...budgets, ...rules, ...conditions, ...named, ...tables, ...values];
  return [...pieces, facts, index].map(({ buffer }) => buffer);
}

function parts<Item>(items: readonly Item[], size: number): (readonly Item[])[] {
  return Array.from({ length: Math.ceil(items.length / size) }, (_, at) => items.slice(at * size, (at + 1) * size));
}

function pieces(items: readonly unknown[], size: number): readonly Uint8Array[] {
  return parts(items, size).map(bytes);
}

interface TablePart {
  readonly name: string;
  readonly table: Omit<ValueTable, 'of'>;
  readonly of: readonly (readonly [string, NamedValue])[];
}

/** The value itself, or the number of a long list. */
type NamedValue = { readonly value: Json } | { readonly list: number };

function packTable(name: string, { of, ...table }: ValueTable, lists: Map<readonly Json[], number>): Uint8Array[] {
  const entries = [...of].map(([key, value]): readonly [string, NamedValue] => {
    if (!isLongList(value)) return [key, { value }];
    const list = lists.get(value) ?? lists.size;
    lists.set(value, list);
    return [key, { list }];
  });
  return parts(entries, NAMED_IN_ONE_PIECE).map((part) => bytes({ name, table, of: part } satisfies TablePart));
}

/** Copies the bytes: the buffer of a serialiser may be part of a larger one. */
function bytes(value: unknown): Uint8Array {
  return new Uint8Array(serialize(value));
}

type PackedRule = Omit<RulePlan, 'conditions' | 'symbols'> & { readonly conditions: PackedCondition };

/**
 * The indices of all tools as numbers. First comes the number of rule groups, and each group. Then comes the number of
 * indices, and each index (may permit, has shadow rules, redacted names, node). Last comes the number of its index for
 * each tool. Most values lead to a single group, often the same one for many tools, so each group is written once.
 *
 * ```
 * node  = group count key…                      group = count rule…
 * key   = fact group×4 count (value place)…     place = group, or -1 node
 * ```
 */
function packIndex(
  set: CompiledPolicies,
  tools: readonly Tool[],
): { readonly values: readonly Json[]; readonly facts: readonly FactPath[]; readonly index: Int32Array<ArrayBuffer> } {
  const values = new Map<Json, number>();
  const facts = new Map<string, { readonly number: number; readonly fact: FactPath }>();
  const groups = new Map<string, number>();
  const grouped: number[] = [];
  const numbers: number[] = [];
  const groupOf = (rules: readonly CompiledRule[]): number => {
    const ranks = rules.map(({ rank }) => rank);
    const text = ranks.join();
    const known = groups.get(text);
    if (known !== undefined) return known;
    const number = groups.size;
    groups.set(text, number);
    grouped.push(ranks.length);
    for (const rank of ranks) grouped.push(rank);
    return number;
  };
  const addNode = ({ always, keys }: RuleIndex): void => {
    numbers.push(groupOf(always), keys.length);
    for (const key of keys) addKey(key);
  };
  const addKey = ({ fact, mistyped, byValue }: KeyIndex): void => {
    const known = facts.get(fact.text) ?? { number: facts.size, fact };
    facts.set(fact.text, known);
    numbers.push(known.number);
    for (const type of SCALAR_TYPES) numbers.push(groupOf(mistyped[type]));
    numbers.push(byValue.size);
    for (const [value, node] of byValue) {
      const number = values.get(value) ?? values.size;
      values.set(value, number);
      numbers.push(number);
      if (node.keys.length === 0) {
        numbers.push(groupOf(node.always));
      } else {
        numbers.push(-1);
        addNode(node);
      }
    }
  };
  const indices = new Map<ToolIndex, number>();
  for (const index of set.byTool.values()) if (!indices.has(index)) indices.set(index, indices.size);
  numbers.push(indices.size);
  for (const index of indices.keys()) {
    numbers.push(index.couldPermit ? 1 : 0, index.hasShadow ? 1 : 0, index.redacted.size);
    for (const name of index.redacted) {
      const number = values.get(name) ?? values.size;
      values.set(name, number);
      numbers.push(number);
    }
    addNode(index);
  }
  for (const { name } of tools) {
    const index = set.byTool.get(name);
    numbers.push((index === undefined ? undefined : indices.get(index)) ?? -1);
  }
  return {
    values: [...values.keys()],
    facts: [...facts.values()].map(({ fact }) => fact),
    index: Int32Array.from([[groups.size], grouped, numbers].flat()),
  };
}

const SCALAR_TYPES = ['string', 'number', 'boolean', 'other'] as const;

/** Unpacks policies in small steps. @param tools the same as when they were packed */
export function* unpackPolicies(
  packed: PackedPolicies,
  tools: readonly Tool[],
  pools: ReadonlyMap<string, number>,
): Generator<void, CompiledPolicies> {
  const lists = yield* unpackLists(packed.lists);
  const budgets: BudgetDefinition[] = [];
  for (const piece of packed.definitions) {
    const part: readonly BudgetDefinition[] = deserialize(piece);
    budgets.push(...part);
    yield;
  }
  const compiled = new Map<string, CompiledBudget>();
  for (const piece of packed.budgets) {
    const part: readonly BudgetPlan[] = deserialize(piece);
    for (const plan of part) {
      compiled.set(plan.id, buildBudget(plan));
      yield;
    }
  }
  const symbols = noSymbols();
  for (const piece of packed.symbols.facts) {
    const part: readonly (readonly [string, FactPath])[] = deserialize(piece);
    for (const [name, fact] of part) symbols.facts.set(name, fact);
    yield;
  }
  const namedValues = new Map<string, Map<string, Json>>();
  for (const piece of packed.symbols.tables) {
    const part: TablePart = deserialize(piece);
    const of = namedValues.get(part.name) ?? new Map<string, Json>();
    namedValues.set(part.name, of);
    symbols.tables.set(part.name, { ...part.table, of });
    for (const [key, named] of part.of) of.set(key, 'list' in named ? (lists[named.list] ?? []) : named.value);
    yield;
  }
  const large = packed.conditions.values();
  const rules: CompiledRule[] = [];
  for (const piece of packed.rules) {
    const part: readonly PackedRule[] = deserialize(piece);
    yield;
    for (const plan of part) {
      const { conditions, test } = yield* unpackCondition(plan.conditions, large, lists, symbols);
      const parts: RuleParts = { budgets: compiled, pools, testOf: () => test };
      rules.push(buildRule({ ...plan, conditions, symbols }, rules.length, parts));
      yield;
    }
  }
  const values: Json[] = [];
  for (const piece of packed.values) {
    const part: readonly Json[] = deserialize(piece);
    values.push(...part);
    yield;
  }
  const facts: readonly FactPath[] = deserialize(packed.facts);
  const byTool = yield* unpackIndex(packed.index, { rules, values, facts }, tools);
  return {
    version: packed.version,
    budgets,
    rules,
    byTool,
    couldPermit: (tool) => byTool.get(tool)?.couldPermit ?? false,
    redacted: (tool) => byTool.get(tool)?.redacted ?? NOTHING_REDACTED,
  };
}

function* unpackLists(packed: readonly Uint8Array[]): Generator<void, readonly (readonly Json[])[]> {
  const lists: Json[][] = [];
  const members: Set<Json>[] = [];
  for (const piece of packed) {
    const { list, part }: { readonly list: number; readonly part: readonly Json[] } = deserialize(piece);
    const [items, set] = [(lists[list] ??= []), (members[list] ??= new Set())];
    for (const item of part) {
      items.push(item);
      set.add(item);
    }
    yield;
  }
  for (const [at, list] of lists.entries()) rememberMembers(list, members[at] ?? new Set());
  return lists;
}

interface IndexParts {
  readonly rules: readonly CompiledRule[];
  readonly values: readonly Json[];
  readonly facts: readonly FactPath[];
}

function readNumbers(numbers: Int32Array) {
  let at = 0;
  let read = 0;
  return {
    next(): number {
      const number = numbers[at];
      if (number === undefined) throw new Error('the index of the policies ends too early');
      at += 1;
      read += 1;
      return number;
    },
    /** Goes past the next number if it is this one. */
    skip(number: number): boolean {
      const isNext = numbers[at] === number;
      if (isNext) at += 1;
      return isNext;
    },
    /** Whether so much was read in one go that others should have a turn; asked again, it begins anew. */
    isLong(): boolean {
      if (read < NUMBERS_IN_ONE_GO) return false;
      read = 0;
      return true;
    },
    isAtEnd: (): boolean => at === numbers.length,
  };
}

function* unpackIndex(
  numbers: Int32Array,
  { rules, values, facts }: IndexParts,
  tools: readonly Tool[],
): Generator<void, ReadonlyMap<string, ToolIndex>> {
  const { next, skip, isLong, isAtEnd } = readNumbers(numbers);
  const groups: RuleIndex[] = [];
  for (let groupsLeft = next(); groupsLeft > 0; groupsLeft -= 1) {
    const always: CompiledRule[] = [];
    for (let left = next(); left > 0; left -= 1) {
      const rule = rules[next()];
      if (rule === undefined) throw new Error('the index of the policies names a rule that there is not');
      always.push(rule);
      if (isLong()) yield;
    }
    groups.push({ always, keys: [] });
  }
  const nextGroup = (): RuleIndex => {
    const group = groups[next()];
    if (group === undefined) throw new Error('the index of the policies names a group that there is not');
    return group;
  };
  function* nextNode(): Generator<void, RuleIndex> {
    const { always } = nextGroup();
    const keys: KeyIndex[] = [];
    for (let left = next(); left > 0; left -= 1) keys.push(yield* nextKey());
    return { always, keys };
  }
  function* nextKey(): Generator<void, KeyIndex> {
    const fact = facts[next()];
    if (fact === undefined) throw new Error('the index of the policies names a fact that there is not');
    const [string, number, boolean, other] = [nextGroup(), nextGroup(), nextGroup(), nextGroup()];
    const mistyped = { string: string.always, number: number.always, boolean: boolean.always, other: other.always };
    const byValue = new Map<Json, RuleIndex>();
    for (let left = next(); left > 0; left -= 1) {
      const value = values[next()];
      if (value === undefined) throw new Error('the index of the policies names a value that there is not');
      byValue.set(value, skip(-1) ? yield* nextNode() : nextGroup());
      if (isLong()) yield;
    }
    return { fact, read: readerOf(fact), byValue, mistyped };
  }
  const indices: ToolIndex[] = [];
  for (let left = next(); left > 0; left -= 1) {
    const [couldPermit, hasShadow] = [next() === 1, next() === 1];
    const redacted = new Set<string>();
    for (let names = next(); names > 0; names -= 1) {
      const name = values[next()];
      if (typeof name === 'string') redacted.add(name);
    }
    indices.push({ ...(yield* nextNode()), couldPermit, hasShadow, redacted });
  }
  const byTool = new Map<string, ToolIndex>();
  for (const { name } of tools) {
    const index = indices[next()];
    if (index !== undefined) byTool.set(name, index);
    if (isLong()) yield;
  }
  if (!isAtEnd()) throw new Error('the index of the policies has a rest');
  return byTool;
}
