import type { EffectRecord } from '../../effects/model/effect.ts';
import { outcomeFor } from '../../effects/run/to-outcome.ts';
import type { JsonObject } from '../../json/value.ts';
import { takesTasks, TASKS_EXTENSION } from '../../mcp-protocol/tasks.ts';
import { RpcRefused } from '../http.ts';
import { refused, RPC, type RpcRequest } from '../jsonrpc.ts';
import { noMethod } from '../own-answers.ts';
import type { Era } from '../protocol.ts';
import { resultOf } from './answer.ts';
import type { Sender } from './arrival.ts';
import type { GatewayPorts } from './ports.ts';
import { taskOf, waitingTaskOf } from './waiting-task.ts';

/** What the gateway says of itself to clients that take tasks. */
export const OFFERS_TASKS = { extensions: { [TASKS_EXTENSION]: {} } } as const;

/**
 * Answers `tasks/get`, `tasks/update` and `tasks/cancel`: the task is the effect of that id, so any gateway knows it, and
 * so does one that has been started anew.
 * @param upstream whose tools count here; `null`: those of all servers
 * @throws RpcRefused where the client takes no tasks, and where there is no such task of this agent
 */
export async function answerTask(
  ports: GatewayPorts,
  sender: Sender,
  message: RpcRequest,
  era: Era,
  upstream: string | null,
): Promise<JsonObject> {
  const { id, method, params } = message;
  if (era.kind === 'handshake')
    throw noMethod(
      message,
      era,
      'Calls are no tasks in the revisions with sessions: what waits says so in its result.',
    );
  if (method !== 'tasks/get' && method !== 'tasks/update' && method !== 'tasks/cancel')
    throw noMethod(message, era, `There is no method ${method}: tasks/get has the result of a task.`);
  if (!takesTasks(era.clientCapabilities))
    throw new RpcRefused(
      refused(400, id, RPC.missingCapability, `${method} is for clients that declare ${TASKS_EXTENSION}.`, {
        requiredCapabilities: OFFERS_TASKS,
      }),
    );
  const effect = await taskEffect(ports, sender, params, upstream);
  // Whose task it is, and whether there is one, is nobody else's business.
  if (effect === null)
    throw new RpcRefused(refused(200, id, RPC.invalidParams, 'There is no such task of this agent.'));
  switch (method) {
    case 'tasks/get':
      return { resultType: 'complete', ...(await standing(ports, effect)) };
    // Nothing is asked of the client: a person approves, and never on the agent's side.
    case 'tasks/update':
    // A request for approval stays with the people who decide on it.
    case 'tasks/cancel':
      return { resultType: 'complete' };
  }
}

async function taskEffect(
  ports: GatewayPorts,
  { principal, workspace, owner }: Sender,
  { taskId }: JsonObject,
  upstream: string | null,
): Promise<EffectRecord | null> {
  if (typeof taskId !== 'string') return null;
  const effect = await ports.effect(workspace, taskId);
  if (effect === null || effect.actor.agentId !== owner.agentId) return null;
  const { tool, upstream: at } = effect.action;
  if (upstream !== null && at !== upstream) return null;
  return principal.allowedTools === null || principal.allowedTools.includes(tool) ? effect : null;
}

/** How an effect stands, as a task. A task whose call was refused is completed, with a result that says so. */
async function standing(ports: GatewayPorts, effect: EffectRecord): Promise<JsonObject> {
  const { id, life, createdAt } = effect;
  const keptMs = ports.effectsKeptMs();
  switch (life.state) {
    case 'pending_approval':
      return waitingTaskOf(id, createdAt, keptMs);
    case 'executing':
      return {
        ...taskOf(id, 'working', createdAt, life.lease.admittedAt, keptMs),
        statusMessage: 'It was approved, and is running.',
      };
    case 'committed':
    case 'failed':
    case 'unknown':
    case 'rejected':
    case 'denied':
      return { ...taskOf(id, 'completed', createdAt, life.at, keptMs), result: await finalResult(ports, effect) };
  }
}

async function finalResult(ports: GatewayPorts, effect: EffectRecord): Promise<JsonObject> {
  const { workspace, life } = effect;
  const approval = 'approvalId' in life ? await ports.approval(workspace, life.approvalId) : null;
  const tool = ports.catalog().tool(effect.action.tool);
  const call = tool?.call;
  return resultOf(outcomeFor(effect, approval), null, {
    publicUrl: ports.settings().publicUrl,
    policyVersion: ports.policyVersion(),
    hasOutputSchema: call?.kind === 'mcp' && call.pinned['outputSchema'] !== undefined,
    hasResult: false,
    sameForMs: 0,
    isStateless: true,
    hasProbe: tool?.probe !== undefined,
    waits: { kind: 'text' },
  });
}
