import type { EffectRecord } from '../../effects/model/effect.ts';
import type { Principal } from '../../effects/model/principal.ts';
import type { Problem } from '../../effects/model/run-request.ts';
import type { EffectWireContext } from '../../effects/wire/effect.ts';
import { withheldBecause } from '../../effects/wire/withheld.ts';
import { permit, type View } from '../../identity/permissions.ts';
import { problem, type RpcProblem } from '../http.ts';
import type { ControlPorts } from './ports.ts';
import type { ControlTool, ToolCall } from './tool.ts';

type Use = { readonly kind: 'allowed'; readonly view: View } | { readonly kind: 'refused'; readonly problem: Problem };

export function mayUse(tool: ControlTool, principal: Principal): Use {
  const permission = permit(principal, tool.endpoint);
  if (!permission.ok) return refusal(permission.code, permission.detail);
  if (tool.ofWorkspace && (permission.view.kind === 'none' || permission.view.kind === 'any'))
    return refusal('wrong_workspace', 'The key belongs to no workspace, and this tool tells of one.');
  const { allowedTools } = principal;
  if (tool.givesBusinessData && allowedTools !== null && !allowedTools.includes(tool.name))
    return refusal('insufficient_scope', `The key may not call ${tool.name}: its allowed_tools do not name it.`);
  return { kind: 'allowed', view: permission.view };
}

function refusal(code: Problem['code'], detail: string): Use {
  return { kind: 'refused', problem: { code, detail, errors: [], retryAfterMs: null } };
}

/**
 * The key as which a call is judged. A key that runs effects asks for its own calls, within its limits. One that does
 * not asks for those of others: what it may not do itself says nothing about them.
 */
export function asking(principal: Principal): Principal {
  if (principal.kind !== 'profile' || principal.scopes.includes('effects:run')) return principal;
  return { ...principal, scopes: [...principal.scopes, 'effects:preview'], allowedTools: null };
}

/** The tools that a key may know of: those that it may call or ask about. `null`: all. */
export function knownTools(principal: Principal): readonly string[] | null {
  return permit(principal, 'mcp.simulate').ok ? asking(principal).allowedTools : principal.allowedTools;
}

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
