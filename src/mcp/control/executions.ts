import { Type } from 'typebox';
import { DECISION_TABLE } from '../../effects/model/decision.ts';
import { decisionOf } from '../../effects/model/effect-decision.ts';
import { ledgerEventToWire } from '../../effects/model/ledger.ts';
import { readCalls } from '../../effects/wire/calls.ts';
import { effectToWire } from '../../effects/wire/effect.ts';
import { runStages } from '../../effects/wire/run-stages.ts';
import { isCursor } from '../../effects/wire/cursor.ts';
import { TIME_FORM, timeFromWire } from '../../effects/wire/time.ts';
import type { ControlPorts } from './ports.ts';
import {
  AgentId,
  AnyObject,
  args,
  Decision,
  DEFAULT_PAGE,
  EffectId,
  Items,
  NextCursor,
  PAGE,
  ToolName,
} from './schemas.ts';
import { answered, type ControlTool, defineTool, faulty } from './tool.ts';
import { absent, visibleEffect, wireContext } from './visible.ts';

const STATES = ['pending_approval', 'executing', 'committed', 'failed', 'unknown', 'rejected', 'denied'] as const;

const Time = Type.String({
  pattern: TIME_FORM,
  description: 'RFC 3339 time.',
});

/** The newest events of an effect are shown. */
const MOST_EVENTS = 200;

const Listed = Type.Object({ effects: Items('An effect: one action of an agent.'), next_cursor: NextCursor });
const One = Type.Object({
  effect: AnyObject('The effect; with `receipt` where it is committed.'),
  ledger: Items('An event.'),
  ledger_left_out: Type.Integer({ description: 'Older events that are not shown.' }),
});
const Trace = Type.Object({
  effect_id: Type.String(),
  state: Type.Enum([...STATES]),
  attempt: Type.Integer(),
  stages: Items('A stage: its status, when it began, how long it took.'),
});

/** `svc.executions.list`, `.get` and `.trace`. */
export function executionTools(ports: ControlPorts): readonly ControlTool[] {
  const { store } = ports;
  return [
    defineTool({
      name: 'svc.executions.list',
      title: 'List executions',
      description: 'Lists the effects (actions that agents asked for), newest first: what each got, and why.',
      endpoint: 'mcp.traces',
      input: args({
        state: Type.Optional(Type.Enum([...STATES])),
        decision: Type.Optional(Decision),
        tool: Type.Optional(ToolName),
        agent_id: Type.Optional(AgentId),
        since: Type.Optional(Time),
        until: Type.Optional(Time),
        ...PAGE,
      }),
      outputSchema: Listed,
      answer: async (
        { state, decision, tool, agent_id: agentId, since, until, limit = DEFAULT_PAGE, cursor },
        call,
      ) => {
        const from = since === undefined ? null : timeFromWire(since);
        const to = until === undefined ? null : timeFromWire(until);
        if (since !== undefined && from === null) return faulty('/since', 'is no time that exists');
        if (until !== undefined && to === null) return faulty('/until', 'is no time that exists');
        if (cursor !== undefined && !isCursor(cursor))
          return faulty('/cursor', 'is no cursor; send next_cursor of the page before');
        if (call.ownAgent !== null && agentId !== undefined && agentId !== call.ownAgent)
          return answered({ effects: [], next_cursor: null }, 'This key sees nothing of other agents.');
        return ports.inLine(call.principal.keyId, async () => {
          const page = await store.effects(call.workspace, {
            state: state ?? null,
            decision: decision ?? null,
            tool: tool ?? null,
            agentId: call.ownAgent ?? agentId ?? null,
            since: from,
            until: to,
            limit,
            cursor: cursor ?? null,
          });
          const effects = await store.turns.map(page.items, (effect) =>
            effectToWire(effect, { ...wireContext(ports, call, effect), approval: null }),
          );
          const lines = page.items
            .slice(0, 10)
            .map((effect) => `${effect.id} ${effect.action.tool} ${decisionOf(effect)}`);
          return answered(
            { effects, next_cursor: page.next },
            effects.length === 0
              ? 'No effect fits.'
              : `${effects.length} effects${page.next === null ? '' : ', and there are more'}: ${lines.join('; ')}.`,
          );
        });
      },
    }),
    defineTool({
      name: 'svc.executions.get',
      title: 'Get an execution',
      description:
        'One effect with its ledger events, its params (redacted) and its receipt. After a call without a clear outcome, it tells whether it happened.',
      endpoint: 'mcp.traces',
      input: args({ effect_id: EffectId }),
      outputSchema: One,
      answer: async ({ effect_id: id }, call) => {
        const effect = await visibleEffect(ports, call, id);
        if (effect === null) throw absent('effect');
        const { life } = effect;
        const [ledger, approval] = await Promise.all([
          store.effectLedger(call.workspace, id),
          life.state === 'pending_approval' ? store.approval(call.workspace, life.approvalId) : null,
        ]);
        // An effect that is asked for again and again has many events.
        const events = await store.turns.map(ledger.slice(-MOST_EVENTS), ledgerEventToWire);
        const params = readCalls(ports, call.principal, 'one').params(effect);
        const shown = effectToWire(effect, { ...wireContext(ports, call, effect), approval });
        return answered(
          { effect: { ...shown, ...params }, ledger: events, ledger_left_out: ledger.length - events.length },
          `${effect.actor.agentId} called ${effect.action.tool}: ${decisionOf(effect)}; it happened: ${DECISION_TABLE[decisionOf(effect)].happened}.`,
        );
      },
    }),
    defineTool({
      name: 'svc.executions.trace',
      title: 'Trace an execution',
      description: 'The stages of one effect in order: where the time went, and where it stopped.',
      endpoint: 'mcp.traces',
      input: args({ effect_id: EffectId }),
      outputSchema: Trace,
      answer: async ({ effect_id: id }, call) => {
        const effect = await visibleEffect(ports, call, id);
        if (effect === null) throw absent('effect');
        const stages = runStages(effect, ports.running);
        return answered(
          { effect_id: effect.id, state: effect.life.state, attempt: effect.attempt, stages },
          `${effect.id} is ${effect.life.state}: ${effect.stages.map(({ stage, status }) => `${stage} ${status}`).join(', ')}.`,
        );
      },
    }),
  ];
}
