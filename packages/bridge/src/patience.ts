import { setTimeout as sleep } from 'node:timers/promises';

/* How long the bridge waits for what, ms. */

/** A message without an answer holds up what comes after it as long, and is tried as long at all. */
export const TURN_MS = 1_000;
export const DELIVERY_MS = 15_000;
/** A stream is read on after its answer: most end by themselves, and leave the connection to others. */
export const LINGER_MS = 1_000;
/** A gateway that does not listen is asked again. Nothing was sent meanwhile. */
export const RECONNECT_MS = 15_000;
/** Open requests may end after the end of the input. Hosts kill after two seconds. */
export const LAST_ANSWERS_MS = 1_000;
export const LAST_WORDS_MS = 200;
export const GOODBYE_MS = 500;
/** Between attempts, growing. A stream that lived longer than the longest wait begins anew with the shortest. */
export const MOST_WAIT_MS = 15_000;
const FIRST_WAIT_MS = 250;
/** Whatever a server asks for. */
const LEAST_WAIT_MS = 100;

/** Waits longer each time, or as long as the server says. Ends early when the signal does. */
export async function wait(attempt: number, retryMs: number | null, signal: AbortSignal): Promise<void> {
  const ms = Math.max(LEAST_WAIT_MS, retryMs ?? backoff(attempt));
  await sleep(ms, undefined, { signal }).catch(() => {});
}

/** How long to wait after so many attempts. */
export function backoff(attempt: number): number {
  return Math.min(MOST_WAIT_MS, FIRST_WAIT_MS * 2 ** attempt);
}

/** Resolves when something is so, or after so many ms. */
export async function until(isSo: () => boolean, most: number): Promise<void> {
  const end = Date.now() + most;
  while (Date.now() < end && !isSo()) await sleep(20);
}
