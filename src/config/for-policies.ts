import type { Configuration } from './configuration.ts';

/** What policies are compiled against: where they are, and the names that they may use. */
export function surroundingsOfPolicies(configuration: Configuration) {
  const { policies, tools, upstreams, pools, roles, rolesOf } = configuration;
  return {
    paths: policies.paths,
    tools,
    upstreams: upstreams.map(({ id }) => id),
    pools: new Map(pools.map(({ id, units }) => [id, units])),
    roles,
    rolesOf,
  };
}
