import type { Agent } from '../effects/model/principal.ts';
import type { EffectStore } from '../effects/store.ts';

/** The part of the configuration that names workspaces, agents and users. */
export interface DirectoryConfiguration {
  readonly workspaces: readonly { readonly id: string; readonly env: string; readonly agents: readonly Agent[] }[];
  /** All roles of a user, with those that other roles include. */
  readonly rolesOf: ReadonlyMap<string, readonly string[]>;
}

/**
 * Workspaces, agents and users: those in the configuration, and those registered in the store. Reads are synchronous.
 */
export interface Directory {
  agent(workspace: string, id: string): Agent | null;
  agents(workspace: string): readonly Agent[];
  workspaceExists(id: string): boolean;
  workspaces(): readonly string[];
  /** The fact `env` of a workspace; `prod` by default. */
  envOf(workspace: string): string;
  /** Whether the configuration names the user. */
  isUser(user: string): boolean;
  rolesOf(user: string): readonly string[];
  /** Reads what is in the store now. */
  refresh(): Promise<void>;
  /** Replaces the configuration. What was registered stays. */
  update(configuration: DirectoryConfiguration): void;
}

type Registry = Pick<EffectStore, 'workspaces' | 'agents'>;

interface Tables {
  readonly envs: ReadonlyMap<string, string>;
  readonly agents: ReadonlyMap<string, ReadonlyMap<string, Agent>>;
  readonly roles: ReadonlyMap<string, readonly string[]>;
}

/**
 * Makes the directory; call `refresh` once before using it. If an agent is both declared in the configuration and
 * registered under the same id, the declared one counts.
 */
export function createDirectory(initial: DirectoryConfiguration, store: Registry): Directory {
  let configuration = initial;
  let registered: { readonly workspaces: readonly string[]; readonly agents: readonly Agent[] } = {
    workspaces: [],
    agents: [],
  };
  let tables = tablesOf(configuration, registered);

  return {
    agent: (workspace, id) => tables.agents.get(workspace)?.get(id) ?? null,
    agents: (workspace) => [...(tables.agents.get(workspace)?.values() ?? [])],
    workspaceExists: (id) => tables.envs.has(id),
    workspaces: () => [...tables.envs.keys()],
    envOf: (workspace) => tables.envs.get(workspace) ?? DEFAULT_ENV,
    isUser: (user) => tables.roles.has(user),
    rolesOf: (user) => tables.roles.get(user) ?? [],
    async refresh() {
      const [workspaces, agents] = await Promise.all([store.workspaces(), store.agents()]);
      registered = { workspaces, agents };
      tables = tablesOf(configuration, registered);
    },
    update(next) {
      configuration = next;
      tables = tablesOf(configuration, registered);
    },
  };
}

const DEFAULT_ENV = 'prod';

function tablesOf(
  configuration: DirectoryConfiguration,
  registered: { readonly workspaces: readonly string[]; readonly agents: readonly Agent[] },
): Tables {
  const envs = new Map(registered.workspaces.map((id) => [id, DEFAULT_ENV]));
  for (const { id, env } of configuration.workspaces) envs.set(id, env);
  const agents = new Map([...envs.keys()].map((id) => [id, new Map<string, Agent>()]));
  for (const agent of [...registered.agents, ...configuration.workspaces.flatMap((workspace) => workspace.agents)])
    agents.get(agent.workspace)?.set(agent.id, agent);
  return { envs, agents, roles: configuration.rolesOf };
}
