import type { EffectStore } from '../effects/store.ts';
import type { Reason } from '../effects/model/decision.ts';
import type { Agent, Principal } from '../effects/model/principal.ts';
import { permit } from './permissions.ts';
import type { Authorized, AuthorizeRequest } from '../effects/ports.ts';

/** The part of the configuration that names workspaces, agents and users. */
export interface DirectoryConfiguration {
  readonly workspaces: readonly { readonly id: string; readonly env: string; readonly agents: readonly Agent[] }[];
  /** All roles of a user, with those that other roles include. */
  readonly rolesOf: ReadonlyMap<string, readonly string[]>;
}

/**
 * Workspaces, agents and users: those in the configuration, and those registered in the store. Reads are synchronous.
 */
export type Directory = ReturnType<typeof createDirectory>;

/**
 * Makes the directory; call `refresh` once before using it. If an agent is both declared in the configuration and
 * registered under the same id, the declared one counts.
 */
export function createDirectory(initial: DirectoryConfiguration, store: Pick<EffectStore, 'workspaces' | 'agents'>) {
  let configuration = initial;
  let registered: { readonly workspaces: readonly string[]; readonly agents: readonly Agent[] } = {
    workspaces: [],
    agents: [],
  };
  let tables = tablesOf(configuration, registered);

  return {
    agent: (workspace: string, id: string): Agent | null => tables.agents.get(workspace)?.get(id) ?? null,
    agents: (workspace: string): readonly Agent[] => [...(tables.agents.get(workspace)?.values() ?? [])],
    workspaceExists: (id: string): boolean => tables.envs.has(id),
    workspaces: (): readonly string[] => [...tables.envs.keys()],
    /** The fact `env` of a workspace; `prod` by default. */
    envOf: (workspace: string): string => tables.envs.get(workspace) ?? DEFAULT_ENV,
    /** Whether the configuration names the user. */
    isUser: (user: string): boolean => tables.roles.has(user),
    rolesOf: (user: string): readonly string[] => tables.roles.get(user) ?? [],
    async refresh(): Promise<void> {
      const [workspaces, agents] = await Promise.all([store.workspaces(), store.agents()]);
      registered = { workspaces, agents };
      tables = tablesOf(configuration, registered);
    },
    /** Replaces the configuration. What was registered stays. */
    update(next: DirectoryConfiguration): void {
      configuration = next;
      tables = tablesOf(configuration, registered);
    },
  };
}

const DEFAULT_ENV = 'prod';

function tablesOf(
  configuration: DirectoryConfiguration,
  registered: { readonly workspaces: readonly string[]; readonly agents: readonly Agent[] },
): {
  readonly envs: ReadonlyMap<string, string>;
  readonly agents: ReadonlyMap<string, ReadonlyMap<string, Agent>>;
  readonly roles: ReadonlyMap<string, readonly string[]>;
} {
  const envs = new Map(registered.workspaces.map((id) => [id, DEFAULT_ENV]));
  for (const { id, env } of configuration.workspaces) envs.set(id, env);
  const agents = new Map([...envs.keys()].map((id) => [id, new Map<string, Agent>()]));
  for (const agent of [...registered.agents, ...configuration.workspaces.flatMap((workspace) => workspace.agents)])
    agents.get(agent.workspace)?.set(agent.id, agent);
  return { envs, agents, roles: configuration.rolesOf };
}

/**
 * Checks a run or preview request by its key, before policy: first what the key may do (`denied_permission`), then who
 * acts (`denied_identity`). Nothing here reveals whether a workspace or a tool exists.
 * @param request.agentId the agent that the request names, `null` when it names none
 */
export function authorize(
  directory: Pick<Directory, 'agent'>,
  principal: Principal,
  request: AuthorizeRequest,
): Authorized {
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

function denied(decision: 'denied_permission' | 'denied_identity', code: Reason['code'], message: string): Authorized {
  return { kind: 'denied', decision, reason: { code, message } };
}
