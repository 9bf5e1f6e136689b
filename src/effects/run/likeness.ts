import type { KeyObject } from 'node:crypto';
import { mostAlike } from '../model/allowance.ts';
import { boundsFault, type Editable } from '../model/editable.ts';
import type { ApprovalRequirement, Obligation, Permit } from '../model/verdict.ts';
import { canonicalJson } from '../../json/text.ts';
import type { Json, JsonObject } from '../../json/value.ts';
import type { Call } from './call.ts';
import { hmacSha256 } from './fingerprint.ts';

/**
 * Params in which calls alike may differ, with their bounds: those that every rule which asks lets an approver change,
 * within the same fixed bounds, and whose value is within them. Bounds by what was asked hold for one call.
 */
export function variesIn(requirements: readonly ApprovalRequirement[], params: JsonObject): Editable {
  const [first, ...others] = requirements.map(({ editable = {} }) => editable);
  const varies = Object.entries(first ?? {}).filter(([name, bounds]) => {
    const isOfAll = others.every((editable) => Object.hasOwn(editable, name) && isSame(editable[name], bounds));
    // Without a value that was asked, nothing is within bounds that name it.
    return isOfAll && Object.hasOwn(params, name) && boundsFault(bounds, undefined, params[name] ?? null) === null;
  });
  return Object.fromEntries(varies);
}

function isSame(one: Editable[string] | undefined, other: Editable[string]): boolean {
  return JSON.stringify(one) === JSON.stringify(other);
}

/**
 * What a call has to have in common with one that was approved, to be let in by its allowance: the agent, the key (the
 * vote has found that whoever gives the allowance does not hold it), the tool as it is declared, the target, the headers
 * that count, all params but those that may differ, and the rules that ask, with whom they ask and what they hold. It is
 * keyed as fingerprints are, because params could be guessed.
 * @returns `null` where a rule wants somebody to look at each call
 */
export function likenessOf(
  key: KeyObject,
  call: Pick<Call, 'workspace' | 'agent' | 'actor' | 'tool' | 'target' | 'headers' | 'params'>,
  { approvals, obligations }: Pick<Permit, 'approvals' | 'obligations'>,
): string | null {
  if (mostAlike(approvals) === null) return null;
  const { workspace, agent, actor, tool, target, headers, params } = call;
  const varies = Object.keys(variesIn(approvals, params));
  const open = new Map(varies.map((name) => [params[name], name]));
  const asking = new Set(approvals.map(({ rule }) => rule));
  const bound: Json = {
    v: 2,
    workspace,
    agent: agent.id,
    key: actor.keyId,
    type: tool.actionType,
    tool: tool.name,
    digest: tool.digest,
    target,
    headers: headers.bound,
    params: Object.fromEntries(Object.entries(params).filter(([name]) => !varies.includes(name))),
    varies: varies.toSorted(),
    approvals: approvals.map(requirementTerms),
    obligations: obligations.filter(({ rule }) => asking.has(rule)).map((one) => obligationTerms(one, open)),
  };
  return hmacSha256(key, `alike\n${canonicalJson(bound)}`);
}

function requirementTerms({
  rule,
  ruleDigest,
  approvers,
  quorum,
  expiresMs,
  hold,
  editable = {},
  requireReason,
  allowAlike,
}: ApprovalRequirement): Json {
  const { times = 0, forMs = 0 } = allowAlike ?? {};
  const who = { roles: approvers.roles, users: approvers.users };
  const may = Object.entries(editable).map(([name, bounds]): Json => [name, JSON.stringify(bounds)]);
  return { rule, ruleDigest, who, quorum, expiresMs, hold, may, reasons: requireReason === true, times, forMs };
}

/**
 * What a rule makes a call owe. An amount that is that of a param which may differ is so by name; any other is what people
 * were shown, and could change with an entity. Names of rows are left out: each call is held to its own.
 * @param open names of params that may differ, by their values
 */
function obligationTerms(obligation: Obligation, open: ReadonlyMap<Json | undefined, string>): Json {
  const owed = (amount: number | null): Json => ({ of: open.get(amount) ?? amount });
  switch (obligation.kind) {
    case 'budget':
      return [obligation.kind, obligation.budget, obligation.unit, obligation.limit, owed(obligation.amount)];
    case 'rate_limit':
      return [obligation.kind, obligation.id, obligation.limit];
    case 'claim':
      return [obligation.kind, obligation.hold];
    case 'reserve':
      return [obligation.kind, obligation.capacity, owed(obligation.units)];
  }
}
