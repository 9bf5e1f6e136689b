/**
 * The only reads of the process's environment in the gateway. A variable that is set and empty counts as not set.
 * (The client package reads `SVC_API_KEY` for itself; it stands alone.)
 */
export interface Environment {
  /** `SVC_API_KEY`: key that the command line sends. */
  readonly apiKey: string | null;
  /** `SVC_BASE_URL`: gateway that the command line talks to. */
  readonly baseUrl: string | null;
  /** `SVC_WORKSPACE`: workspace that the command line means. */
  readonly workspace: string | null;
  /** `SVC_BOOTSTRAP_ADMIN_KEY_FILE`: file with the administrative key to use on an empty store. */
  readonly bootstrapAdminKeyFile: string | null;
  /** `NO_COLOR` (any value): text for people carries no colours. */
  readonly noColor: boolean;
}

/** Reads the variables that the gateway itself knows. */
export function readEnvironment(): Environment {
  return {
    apiKey: variable('SVC_API_KEY'),
    baseUrl: variable('SVC_BASE_URL'),
    workspace: variable('SVC_WORKSPACE'),
    bootstrapAdminKeyFile: variable('SVC_BOOTSTRAP_ADMIN_KEY_FILE'),
    noColor: variable('NO_COLOR') !== null,
  };
}

function variable(name: string): string | null {
  const value = process.env[name];
  return value === undefined || value === '' ? null : value;
}

/** Looks variables up for `${NAME}` in configuration files: first in `overlay`, then in the environment. */
export function environmentLookup(overlay: Readonly<Record<string, string>>): (name: string) => string | undefined {
  return (name) => (Object.hasOwn(overlay, name) ? overlay[name] : process.env[name]);
}
