/** Requests are waited for until none has come for so long, ms. */
const QUIET_MS = 200;
/** And at most this long, ms: a caller that ignores `/readyz` cannot keep the gateway from stopping. */
const MOST_MS = 5_000;
const LOOK_MS = 20;
/** Between two looks the process reads what has come; a moment in which it does not run is one look, however long. */
const QUIET_LOOKS = QUIET_MS / LOOK_MS;

/** How a gateway stops without cutting anybody off: not ready first, then the last requests, then the port. */
export interface Drain {
  /** Told of each request. */
  arrived(): void;
  isDraining(): boolean;
  /**
   * From here on `/readyz` says that the gateway stops, and each answer closes its connection. Resolves when requests
   * have stopped coming: an idle connection that is closed then is not one that a request is on its way on.
   */
  drain(): Promise<void>;
  /** Work that goes on when its caller has gone away: what was sent must be settled while the store is there. */
  running<T>(work: Promise<T>): Promise<T>;
  /** Resolves when no such work is under way. */
  finished(): Promise<void>;
}

/** @param elapsed monotonic ms */
export function createDrain(elapsed: () => number): Drain {
  let isDraining = false;
  let lastAt = Number.NEGATIVE_INFINITY;
  let underWay = 0;
  let whenNone: () => void = () => undefined;
  return {
    arrived() {
      lastAt = elapsed();
    },
    isDraining: () => isDraining,
    async drain() {
      isDraining = true;
      const began = elapsed();
      // What came while the process stood still is read after this look, not before it.
      let left = began - lastAt < QUIET_MS ? QUIET_LOOKS : 1;
      while (left > 0 && elapsed() - began < MOST_MS) {
        const last = lastAt;
        await new Promise((resolve) => setTimeout(resolve, LOOK_MS));
        left = lastAt === last ? left - 1 : QUIET_LOOKS;
      }
    },
    async running(work) {
      underWay += 1;
      try {
        return await work;
      } finally {
        underWay -= 1;
        if (underWay === 0) whenNone();
      }
    },
    async finished() {
      if (underWay > 0)
        await new Promise<void>((resolve) => {
          whenNone = resolve;
        });
    },
  };
}
