import { type TSchema, Type } from 'typebox';
import { type Duration, DURATION_PATTERN, type Size, SIZE_PATTERN } from './units.ts';

/** The kinds of fields in the configuration; see `schema.ts` for the annotations. */

/** An object with fixed fields. `name` completes the sentence "… is not a field of …". */
export function record<Fields extends Record<string, TSchema>>(name: string, description: string, fields: Fields) {
  return Type.Object(fields, { additionalProperties: false, 'x-name': name, description });
}

/** Like {@link record}, and empty by default. */
export function section<Fields extends Record<string, TSchema>>(name: string, description: string, fields: Fields) {
  return Type.Object(fields, { additionalProperties: false, 'x-name': name, description, default: {} });
}

/** A list, empty by default. */
export function list<Item extends TSchema>(description: string, item: Item) {
  return Type.Array(item, { description, default: [] });
}

/** One of several words. */
export function oneOf<const Word extends string>(words: readonly Word[], description: string, byDefault?: Word) {
  return Type.Unsafe<Word>({ type: 'string', enum: words, description, ...given(byDefault) });
}

/** A text with a pattern. `expected` completes the sentence "… has to be". */
export function text(pattern: string, expected: string, description: string, byDefault?: string) {
  return Type.String({ pattern, 'x-expected': expected, description, ...given(byDefault) });
}

/** A duration within bounds. */
export function duration(description: string, bounds: { min: string; max: string }, byDefault?: string) {
  return Type.Unsafe<Duration>({
    type: 'string',
    pattern: DURATION_PATTERN,
    'x-expected': 'a duration such as 250ms, 5s, 10m, 4h or 30d',
    'x-duration': bounds,
    description,
    ...given(byDefault),
  });
}

/** A duration within bounds, or a word. */
export function durationOr<const Word extends string>(
  word: Word,
  description: string,
  bounds: { min: string; max: string },
  byDefault: string,
) {
  return Type.Unsafe<Duration | Word>({
    type: 'string',
    pattern: `${DURATION_PATTERN}|^${word}$`,
    'x-expected': `a duration such as 30d, or ${word}`,
    'x-duration': bounds,
    description,
    default: byDefault,
  });
}

/** A size within bounds. */
export function size(description: string, bounds: { min: string; max: string }, byDefault: string) {
  return Type.Unsafe<Size>({
    type: 'string',
    pattern: SIZE_PATTERN,
    'x-expected': 'a size such as 512B, 64KiB or 1MiB',
    'x-size': bounds,
    description,
    default: byDefault,
  });
}

/** A whole number within bounds. */
export function integer(description: string, minimum: number, maximum: number, byDefault?: number) {
  return Type.Integer({ minimum, maximum, description, ...given(byDefault) });
}

export function flag(description: string, byDefault: boolean) {
  return Type.Boolean({ description, default: byDefault });
}

/** A field of the format that is not supported yet. Using it is an error that says so. */
export function later(what: string) {
  return Type.Optional(Type.Unsafe<never>({ not: {}, 'x-later': what, description: `Not yet supported: ${what}.` }));
}

function given<Value>(byDefault: Value | undefined): { default: Value } | Record<string, never> {
  return byDefault === undefined ? {} : { default: byDefault };
}

/** Patterns of names, and their descriptions for messages. */
export const slug = '^[A-Za-z0-9][A-Za-z0-9_-]{0,62}$';
export const slugWords = "a name of letters, digits, '_' and '-' (at most 63)";
export const personId = '^[A-Za-z0-9][A-Za-z0-9_.@:-]{0,127}$';
export const personWords = "an id of letters, digits and '_ . @ : -' (at most 128, a letter or digit first)";
export const roleName = '^[A-Za-z0-9][A-Za-z0-9_.:-]{0,62}$';
export const toolName = '^[A-Za-z0-9][A-Za-z0-9_-]*([./:][A-Za-z0-9_-]+)*$';
export const headerName = '^[A-Za-z0-9!#$%&*+.^_|~-]{1,100}$';
export const filePath = '^[^\\u0000]+$';

export const role = (description: string) =>
  text(roleName, "the name of a role (letters, digits and '_ . : -')", description);
export const path = (description: string) => text(filePath, 'a path', description);
