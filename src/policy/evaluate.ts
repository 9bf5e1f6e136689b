import { createHash } from 'node:crypto';
import type { Reason } from '../effects/model/decision.ts';
import {
  type ApprovalRequirement,
  type Deny,
  limitName,
  type MatchedRule,
  type Obligation,
  type Permit,
  type Verdict,
  type VerdictTrace,
  type Exceeded,
} from '../effects/model/verdict.ts';
import type { Json } from '../json/value.ts';
import { holds, unknownFacts } from './compiled-condition.ts';
import type { CompiledRule, Bucketing, CompiledObligation } from './compiled-rule.ts';
import type { PolicyInput } from './input.ts';
import { isScalar } from './operators.ts';
import { withPatternSteps } from './pattern-steps.ts';
import type { CompiledPolicies } from './policies.ts';
import { renderCall, renderForPeople, renderName } from './template.ts';
import { matchingRules, NOTHING_REDACTED } from './tool-index.ts';

export type { PolicyInput } from './input.ts';
export type { CompiledPolicies } from './policies.ts';

/** Most rules that a trace names: the first ones in the order of report. */
const MAX_MATCHED = 64;

/**
 * The decision of policy on a call: pause > deny > require_approval > allow > default deny, with the obligations and
 * approvals of all matched rules that grant or constrain. Pure and synchronous. It keeps no state that could change a
 * later answer, and does not throw, whatever the params are.
 * @param exceeded names of limits that the call would go beyond: those of them that ask do so; `null`: none is known
 */
export function evaluatePolicies(set: CompiledPolicies, input: PolicyInput, exceeded: Exceeded = null): Verdict {
  return withPatternSteps(() => evaluateWithin(set, input, exceeded));
}

function evaluateWithin(set: CompiledPolicies, input: PolicyInput, exceeded: Exceeded): Verdict {
  const index = set.byTool.get(input.tool.name);
  let matched: readonly CompiledRule[] = index === undefined ? NO_RULES : inOrder(matchingRules(index, input));
  let shadow = NO_NAMES;
  if (index?.hasShadow === true) {
    shadow = shadowRefusals(matched);
    matched = matched.filter((rule) => !isShadow(rule));
  }
  const trace: VerdictTrace = {
    policyVersion: set.version,
    matched: tracedRules(matched, input),
    shadow,
    observed: null,
  };
  const verdict = combine(matched, input, trace, index?.redacted ?? NOTHING_REDACTED, exceeded);
  return input.mode === 'observe' ? observed(verdict) : verdict;
}

const NO_RULES: readonly CompiledRule[] = [];
const NO_NAMES: readonly string[] = [];

/** Insertion sort by rank, in place: the lists are short, and rules from one bucket are already in order. */
function inOrder(rules: CompiledRule[]): CompiledRule[] {
  if (rules.length > MAX_MATCHED) return rules.sort((a, b) => a.rank - b.rank);
  for (let to = 1; to < rules.length; to += 1) {
    const rule = rules[to];
    if (rule === undefined) break;
    let at = to;
    for (let before = rules[at - 1]; before !== undefined && before.rank > rule.rank; before = rules[at - 1]) {
      rules[at] = before;
      at -= 1;
    }
    rules[at] = rule;
  }
  return rules;
}

function isShadow(rule: CompiledRule): boolean {
  return rule.mode === 'shadow';
}

function tracedRules(rules: readonly CompiledRule[], input: PolicyInput): readonly MatchedRule[] {
  const traced: MatchedRule[] = [];
  for (const rule of rules) {
    if (traced.length === MAX_MATCHED) break;
    const isPlain = isCertain(rule, input);
    traced.push(isPlain ? rule.plainMatch : { ...rule.plainMatch, unknown: unknownsOf(rule, input) });
  }
  return traced;
}

/** Whether a matching rule would also match if unknown counted as false. */
function isCertain(rule: CompiledRule, input: PolicyInput): boolean {
  if (!rule.unknownIs) return true;
  return holds(rule.perCall, input, undefined, false) && holds(rule.perTool, input, undefined, false);
}

function unknownsOf(rule: CompiledRule, input: PolicyInput): readonly string[] {
  return [...unknownFacts(rule.perTool, input), ...unknownFacts(rule.perCall, input)];
}

function shadowRefusals(rules: readonly CompiledRule[]): readonly string[] {
  return rules
    .filter((rule) => isShadow(rule) && (REFUSING.has(rule.effect) || rule.approval !== null))
    .slice(0, MAX_MATCHED)
    .map((rule) => rule.id);
}

/** Effects that keep a call from running at once. Rules with other effects do so when they ask for approval. */
const REFUSING: ReadonlySet<CompiledRule['effect']> = new Set(['pause', 'deny', 'require_approval']);

/** Combines the matched rules. They come in the order of report, so the first refusal is the one to name. */
function combine(
  matched: readonly CompiledRule[],
  input: PolicyInput,
  trace: VerdictTrace,
  redacted: ReadonlySet<string>,
  exceeded: Exceeded,
): Verdict {
  const [first] = matched;
  if (first !== undefined && (first.effect === 'pause' || first.effect === 'deny'))
    return refusal(first, input, trace, redacted);
  if (!matched.some((rule) => grants(rule, input))) return deny('denied_policy', nothingAllows(input, trace), trace);
  const result = obligationsOf(matched, input, exceeded);
  if (result.kind === 'impossible') {
    const { rule, message } = result;
    return deny('denied_policy', { code: 'rule_denied', message, policy: rule.set, rule: rule.id }, trace);
  }
  const approvals: ApprovalRequirement[] = [];
  for (const rule of matched)
    if (rule.approval !== null) approvals.push(requirement(rule, rule.approval, input, redacted));
  if (exceeded !== null) approvals.push(...askedBeyond(matched, result.obligations, input, redacted));
  return { kind: 'permit', mode: 'enforce', obligations: result.obligations, approvals, trace };
}

/** What the limits ask that the call would go beyond: each rule that has such a limit asks its own people. */
function askedBeyond(
  matched: readonly CompiledRule[],
  obligations: readonly Obligation[],
  input: PolicyInput,
  redacted: ReadonlySet<string>,
): readonly ApprovalRequirement[] {
  const asked = new Set(
    obligations.flatMap((one) => ('beyond' in one && one.beyond === 'asked' ? [limitName(one)] : [])),
  );
  return matched.flatMap((rule) =>
    rule.obligations.flatMap((obligation) => {
      const orAsk = orAskOf(obligation);
      if (orAsk === null || !asked.has(orAsk.limit)) return [];
      return [beyondRequirement(rule, orAsk, input, redacted)];
    }),
  );
}

interface OrAsk {
  readonly limit: string;
  readonly approval: NonNullable<CompiledRule['approval']>;
}

/** The limit of an obligation, and whom it asks; `null` where it asks nobody. */
export function orAskOf(obligation: CompiledRule['obligations'][number]): OrAsk | null {
  if (!('orAsk' in obligation) || obligation.orAsk === undefined) return null;
  const of = obligation.kind === 'budget' ? ({ kind: 'budget', budget: obligation.budget.id } as const) : obligation;
  return { limit: limitName(of), approval: obligation.orAsk };
}

/** Says that it is about a limit, also where the rule has words of its own. */
function beyondRequirement(
  rule: CompiledRule,
  { limit, approval }: OrAsk,
  input: PolicyInput,
  redacted: ReadonlySet<string>,
): ApprovalRequirement {
  const asked = requirement(rule, approval, input, redacted);
  return { ...asked, summary: `Beyond the limit of ${limit.replace(':', ' ')}: ${asked.summary}`, beyond: limit };
}

function deny(decision: Deny['decision'], reason: Reason, trace: VerdictTrace): Deny {
  return { kind: 'deny', decision, reason, trace };
}

/**
 * A rule that requires approval asks for it wherever it matches, also on unknown. But it grants only where it is true.
 * Otherwise a caller could leave a param out, and a call that nothing allows would wait for approval.
 */
function grants(rule: CompiledRule, input: PolicyInput): boolean {
  return rule.effect === 'allow' || (rule.effect === 'require_approval' && isCertain(rule, input));
}

function nothingAllows(input: PolicyInput, trace: VerdictTrace): Reason {
  const unknown = trace.matched.flatMap((rule) => (rule.effect === 'require_approval' ? rule.unknown : []));
  const what =
    input.tool.declared === false
      ? `read what no tool of ${input.tool.upstream} declares`
      : `call ${input.tool.name} like this`;
  const message = `No policy rule allows ${input.agent.id} to ${what}${because(unknown)}`;
  return { code: 'no_rule_allows', message };
}

function because(unknown: readonly string[]): string {
  if (unknown.length === 0) return '';
  return ` (${[...new Set(unknown)].slice(0, 8).join(', ')}: absent, or not of the expected type)`;
}

function refusal(rule: CompiledRule, input: PolicyInput, trace: VerdictTrace, redacted: ReadonlySet<string>): Deny {
  const isPause = rule.effect === 'pause';
  const text =
    rule.reason === null
      ? `The rule ${rule.id} ${isPause ? 'pauses' : 'refuses'} this call`
      : renderForPeople(rule.reason, input, redacted);
  return deny(
    isPause ? 'denied_paused' : 'denied_policy',
    {
      code: isPause ? 'policy_paused' : 'rule_denied',
      message: text + because(trace.matched[0]?.unknown ?? []),
      policy: rule.set,
      rule: rule.id,
    },
    trace,
  );
}

function requirement(
  rule: CompiledRule,
  approval: NonNullable<CompiledRule['approval']>,
  input: PolicyInput,
  redacted: ReadonlySet<string>,
): ApprovalRequirement {
  return {
    rule: rule.id,
    ruleDigest: approval.ruleDigest,
    approvers: approval.approvers,
    quorum: approval.quorum,
    expiresMs: approval.expiresMs,
    summary:
      approval.summary === null ? renderCall(input, redacted) : renderForPeople(approval.summary, input, redacted),
    hold: approval.hold,
    ...(approval.requireReason === undefined ? null : { requireReason: true }),
    ...(approval.allowAlike === undefined ? null : { allowAlike: approval.allowAlike }),
    ...(approval.escalate === undefined ? null : { escalate: approval.escalate }),
    ...(approval.hours === undefined ? null : { hours: hoursFrom(approval, approval.hours, input.now) }),
    ...editableOf(approval, redacted),
  };
}

/** When so much time of a schedule has passed. */
function hoursFrom(
  { expiresMs, escalate }: NonNullable<CompiledRule['approval']>,
  { name, timeIn }: NonNullable<NonNullable<CompiledRule['approval']>['hours']>,
  now: number,
): NonNullable<ApprovalRequirement['hours']> {
  const escalatesAt = escalate === undefined ? null : timeIn(now, escalate.afterMs);
  return { schedule: name, expiresAt: timeIn(now, expiresMs), escalatesAt };
}

/** A param that people do not see is not theirs to change: bounds would let them find out what it is. */
function editableOf(
  { editable }: NonNullable<CompiledRule['approval']>,
  redacted: ReadonlySet<string>,
): Pick<ApprovalRequirement, 'editable'> | null {
  if (editable === undefined) return null;
  const shown = Object.entries(editable).filter(([name]) => !redacted.has(name));
  return shown.length === 0 ? null : { editable: Object.fromEntries(shown) };
}

/**
 * What rules that ask for approval would say of a call, whether or not they match it; `null` for others. For a call that
 * an approver has changed: its words are those of the rule that asked.
 */
export function summariesOf(
  set: CompiledPolicies,
  input: PolicyInput,
  asking: readonly Pick<ApprovalRequirement, 'rule' | 'beyond'>[],
): readonly (string | null)[] {
  const redacted = set.redacted(input.tool.name);
  return asking.map(({ rule: id, beyond }) => {
    const rule = set.rules.find((one) => one.id === id);
    if (rule === undefined) return null;
    if (beyond === undefined)
      return rule.approval === null ? null : requirement(rule, rule.approval, input, redacted).summary;
    const orAsk = rule.obligations.map(orAskOf).find((one) => one?.limit === beyond) ?? null;
    return orAsk === null ? null : beyondRequirement(rule, orAsk, input, redacted).summary;
  });
}

/** In observe mode, a refusal or a wait for approval becomes a permit that records what would have happened. */
function observed(verdict: Verdict): Permit {
  if (verdict.kind === 'deny') {
    const { decision, reason, trace } = verdict;
    const wouldBe = { would: decision, rule: reason.rule ?? null };
    return { kind: 'permit', mode: 'observe', obligations: [], approvals: [], trace: { ...trace, observed: wouldBe } };
  }
  const [asked] = verdict.approvals;
  if (asked === undefined) return { ...verdict, mode: 'observe' };
  const wouldBe = { would: 'pending_approval', rule: asked.rule } as const;
  return { ...verdict, mode: 'observe', approvals: [], trace: { ...verdict.trace, observed: wouldBe } };
}

/** Longer bucket names are replaced by their digest. */
const MAX_BUCKET = 256;
/** Characters that JSON writes without an escape. */
const PLAIN = /^[ !#-[\]-~]*$/;

/**
 * Combines the obligations of the matched rules. A budget that several rules name is held once, with the
 * largest amount. A pool is used once, with the largest number of units. A target is claimed once, and
 * `existing` is preferred to `call`.
 */
function obligationsOf(
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
        window: typeof budget.window === 'function' ? budget.window(input.now) : budget.window,
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
