import { problem } from '../http.ts';
import type { EffectRecord } from '../../effects/model/effect.ts';
import type { EffectWireContext } from '../../effects/wire/effect.ts';
import { withheldBecause } from '../../effects/wire/withheld.ts';
import type { RpcProblem } from '../http.ts';
import type { ControlPorts } from './ports.ts';
import type { ToolCall } from './tool.ts';

/** An effect that the caller may see; `null` where it may not, as if it did not exist. */
export async function visibleEffect(ports: ControlPorts, call: ToolCall, id: string): Promise<EffectRecord | null> {
  const effect = await ports.store.effect(call.workspace, id);
  return effect !== null && isVisible(call, effect.actor.agentId) ? effect : null;
}

/** Whether something of an agent may be seen: an agent's key sees nothing of other agents. */
export function isVisible({ ownAgent }: ToolCall, agentId: string): boolean {
  return ownAgent === null || ownAgent === agentId;
}

/** To throw: there is no such thing, or the caller may not know of it. */
export function absent(what: string): RpcProblem {
  return problem('not_found', `There is no such ${what} here.`);
}

export function wireContext(
  ports: ControlPorts,
  { principal }: ToolCall,
  effect: EffectRecord,
): Omit<EffectWireContext, 'approval'> {
  return {
    publicUrl: ports.settings().publicUrl,
    receiptView: ports.receipts.view,
    tool: ports.catalog().tool(effect.action.tool),
    withResult: withheldBecause(principal, effect.action.tool) === null,
    now: ports.store.now(),
  };
}
