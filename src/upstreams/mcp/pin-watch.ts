import { isJsonArray, type JsonObject } from '../../json/value.ts';
import { wordsIn } from '../../mcp-protocol/read-server.ts';
import type { LiveServer, ServerWords } from '../../pins/compare.ts';
import { readTools, ObservedServer, type PinState, shaOf } from '../../pins/observed.ts';
import type { McpCall } from '../../effects/model/tool.ts';
import { inspectServer } from './inspect-server.ts';
import type { Reached } from './server-requests.ts';

/** With this a server announces that its tools have changed. */
export const CHANGED = Buffer.from('notifications/tools/list_changed');
/** What was seen longer ago is looked at again beside the next call, ms. */
const FRESH_MS = 60_000;
/** What was seen longer ago is not relied on: the next call waits for a look, ms. */
const TRUSTED_MS = 600_000;
/** How soon a server that could not be looked at, or announces changes, is looked at again, ms. */
const AGAIN_MS = 2_000;

/**
 * Called after something was seen.
 * @param names of the tools, at their server, that it is about; `null`: all of them
 */
export type OnSeen = (names: readonly string[] | null) => void;

const shas = new WeakMap<McpCall, string>();

/** SHA-256 of a tool as it was approved. */
export function pinOf(call: McpCall): string {
  let pin = shas.get(call);
  if (pin === undefined) {
    pin = shaOf(call.pinned);
    shas.set(call, pin);
  }
  return pin;
}

/**
 * Knows whether the tools of one server are as they were pinned. It looks when the first call comes, when what it knows
 * is old, and when the server announces a change; lists that pass to agents tell it more. A call waits for a look only
 * where nothing recent is known.
 */
export class PinWatch {
  readonly #seen = new ObservedServer();
  readonly #elapsed: () => number;
  readonly #onSeen: OnSeen;
  #inspecting: Promise<LiveServer | string> | null = null;
  #begunAt = -Infinity;
  #failure: string | null = null;
  /** What was seen before may have changed since. */
  #doubtedAt = -Infinity;

  /** @param elapsed monotonic ms */
  constructor(elapsed: () => number, onSeen: OnSeen) {
    this.#elapsed = elapsed;
    this.#onSeen = onSeen;
  }

  /** How a tool stands now. What was seen too long ago is `unseen`. */
  stateOf(words: ServerWords | undefined, call: McpCall): PinState {
    if (!this.#isWithin(call.name, TRUSTED_MS)) return 'unseen';
    return this.#seen.stateOf(words, call.name, pinOf(call));
  }

  names(): readonly string[] {
    return this.#seen.names();
  }

  /** Why the last look failed; `null` where it did not. */
  get failure(): string | null {
    return this.#failure;
  }

  /** What is to be waited for before a call of a tool is judged; `null` where enough is known. */
  known(server: Reached, call: McpCall): Promise<void> | null {
    const isPinned = this.stateOf(server.settings.mcp.words, call) === 'pinned';
    // What would be refused is looked at once more: it may be as it was approved again.
    const isDue = !isPinned && this.#elapsed() - this.#begunAt > AGAIN_MS;
    if (!isDue && this.#isWithin(call.name, FRESH_MS)) return null;
    const inspecting = this.inspect(server);
    if (!isDue && this.#isWithin(call.name, TRUSTED_MS)) return null;
    // A look that began before the server announced a change does not tell what is now.
    return inspecting.then(() => (this.#begunAt > this.#doubtedAt ? undefined : this.inspect(server)));
  }

  /** Looks now, unless that was tried a moment ago. Never rejects. */
  async inspect(server: Reached): Promise<void> {
    await this.read(server);
  }

  /**
   * What the server says now; if it could not be read, and that was tried a moment ago, why. Never rejects. What was read
   * is not kept: it may be long.
   */
  read(server: Reached): Promise<LiveServer | string> {
    if (this.#inspecting !== null) return this.#inspecting;
    const now = this.#elapsed();
    if (now - this.#begunAt < AGAIN_MS && this.#failure !== null) return Promise.resolve(this.#failure);
    this.#begunAt = now;
    this.#inspecting = inspectServer(server).then(async (live) => {
      if (typeof live !== 'string') await readTools(live.tools, () => true);
      this.#inspecting = null;
      this.#failure = typeof live === 'string' ? live : null;
      // What changed while the list was read may not be in it: it was seen when the look began.
      if (typeof live !== 'string') this.#seen.listed(live, now, now - TRUSTED_MS);
      this.#onSeen(null);
      return live;
    });
    return this.#inspecting;
  }

  /** The server says that its list has changed: what was seen before counts no more. */
  doubt(server: Reached): void {
    this.#doubtedAt = this.#elapsed();
    // A server that announces changes all the time is looked at when the next call comes.
    if (this.#doubtedAt - this.#begunAt > AGAIN_MS) void this.inspect(server);
  }

  /** The answer to `tools/list` passes, once it was {@link readTools}. @param isPinned by the name at the server */
  passes(answer: JsonObject, isPinned: (name: string) => boolean): void {
    const { tools } = answer;
    if (!isJsonArray(tools)) return;
    this.#onSeen(this.#seen.passed(tools, isPinned, this.#elapsed()));
  }

  /**
   * The answer to `initialize` or `server/discover` passes.
   * @returns instructions, where somebody has approved them: they speak to the model
   */
  introduces(result: JsonObject, pinned: ServerWords | undefined): string | null {
    const words = wordsIn(result);
    // It holds for all tools.
    if (this.#seen.passedWords(words)) this.#onSeen(null);
    return pinned?.instructions === words.instructions ? words.instructions : null;
  }

  #isWithin(name: string, ms: number): boolean {
    const at = this.#seen.seenAt(name);
    return at > this.#doubtedAt && this.#elapsed() - at < ms;
  }
}
