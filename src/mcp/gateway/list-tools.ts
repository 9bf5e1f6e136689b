import { canonicalJson } from '../../json/canonical.ts';
import { isJsonArray, isJsonObject, type Json, type JsonObject } from '../../json/value.ts';
import type { McpCall } from '../../effects/model/tool.ts';

/** The result of an answer; `null` where it is an error. */
export function resultIn({ result }: JsonObject): JsonObject | null {
  return isJsonObject(result) ? result : null;
}

const pins = new WeakMap<McpCall, string>();

function pinOf(call: McpCall): string {
  let pin = pins.get(call);
  if (pin === undefined) {
    pin = canonicalJson(call.pinned);
    pins.set(call, pin);
  }
  return pin;
}

/**
 * The answer to `tools/list` with those tools that are exactly as they were pinned and that the key may call, in the
 * order of their names. New and changed tools are not shown: their descriptions speak to the model. Neither is one that
 * stands twice: nobody knows which one would be called.
 * @param callOf how a tool is called, by its name at the server; `null` if it is not pinned, or not for this key
 */
export function visibleTools(message: JsonObject, callOf: (name: string) => McpCall | null): JsonObject {
  const { result } = message;
  if (!isJsonObject(result) || !isJsonArray(result['tools'])) return message;
  const twice = new Set<string>();
  const once = new Set<string>();
  for (const name of result['tools'].map(nameOf)) (once.has(name) ? twice : once).add(name);
  const tools = result['tools'].filter((tool) => !twice.has(nameOf(tool)) && isVisible(tool, callOf)).toSorted(byName);
  return { ...message, result: { ...result, tools } };
}

function isVisible(tool: Json, callOf: (name: string) => McpCall | null): boolean {
  if (!isJsonObject(tool)) return false;
  const { name } = tool;
  const call = typeof name === 'string' ? callOf(name) : null;
  return call !== null && canonicalJson(tool) === pinOf(call);
}

function byName(left: Json, right: Json): number {
  const [one, other] = [nameOf(left), nameOf(right)];
  return one < other ? -1 : one > other ? 1 : 0;
}

function nameOf(tool: Json): string {
  const name = isJsonObject(tool) ? tool['name'] : undefined;
  return typeof name === 'string' ? name : '';
}
