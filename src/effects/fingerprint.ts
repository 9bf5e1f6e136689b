import { createHmac, type KeyObject } from 'node:crypto';
import { canonicalJson } from './canonical-json.ts';
import type { JsonObject } from './json.ts';

/** What makes two calls the same action. Nothing else does: not the door, not the key that asks, not the time. */
export interface FingerprintedAction {
  readonly workspace: string;
  readonly agentId: string;
  readonly actionType: string;
  readonly tool: string;
  readonly target: string;
  readonly params: JsonObject;
}

/**
 * The fingerprint of an action: HMAC-SHA-256 over its canonical form, under a key of the workspace (a bare hash of
 * params falls to a dictionary). `fp1:` names the version of the form.
 */
export function fingerprint(key: KeyObject, action: FingerprintedAction): string {
  const canonical = canonicalJson({
    v: 1,
    workspace: action.workspace,
    agent_id: action.agentId,
    action_type: action.actionType,
    tool: action.tool,
    target: action.target,
    params: action.params,
  });
  return `fp1:${createHmac('sha256', key).update(canonical, 'utf8').digest('base64url')}`;
}

/**
 * The idempotency key of a call that brought none, on a route with `idempotency: derive`: the same action within the
 * same window is the same call. Windows begin at whole multiples of `windowMs`; a repeat in the next one is a new call.
 * @param now ms since the epoch, store time
 */
export function deriveKey(key: KeyObject, action: FingerprintedAction, windowMs: number, now: number): string {
  return `derived:${windowMs}:${Math.floor(now / windowMs)}:${fingerprint(key, action)}`;
}
