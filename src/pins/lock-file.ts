import { parseStrictJson } from '../json/strict.ts';
import { type Json, type JsonObject, isJsonArray, isJsonObject } from '../json/value.ts';
import { toolDigest } from './digest.ts';

/**
 * What somebody approved of an MCP upstream: its instructions, its name, and each tool as it came over the wire.
 * The tools are in the order of their names.
 */
export interface PinLock {
  /** Name of the upstream in the configuration. */
  readonly upstream: string;
  /** Name that the server gives itself; `null` where none is pinned. */
  readonly server: string | null;
  /** What the server tells every model that uses it; `null` where it tells nothing. */
  readonly instructions: string | null;
  readonly tools: readonly PinnedTool[];
}

export interface PinnedTool {
  readonly name: string;
  /** SHA-256 of the canonical form of `tool`. */
  readonly sha256: string;
  readonly tool: JsonObject;
}

/** A lock file that was read, or why it cannot be used, in one sentence without the file's name. */
export type ReadLock =
  | { readonly ok: true; readonly lock: PinLock }
  | { readonly ok: false; readonly message: string; readonly line: number | null };

const LIMITS = { depth: 128, values: 1_000_000, name: 10_000 };
const MEMBERS: readonly string[] = ['version', 'upstream', 'server', 'instructions', 'tools'];
const TOOL_MEMBERS: readonly string[] = ['name', 'sha256', 'tool'];

/**
 * Reads a lock file. It is read strictly, and each pin is computed anew: what a reviewer reads is what is in force, and
 * a tool that was edited by hand is refused.
 */
export function parsePinLock(text: Buffer | string): ReadLock {
  const parsed = parseStrictJson(text, LIMITS);
  if (!parsed.ok) return { ok: false, message: `it is not JSON: ${parsed.message}`, line: parsed.at?.line ?? null };
  const root = parsed.value;
  if (!isJsonObject(root)) return refused('it holds no object; `svc tools pin` writes such a file');
  if (root['version'] !== 1)
    return refused(`"version" is ${shown(root['version'])}, and this program reads version 1; use a newer svc`);
  const unknown = Object.keys(root).find((name) => !MEMBERS.includes(name));
  if (unknown !== undefined) return refused(`${shown(unknown)} is no member of a lock file (${MEMBERS.join(', ')})`);
  const { upstream, server, instructions, tools } = root;
  if (typeof upstream !== 'string' || upstream === '') return refused('"upstream" has to be the name of the upstream');
  if (server !== undefined && typeof server !== 'string') return refused('"server" has to be a text, or absent');
  if (instructions !== undefined && typeof instructions !== 'string')
    return refused('"instructions" has to be a text, or absent');
  if (!isJsonArray(tools)) return refused('"tools" has to be a list');
  const pinned: PinnedTool[] = [];
  const names = new Set<string>();
  for (const [index, entry] of tools.entries()) {
    const tool = parseTool(entry, `/tools/${index}`);
    if (typeof tool === 'string') return refused(tool);
    if (names.has(tool.name)) return refused(`/tools/${index}: the tool ${shown(tool.name)} is pinned twice`);
    names.add(tool.name);
    pinned.push(tool);
  }
  return {
    ok: true,
    lock: { upstream, server: server ?? null, instructions: instructions ?? null, tools: pinned.sort(byName) },
  };
}

/** A pinned tool, or what is wrong with the entry. */
function parseTool(entry: Json, at: string): PinnedTool | string {
  if (!isJsonObject(entry)) return `${at} has to be an object with name, sha256 and tool`;
  const unknown = Object.keys(entry).find((name) => !TOOL_MEMBERS.includes(name));
  if (unknown !== undefined)
    return `${at}: ${shown(unknown)} is no member of a pinned tool (${TOOL_MEMBERS.join(', ')})`;
  const { name, sha256, tool } = entry;
  if (typeof name !== 'string' || name === '') return `${at}/name has to be the name of the tool`;
  if (!isJsonObject(tool)) return `${at}/tool has to be the tool as the server listed it`;
  if (tool['name'] !== name) return `${at}: the name is ${shown(name)}, and that of its tool ${shown(tool['name'])}`;
  const digest = toolDigest(tool);
  if (!digest.ok) return `${at}/tool cannot be pinned: ${digest.why}`;
  if (sha256 !== digest.sha256)
    return `${at}: the tool ${shown(name)} is not the one that was pinned (sha256 ${shown(sha256)}, and of the tool in the file ${digest.sha256}); approve it with \`svc tools approve\` instead of editing the file`;
  return { name, sha256, tool };
}

/**
 * A lock file's text. The same pins give the same bytes: tools by name, members in canonical order, a member a line.
 * Invisible characters are escaped, because a reviewer has to see them.
 */
export function renderPinLock(lock: PinLock): string {
  const file = {
    version: 1,
    upstream: lock.upstream,
    ...(lock.server !== null && { server: lock.server }),
    ...(lock.instructions !== null && { instructions: lock.instructions }),
    tools: lock.tools.map(({ name, sha256, tool }) => ({ name, sha256, tool: inOrder(tool) })),
  };
  return `${visible(JSON.stringify(file, null, 2))}\n`;
}

function inOrder(value: Json): Json {
  if (isJsonArray(value)) return value.map(inOrder);
  if (!isJsonObject(value)) return value;
  return Object.fromEntries(
    Object.keys(value)
      .sort()
      .map((name) => [name, inOrder(value[name] ?? null)]),
  );
}

/** Outside of texts, JSON has no such character: each that is found may be written as an escape. */
const INVISIBLE = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Co}\p{Cn}\p{Variation_Selector}\u00a0\u115f\u1160\u3164\uffa0]/gu;

function visible(json: string): string {
  return json.replace(INVISIBLE, (found) => (found === '\n' ? found : escaped(found)));
}

function escaped(character: string): string {
  let text = '';
  for (let index = 0; index < character.length; index += 1)
    text += `\\u${character.charCodeAt(index).toString(16).padStart(4, '0')}`;
  return text;
}

/** Orders by name, in UTF-16 code units: the same on every machine. */
export function byName(a: { readonly name: string }, b: { readonly name: string }): number {
  if (a.name === b.name) return 0;
  return a.name < b.name ? -1 : 1;
}

function refused(message: string): ReadLock {
  return { ok: false, message, line: null };
}

function shown(value: Json | undefined): string {
  const text = value === undefined ? 'absent' : JSON.stringify(value);
  return text.length <= 100 ? text : `${text.slice(0, 100)}…`;
}
