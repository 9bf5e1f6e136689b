import { beginning } from '../model/shortened.ts';
import { isJsonArray, type Json, type JsonObject } from '../../json/value.ts';

/** The most characters of params that are shown, in total and of one text: a page for people has room for more. */
export const SHOWN = {
  answer: { total: 32_768, text: 2_000 },
  page: { total: 65_536, text: 20_000 },
} as const;

/** The most members of one list or object. */
const MAX_MEMBERS = 200;
const MAX_DEPTH = 16;
const CUT = '…';
export const REDACTED = '(redacted)';

/**
 * Shows every param by its name, in a readable size, and masks those that policy redacts. Every cut is marked in its
 * place: an approver must not take a part for the whole.
 */
export function shownParams(
  params: JsonObject,
  redacted: ReadonlySet<string>,
  where: keyof typeof SHOWN = 'answer',
): {
  readonly params: JsonObject;
  readonly truncated: boolean;
} {
  let left: number = SHOWN[where].total;
  let truncated = false;

  function text(whole: string): string {
    const length = Math.min(SHOWN[where].text, Math.max(0, left));
    left -= Math.min(whole.length, length) + 1;
    if (whole.length <= length) return whole;
    truncated = true;
    const part = beginning(whole, length);
    return `${part}${CUT} (${whole.length - part.length} more characters)`;
  }

  function value(of: Json, depth: number): Json {
    if (typeof of === 'string') return text(of);
    if (typeof of !== 'object' || of === null) {
      left -= 8;
      return of;
    }
    if (left <= 0 || depth === MAX_DEPTH) {
      truncated = true;
      return CUT;
    }
    return isJsonArray(of) ? list(of, depth) : object(of, depth, null);
  }

  function list(of: readonly Json[], depth: number): Json {
    const items: Json[] = [];
    for (const item of of) {
      if (left <= 0 || items.length === MAX_MEMBERS) {
        truncated = true;
        return [...items, `${CUT} (${of.length - items.length} more)`];
      }
      items.push(value(item, depth + 1));
    }
    return items;
  }

  function object(of: JsonObject, depth: number, masked: ReadonlySet<string> | null): JsonObject {
    const members: [string, Json][] = [];
    const names = Object.keys(of);
    for (const name of names) {
      if (left <= 0 || members.length === MAX_MEMBERS) {
        truncated = true;
        members.push([CUT, `${names.length - members.length} more`]);
        break;
      }
      members.push([text(name), masked?.has(name) === true ? REDACTED : value(of[name] ?? null, depth + 1)]);
    }
    return Object.fromEntries(members);
  }

  const shown = object(params, 0, redacted);
  return { params: shown, truncated };
}
