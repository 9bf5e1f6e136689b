import { isJsonObject, type Json, type JsonObject } from '../../json/value.ts';

/** The result of an answer; `null` where it is an error. */
export function resultIn({ result }: JsonObject): JsonObject | null {
  return isJsonObject(result) ? result : null;
}

/**
 * Some of the tools of an answer to `tools/list`, in the order of their names.
 * @param isVisible whether the tool is exactly as it was pinned, in this list too, and the key may call it. New and
 *   changed tools are not shown: their descriptions speak to the model
 */
export function visibleTools(tools: readonly Json[], isVisible: (name: string) => boolean): readonly Json[] {
  return tools.filter((tool) => isVisible(nameOf(tool))).toSorted(byName);
}

function byName(left: Json, right: Json): number {
  const [one, other] = [nameOf(left), nameOf(right)];
  return one < other ? -1 : one > other ? 1 : 0;
}

function nameOf(tool: Json): string {
  const name = isJsonObject(tool) ? tool['name'] : undefined;
  return typeof name === 'string' ? name : '';
}
