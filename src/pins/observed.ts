import { createHash } from 'node:crypto';
import { setImmediate as others } from 'node:timers/promises';
import { canonicalJson } from '../json/text.ts';
import { type Json, type JsonObject, isJsonObject } from '../json/value.ts';
import type { LiveServer, ServerWords } from './compare.ts';
import { isTooLong } from './digest.ts';

/**
 * How a pinned tool stands to what its server says of it now. Only `pinned` may be called. `gone`: the server does not
 * list it any more. `unseen`: nobody has seen yet what the server says.
 */
export type PinState = 'pinned' | 'changed' | 'gone' | 'unseen';

interface SeenTool {
  /** `null` where the name stood twice, and nobody knows which one would be called; and of what is too long for a pin. */
  readonly sha256: string | null;
  /** When, monotonic ms. */
  readonly at: number;
}

/** SHA-256 of the canonical form of a tool that was read strictly. Order makes no difference. */
export function shaOf(tool: Json): string {
  return createHash('sha256').update(canonicalJson(tool), 'utf8').digest('hex');
}

const known = new WeakMap<JsonObject, string | null>();

/** SHA-256 of a tool that a server lists; `null` where it is too long for a pin. Of each it is computed once. */
function shaOfListed(tool: JsonObject): string | null {
  let sha = known.get(tool);
  if (sha === undefined) {
    sha = isTooLong(tool) ? null : shaOf(tool);
    known.set(tool, sha);
  }
  return sha;
}

/** How long tools are looked at in one go, ms. */
const SLICE_MS = 2;

/**
 * Computes what is known of the tools of a list that matter, in slices, so that other requests get their turn: what is
 * asked of these tools afterwards takes no time.
 * @returns these tools
 */
export async function readTools(
  tools: readonly Json[],
  matters: (name: string) => boolean,
): Promise<readonly JsonObject[]> {
  const found: JsonObject[] = [];
  let begun = performance.now();
  for (const tool of tools) {
    if (isJsonObject(tool) && typeof tool['name'] === 'string' && matters(tool['name'])) {
      shaOfListed(tool);
      found.push(tool);
    }
    if (performance.now() - begun < SLICE_MS) continue;
    await others();
    begun = performance.now();
  }
  return found;
}

/**
 * What a server was seen to say of its tools: in the gateway's own looks, which are of the whole list, and in lists
 * that passed to agents. What was seen last counts. That a look does not find a tool which passed lately says nothing:
 * servers may list by session.
 */
export class ObservedServer {
  #listed: ReadonlyMap<string, SeenTool> | null = null;
  #lookedAt = -Infinity;
  #words: ServerWords | null = null;
  readonly #passed = new Map<string, SeenTool>();

  /**
   * The gateway has read the whole list.
   * @param at monotonic ms
   * @param since what passed earlier is forgotten
   */
  listed(live: LiveServer, at: number, since: number): void {
    for (const [name, seen] of this.#passed) if (seen.at < since) this.#passed.delete(name);
    this.#listed = byName(live.tools, at);
    this.#lookedAt = at;
    this.#words = live;
  }

  /**
   * A list, or a page of one, passed to an agent.
   * @param isPinned only these are remembered: a server can make up any number of names
   * @returns the names of these
   */
  passed(tools: readonly Json[], isPinned: (name: string) => boolean, at: number): readonly string[] {
    const names: string[] = [];
    for (const [name, seen] of byName(tools, at)) {
      if (!isPinned(name)) continue;
      this.#passed.set(name, seen);
      names.push(name);
    }
    return names;
  }

  /** What the server says of itself passed to an agent. @returns whether it is something else than before */
  passedWords(words: ServerWords): boolean {
    const before = this.#words;
    this.#words = words;
    return before === null || before.server !== words.server || before.instructions !== words.instructions;
  }

  /** When the tool was last seen, or its absence; monotonic ms. */
  seenAt(name: string): number {
    return Math.max(this.#lookedAt, this.#passed.get(name)?.at ?? -Infinity);
  }

  /** Names that the gateway saw in its last look. */
  names(): readonly string[] {
    return [...(this.#listed?.keys() ?? [])];
  }

  /** How a tool stands. @param pin SHA-256 of the tool as it was approved */
  stateOf(pinned: ServerWords | undefined, name: string, pin: string): PinState {
    const [listed, passed] = [this.#listed?.get(name), this.#passed.get(name)];
    const last = passed !== undefined && passed.at >= (listed?.at ?? -Infinity) ? passed : listed;
    if (last === undefined) return this.#listed === null ? 'unseen' : 'gone';
    // What the server says of itself holds for all of its tools.
    if (pinned !== undefined && this.#words !== null && !sameWords(pinned, this.#words)) return 'changed';
    return last.sha256 === pin ? 'pinned' : 'changed';
  }
}

/**
 * Whether a server says of itself what was approved. Of a name that is not pinned nothing is said; instructions reach
 * the model, so that new ones are a change too.
 */
export function sameWords(pinned: ServerWords, words: ServerWords): boolean {
  return (pinned.server === null || pinned.server === words.server) && pinned.instructions === words.instructions;
}

function byName(tools: readonly Json[], at: number): ReadonlyMap<string, SeenTool> {
  const seen = new Map<string, SeenTool>();
  for (const tool of tools) {
    if (!isJsonObject(tool)) continue;
    const { name } = tool;
    if (typeof name === 'string') seen.set(name, { sha256: seen.has(name) ? null : shaOfListed(tool), at });
  }
  return seen;
}
