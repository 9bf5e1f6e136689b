import { printable } from '../diagnostics/render.ts';
import { canonicalJson } from '../json/canonical.ts';
import { escapePointer } from '../json/pointer.ts';
import { type Json, isJsonArray, isJsonObject } from '../json/value.ts';

/** One place in which two JSON values differ. Paths are JSON Pointers; of a list's items, in the value that has them. */
export type Difference =
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
