import type { Directory } from '../identity/directory.ts';
import type { LivePauseView } from './pause-view.ts';

/** How often changes of other gateways are looked for, ms. Most are heard of earlier, by a message. */
const LOOK_EVERY_MS = 400;

/**
 * Keeps what is read without the store (workspaces, agents, pauses) as other gateways have left it. One look at a time;
 * what cannot be read now is read at the next look.
 * @returns ends it
 */
export function watchNeighbours(directory: Directory, pauses: LivePauseView): () => Promise<void> {
  let looking: Promise<void> | null = null;
  async function look(): Promise<void> {
    await Promise.allSettled([directory.refresh(), ...pauses.loaded().map((workspace) => pauses.refresh(workspace))]);
    looking = null;
  }
  const timer = setInterval(() => {
    looking ??= look();
  }, LOOK_EVERY_MS);
  timer.unref();
  return async () => {
    clearInterval(timer);
    await looking;
  };
}
