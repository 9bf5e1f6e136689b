import { DECISION_TABLE } from '../effects/model/decision.ts';
import { type Json, isJsonObject } from '../json/value.ts';
import type { RenderedOutcome } from '../effects/run/render.ts';
import type { Caller } from './app.ts';

/**
 * The decision on a run request whose key may not run actions, when its body cannot be read either. Permission is
 * judged before the body. Nobody could read the action, so nothing can be recorded about it, and there is no effect id.
 */
export function decisionOfRefusal(
  refusal: NonNullable<Caller['refusal']>,
  body: unknown,
  publicUrl: string,
): RenderedOutcome {
  const { status, happened, next } = DECISION_TABLE.denied_permission;
  return {
    status,
    headers: {
      'content-type': 'application/json; charset=utf-8',
      'svc-decision': 'denied_permission',
      'x-should-retry': 'false',
    },
    body: {
      decision: 'denied_permission',
      ...namesIn(body as Json),
      reason: { code: refusal.code, message: refusal.detail },
      did_it_happen: happened,
      safe_to_retry: true,
      next,
      links: { docs: `${publicUrl}/docs/errors/${refusal.code}` },
    },
  };
}

/** The names that the body gives for the call, if they are strings. */
function namesIn(body: Json | undefined): Record<string, Json> {
  if (!isJsonObject(body)) return {};
  const found: Record<string, Json> = {};
  for (const name of ['tool', 'target', 'agent_id', 'idempotency_key']) {
    const value = body[name];
    if (typeof value === 'string' && value.length <= 1024) found[name] = value;
  }
  return found;
}
