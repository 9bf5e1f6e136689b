import { type TSchema, Type } from 'typebox';
import { DURATION_PATTERN, SIZE_PATTERN } from './units.ts';

/** The forms that fields of the configuration have; see `schema.ts` for the annotations. */

/** An object of fixed fields. `name` ends the sentence "… is not a field of …". */
export function record<Fields extends Record<string, TSchema>>(name: string, description: string, fields: Fields) {
  return Type.Object(fields, { additionalProperties: false, 'x-name': name, description });
}

/** The same, empty where it is not written. */
export function section<Fields extends Record<string, TSchema>>(name: string, description: string, fields: Fields) {
  return Type.Object(fields, { additionalProperties: false, 'x-name': name, description, default: {} });
}

/** A list, empty where it is not written. */
export function list<Item extends TSchema>(description: string, item: Item) {
  return Type.Array(item, { description, default: [] });
}

/** One of some words. */
export function oneOf<const Word extends string>(words: readonly Word[], description: string, byDefault?: Word) {
  return Type.Unsafe<Word>({ type: 'string', enum: words, description, ...given(byDefault) });
}

/** A text of a form; `expected` ends the sentence "… has to be". */
export function text(pattern: string, expected: string, description: string, byDefault?: string) {
  return Type.String({ pattern, 'x-expected': expected, description, ...given(byDefault) });
}

/** A duration between two. */
export function duration(description: string, bounds: { min: string; max: string }, byDefault?: string) {
  return Type.String({
    pattern: DURATION_PATTERN,
    'x-expected': 'a duration such as 250ms, 5s, 10m, 4h or 30d',
    'x-duration': bounds,
    description,
    ...given(byDefault),
  });
}

/** A duration, or a word. */
export function durationOr(word: string, description: string, bounds: { min: string; max: string }, byDefault: string) {
  return Type.String({
    pattern: `${DURATION_PATTERN}|^${word}$`,
    'x-expected': `a duration such as 30d, or ${word}`,
    'x-duration': bounds,
    description,
    default: byDefault,
  });
}

/** A size between two. */
export function size(description: string, bounds: { min: string; max: string }, byDefault: string) {
  return Type.String({
    pattern: SIZE_PATTERN,
    'x-expected': 'a size such as 512B, 64KiB or 1MiB',
    'x-size': bounds,
    description,
    default: byDefault,
  });
}

/** A whole number between two. */
export function integer(description: string, minimum: number, maximum: number, byDefault?: number) {
  return Type.Integer({ minimum, maximum, description, ...given(byDefault) });
}

/** True or false. */
export function flag(description: string, byDefault: boolean) {
  return Type.Boolean({ description, default: byDefault });
}

/** A field that belongs to the format and is not supported yet: naming it is an error that says so. */
export function later(what: string) {
  return Type.Optional(Type.Unsafe<never>({ not: {}, 'x-later': what, description: `Not yet supported: ${what}.` }));
}

function given<Value>(byDefault: Value | undefined): { default: Value } | Record<string, never> {
  return byDefault === undefined ? {} : { default: byDefault };
}

/** Forms of names, and how they are told of. */
export const slug = '^[A-Za-z0-9][A-Za-z0-9_-]{0,62}$';
export const slugWords = "a name of letters, digits, '_' and '-' (at most 63)";
export const personId = '^[A-Za-z0-9][A-Za-z0-9_.@:-]{0,127}$';
export const personWords = "an id of letters, digits and '_ . @ : -' (at most 128, a letter or digit first)";
export const roleName = '^[A-Za-z0-9][A-Za-z0-9_.:-]{0,62}$';
export const toolName = '^[A-Za-z0-9][A-Za-z0-9_-]*([./:][A-Za-z0-9_-]+)*$';
export const headerName = '^[A-Za-z0-9!#$%&*+.^_|~-]{1,100}$';
export const filePath = '^[^\\u0000]+$';

/** The name of a role. */
export const role = (description: string) =>
  text(roleName, "the name of a role (letters, digits and '_ . : -')", description);
/** A path of a file or folder. */
export const path = (description: string) => text(filePath, 'a path', description);
