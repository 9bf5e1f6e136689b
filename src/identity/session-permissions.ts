import type { EndpointId } from './permissions.ts';

/** What only a key itself does, and no session of the console: actions are those of agents, and sessions make no sessions. */
export const BY_KEY_ALONE: ReadonlySet<EndpointId> = new Set(['effects.run', 'console.enter']);

/**
 * What lets something happen, ends what holds it back, or cannot be taken back: for this a session has to have seen the
 * key, and not only a link. By method.
 */
export const STEP_UP: Readonly<Partial<Record<EndpointId, readonly string[]>>> = {
  'agents.describe': ['POST'],
  'agents.register': ['POST'],
  'approvals.decide': ['POST'],
  'brain.write': ['PUT', 'DELETE'],
  'claims.write': ['DELETE'],
  'effects.erase': ['DELETE'],
  'effects.resolve': ['POST'],
  'keys.manage': ['POST', 'DELETE'],
  'passkeys.write': ['DELETE'],
  'pauses.write': ['DELETE'],
  'policies.activate': ['POST'],
  'reservations.write': ['DELETE'],
  'workspaces.manage': ['POST'],
};

/** What a request by a session of the console needs, besides what its key may do. */
export function sessionMay(endpoint: EndpointId, method: string): 'yes' | 'after_step_up' | 'no' {
  if (BY_KEY_ALONE.has(endpoint)) return 'no';
  return STEP_UP[endpoint]?.includes(method) === true ? 'after_step_up' : 'yes';
}
