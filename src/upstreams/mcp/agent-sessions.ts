import { OwnSession } from './own-session.ts';
import type { Reached } from './server-requests.ts';

/** Sessions with one server at once. */
const MOST = 1_000;
/** How long one may be unused before it is ended, where the server does not say, ms. */
const IDLE_MS = 30 * 60_000;

/**
 * The gateway's sessions with one server for agents that call it without one of their own: each agent has one, so that
 * no agent sees what another does in its own.
 */
export class AgentSessions {
  readonly #now: () => number;
  /** The one that was used last is last. */
  readonly #sessions = new Map<string, { readonly session: OwnSession; readonly usedAt: number }>();

  /** @param now ms of a clock that never goes back */
  constructor(now: () => number) {
    this.#now = now;
  }

  /** The session of an agent. Ends those that nobody has used for long, and the oldest where there are too many. */
  of(agent: string, upstream: Reached): OwnSession {
    const now = this.#now();
    const session = this.#sessions.get(agent)?.session ?? new OwnSession(agent);
    this.#sessions.delete(agent);
    this.#sessions.set(agent, { session, usedAt: now });
    const { child, sse } = upstream.settings.mcp;
    const idleMs = child?.idleMs ?? sse?.idleMs ?? IDLE_MS;
    for (const [other, { session: unused, usedAt }] of this.#sessions) {
      if (now - usedAt <= idleMs && this.#sessions.size <= MOST) break;
      this.#sessions.delete(other);
      unused.end(upstream);
    }
    return session;
  }
}
