import type { Configuration } from './configuration.ts';
import { JUDGED_METHODS, passingTool, undeclaredRead } from './stand-in-tools.ts';

/** What policies are compiled with: their paths, and the names that they can use. */
export function surroundingsOfPolicies(configuration: Configuration) {
  const { policies, tools, upstreams, pools, roles, rolesOf, routes, workspaces, users } = configuration;
  const agents = workspaces.flatMap((workspace) => workspace.agents);
  const present = (names: readonly (string | null)[]): string[] => [
    ...new Set(names.filter((name): name is string => name !== null)),
  ];
  const passing = new Set(
    routes.filter((route) => route.undeclared === 'passthrough_reads').map((route) => route.upstream),
  );
  const judged = upstreams
    .filter(({ mcp }) => mcp !== null)
    .flatMap(({ id }) => JUDGED_METHODS.map((method) => passingTool(id, method)));
  return {
    paths: policies.paths,
    tools: [...tools, ...[...passing].map(undeclaredRead), ...judged],
    upstreams: upstreams.map(({ id }) => id),
    pools: new Map(pools.map(({ id, units }) => [id, units])),
    roles,
    rolesOf,
    declared: new Map([
      ['env', present([...workspaces, ...upstreams, ...tools].map(({ env }) => env))],
      ['workspace', workspaces.map(({ id }) => id)],
      ['agent.id', agents.map(({ id }) => id)],
      ['agent.team', present(agents.map(({ team }) => team))],
      ['agent.roles', present(agents.flatMap((agent) => agent.roles))],
      ['key.user', users.map(({ id }) => id)],
    ]),
  };
}
