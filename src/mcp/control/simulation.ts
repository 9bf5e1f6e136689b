import { Type } from 'typebox';
import { nearest } from '../../diagnostics/nearest.ts';
import { NO_HEADERS } from '../../effects/model/action-call.ts';
import { type Agent, keyFactsOf } from '../../effects/model/principal.ts';
import type { RunRequest } from '../../effects/model/run-request.ts';
import { MAX_TARGET, type Tool } from '../../effects/model/tool.ts';
import type { Verdict } from '../../effects/model/verdict.ts';
import type { Preview } from '../../effects/run/preview-effect.ts';
import { turnOfOthers } from '../../effects/run/reading-turns.ts';
import { reasonToWire } from '../../effects/wire/effect.ts';
import { obligationToWire, previewToWire, requirementToWire } from '../../effects/wire/preview.ts';
import type { JsonObject } from '../../json/value.ts';
import { evaluatePolicies } from '../../policy/evaluate.ts';
import { takeFiles } from '../../upstreams/http/given-files.ts';
import { RpcProblem } from '../http.ts';
import { readsContent } from '../../effects/wire/withheld.ts';
import { asking } from './may-use.ts';
import type { ControlPorts } from './ports.ts';
import { AgentId, AnyObject, args, Decision, Items, NumberOrNull, Reason, TextOrNull, ToolName } from './schemas.ts';
import { answered, type ControlTool, defineTool, faulty, type ToolAnswer, type ToolCall } from './tool.ts';

const Simulated = Type.Object({
  decision: Decision,
  would_run: Type.Boolean({ description: 'Whether it would be sent at once, budgets and claims aside.' }),
  reason: Reason,
  action: Type.String(),
  tool: TextOrNull('The declared tool of that name; null: none is.'),
  agent_id: Type.String(),
  matched_rules: Items('A rule that matched, in the order of report.'),
  obligations: Items('What a run would have to hold: budget, rate, claim, reservation, approval.'),
  policy_version: Type.String(),
  policy_mode: Type.Enum(['enforce', 'observe']),
  faults: Items('What keeps the params from being accepted at all.'),
  explanation: Type.Array(Type.String()),
});

const Checked = Type.Object({
  decision: Decision,
  http_status: Type.Integer({ description: 'The status that a run through the effects API would get.' }),
  reason: Reason,
  tool: Type.String(),
  target: Type.String(),
  agent_id: Type.String(),
  key_state: Type.Enum(['none', 'free', 'in_use', 'conflict'], {
    description: 'Of the idempotency key: not given, new, bound to this action, bound to another one.',
  }),
  policies: Items('A rule that matched.'),
  policy_version: Type.String(),
  budgets: Items('A budget that the call takes from, as it stands now.'),
  claims: Items('A claim that the call needs.'),
  approvals: Items('Who would have to approve.'),
  obligations: Items('All that the call has to hold.'),
  retry_after_ms: Type.Optional(NumberOrNull('')),
});

/** Comparing names takes long where there are many. */
const MOST_COMPARED = 500;

/** `svc.preflight.check` and `svc.policy.simulate`. */
export function simulationTools(ports: ControlPorts): readonly ControlTool[] {
  return [checkTool(ports), simulateTool(ports)];
}

function checkTool(ports: ControlPorts): ControlTool {
  return defineTool({
    name: 'svc.preflight.check',
    title: 'Preflight check',
    description:
      'Tells the decision that a call would get right now, with budgets, claims, pauses and the state of its idempotency key. Nothing runs and nothing is held. Ask it before a risky call.',
    endpoint: 'mcp.simulate',
    input: args({
      agent_id: Type.Optional(AgentId),
      tool: ToolName,
      target: Type.Optional(Type.String({ minLength: 1, maxLength: MAX_TARGET })),
      params: Type.Optional(AnyObject('Params of the tool, as a run would send them.')),
      idempotency_key: Type.Optional(Type.String({ pattern: '^[\\x21-\\x7e]{1,255}$' })),
    }),
    outputSchema: Checked,
    answer: async ({ agent_id: agentId, tool, target, params = {}, idempotency_key: key }, call) => {
      const given = takeFiles(ports.catalog().tool(tool), params);
      const [fault] = given.faults;
      if (fault !== undefined) return faulty(fault.path, fault.message);
      // Who does not read params of calls could guess them: by a key that is in use, or a rejection that is repeated.
      const reads = readsContent(call.principal);
      const request: RunRequest = {
        principal: asking(call.principal),
        via: 'effects_api',
        workspace: call.workspace,
        agentId: agentId ?? null,
        actionType: null,
        tool,
        target: target ?? null,
        params: given.params,
        files: given.files,
        headers: NO_HEADERS,
        idempotencyKey: key === undefined || !reads ? `preflight-${call.requestId}` : key,
        stateCheck: null,
        claimId: null,
        reservationId: null,
        metadata: null,
        proxied: null,
        requestIp: call.address,
        stages: [],
      };
      const result = await ports.preview(request, reads);
      if (result.kind === 'problem') {
        const { problem } = result;
        if (problem.errors.length > 0) return { kind: 'faults', faults: problem.errors };
        throw new RpcProblem(problem);
      }
      return preflightAnswer(result, key !== undefined && reads, call);
    },
  });
}

function simulateTool(ports: ControlPorts): ControlTool {
  return defineTool({
    name: 'svc.policy.simulate',
    title: 'Simulate policy',
    description:
      'Tells what policy says to an action of an agent with given params: the decision, the rules that matched, and what it would have to hold. Looks at policy alone: not at budgets, claims or pauses as they stand (svc.preflight.check does).',
    endpoint: 'mcp.simulate',
    input: args({
      agent_id: AgentId,
      action: Type.String({
        minLength: 1,
        maxLength: 200,
        description:
          'Name of the action, `<system>.<operation>`: that of a declared tool, or evaluated as an undeclared one.',
        examples: ['payments.refund'],
      }),
      params: Type.Optional(AnyObject('Params of the action.')),
    }),
    outputSchema: Simulated,
    answer: async ({ agent_id: agentId, action, params = {} }, call) => {
      const agent = agentToSimulate(ports, call, agentId);
      if (typeof agent === 'string') return faulty('/agent_id', agent);
      const tool = ports.catalog().tool(action);
      return tool === null ? undeclared(ports, agent, action) : simulate(ports, agent, tool, params, call);
    },
  });
}

/** @returns the agent, or what is wrong with the name */
function agentToSimulate(ports: ControlPorts, { workspace, ownAgent }: ToolCall, named: string): Agent | string {
  if (ownAgent !== null && named !== ownAgent) return `must be ${ownAgent}: the key belongs to this agent`;
  const agent = ports.directory.agent(workspace, named);
  if (agent === null) return 'names no agent that is registered in the workspace';
  return agent.disabled ? 'names an agent that is disabled' : agent;
}

function preflightAnswer(preview: Preview, isKeyGiven: boolean, { ownAgent }: ToolCall): ToolAnswer {
  const { would, ...shown } = previewToWire(preview, ownAgent !== null);
  const keyState = !isKeyGiven
    ? 'none'
    : preview.would === 'idempotency_conflict'
      ? 'conflict'
      : preview.repeat
        ? 'in_use'
        : 'free';
  const structured: JsonObject = {
    ...shown,
    decision: would ?? preview.would,
    key_state: keyState,
    claims: preview.obligations
      .filter(({ kind }) => kind === 'claim')
      .map((claim) => obligationToWire(claim, ownAgent !== null)),
    approvals: preview.approvals.map(requirementToWire),
  };
  return answered(structured, `It would get ${preview.would}: ${preview.reason.message}`);
}

/** No rule is about a tool that nobody declared, so a run is refused before policy is asked. */
function undeclared(ports: ControlPorts, agent: Agent, action: string): ToolAnswer {
  const near = nearest(
    action,
    ports
      .catalog()
      .tools()
      .slice(0, MOST_COMPARED)
      .map(({ name }) => name),
  );
  const { set, mode } = ports.policies();
  const message = `No tool ${action} is declared.${near === null ? '' : ` Did you mean ${near}?`}`;
  return answered(
    {
      decision: 'denied_policy',
      would_run: false,
      reason: { code: 'tool_not_declared', message },
      action,
      tool: null,
      agent_id: agent.id,
      matched_rules: [],
      obligations: [],
      policy_version: set.version,
      policy_mode: mode,
      faults: [],
      explanation: [message, 'What is not declared never runs.'],
    },
    `It would get denied_policy: ${message}`,
  );
}

async function simulate(
  ports: ControlPorts,
  agent: Agent,
  tool: Tool,
  params: JsonObject,
  { principal, workspace, ownAgent, address }: ToolCall,
): Promise<ToolAnswer> {
  const clock = (): number => performance.now();
  const begun = clock();
  const catalog = ports.catalog();
  const given = takeFiles(tool, params);
  const misfits = [...given.faults, ...catalog.check(tool, given.params)];
  await turnOfOthers(clock, begun);
  const { set, mode } = ports.policies();
  const input = ports.policyInput({
    agent,
    key: keyFactsOf(principal),
    tool,
    workspace,
    target: (misfits.length > 0 ? null : catalog.target(tool, given.params)) ?? tool.name,
    params: given.params,
    headers: {},
    requestIp: address,
    now: ports.store.now(),
  });
  const verdict = evaluatePolicies(set, input);
  ports.secondOpinion(set, input);
  const { decision, reason } = decided(verdict);
  const permit = verdict.kind === 'permit' ? verdict : null;
  const obligations = [
    ...(permit?.obligations ?? []).map((obligation) => obligationToWire(obligation, ownAgent !== null)),
    ...(permit?.approvals ?? []).map(requirementToWire),
  ];
  const { matched, observed } = verdict.trace;
  const explanation = [
    reason.message,
    ...matched.map(
      ({ rule, effect, unknown }) =>
        `The rule ${rule} (${effect}) matches${unknown.length === 0 ? '' : `, where unknown counts: ${unknown.join(', ')}`}.`,
    ),
    ...(matched.length === 0 ? ['No rule matches.'] : []),
    ...(misfits.length === 0 ? [] : ['The params do not fit the tool: a run would be refused as invalid_request.']),
    ...(observed === null ? [] : [`Policy only observes: it would decide ${observed.would}.`]),
  ];
  return answered(
    {
      decision,
      would_run: decision === 'committed' && misfits.length === 0,
      reason,
      action: tool.name,
      tool: tool.name,
      agent_id: agent.id,
      matched_rules: matched.map(({ rule, effect, unknown }) => ({ rule, effect, unknown })),
      obligations,
      policy_version: verdict.trace.policyVersion,
      policy_mode: mode,
      faults: misfits.map(({ path, message }) => ({ path, message })),
      explanation,
      ...(observed === null ? {} : { observed: { would: observed.would, rule: observed.rule } }),
    },
    `Policy says ${decision}. ${explanation.join(' ')}`,
  );
}

/** The decision of policy alone, as a run would name it. */
function decided(verdict: Verdict): { readonly decision: string; readonly reason: JsonObject & { message: string } } {
  if (verdict.kind === 'deny') return { decision: verdict.decision, reason: reasonToWire(verdict.reason) };
  const [asked] = verdict.approvals;
  if (asked === undefined)
    return { decision: 'committed', reason: { code: 'committed', message: 'Policy permits it.' } };
  return {
    decision: 'pending_approval',
    reason: { code: 'approval_required', message: `It would wait for approval: ${asked.summary}`, rule: asked.rule },
  };
}
