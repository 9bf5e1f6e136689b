/** Stopping waits until no request has come for this long, ms. */
const QUIET_MS = 200;
/** But at most this long, ms: a caller that ignores `/readyz` must not keep the gateway from stopping. */
const MOST_MS = 5_000;
const CHECK_MS = 20;
/**
 * Between two looks the process reads what has arrived. If the process does not run for a while, that counts as one
 * look, however long it was.
 */
const QUIET_CHECKS = QUIET_MS / CHECK_MS;

/** How a gateway stops without cutting off anybody: first not ready, then the last requests, then the port. */
export type Drain = ReturnType<typeof createDrain>;

/** @param elapsed monotonic ms */
export function createDrain(elapsed = (): number => performance.now()) {
  let isDraining = false;
  let lastAt = Number.NEGATIVE_INFINITY;
  let underWay = 0;
  let whenNone: () => void = () => undefined;
  const begin = (): void => {
    underWay += 1;
  };
  const end = (): void => {
    underWay -= 1;
    if (underWay === 0) whenNone();
  };
  return {
    /** Called for each request. */
    arrived(): void {
      lastAt = elapsed();
    },
    isDraining: (): boolean => isDraining,
    /**
     * From now on `/readyz` says that the gateway is stopping, and each answer closes its connection. Resolves when no
     * more requests come. Then no request can be on its way on the idle connections that are closed next.
     */
    async drain(): Promise<void> {
      isDraining = true;
      const began = elapsed();
      // Requests that came while the process was stopped are read after this look, not before it.
      let left = began - lastAt < QUIET_MS ? QUIET_CHECKS : 1;
      while (left > 0 && elapsed() - began < MOST_MS) {
        const last = lastAt;
        await new Promise((resolve) => setTimeout(resolve, CHECK_MS));
        left = lastAt === last ? left - 1 : QUIET_CHECKS;
      }
    },
    /** Work begins that continues after its caller has gone: what was sent must be settled while the store is open. */
    begin,
    end,
    /** The same, for as long as a promise takes. */
    running<T>(work: Promise<T>): Promise<T> {
      begin();
      return work.finally(end);
    },
    /** Resolves when no such work is running. */
    async finished(): Promise<void> {
      if (underWay > 0)
        await new Promise<void>((resolve) => {
          whenNone = resolve;
        });
    },
  };
}
