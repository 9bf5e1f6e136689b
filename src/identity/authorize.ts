import type { Reason } from '../effects/model/decision.ts';
import type { Agent, Principal } from '../effects/model/principal.ts';
import type { RequestFault } from '../effects/model/run-request.ts';
import type { Directory } from './directory.ts';
import { permit } from './permissions.ts';

/** Whether a key may let an agent act: the agent, a denial with its decision, or a request that names no agent. */
export type Authorization =
  | { readonly kind: 'agent'; readonly agent: Agent }
  | {
      readonly kind: 'denied';
      readonly decision: 'denied_permission' | 'denied_identity';
      readonly reason: Reason;
    }
  | { readonly kind: 'invalid'; readonly fault: RequestFault };

/**
 * Checks a run or preview request by its key, before policy: first what the key may do (`denied_permission`), then who
 * acts (`denied_identity`). Nothing here reveals whether a workspace or a tool exists.
 * @param request.agentId the agent that the request names, `null` when it names none
 */
export function authorize(
  directory: Pick<Directory, 'agent'>,
  principal: Principal,
  request: {
    readonly endpoint: 'effects.run' | 'effects.preview' | 'proxy.read';
    readonly workspace: string;
    readonly tool: string;
    readonly agentId: string | null;
  },
): Authorization {
  const permission = permit(principal, request.endpoint, request.workspace);
  if (!permission.ok) return denied('denied_permission', permission.code, permission.detail);
  if (principal.allowedTools !== null && !principal.allowedTools.includes(request.tool))
    return denied('denied_permission', 'tool_not_allowed', 'The key may not call this tool (`allowed_tools`).');

  const bound = agentOf(principal);
  if (bound !== null && request.agentId !== null && request.agentId !== bound)
    return denied(
      'denied_identity',
      'agent_mismatch',
      `The key acts as ${bound}, and the request names another agent.`,
    );
  const id = bound ?? request.agentId;
  if (id === null)
    return {
      kind: 'invalid',
      fault: { path: '/agent_id', message: 'This key belongs to no agent: name the one that acts in agent_id.' },
    };
  const agent = directory.agent(request.workspace, id);
  if (agent === null) return denied('denied_identity', 'unknown_agent', `The agent ${id} is not registered.`);
  if (agent.disabled) return denied('denied_identity', 'agent_disabled', `The agent ${id} is disabled.`);
  return { kind: 'agent', agent };
}

/** The agent that a key is bound to; `null` where it is bound to none. */
function agentOf(principal: Principal): string | null {
  switch (principal.kind) {
    case 'agent':
    case 'profile':
      return principal.agentId;
    case 'account':
    case 'administrative':
      return null;
  }
}

function denied(
  decision: 'denied_permission' | 'denied_identity',
  code: Reason['code'],
  message: string,
): Authorization {
  return { kind: 'denied', decision, reason: { code, message } };
}
