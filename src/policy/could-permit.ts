import type { Tool } from '../effects/model/tool.ts';
import type { Test } from './compiled-condition.ts';
import type { PolicyInput } from './input.ts';
import type { CompiledPolicies } from './policies.ts';
import type { CompiledRule } from './compiled-rule.ts';
import { inputOfTool, type RuleIndex } from './tool-index.ts';
import type { Template } from './template.ts';

/** What is known about calls that do not exist yet: who makes them, where, and for a claim on which target. */
export interface Caller {
  readonly agent: PolicyInput['agent'];
  readonly key: PolicyInput['key'];
  readonly workspace: string;
  readonly target: string | null;
}

/** Parts of the input that are the same for all calls of a caller. So is the target, where it is known. */
const KNOWN: ReadonlySet<string> = new Set(['agent', 'key', 'tool', 'workspace']);

/**
 * Whether the rules could permit a caller some call of a tool, for any params, time and address. That needs a rule that
 * could match and that allows or asks for approval, and no rule that refuses every call.
 */
export function couldPermitCaller(set: CompiledPolicies, tool: Tool, caller: Caller): boolean {
  const rules = rulesFor(set, tool, caller);
  return rules !== null && rules.some(({ effect }) => effect === 'allow' || effect === 'require_approval');
}

/** Whether a call of the tool that could be permitted to the caller could use units of a pool. */
export function couldUsePool(set: CompiledPolicies, tool: Tool, caller: Caller, pool: string): boolean {
  if (!couldPermitCaller(set, tool, caller)) return false;
  return (rulesFor(set, tool, caller) ?? []).some(({ obligations }) =>
    obligations.some((obligation) => obligation.kind === 'reserve' && couldRender(obligation.pool, pool)),
  );
}

/** Whether a rule could have a call of the tool claim the target, other than the one that the tool itself names. */
export function couldClaim(set: CompiledPolicies, tool: Tool, caller: Caller, target: string): boolean {
  return (rulesFor(set, tool, caller) ?? []).some(({ obligations }) =>
    obligations.some((obligation) => obligation.kind === 'claim' && couldRender(obligation.on, target)),
  );
}

/** Enforced rules that could match some call and do not refuse it; `null` where a rule refuses every call. */
function rulesFor(set: CompiledPolicies, tool: Tool, caller: Caller): readonly CompiledRule[] | null {
  const { agent, key, workspace, target } = caller;
  const input = { ...inputOfTool(tool), agent, key, workspace, target: target ?? '' };
  const isKnown = (root: string | null): boolean =>
    root !== null && (KNOWN.has(root) || (root === 'target' && target !== null));
  const could: CompiledRule[] = [];
  const index = set.byTool.get(tool.name);
  for (const rule of index === undefined ? [] : rulesIn(index)) {
    if (rule.mode !== 'enforce') continue;
    const ways = [judge(rule.perTool, input, isKnown), judge(rule.perCall, input, isKnown)];
    if (ways.includes('never')) continue;
    const refuses = rule.effect === 'deny' || rule.effect === 'pause';
    const isAlways = rule.from === Number.NEGATIVE_INFINITY && rule.until === Number.POSITIVE_INFINITY;
    if (refuses && isAlways && ways.every((way) => way === 'always')) return null;
    if (!refuses) could.push(rule);
  }
  return could;
}

const known = new WeakMap<RuleIndex, readonly CompiledRule[]>();

/** All rules of an index. Tools with the same rules share an index, so the result is kept. */
function rulesIn(index: RuleIndex): readonly CompiledRule[] {
  const before = known.get(index);
  if (before !== undefined) return before;
  const all = new Set(index.always);
  for (const { byValue, mistyped } of index.keys) {
    for (const bucket of byValue.values()) for (const rule of rulesIn(bucket)) all.add(rule);
    for (const bucket of Object.values(mistyped)) for (const rule of bucket) all.add(rule);
  }
  const rules = [...all];
  known.set(index, rules);
  return rules;
}

/** Whether a condition holds for every call of the caller, for none, or for some. */
function judge(test: Test, input: PolicyInput, isKnown: (root: string | null) => boolean): 'always' | 'never' | 'some' {
  switch (test.kind) {
    case 'all':
    case 'any': {
      const [settles, rest] = test.kind === 'all' ? (['never', 'always'] as const) : (['always', 'never'] as const);
      const ways = test.of.map((part) => judge(part, input, isKnown));
      if (ways.includes(settles)) return settles;
      return ways.every((way) => way === rest) ? rest : 'some';
    }
    case 'leaf': {
      if (!isKnown(test.reads)) return 'some';
      const truth = test.judge(input, undefined);
      // An unknown leaf grants nothing. Whether it makes a restrictive rule refuse is decided for each call, not here.
      if (truth === undefined) return test.absent === 'unknown' ? 'never' : 'some';
      return truth ? 'always' : 'never';
    }
    case 'some':
    case 'every':
      return 'some';
  }
}

/** Whether a template can produce a name: its literal parts in order, and at least one character for each slot. */
function couldRender({ parts }: Template, name: string): boolean {
  let pattern = '';
  for (const part of parts) pattern += typeof part === 'string' ? part.replace(/[.*+?^${}()|[\]\\]/g, '\\$&') : '.+';
  return new RegExp(`^${pattern}$`, 's').test(name);
}
