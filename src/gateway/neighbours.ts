import type { Directory } from '../identity/directory.ts';
import type { LivePauseView } from './pause-view.ts';

/** How often this gateway looks for changes of other gateways, ms. A message usually announces them earlier. */
const LOOK_EVERY_MS = 400;

/**
 * Keeps what is read without asking the store (workspaces, agents, pauses) up to date with other gateways' changes.
 * Only one look runs at a time. What cannot be read now is read at the next look.
 * @returns a function that stops it
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
