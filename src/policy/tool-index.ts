import type { Json } from '../json/value.ts';
import { type Equality, holds, type Test } from './compiled-condition.ts';
import type { FactPath, ReadFact } from './fact-path.ts';
import type { PolicyInput } from './input.ts';
import type { CompiledRule } from './compiled-rule.ts';
import { createHash } from 'node:crypto';
import type { Tool } from '../effects/model/tool.ts';

/** The rules that can apply to one tool, indexed by the values of a few facts. */
export interface ToolIndex extends RuleIndex {
  /** Whether some enforced rule could permit a call at some time. */
  readonly couldPermit: boolean;
  readonly hasShadow: boolean;
  readonly redacted: ReadonlySet<string>;
}

export interface RuleIndex {
  /** Rules that are evaluated for every call that gets here. */
  readonly always: readonly CompiledRule[];
  readonly keys: readonly KeyIndex[];
}

export interface KeyIndex {
  readonly fact: FactPath;
  readonly read: ReadFact;
  /** Rules that need this value. If they are many, they are indexed again by other facts. */
  readonly byValue: ReadonlyMap<Json, RuleIndex>;
  /** Rules that match on unknown and need another type. For them, a value of this type is unknown. */
  readonly mistyped: Readonly<Record<ScalarType | 'other', readonly CompiledRule[]>>;
}

export type ScalarType = 'string' | 'number' | 'boolean';

/** For a tool whose params no rule masks. */
export const NOTHING_REDACTED: ReadonlySet<string> = new Set();

/** Most facts that one level of the index reads to find the rules of a call. */
const MAX_KEYS = 8;
/** A key that avoids fewer evaluations than this is not worth its look-up. */
const MIN_SAVED = 4;
/** A rule with more values than this is always evaluated. In the index it would need too many places. */
const MAX_VALUES = 64;

export function indexRules(rules: readonly CompiledRule[]): ToolIndex {
  return {
    ...splitByFacts(rules, []),
    couldPermit: couldPermit(rules),
    hasShadow: rules.some((rule) => rule.mode === 'shadow'),
    redacted: new Set(rules.flatMap((rule) => rule.redact)),
  };
}

/** @param used facts that were already read on the way to these rules */
function splitByFacts(rules: readonly CompiledRule[], used: readonly string[]): RuleIndex {
  let rest = rules;
  const keys: KeyIndex[] = [];
  while (keys.length < MAX_KEYS) {
    const key = bestKey(rest, used);
    if (key === null) break;
    keys.push(keyIndex(key, used));
    const taken = new Set(key.members.map(({ rule }) => rule));
    rest = rest.filter((rule) => !taken.has(rule));
  }
  return { always: rest, keys };
}

/** The rules that match a call, in no particular order. Few other rules are evaluated. */
export function matchingRules(index: ToolIndex, input: PolicyInput): CompiledRule[] {
  const matching: CompiledRule[] = [];
  search(index, input, matching);
  return matching;
}

function search(index: RuleIndex, input: PolicyInput, matching: CompiledRule[]): void {
  addMatching(index.always, input, matching);
  for (const key of index.keys) {
    const value = key.read(input, undefined);
    const type = scalarType(value);
    const bucket = value === undefined || type === 'other' ? undefined : key.byValue.get(value);
    if (bucket !== undefined) search(bucket, input, matching);
    addMatching(key.mistyped[type], input, matching);
  }
}

function addMatching(rules: readonly CompiledRule[], input: PolicyInput, matching: CompiledRule[]): void {
  for (const rule of rules) {
    if (input.now < rule.from || input.now >= rule.until) continue;
    if (holds(rule.perCall, input, undefined, rule.unknownIs)) matching.push(rule);
  }
}

interface Member {
  readonly rule: CompiledRule;
  readonly equality: Equality;
}

interface Key {
  readonly fact: FactPath;
  readonly read: ReadFact;
  readonly members: readonly Member[];
}

/** The fact that avoids most evaluations: many rules need it, and its values split them into small groups. */
function bestKey(rules: readonly CompiledRule[], used: readonly string[]): Key | null {
  const byFact = new Map<string, Member[]>();
  for (const rule of rules)
    for (const equality of equalities(rule.perCall)) {
      const fact = equality.fact.text;
      if (used.includes(fact)) continue;
      const members = byFact.get(fact) ?? [];
      // A rule with two equalities on one fact is indexed by the first.
      if (members.at(-1)?.rule !== rule) members.push({ rule, equality });
      byFact.set(fact, members);
    }
  let best: Key | null = null;
  let bestSaved = MIN_SAVED - 1;
  for (const members of byFact.values()) {
    const saved = members.length - largestGroup(members);
    const [first] = members;
    if (first === undefined || saved <= bestSaved) continue;
    best = { fact: first.equality.fact, read: first.equality.read, members };
    bestSaved = saved;
  }
  return best;
}

/** Equalities that must hold for the condition to hold. */
function equalities(test: Test): readonly Equality[] {
  if (test.kind === 'leaf')
    return test.equality !== null && test.equality.values.length <= MAX_VALUES ? [test.equality] : [];
  return test.kind === 'all' ? test.of.flatMap((part) => (part.kind === 'leaf' ? equalities(part) : [])) : [];
}

function largestGroup(members: readonly Member[]): number {
  const sizes = new Map<Json, number>();
  let largest = 0;
  for (const { equality } of members)
    for (const value of new Set(equality.values)) {
      const size = (sizes.get(value) ?? 0) + 1;
      sizes.set(value, size);
      if (size > largest) largest = size;
    }
  return largest;
}

function keyIndex({ fact, read, members }: Key, used: readonly string[]): KeyIndex {
  const buckets = new Map<Json, CompiledRule[]>();
  const mistyped: Record<ScalarType | 'other', CompiledRule[]> = { string: [], number: [], boolean: [], other: [] };
  for (const { rule, equality } of members) {
    for (const value of new Set(equality.values)) {
      const bucket = buckets.get(value) ?? [];
      bucket.push(rule);
      buckets.set(value, bucket);
    }
    if (!rule.unknownIs) continue;
    const type = scalarType(equality.values[0]);
    for (const other of ['string', 'number', 'boolean', 'other'] as const)
      if (other !== type) mistyped[other].push(rule);
  }
  const byValue = new Map<Json, RuleIndex>();
  for (const [value, bucket] of buckets) byValue.set(value, splitByFacts(bucket, [...used, fact.text]));
  return { fact, read, byValue, mistyped };
}

function scalarType(value: Json | undefined): ScalarType | 'other' {
  const type = typeof value;
  if (type === 'string' || type === 'boolean') return type;
  return Number.isFinite(value) ? 'number' : 'other';
}

function couldPermit(rules: readonly CompiledRule[]): boolean {
  const enforced = rules.filter((rule) => rule.mode === 'enforce');
  const isAlways = (rule: CompiledRule): boolean =>
    rule.perCall.kind === 'all' &&
    rule.perCall.of.length === 0 &&
    rule.from === Number.NEGATIVE_INFINITY &&
    rule.until === Number.POSITIVE_INFINITY;
  if (enforced.some((rule) => (rule.effect === 'deny' || rule.effect === 'pause') && isAlways(rule))) return false;
  return enforced.some((rule) => rule.effect === 'allow' || rule.effect === 'require_approval');
}

/**
 * The rules of each declared tool: those whose conditions on the tool itself can hold. Tools with the same rules share
 * one index.
 */
export function rulesByTool(rules: readonly CompiledRule[], tools: readonly Tool[]): ReadonlyMap<string, ToolIndex> {
  const indices = new Map<string, ToolIndex>();
  const byTool = new Map<string, ToolIndex>();
  for (const tool of tools) {
    const input = inputOfTool(tool);
    const applying = rules.filter((rule) => holds(rule.perTool, input, undefined, rule.unknownIs));
    const same = createHash('sha256')
      .update(Uint32Array.from(applying.map((rule) => rule.rank)))
      .digest('base64');
    const index = indices.get(same) ?? indexRules(applying);
    indices.set(same, index);
    byTool.set(tool.name, index);
  }
  return byTool;
}

/** An input for conditions that read only the tool. */
export function inputOfTool(tool: Tool): PolicyInput {
  return {
    agent: { id: '', workspace: '', disabled: false, team: null, owner: null, roles: [], attributes: {} },
    key: { id: '', kind: 'agent', profile: null, user: null },
    tool,
    env: '',
    workspace: '',
    target: '',
    params: {},
    headers: {},
    requestIp: null,
    now: 0,
    mode: 'enforce',
  };
}
