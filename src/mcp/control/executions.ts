import { Type } from 'typebox';
import { decisionOf, type EffectRecord } from '../../effects/model/effect.ts';
import { readCalls } from '../../effects/wire/calls.ts';
import { effectToWire, happenedTo, probeToWire, reasonCodeOf } from '../../effects/wire/effect.ts';
import { effectFor } from '../../effects/wire/withheld.ts';
import { runStages } from '../../effects/wire/run-stages.ts';
import { isCursor } from '../../effects/model/page.ts';
import { TIME_FORM, timeFromWire, timeToWire } from '../../effects/wire/time.ts';
import { sizeUpTo } from '../../json/size.ts';
import { isJsonObject, type Json, type JsonObject } from '../../json/value.ts';
import { RpcProblem } from '../http.ts';
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
import { answered, type ControlTool, defineTool, faulty, many } from './tool.ts';
import { absent, visibleEffect, wireContext } from './may-use.ts';

const STATES = ['pending_approval', 'executing', 'committed', 'failed', 'unknown', 'rejected', 'denied'] as const;

const Time = Type.String({
  pattern: TIME_FORM,
  description: 'RFC 3339 time.',
});

/** The newest events of an effect are shown. */
const MOST_EVENTS = 8;
/** Characters of params, and of a result, that are shown: a model reads each of them. The rest is at `links.effect`. */
const MOST_SHOWN = 300;

const Listed = Type.Object({
  effects: Items('An effect, in short: `effect_id`, `tool`, `agent_id`, `decision`, `code` of its reason, `at`.'),
  next_cursor: NextCursor,
});
const One = Type.Object({
  effect: AnyObject(
    'The effect, with `params` and `result` where they are short, and the address of its `receipt` where it is committed. The whole is at `links.effect`.',
  ),
  ledger: Items('An event: `kind` and `at`.'),
  ledger_left_out: Type.Integer({ description: 'Older events that are not shown.' }),
});
const Probed = Type.Object({
  effect_id: Type.String(),
  decision: Decision,
  said: Type.Enum(['happened', 'not_happened', 'unknown'], { description: 'What this reading shows.' }),
  settled: Type.Boolean(),
  message: Type.String(),
  retry_after_ms: Type.Optional(Type.Integer({ description: 'When another reading can tell more.' })),
});
const Trace = Type.Object({
  effect_id: Type.String(),
  state: Type.Enum([...STATES]),
  attempt: Type.Integer(),
  stages: Items('A stage: its status, when it began, how long it took.'),
});

/** `svc.executions.list`, `.get`, `.probe` and `.trace`. */
export function executionTools(ports: ControlPorts): readonly ControlTool[] {
  return [listTool(ports), getTool(ports), probeTool(ports), traceTool(ports)];
}

function listTool(ports: ControlPorts): ControlTool {
  const { store } = ports;
  return defineTool({
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
    answer: async ({ state, decision, tool, agent_id: agentId, since, until, limit = DEFAULT_PAGE, cursor }, call) => {
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
        const effects = page.items.map(shortEffect);
        return answered(
          { effects, next_cursor: page.next },
          effects.length === 0
            ? 'No effect fits.'
            : `${many(effects.length, 'effect')}${page.next === null ? '' : ', and there are more'}, newest first.`,
        );
      });
    },
  });
}

function getTool(ports: ControlPorts): ControlTool {
  const { store } = ports;
  return defineTool({
    name: 'svc.executions.get',
    title: 'Get an execution',
    description:
      'One effect with its newest ledger events, its params (redacted), and where its receipt is. After a call without a clear outcome, it tells whether it happened.',
    endpoint: 'mcp.traces',
    input: args({ effect_id: EffectId }),
    outputSchema: One,
    answer: async ({ effect_id: id }, call) => {
      const effect = await visibleEffect(ports, call, id);
      if (effect === null) throw absent('effect');
      const { life } = effect;
      const [ledger, approval] = await Promise.all([
        store.effectLedgerInTurns(call.workspace, id),
        'approvalId' in life ? store.approval(call.workspace, life.approvalId) : null,
      ]);
      // An effect that is asked for again and again has many events.
      const events = ledger.slice(-MOST_EVENTS).map(({ kind, at }) => ({ kind, at: timeToWire(at) }));
      const params = readCalls(ports, call.principal, 'one').params(effect);
      const url = ports.settings().publicUrl;
      const shown = effectToWire(effectFor(call.principal, effect), {
        ...wireContext(ports, call, effect),
        approval,
        receiptView: () => ({
          id: life.state === 'committed' ? life.receipt.id : null,
          url: receiptUrl(url, effect),
        }),
      });
      return answered(
        {
          effect: briefEffect({ ...shown, ...params }),
          ledger: events,
          ledger_left_out: ledger.length - events.length,
        },
        `${effect.actor.agentId} called ${effect.action.tool}: ${decisionOf(effect)}; it happened: ${happenedTo(effect)}.`,
      );
    },
  });
}

function traceTool(ports: ControlPorts): ControlTool {
  return defineTool({
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
  });
}

function probeTool(ports: ControlPorts): ControlTool {
  return defineTool({
    name: 'svc.executions.probe',
    title: 'Probe an execution',
    description:
      'Finds out from the upstream what became of a call whose outcome is unknown, where its tool declares how. That it did not happen is sure after two readings: ask again after retry_after_ms.',
    endpoint: 'effects.probe',
    changes: true,
    input: args({ effect_id: EffectId }),
    outputSchema: Probed,
    answer: async ({ effect_id: id }, call) => {
      if ((await visibleEffect(ports, call, id)) === null) throw absent('effect');
      const { principal, workspace } = call;
      const probed = await ports.probe({ principal, workspace, effectId: id });
      if (probed.kind === 'problem') throw new RpcProblem(probed.problem);
      const decision = decisionOf(probed.effect);
      return answered({ effect_id: id, decision, ...probeToWire(probed) }, `${probed.why} It is ${decision}.`);
    },
  });
}

/** An effect as a line of a list: what to ask for the whole by, and what to choose by. */
function shortEffect(effect: EffectRecord): JsonObject {
  return {
    effect_id: effect.id,
    tool: effect.action.tool,
    agent_id: effect.actor.agentId,
    decision: decisionOf(effect),
    code: reasonCodeOf(effect),
    at: timeToWire(effect.createdAt),
  };
}

/** Members that a model needs to know what became of a call, and what to do. */
const BRIEF = [
  'effect_id',
  'tool',
  'target',
  'agent_id',
  'decision',
  'attempt',
  'reason',
  'did_it_happen',
  'safe_to_retry',
  'next',
  'created_at',
  'settled_at',
  'receipt',
  'approval',
  'mismatches',
  'refused_until',
  'quiesce_until',
  'params_omitted',
  'links',
] as const;

function briefEffect(shown: JsonObject): JsonObject {
  const brief: Record<string, Json> = {};
  for (const name of BRIEF) if (shown[name] !== undefined && shown[name] !== null) brief[name] = shown[name];
  const { effect, resolve } = isJsonObject(shown['links']) ? shown['links'] : {};
  brief['links'] = { ...(effect !== undefined && { effect }), ...(resolve !== undefined && { resolve }) };
  for (const name of ['params', 'result'] as const) {
    const { [name]: value } = shown;
    if (value === undefined) continue;
    if (sizeUpTo(value, MOST_SHOWN) <= MOST_SHOWN) brief[name] = value;
    else brief[`${name}_omitted`] = 'it is long: see links.effect';
  }
  return brief;
}

function receiptUrl(publicUrl: string, { workspace, id }: EffectRecord): string {
  return `${publicUrl}/v1/workspaces/${workspace}/effects/${id}/receipt`;
}
