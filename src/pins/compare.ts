import { printable } from '../diagnostics/render.ts';
import { sizeUpTo } from '../json/size.ts';
import { type Json, type JsonObject, isJsonObject } from '../json/value.ts';
import { type Difference, differencesOf, renderDifferences } from './differences.ts';
import { toolDigest } from './digest.ts';
import { byName, type PinLock, type PinnedTool } from './lock-file.ts';

/** What a server says of itself. It holds for all of its tools. */
export interface ServerWords {
  /** `serverInfo.name`; `null` where the server gave none. */
  readonly server: string | null;
  readonly instructions: string | null;
}

/** What a server says now. `tools` are the items of all pages of `tools/list`, as they came over the wire. */
export interface LiveServer extends ServerWords {
  readonly tools: readonly Json[];
}

/**
 * How a tool stands to its pin. Only `unchanged` may be listed and called. A tool that was renamed is listed as
 * `renamed`, and its old name not as `gone`.
 */
export type ToolState =
  | { readonly kind: 'unchanged'; readonly name: string; readonly pin: PinnedTool }
  | { readonly kind: 'new'; readonly name: string; readonly live: PinnedTool }
  | {
      readonly kind: 'changed';
      readonly name: string;
      readonly pin: PinnedTool;
      readonly live: PinnedTool;
      readonly differences: readonly Difference[];
    }
  | { readonly kind: 'renamed'; readonly name: string; readonly from: string; readonly live: PinnedTool }
  | { readonly kind: 'gone'; readonly name: string; readonly pin: PinnedTool }
  /** Cannot be pinned, and so never approved. `name` is `null` where it has none. */
  | { readonly kind: 'unusable'; readonly name: string | null; readonly why: string };

export interface PinComparison {
  readonly upstream: string;
  readonly isUnchanged: boolean;
  /** Of `/server` and `/instructions`. They hold for all tools of the server: a change is one of every tool. */
  readonly about: readonly Difference[];
  /** By name; `unusable` ones last. A name is there once. */
  readonly tools: readonly ToolState[];
}

/**
 * Compares what a server says now with what was approved. The order of the tools, and of members in them, is no change.
 * @param lock `null` where nothing is pinned yet: then all tools are `new`
 */
export function comparePins(upstream: string, lock: PinLock | null, live: LiveServer): PinComparison {
  const steps = comparisonInSteps(upstream, lock, live, Infinity);
  for (;;) {
    const step = steps.next();
    if (step.done === true) return step.value;
  }
}

/** Like {@link comparePins}, one tool per step. @param most characters of a tool; a longer one is `unusable` */
export function* comparisonInSteps(
  upstream: string,
  lock: PinLock | null,
  live: LiveServer,
  most: number,
): Generator<void, PinComparison> {
  const { tools: found, unusable } = yield* pinnable(live.tools, most);
  const pins = new Map((lock?.tools ?? []).map((pin) => [pin.name, pin]));
  const present = new Set([...found.map(({ name }) => name), ...unusable.flatMap(({ name }) => name ?? [])]);
  const lost = new Map<string, PinnedTool>();
  const nameless = new Map<string, PinnedTool[]>();
  for (const pin of pins.values()) {
    if (present.has(pin.name)) continue;
    lost.set(pin.name, pin);
    const digest = digestWithoutName(pin);
    if (digest !== null) nameless.set(digest, [...(nameless.get(digest) ?? []), pin]);
    yield;
  }
  const states: Exclude<ToolState, { kind: 'unusable' }>[] = [];
  for (const tool of found) {
    const pin = pins.get(tool.name);
    if (pin === undefined) {
      const from = lost.size === 0 ? undefined : nameless.get(digestWithoutName(tool) ?? '')?.shift();
      if (from !== undefined) lost.delete(from.name);
      states.push(
        from === undefined
          ? { kind: 'new', name: tool.name, live: tool }
          : { kind: 'renamed', name: tool.name, from: from.name, live: tool },
      );
    } else if (pin.sha256 === tool.sha256) states.push({ kind: 'unchanged', name: tool.name, pin });
    else
      states.push({
        kind: 'changed',
        name: tool.name,
        pin,
        live: tool,
        differences: differencesOf(pin.tool, tool.tool),
      });
    yield;
  }
  for (const pin of lost.values()) states.push({ kind: 'gone', name: pin.name, pin });
  const tools = [...states.sort(byName), ...unusable];
  const about = lock === null ? [] : differencesOf(aboutOf(lock), aboutOf(live));
  return {
    upstream,
    isUnchanged: lock !== null && about.length === 0 && tools.every(({ kind }) => kind === 'unchanged'),
    about,
    tools,
  };
}

function aboutOf({ server, instructions }: ServerWords): JsonObject {
  return { ...(server !== null && { server }), ...(instructions !== null && { instructions }) };
}

function digestWithoutName({ tool }: PinnedTool): string | null {
  const digest = toolDigest({ ...tool, name: '' });
  return digest.ok ? digest.sha256 : null;
}

type Unusable = Extract<ToolState, { kind: 'unusable' }>;

/** The pins that the listed tools would have, by name. Of a name that is there twice nobody knows which would be called. */
function* pinnable(
  listed: readonly Json[],
  most: number,
): Generator<void, { readonly tools: PinnedTool[]; readonly unusable: Unusable[] }> {
  const tools = new Map<string, PinnedTool>();
  const unusable = new Map<string, Unusable>();
  const nameless: Unusable[] = [];
  for (const tool of listed) {
    const name = isJsonObject(tool) ? tool['name'] : undefined;
    if (!isJsonObject(tool) || typeof name !== 'string' || name === '') {
      nameless.push({ kind: 'unusable', name: null, why: 'it has no name' });
      continue;
    }
    const isLong = most !== Infinity && sizeUpTo(tool, most) > most;
    const digest = isLong ? { ok: false as const, why: `it is longer than ${most} characters` } : toolDigest(tool);
    yield;
    if (tools.delete(name) || unusable.has(name))
      unusable.set(name, { kind: 'unusable', name, why: 'the server lists the name twice' });
    else if (digest.ok) tools.set(name, { name, sha256: digest.sha256, tool });
    else unusable.set(name, { kind: 'unusable', name, why: digest.why });
  }
  const named = [...unusable.values()].sort((a, b) => byName({ name: a.name ?? '' }, { name: b.name ?? '' }));
  return { tools: [...tools.values()].sort(byName), unusable: [...named, ...nameless] };
}

/** What is approved of a comparison: all of it, or some tools by name. `about`: what the server says of itself, too. */
export type Approval =
  | { readonly kind: 'all' }
  | { readonly kind: 'tools'; readonly names: readonly string[]; readonly about: boolean };

/**
 * The pins after an approval. A renamed tool leaves its old name, a `gone` one its pin; of what is not named nothing
 * changes. Where nothing was pinned yet, what the server says of itself is pinned with its first tools.
 * @returns the names that there is nothing to approve of, if any; then nothing is approved
 */
export function approvePins(
  lock: PinLock | null,
  live: LiveServer,
  comparison: PinComparison,
  approval: Approval,
): { readonly ok: true; readonly lock: PinLock } | { readonly ok: false; readonly unknown: readonly string[] } {
  const states = new Map(comparison.tools.flatMap((state) => (state.kind === 'unusable' ? [] : [[state.name, state]])));
  const names = approval.kind === 'all' ? [...states.keys()] : approval.names;
  const unknown = names.filter((name) => !states.has(name));
  if (unknown.length > 0) return { ok: false, unknown };
  const pins = new Map((lock?.tools ?? []).map((pin) => [pin.name, pin]));
  for (const name of names) {
    const state = states.get(name);
    if (state === undefined || state.kind === 'unchanged') continue;
    if (state.kind === 'renamed') pins.delete(state.from);
    if (state.kind === 'gone') pins.delete(name);
    else pins.set(name, state.live);
  }
  const { upstream } = comparison;
  const { server, instructions } = lock === null || approval.kind === 'all' || approval.about ? live : lock;
  return { ok: true, lock: { upstream, server, instructions, tools: [...pins.values()].sort(byName) } };
}

/** A comparison as lines for people: a line a tool that is not unchanged, its differences under it. */
export function renderComparison(comparison: PinComparison): string[] {
  const lines: string[] = [];
  if (comparison.about.length > 0)
    lines.push('changed   what the server says of itself', ...indented(comparison.about));
  for (const state of comparison.tools) {
    const name = state.name === null ? '(without a name)' : printable(state.name);
    switch (state.kind) {
      case 'unchanged':
        break;
      case 'new':
        lines.push(`new       ${name}`, ...indented(differencesOf({}, state.live.tool)));
        break;
      case 'changed':
        lines.push(`changed   ${name}`, ...indented(state.differences));
        break;
      case 'renamed':
        lines.push(`renamed   ${printable(state.from)} → ${name}`);
        break;
      case 'gone':
        lines.push(`gone      ${name}`);
        break;
      case 'unusable':
        lines.push(`unusable  ${name}: ${printable(state.why)}`);
        break;
      default:
        return state satisfies never;
    }
  }
  return lines;
}

function indented(differences: readonly Difference[]): string[] {
  return renderDifferences(differences).map((line) => `    ${line}`);
}
