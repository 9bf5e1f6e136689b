import type { Mismatch } from '../model/action-call.ts';
import { sizeUpTo } from '../../json/size.ts';
import { type Json, isJsonArray, isJsonObject } from '../../json/value.ts';
import { beginning, shortened } from '../model/shortened.ts';

/** Limits on what is shown of mismatches, in characters of JSON: for one value, and for all values together. */
export const SHOWN_VALUES = { one: 1_024, all: 32_768 } as const;

/**
 * Mismatches in the form in which they are answered and kept. Each names its field. A long value is replaced by a text
 * with its beginning; once all values together are long, by `null`. Both are marked `truncated`. A value can be as
 * large as a body, and the same part of a state can differ under many names.
 */
export function shownMismatches(mismatches: readonly Mismatch[]): readonly Mismatch[] {
  let left: number = SHOWN_VALUES.all;
  const shown = (value: Json): { readonly value: Json; readonly whole: boolean } => {
    if (left <= 0) return { value: null, whole: false };
    const most = Math.min(SHOWN_VALUES.one, left);
    const size = sizeUpTo(value, most);
    if (size <= most) {
      left -= size;
      return { value, whole: true };
    }
    left -= most;
    return { value: `${beginningOf(value, most)}…`, whole: false };
  };
  return mismatches.map(({ field, assumed, current }) => {
    const before = shown(assumed);
    const now = shown(current);
    const whole = { field, assumed: before.value, current: now.value };
    return before.whole && now.whole ? whole : { ...whole, truncated: true };
  });
}

/** Field names for a sentence: at most ten, each cut, so that the sentence stays short. */
export function fieldList(fields: readonly string[], show: (field: string) => string = (field) => field): string {
  const shown = fields.slice(0, MOST_NAMES).map((field) => show(shortened(field, MOST_NAME)));
  return fields.length > shown.length
    ? `${shown.join(', ')} and ${fields.length - shown.length} more`
    : shown.join(', ');
}

const MOST_NAMES = 10;
const MOST_NAME = 100;

/** The beginning of a value: a text unchanged, anything else as JSON. No more JSON is written than is shown. */
function beginningOf(value: Json, most: number): string {
  let text = '';
  const write = (part: Json): void => {
    if (text.length > most) return;
    if (typeof part === 'string') text += JSON.stringify(part.slice(0, most));
    else if (isJsonArray(part)) {
      text += '[';
      for (const [index, element] of part.entries()) {
        if (text.length > most) return;
        if (index > 0) text += ',';
        write(element);
      }
      text += ']';
    } else if (isJsonObject(part)) {
      text += '{';
      for (const [index, name] of Object.keys(part).entries()) {
        if (text.length > most) return;
        text += `${index > 0 ? ',' : ''}${JSON.stringify(name.slice(0, most))}:`;
        write(part[name] ?? null);
      }
      text += '}';
    } else text += String(part);
  };
  if (typeof value === 'string') text = value.slice(0, most);
  else write(value);
  return beginning(text, most);
}
