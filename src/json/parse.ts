import { isJsonObject, type Json, type JsonObject } from './value.ts';
import { readJson } from './read.ts';

/** Any JSON, read as leniently as `JSON.parse` does; `undefined` where the text is none. For what is not decided upon. */
export function parseJson(text: string): Json | undefined {
  try {
    return readJson(text);
  } catch {
    return undefined;
  }
}

/** Like {@link parseJson}; `null` where the text is no object. */
export function parseObject(text: string): JsonObject | null {
  const value = parseJson(text);
  return isJsonObject(value) ? value : null;
}
