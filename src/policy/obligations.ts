import { createHash } from 'node:crypto';
import type { Json } from '../json/value.ts';
import { limitName, type Obligation, type Exceeded } from '../effects/model/verdict.ts';
import type { PolicyInput } from './input.ts';
import { isScalar } from './operators.ts';
import type { Bucketing, CompiledObligation, CompiledRule } from './compiled-rule.ts';
import { renderName } from './template.ts';

/** Longer bucket names are replaced by their digest. */
const MAX_BUCKET = 256;
/** Characters that JSON writes without an escape. */
const PLAIN = /^[ !#-[\]-~]*$/;

/**
 * Combines the obligations of the matched rules. A budget that several rules name is held once, with the
 * largest amount. A pool is used once, with the largest number of units. A target is claimed once, and
 * `existing` is preferred to `call`.
 */
export function obligationsOf(
  rules: readonly CompiledRule[],
  input: PolicyInput,
  exceeded: Exceeded = null,
):
  | { readonly kind: 'made'; readonly obligations: readonly Obligation[] }
  | { readonly kind: 'impossible'; readonly rule: CompiledRule; readonly message: string } {
  const made: Obligation[] = [];
  for (const rule of rules)
    for (const source of rule.obligations) {
      const obligation = make(rule, source, input, exceeded);
      if (typeof obligation === 'string') return { kind: 'impossible', rule, message: obligation };
      add(made, obligation);
    }
  return { kind: 'made', obligations: made };
}

/** The obligation, or a sentence that says why this call cannot have it. */
function make(
  rule: CompiledRule,
  source: CompiledObligation,
  input: PolicyInput,
  exceeded: Exceeded,
): Obligation | string {
  switch (source.kind) {
    case 'budget': {
      const { budget } = source;
      const bucket = bucketOf(budget.by, input);
      if (typeof bucket !== 'string')
        return `The budget ${budget.id} is kept by ${bucket.absent}, which this call does not have`;
      const limit = budget.limit(input);
      if (limit === null) return `The budget ${budget.id} has no limit for this call`;
      return {
        kind: 'budget',
        rule: rule.id,
        budget: budget.id,
        unit: budget.unit,
        bucket,
        sharing: input.agent.isSelfMade === true ? 'shared' : budget.by.sharing,
        window: budget.windowAt(input.now),
        limit,
        ...heldAmount(source.amount(input), source.amountFrom),
        ...(budget.warnAt === null ? null : { warnAt: budget.warnAt }),
        ...(source.orAsk === undefined
          ? null
          : { beyond: beyond(limitName({ kind: 'budget', budget: budget.id }), exceeded) }),
      };
    }
    case 'rate_limit': {
      const bucket = bucketOf(source.by, input);
      if (typeof bucket !== 'string')
        return `The rate limit is kept by ${bucket.absent}, which this call does not have`;
      const limit = source.limit(input);
      if (limit === null) return 'The rate limit has no number for this call';
      return {
        kind: 'rate_limit',
        rule: rule.id,
        id: source.id,
        bucket,
        windowMs: source.windowMs,
        limit,
        ...(source.orAsk === undefined ? null : { beyond: beyond(limitName(source), exceeded) }),
      };
    }
    case 'claim': {
      const target = renderName(source.on, input);
      if (target === null) return 'The target to claim cannot be made of the params of this call';
      return { kind: 'claim', rule: rule.id, target, hold: source.hold };
    }
    case 'reserve': {
      const pool = renderName(source.pool, input);
      const capacity = pool === null ? undefined : source.pools.get(pool);
      if (pool === null || capacity === undefined) return 'The pool to reserve from does not exist for this call';
      const units = source.units(input);
      if (units === null) return `The units of the pool ${pool} have no number for this call`;
      return { kind: 'reserve', rule: rule.id, pool, units, capacity };
    }
  }
}

function beyond(limit: string, exceeded: Exceeded): 'ask' | 'asked' {
  return exceeded !== null && exceeded.has(limit) ? 'asked' : 'ask';
}

function heldAmount(
  value: Json | undefined,
  from: string | null,
): { readonly amount: number } | { readonly amount: null; readonly amountFrom?: string } {
  if (typeof value === 'number' && Number.isSafeInteger(value) && value >= 0) return { amount: value };
  return from === null ? { amount: null } : { amount: null, amountFrom: from };
}

/** Who could register one more agent whenever a budget is spent gets no further one by that. */
function spenderOf({ id, isSelfMade, registeredBy = null }: PolicyInput['agent']): Json {
  return isSelfMade === true ? { agents_of: registeredBy } : id;
}

/** The values of `by` as one text. Different values give different texts, also `1` and `"1"`. */
function bucketOf(by: Bucketing, input: PolicyInput): string | { readonly absent: string } {
  const [first, second] = by.facts;
  const only = first !== undefined && second === undefined ? first.read(input, undefined) : undefined;
  // Most buckets are one plain name, which needs no serialising.
  if (input.agent.isSelfMade !== true && typeof only === 'string' && only.length < MAX_BUCKET - 4 && PLAIN.test(only))
    return `["${only}"]`;
  const values: Json[] = [];
  for (const fact of by.facts) {
    const value = fact.read(input, undefined);
    if (!isScalar(value)) return { absent: fact.text };
    values.push(fact.text === 'agent.id' ? spenderOf(input.agent) : value);
  }
  const text = JSON.stringify(values);
  // The text of a list begins with `[`, so it never equals a digest.
  return text.length <= MAX_BUCKET ? text : `sha256:${createHash('sha256').update(text).digest('hex')}`;
}

function add(made: Obligation[], obligation: Obligation): void {
  // Each rule counts its attempts separately, so rate limits are never merged.
  if (made.length === 0 || obligation.kind === 'rate_limit') {
    made.push(obligation);
    return;
  }
  for (const [index, known] of made.entries())
    if (isSame(known, obligation)) {
      made[index] = merged(known, obligation);
      return;
    }
  made.push(obligation);
}

function isSame(a: Obligation, b: Obligation): boolean {
  if (a.kind === 'budget') return b.kind === 'budget' && a.budget === b.budget && a.bucket === b.bucket;
  if (a.kind === 'claim') return b.kind === 'claim' && a.target === b.target;
  if (a.kind === 'reserve') return b.kind === 'reserve' && a.pool === b.pool;
  return false;
}

/** The stricter of two obligations of one kind, with the rule that comes first in the order of report. */
function merged(known: Obligation, other: Obligation): Obligation {
  if (known.kind === 'budget' && other.kind === 'budget') {
    // A rule that asks nobody refuses, whatever the other does.
    if (known.beyond !== undefined && other.beyond === undefined) {
      const { beyond: _beyond, ...strict } = known;
      return merged(strict, other);
    }
    // Both have the limit of the budget for this call: it is declared once.
    if (known.amount === null) return known;
    const { amount, amountFrom } = other;
    if (amount !== null) return { ...known, amount: Math.max(known.amount, amount) };
    return { ...known, amount, ...(amountFrom === undefined ? null : { amountFrom }) };
  }
  if (known.kind === 'reserve' && other.kind === 'reserve')
    return { ...known, units: Math.max(known.units, other.units) };
  if (known.kind === 'claim' && other.kind === 'claim')
    return { ...known, hold: known.hold === 'existing' ? 'existing' : other.hold };
  return known;
}
