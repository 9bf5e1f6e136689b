import { type Effect, of, OWN } from './api.ts';

interface Listener {
  /** Effects that changed, in the order in which they did. */
  readonly changed: (effects: readonly Effect[]) => void;
  /** So much happened, or the stream was interrupted: only the list has it. */
  readonly lost: () => void;
  readonly standing: (isLive: boolean) => void;
}

/** So many changes wait for a frame; a page that nobody sees draws none. With more, only the list has them. */
const MOST_WAITING = 1_000;
const FIRST_RETRY_MS = 1_000;
const SLOWEST_RETRY_MS = 15_000;

/**
 * Follows the effects of a workspace. Changes are handed on once a frame, however many come.
 * @returns stops it
 */
export function follow(workspace: string, listener: Listener): () => void {
  const stop = new AbortController();
  let waiting: Effect[] = [];
  let frame = 0;

  const flush = (): void => {
    frame = 0;
    const effects = waiting;
    waiting = [];
    if (effects.length === MOST_WAITING) listener.lost();
    else listener.changed(effects);
  };

  const take = (event: string, data: string): void => {
    if (event === 'more') listener.lost();
    if (event !== 'effect' || waiting.length === MOST_WAITING) return;
    waiting.push(JSON.parse(data) as Effect);
    if (frame === 0) frame = requestAnimationFrame(flush);
  };

  async function read(): Promise<void> {
    const answer = await fetch(`${of(workspace)}/effects/stream`, { headers: OWN, signal: stop.signal });
    if (!answer.ok || answer.body === null) throw new Error(`the stream answered ${answer.status}`);
    listener.standing(true);
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    let text = '';
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      text += value;
      for (let end = text.indexOf('\n\n'); end !== -1; end = text.indexOf('\n\n')) {
        const block = text.slice(0, end);
        text = text.slice(end + 2);
        take(/^event: (.*)$/m.exec(block)?.[1] ?? '', /^data: (.*)$/m.exec(block)?.[1] ?? '');
      }
    }
  }

  async function keepReading(): Promise<void> {
    let retry = FIRST_RETRY_MS;
    for (;;) {
      const began = performance.now();
      await read().catch(() => undefined);
      if (stop.signal.aborted) return;
      listener.standing(false);
      if (performance.now() - began > SLOWEST_RETRY_MS) retry = FIRST_RETRY_MS;
      await new Promise((resolve) => setTimeout(resolve, retry));
      if (stop.signal.aborted) return;
      retry = Math.min(retry * 2, SLOWEST_RETRY_MS);
      listener.lost();
    }
  }

  void keepReading();
  return () => {
    stop.abort();
    cancelAnimationFrame(frame);
  };
}
