import { printable } from '../diagnostics/render.ts';
import { canonicalJson } from '../json/text.ts';
import { escapePointer, type Json, type JsonObject, isJsonObject, isJsonArray } from '../json/value.ts';
import { sizeUpTo } from '../json/size.ts';
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
type ToolState =
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

/** One place in which two JSON values differ. Paths are JSON Pointers; of a list's items, in the value that has them. */
type Difference =
  | { readonly kind: 'added'; readonly path: string; readonly after: Json }
  | { readonly kind: 'removed'; readonly path: string; readonly before: Json }
  | { readonly kind: 'changed'; readonly path: string; readonly before: Json; readonly after: Json };

/**
 * The places in which two values differ, by name in canonical order. None exactly when their canonical forms are equal.
 * Items of a list are compared between its equal beginning and its equal end.
 */
export function differencesOf(before: Json, after: Json, path = ''): Difference[] {
  if (isJsonObject(before) && isJsonObject(after)) {
    const names = [...new Set([...Object.keys(before), ...Object.keys(after)])].sort();
    return names.flatMap((name) =>
      memberDifferences(own(before, name), own(after, name), `${path}/${escapePointer(name)}`),
    );
  }
  if (isJsonArray(before) && isJsonArray(after)) return itemDifferences(before, after, path);
  return isSame(before, after) ? [] : [{ kind: 'changed', path, before, after }];
}

function own(object: { readonly [name: string]: Json }, name: string): Json | undefined {
  return Object.hasOwn(object, name) ? object[name] : undefined;
}

function memberDifferences(before: Json | undefined, after: Json | undefined, path: string): Difference[] {
  if (before === undefined) return after === undefined ? [] : [{ kind: 'added', path, after }];
  if (after === undefined) return [{ kind: 'removed', path, before }];
  return differencesOf(before, after, path);
}

function itemDifferences(before: readonly Json[], after: readonly Json[], path: string): Difference[] {
  const shorter = Math.min(before.length, after.length);
  let start = 0;
  while (start < shorter && isSame(before[start], after[start])) start += 1;
  let end = 0;
  while (end < shorter - start && isSame(before.at(-1 - end), after.at(-1 - end))) end += 1;
  const found: Difference[] = [];
  for (let index = start; index < Math.max(before.length, after.length) - end; index += 1) {
    const was = index < before.length - end ? before[index] : undefined;
    const is = index < after.length - end ? after[index] : undefined;
    found.push(...memberDifferences(was, is, `${path}/${index}`));
  }
  return found;
}

function isSame(before: Json | undefined, after: Json | undefined): boolean {
  if (before === undefined || after === undefined) return before === after;
  return canonicalJson(before) === canonicalJson(after);
}

/** Characters of a value that a line shows, unless the whole is asked for. */
const SHOWN = 400;

/**
 * Differences as lines for people: `+ /path: value`, `- /path: value`, and for a change both. Invisible characters are
 * escaped, because instructions can be hidden in them.
 * @param most characters of a value that are shown
 */
export function renderDifferences(differences: readonly Difference[], most = SHOWN): string[] {
  return differences.flatMap((difference) => {
    const at = printable(difference.path === '' ? '/' : difference.path);
    switch (difference.kind) {
      case 'added':
        return [`+ ${at}: ${shown(difference.after, most)}`];
      case 'removed':
        return [`- ${at}: ${shown(difference.before, most)}`];
      case 'changed':
        return changed(at, difference.before, difference.after, most);
      default:
        return difference satisfies never;
    }
  });
}

/** Both values; of long texts, the part around the first place in which they differ. */
function changed(at: string, before: Json, after: Json, most: number): string[] {
  if (typeof before !== 'string' || typeof after !== 'string' || Math.max(before.length, after.length) <= most)
    return [`- ${at}: ${shown(before, most)}`, `+ ${at}: ${shown(after, most)}`];
  let same = 0;
  while (same < before.length && before[same] === after[same]) same += 1;
  const from = Math.max(0, same - Math.floor(most / 4));
  return [`- ${at}: ${excerpt(before, from, most)}`, `+ ${at}: ${excerpt(after, from, most)}`];
}

function excerpt(text: string, from: number, most: number): string {
  const part = text.slice(from, from + most);
  const rest = text.length - from - part.length;
  return `${from > 0 ? `(${from} equal characters) … ` : ''}${printable(JSON.stringify(part))}${left(rest)}`;
}

function shown(value: Json, most: number): string {
  const text = canonicalJson(value);
  return `${printable(text.slice(0, most))}${left(Math.max(0, text.length - most))}`;
}

function left(characters: number): string {
  return characters > 0 ? ` … (${characters} more characters)` : '';
}

/** A tool beside its pin, as the API and `svc tools --json` show it. */
export function toolStateToWire(state: ToolState) {
  return {
    name: state.name,
    state: state.kind,
    ...(state.kind === 'unusable' && { why: state.why }),
    ...(state.kind === 'renamed' && { from: state.from }),
    ...(state.kind === 'changed' && { differences: state.differences }),
    ...('pin' in state && { pinned: state.pin.sha256 }),
    ...('live' in state && { sha256: state.live.sha256 }),
  };
}

export function comparisonToWire({ upstream, isUnchanged, about, tools }: PinComparison) {
  return { upstream, unchanged: isUnchanged, about, tools: tools.map(toolStateToWire) };
}
