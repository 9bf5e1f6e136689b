/** Gives a place back. A second call does nothing. */
export type Place = () => void;

/** The places for work on one upstream, shared among agents. */
export interface Places {
  /**
   * Takes a place, or waits for one. `null` if none became free in time, because the agent has its share already or all
   * are taken.
   * @param agent who takes it, with its workspace
   */
  take(agent: string): Place | Promise<Place | null>;
}

/** An agent may take a place while it holds fewer than this many times the places that would stay free. */
const SHARE = 3;

interface Waiting {
  readonly give: (place: Place | null) => void;
  readonly timer: NodeJS.Timeout;
}

/**
 * Shares places so that no agent takes the last ones. An agent alone gets three quarters of them, a second one three
 * quarters of the rest, and so on. An agent without a place gets one as long as any is free. Waiting agents take turns.
 * @param waitMs how long a caller may wait for a place
 */
export function createPlaces(total: number, waitMs: number): Places {
  const held = new Map<string, number>();
  const waiting = new Map<string, Waiting[]>();
  let taken = 0;

  const mayTake = (agent: string): boolean => {
    const free = total - taken;
    const holds = held.get(agent) ?? 0;
    return free > 0 && (holds === 0 || holds < SHARE * (free - 1));
  };
  const take = (agent: string): Place => {
    taken += 1;
    held.set(agent, (held.get(agent) ?? 0) + 1);
    let isHeld = true;
    return () => {
      if (!isHeld) return;
      isHeld = false;
      taken -= 1;
      const left = (held.get(agent) ?? 1) - 1;
      if (left === 0) held.delete(agent);
      else held.set(agent, left);
      if (waiting.size > 0) serve();
    };
  };
  const serve = (): void => {
    for (const [agent, queue] of waiting) {
      if (!mayTake(agent)) continue;
      const next = queue.shift();
      // Put the agent at the end, so that the others come first.
      waiting.delete(agent);
      if (queue.length > 0) waiting.set(agent, queue);
      if (next === undefined) continue;
      clearTimeout(next.timer);
      next.give(take(agent));
      return serve();
    }
  };
  return {
    take: (agent) => {
      // Callers of this agent that already wait come first.
      if (!waiting.has(agent) && mayTake(agent)) return take(agent);
      if (waitMs === 0) return Promise.resolve(null);
      return new Promise((give) => {
        const queue = waiting.get(agent) ?? [];
        waiting.set(agent, queue);
        const one: Waiting = {
          give,
          timer: setTimeout(() => {
            queue.splice(queue.indexOf(one), 1);
            if (queue.length === 0 && waiting.get(agent) === queue) waiting.delete(agent);
            give(null);
          }, waitMs),
        };
        queue.push(one);
      });
    },
  };
}
