import type { Agent, KeyKind } from '../effects/model/principal.ts';
import type { User, Workspace, Configuration } from './configuration.ts';
import { at, type Judge } from './judge.ts';
import type { GatewayFile } from './schema.ts';
import { parseDuration } from './units.ts';

const SHIPPED_PROFILES = new Set(['mcp_readonly', 'mcp_operator', 'mcp_agent']);

/** Users with their roles, both declared and included. */
export function resolvePeople(
  file: GatewayFile,
  judge: Judge,
): { users: readonly User[]; roles: readonly string[]; rolesOf: ReadonlyMap<string, readonly string[]> } {
  judge.unique('user', file.users, 'id');
  refuseCycles(file.roles, judge);
  const declared = new Set(Object.keys(file.roles));
  const roles = new Set(declared);
  for (const { includes } of Object.values(file.roles)) for (const role of includes) roles.add(role);
  const inUse = new Set(roles);
  for (const user of file.users) {
    for (const [index, role] of user.roles.entries()) {
      // Roles need no declaration. But where some are declared, an otherwise unknown role may be a typing error.
      if (declared.size > 0 && !inUse.has(role))
        judge.warn('undeclared_role', at(user, 'roles', index), [
          `The role '${role}' is not declared under roles`,
          `declare it: ${role}: {}`,
        ]);
      roles.add(role);
    }
  }
  const rolesOf = new Map(file.users.map((user) => [user.id, withIncluded(user.roles, file.roles)]));
  return { users: file.users.map(({ id, roles: own }) => ({ id, roles: own })), roles: [...roles], rolesOf };
}

type Roles = GatewayFile['roles'];

function includesOf(roles: Roles, role: string): readonly string[] {
  return Object.hasOwn(roles, role) ? (roles[role]?.includes ?? []) : [];
}

function withIncluded(own: readonly string[], roles: Roles): string[] {
  const all = new Set(own);
  for (const role of all) for (const included of includesOf(roles, role)) all.add(included);
  return [...all];
}

/** Reports each cycle once, at the first of its roles. */
function refuseCycles(roles: Roles, judge: Judge): void {
  const inCycle = new Set<string>();
  for (const [first, { includes }] of Object.entries(roles)) {
    if (inCycle.has(first)) continue;
    const cycle = pathBack(first, roles);
    if (cycle === null) continue;
    for (const role of cycle) inCycle.add(role);
    const index = includes.indexOf(cycle[1] ?? first);
    judge.error('role_cycle', at(roles, first, 'includes', index), `Roles include each other: ${cycle.join(' > ')}`);
  }
}

/** A shortest path from a role through its includes back to itself, with both ends; `null` where there is none. */
function pathBack(first: string, roles: Roles): string[] | null {
  const queue: string[][] = [[first]];
  const seen = new Set<string>();
  for (const way of queue) {
    for (const next of includesOf(roles, way.at(-1) ?? first)) {
      if (next === first) return [...way, next];
      if (seen.has(next)) continue;
      seen.add(next);
      queue.push([...way, next]);
    }
  }
  return null;
}

/** Workspaces and their agents. Owners must be users. */
export function resolveWorkspaces(file: GatewayFile, users: ReadonlySet<string>, judge: Judge): readonly Workspace[] {
  judge.unique('workspace', file.workspaces, 'id');
  return file.workspaces.map((workspace) => {
    judge.unique('agent', workspace.agents, 'id');
    const agents = workspace.agents.map((agent): Agent => {
      if (agent.owner !== undefined) judge.known('user', at(agent, 'owner'), agent.owner, users);
      return {
        id: agent.id,
        workspace: workspace.id,
        disabled: agent.disabled,
        team: agent.team ?? null,
        owner: agent.owner ?? null,
        roles: agent.roles,
        attributes: agent.attributes,
      };
    });
    return { id: workspace.id, env: workspace.env, agents };
  });
}

export function resolveAuth(file: GatewayFile, judge: Judge): Configuration['auth'] {
  judge.unique('profile', file.auth.profiles, 'name');
  const expiry = (kind: KeyKind): number | null => parseDuration(file.auth.default_expiry[kind]);
  return {
    queryKey: file.auth.query_key,
    defaultExpiryMs: {
      account: expiry('account'),
      agent: expiry('agent'),
      administrative: expiry('administrative'),
      profile: expiry('profile'),
    },
    profiles: file.auth.profiles.map((profile) => {
      if (SHIPPED_PROFILES.has(profile.name))
        judge.error('reserved_name', at(profile, 'name'), [
          `The profile '${profile.name}' is shipped and cannot be changed`,
          'choose another name',
        ]);
      const writes = profile.scopes.findIndex((scope) => /:(run|write|decide)$/.test(scope));
      if (profile.read_only && writes >= 0)
        judge.warn(
          'read_only_scope',
          at(profile, 'scopes', writes),
          `The scope ${profile.scopes[writes]} has no effect in a read-only profile`,
        );
      return {
        name: profile.name,
        description: profile.description,
        scopes: profile.scopes,
        allowedTools: profile.allowed_tools ?? null,
        readOnly: profile.read_only,
      };
    }),
  };
}
