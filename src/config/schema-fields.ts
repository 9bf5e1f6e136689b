import { type TSchema, Type } from 'typebox';
import type { JsonObject } from '../json/value.ts';
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

export function oneOf<const Word extends string>(words: readonly Word[], description: string, byDefault?: Word) {
  return Type.Unsafe<Word>({ type: 'string', enum: words, description, ...given(byDefault) });
}

/** A text with a pattern. `expected` completes the sentence "… has to be". */
export function text(pattern: string, expected: string, description: string, byDefault?: string) {
  return Type.String({ pattern, 'x-expected': expected, description, ...given(byDefault) });
}

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

const conditions = (description: string) => Type.Unsafe<JsonObject>({ type: 'object', description, default: {} });

/** How the outcome of a call that is unknown can be found out. `asks`: what is sent for it. */
export function probe<Asks extends Record<string, TSchema>>(asks: Asks) {
  return Type.Optional(
    record('probe', 'How to find out what became of a call whose outcome is unknown. The gateway asks by itself.', {
      ...asks,
      happened: conditions(
        'Conditions on the answer, as POST /outcomes/reconcile takes them; all hold once it happened. Over HTTP on the members of the body and http_status (unless it is named: 200 to 299), of MCP on the result, isError (unless named: false) and json, what its text says. {name} alone stands for a param of the call.',
      ),
      not_happened: conditions(
        'The same for what shows that it did not happen. It counts once nothing can be under way any more (max_processing has to cover how late reads may be), and twice.',
      ),
      every: duration(
        'How long after a reading the next one may be made; two that show that it did not happen are at least so far apart.',
        { min: '100ms', max: '1h' },
        '5s',
      ),
      after: duration(
        'How long after an outcome became unknown the gateway asks for the first time.',
        { min: '0s', max: '1d' },
        '2s',
      ),
      for: duration(
        'How long after an outcome became unknown the gateway goes on asking, ever less often. 0s: only agents and operators ask. It has to be longer than max_processing and store.max_freeze for what did not happen to be found.',
        { min: '0s', max: '30d' },
        '1h',
      ),
      accept_state_evidence: flag(
        'Whether it is enough that a state holds, which others may have brought about. Without it the request has to carry {idempotency_key}, the key as the upstream got it.',
        false,
      ),
    }),
  );
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
