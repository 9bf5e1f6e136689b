import { Type } from 'typebox';
import { askedToWire, requestToWire, whyAsked } from '../../effects/wire/approval.ts';
import { isCursor } from '../../effects/model/page.ts';
import { readCalls } from '../../effects/wire/calls.ts';
import { approvalFor } from '../../effects/wire/withheld.ts';
import type { JsonObject } from '../../json/value.ts';
import type { ControlPorts } from './ports.ts';
import { AgentId, args, DEFAULT_PAGE, Items, NextCursor, PAGE, ToolName } from './schemas.ts';
import { answered, type ControlTool, defineTool, faulty, many } from './tool.ts';
import { absent, isVisible } from './may-use.ts';

/** Pages of the store that are read for one page of an answer: filters by tool or agent leave gaps. */
const MOST_PAGES = 5;

const Listed = Type.Object({ approvals: Items('A request for approval.'), next_cursor: NextCursor });

const One = Type.Object({
  id: Type.String(),
  status: Type.Enum(['pending', 'granted', 'rejected', 'expired', 'used']),
  effect_id: Type.String(),
  tool: Type.String(),
  url: Type.String(),
  requirements: Items('Who has to approve, how many, and how many have.'),
  votes: Items('A vote: who, what, when.'),
  why: Items('A rule that asks, and its purpose.'),
});

/** `svc.approvals.list` and `svc.approvals.get`. */
export function approvalTools(ports: ControlPorts): readonly ControlTool[] {
  return [listTool(ports), getTool(ports)];
}

function listTool(ports: ControlPorts): ControlTool {
  const { store } = ports;
  return defineTool({
    name: 'svc.approvals.list',
    title: 'List requests for approval',
    description:
      'Lists actions that wait for a person, or waited: what is asked (params redacted), who may decide, where to. Nobody can decide here: approvals never come from an agent’s own side.',
    endpoint: 'mcp.approvals',
    input: args({
      status: Type.Optional(Type.Enum(['pending', 'granted', 'rejected', 'expired', 'used'])),
      tool: Type.Optional(ToolName),
      agent_id: Type.Optional(AgentId),
      ...PAGE,
    }),
    outputSchema: Listed,
    answer: async ({ status, tool, agent_id: agentId, limit = DEFAULT_PAGE, cursor }, call) => {
      if (cursor !== undefined && !isCursor(cursor))
        return faulty('/cursor', 'is no cursor; send next_cursor of the page before');
      if (call.ownAgent !== null && agentId !== undefined && agentId !== call.ownAgent)
        return answered({ approvals: [], next_cursor: null }, 'This key sees nothing of other agents.');
      return ports.inLine(call.principal.keyId, async () => {
        const calls = readCalls(ports, call.principal, 'list');
        const approvals: JsonObject[] = [];
        const lines: string[] = [];
        let next: string | null = cursor ?? null;
        for (let pages = 0; pages < MOST_PAGES; pages += 1) {
          const page = await store.approvals(call.workspace, {
            status: status ?? null,
            agentId: call.ownAgent ?? agentId ?? null,
            limit: limit - approvals.length,
            cursor: next,
          });
          next = page.next;
          for (const approval of page.items) {
            if (tool !== undefined && approval.tool !== tool) continue;
            const effect = await store.turns.run(() => store.effect(approval.workspace, approval.effectId));
            const asked = askedToWire(approval, effect, calls, call.ownAgent !== null, null);
            lines.push(`${approval.id} (${approval.tool}, ${approval.status})`);
            const request = requestToWire(approvalFor(call.principal, approval), ports.settings().publicUrl);
            approvals.push({ ...request, ...asked });
          }
          if (next === null || approvals.length >= limit) break;
        }
        return answered(
          { approvals, next_cursor: next },
          approvals.length === 0
            ? 'No request for approval fits.'
            : `${many(approvals.length, 'request')} for approval${next === null ? '' : ', and there may be more'}: ${lines.slice(0, 10).join(', ')}.`,
        );
      });
    },
  });
}

function getTool(ports: ControlPorts): ControlTool {
  const { store } = ports;
  return defineTool({
    name: 'svc.approvals.get',
    title: 'Get a request for approval',
    description:
      'One request for approval: what is asked, why, what it costs, who has voted, and the page where people decide.',
    endpoint: 'mcp.approvals',
    input: args({ approval_id: Type.String({ minLength: 1, maxLength: 64, description: 'Id, `apr_…`.' }) }),
    outputSchema: One,
    answer: async ({ approval_id: id }, call) => {
      const kept = await store.approval(call.workspace, id);
      if (kept === null || !isVisible(call, kept.requester.agentId)) throw absent('request for approval');
      const approval = approvalFor(call.principal, kept);
      const [effect, budgets] = await Promise.all([
        store.effect(call.workspace, approval.effectId),
        store.budgets(call.workspace),
      ]);
      const calls = readCalls(ports, call.principal, 'one');
      return answered(
        {
          ...requestToWire(approval, ports.settings().publicUrl),
          ...askedToWire(approval, effect, calls, call.ownAgent !== null, budgets),
          why: whyAsked(approval, effect, ports.policies().set.rules),
        },
        `${approval.tool} asked by ${approval.requester.agentId} is ${approval.status}. ${approval.requirements[0]?.summary ?? ''}`,
      );
    },
  });
}
