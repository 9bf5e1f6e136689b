import { homedir } from 'node:os';
import { isAbsolute, join } from 'node:path';

/*
 * Only this file reads the environment of the gateway process. A variable that is set but empty counts as not set. (The
 * client package stands alone and reads what the command line sends, such as `SVC_API_KEY`.)
 */

/** `SVC_BOOTSTRAP_ADMIN_KEY_FILE`: the file with the administrative key for an empty store. */
export function bootstrapAdminKeyFile(): string | null {
  const value = process.env['SVC_BOOTSTRAP_ADMIN_KEY_FILE'];
  return value === undefined || value === '' ? null : value;
}

/**
 * The folder of this user's state of svc-gateway: below `XDG_STATE_HOME` if that is an absolute path, else below
 * `~/.local/state`.
 */
export function stateFolder(): string {
  const state = process.env['XDG_STATE_HOME'] ?? '';
  return join(isAbsolute(state) ? state : join(home(), '.local', 'state'), 'svc-gateway');
}

/** A user that the system does not know, as in some containers, has none. */
function home(): string {
  try {
    return homedir();
  } catch {
    return '/';
  }
}

/** Looks up variables for `${NAME}` in configuration files: first in `overlay`, then in the environment. */
export function environmentLookup(overlay: Readonly<Record<string, string>>): (name: string) => string | undefined {
  return (name) => [overlay, process.env].find((of) => Object.hasOwn(of, name))?.[name];
}
