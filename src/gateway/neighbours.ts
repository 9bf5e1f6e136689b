import type { Directory } from '../identity/directory.ts';
import type { LivePauseView } from './pause-view.ts';

/** How often this gateway looks for changes of other gateways, ms. A message usually announces them earlier. */
const CHECK_EVERY_MS = 400;

/**
 * Keeps what is read without the store (workspaces, agents, pauses, policies) as other gateways have left it. One look at
 * a time; what cannot be read now is read at the next look.
 * @param follow takes on the policies in force, if they are others than here
 * @returns a function that stops it
 */
export function watchNeighbours(
  directory: Directory,
  pauses: LivePauseView,
  follow: () => Promise<void>,
): () => Promise<void> {
  let checking: Promise<void> | null = null;
  async function check(): Promise<void> {
    await Promise.allSettled([
      directory.refresh(),
      follow(),
      ...pauses.loaded().map((workspace) => pauses.refresh(workspace)),
    ]);
    checking = null;
  }
  const timer = setInterval(() => {
    checking ??= check();
  }, CHECK_EVERY_MS);
  timer.unref();
  return async () => {
    clearInterval(timer);
    await checking;
  };
}
