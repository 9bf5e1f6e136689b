import { JUDGED_METHODS } from '../../config/stand-in-tools.ts';
import { TASK_METHODS } from '../../mcp-protocol/tasks.ts';

/** What the gateway does with what a client sends. */
export type Treatment =
  /** A governed effect. */
  | 'govern'
  /** Passes where policy permits it. */
  | 'judge'
  /** Passes, and of the answer what the key may see. */
  | 'list_tools'
  /** Passes, and of the answer what was approved of what the server says of itself. */
  | 'introduce'
  /** The gateway answers it: a task is an effect. */
  | 'task'
  /** Passes for every agent of the workspace. */
  | 'pass'
  | 'deny';

const REQUESTS: Readonly<Record<string, Treatment>> = {
  ...Object.fromEntries(TASK_METHODS.map((method) => [method, 'task'] as const)),
  ...Object.fromEntries(JUDGED_METHODS.map((method) => [method, 'judge'] as const)),
  'tools/call': 'govern',
  'tools/list': 'list_tools',
  initialize: 'introduce',
  'server/discover': 'introduce',
  ping: 'pass',
  'resources/list': 'pass',
  'resources/templates/list': 'pass',
  'prompts/list': 'pass',
  'logging/setLevel': 'pass',
};

const NOTIFICATIONS: readonly string[] = [
  'notifications/initialized',
  'notifications/cancelled',
  'notifications/progress',
  'notifications/roots/list_changed',
];

/** The treatment of a request. @param allowed methods that the configuration lets pass besides */
export function treatmentOf(method: string, allowed: readonly string[]): Treatment {
  const known = Object.hasOwn(REQUESTS, method) ? REQUESTS[method] : undefined;
  // What is known is not loosened by the configuration.
  return known ?? (allowed.includes(method) ? 'pass' : 'deny');
}

/** The method as a line of the log names it; `null` where it may be anything that a caller wrote. */
export function knownMethod(method: string): string | null {
  return Object.hasOwn(REQUESTS, method) || NOTIFICATIONS.includes(method) ? method : null;
}

export function mayNotify(method: string, allowed: readonly string[]): boolean {
  return NOTIFICATIONS.includes(method) || allowed.includes(method);
}
