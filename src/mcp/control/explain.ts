import { Type } from 'typebox';
import { type EffectRecord, decisionOf } from '../../effects/model/effect.ts';
import { withheldBecause } from '../../effects/wire/withheld.ts';
import type { JsonObject } from '../../json/value.ts';
import type { CompiledRule } from '../../policy/compiled-rule.ts';
import { type ExplainedRule, explainRule, ruleFilter } from '../../policy/explain.ts';
import type { ControlPorts } from './ports.ts';
import { args, EffectId, Items, NumberOrNull, TextOrNull } from './schemas.ts';
import {
  answered,
  type ControlTool,
  defineTool,
  faulty,
  many,
  type ToolAnswer,
  type ToolCall,
  type ToolFaults,
} from './tool.ts';
import { absent, visibleEffect } from './may-use.ts';

/** Most rules in one answer. */
const MOST_RULES = 100;

const Explained = Type.Object({
  effect_id: TextOrNull('The effect that was explained.'),
  policy: TextOrNull('The rule or policy set that was explained.'),
  decision: TextOrNull('What the effect got.'),
  policy_version: Type.String({ description: 'Of the policies in force now, with which this was evaluated.' }),
  decided_with: TextOrNull('Of the policies that decided then.'),
  rules: Items('A rule, whether it matches, and each of its conditions with its value.'),
  near_misses: Type.Array(Type.String(), { description: 'Rules that one change would make match.' }),
  rules_left_out: NumberOrNull('Rules that the answer has no room for.'),
});

/** `svc.policy.explain`. */
export function explainTools(ports: ControlPorts): readonly ControlTool[] {
  return [
    defineTool({
      name: 'svc.policy.explain',
      title: 'Explain policy',
      description:
        'Explains a decision rule by rule with the values that were compared (`effect_id`), or what a rule or a policy set says (`policy`). Names the rules that one change would have made match.',
      endpoint: 'mcp.simulate',
      input: args({
        effect_id: Type.Optional(EffectId),
        policy: Type.Optional(
          Type.String({ minLength: 1, maxLength: 200, description: 'Id of a rule (`set/rule`), or of a policy set.' }),
        ),
      }),
      outputSchema: Explained,
      answer: async ({ effect_id: effectId, policy }, call) => {
        if ((effectId === undefined) === (policy === undefined))
          return faulty('', 'needs effect_id or policy, one of both');
        if (policy !== undefined) return explainPolicy(ports, policy);
        const effect = await visibleEffect(ports, call, effectId ?? '');
        if (effect === null) throw absent('effect');
        return explainEffect(ports, effect, call);
      },
    }),
  ];
}

async function explainEffect(ports: ControlPorts, effect: EffectRecord, call: ToolCall): Promise<ToolAnswer> {
  const { set } = ports.policies();
  const { action, actor, trace } = effect;
  const tool = ports.catalog().tool(action.tool);
  const agent = ports.directory.agent(effect.workspace, actor.agentId);
  if (tool === null || agent === null)
    return answered(
      { ...ofEffect(effect, set.version), rules: traced(effect), near_misses: [], rules_left_out: 0 },
      `${describe(effect)} ${tool === null ? 'Its tool' : 'Its agent'} is not declared any more, so its rules are named without values.`,
    );
  const opened = ports.openParams(effect);
  // Conditions are judged with the params; their values are not shown to everybody.
  const masked = {
    params: set.redacted(tool.name),
    call: withheldBecause(call.principal, action.tool) !== null,
  };
  const input = ports.policyInput({
    agent,
    key: { id: actor.keyId, kind: actor.keyKind, profile: null, user: actor.user },
    tool,
    workspace: effect.workspace,
    target: action.target,
    params: opened?.params ?? {},
    headers: opened?.headers?.sent ?? {},
    requestIp: opened?.requestIp ?? null,
    now: effect.createdAt,
  });
  const applies = ruleFilter(tool);
  const judged = await ports.store.turns.map(set.rules, (rule) =>
    applies(rule) ? { rule, explained: explainRule(rule, input, masked) } : null,
  );
  const rules = judged.filter((one) => one !== null);
  // Matches first, then near misses: they answer the question.
  const order = ({ explained }: { explained: ExplainedRule }): number =>
    explained.matches ? 0 : explained.nearMiss ? 1 : 2;
  const shown = rules.toSorted((a, b) => order(a) - order(b)).slice(0, MOST_RULES);
  const near = rules.filter(({ explained }) => explained.nearMiss).map(({ rule }) => rule.id);
  const note =
    opened === null
      ? ' Its params were erased, so conditions on them are unknown.'
      : trace.policyVersion === set.version
        ? ''
        : ' Policies have changed since: the rules are those in force now.';
  return answered(
    {
      ...ofEffect(effect, set.version),
      rules: shown.map(({ rule, explained }) => ruleToWire(rule, explained)),
      near_misses: near.slice(0, MOST_RULES),
      rules_left_out: rules.length - shown.length,
    },
    `${describe(effect)} ${many(rules.filter(({ explained }) => explained.matches).length, 'rule matches', 'rules match')}${near.length === 0 ? '' : `; one change away: ${near.slice(0, 5).join(', ')}`}.${note}`,
  );
}

function ofEffect(effect: EffectRecord, version: string): JsonObject {
  return {
    effect_id: effect.id,
    policy: null,
    decision: decisionOf(effect),
    policy_version: version,
    decided_with: effect.trace.policyVersion,
  };
}

function describe(effect: EffectRecord): string {
  return `${effect.actor.agentId} called ${effect.action.tool} and got ${decisionOf(effect)}.`;
}

function traced(effect: EffectRecord): readonly JsonObject[] {
  return effect.trace.matched.map(({ rule, effect: what, unknown }) => ({
    rule,
    effect: what,
    matches: true,
    near_miss: false,
    unknown,
    conditions: [],
  }));
}

function explainPolicy(ports: ControlPorts, policy: string): ToolAnswer | ToolFaults {
  const { set } = ports.policies();
  const found = set.rules.filter(({ id, set: of }) => id === policy || of === policy);
  if (found.length === 0) return faulty('/policy', 'names no rule and no policy set that is in force');
  const shown = found.slice(0, MOST_RULES);
  return answered(
    {
      effect_id: null,
      policy,
      decision: null,
      policy_version: set.version,
      decided_with: null,
      rules: shown.map((rule) => ruleToWire(rule, null)),
      near_misses: [],
      rules_left_out: found.length - shown.length,
    },
    `${policy} has ${many(found.length, 'rule')} in force: ${shown
      .slice(0, 10)
      .map(({ id, effect }) => `${id} (${effect})`)
      .join(', ')}.`,
  );
}

function ruleToWire(rule: CompiledRule, explained: ExplainedRule | null): JsonObject {
  const { id, effect, mode, description, approval } = rule;
  return {
    rule: id,
    effect,
    mode,
    description,
    ...(approval === null
      ? {}
      : { approvers: { roles: approval.approvers.roles, users: approval.approvers.users }, quorum: approval.quorum }),
    ...(explained === null
      ? {}
      : {
          matches: explained.matches,
          near_miss: explained.nearMiss,
          in_force: explained.inForce,
          conditions: explained.conditions.map(({ fact, operator, expected, value, holds }) => ({
            fact,
            operator,
            expected,
            value,
            holds,
          })),
        }),
  };
}
