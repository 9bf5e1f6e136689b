/*
 * The only reads of the process's environment in the gateway. A variable that is set and empty counts as not set. (The
 * client package reads what the command line sends, `SVC_API_KEY` and the like, for itself; it stands alone.)
 */

/** `SVC_BOOTSTRAP_ADMIN_KEY_FILE`: file with the administrative key to use on an empty store. */
export function bootstrapAdminKeyFile(): string | null {
  const value = process.env['SVC_BOOTSTRAP_ADMIN_KEY_FILE'];
  return value === undefined || value === '' ? null : value;
}

/** Looks variables up for `${NAME}` in configuration files: first in `overlay`, then in the environment. */
export function environmentLookup(overlay: Readonly<Record<string, string>>): (name: string) => string | undefined {
  return (name) => (Object.hasOwn(overlay, name) ? overlay[name] : process.env[name]);
}
