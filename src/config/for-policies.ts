import type { Configuration } from './configuration.ts';
import { undeclaredRead } from './undeclared-read.ts';

/** What policies are compiled with: their paths, and the names that they can use. */
export function surroundingsOfPolicies(configuration: Configuration) {
  const { policies, tools, upstreams, pools, roles, rolesOf, routes } = configuration;
  const passing = new Set(
    routes.filter((route) => route.undeclared === 'passthrough_reads').map((route) => route.upstream),
  );
  return {
    paths: policies.paths,
    tools: [...tools, ...[...passing].map(undeclaredRead)],
    upstreams: upstreams.map(({ id }) => id),
    pools: new Map(pools.map(({ id, units }) => [id, units])),
    roles,
    rolesOf,
  };
}
