import type { Tool } from '../effects/model/tool.ts';
import { canonicalJson } from '../json/canonical.ts';
import { writeSteps } from '../json/path-steps.ts';
import { placeInSchema } from '../json/schema-walk.ts';
import { isJsonArray, isJsonObject, type Json, type JsonObject } from '../json/value.ts';
import type { PolicyInput } from './input.ts';

/** Most values that a rule names one by one. */
const MOST_LISTED = 20;
/** Longest text that a rule names, characters. */
const MOST_TEXT = 200;
/** Largest list or map that a rule holds as it is, characters of its JSON. */
const MOST_WHOLE = 1_000;
/** What people cannot see, or see in another order than it stands: no rule that they are to read holds it. */
const UNSEEN = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Co}\p{Cs}]/u;
/** The only characters of texts that a pattern stands for: none of them leads out of a path or ends a word. */
const ONE_WORD = /^[A-Za-z0-9:_-]*$/;

/**
 * A condition that these calls meet, and others only where each param is within what was seen: numbers from the smallest
 * to the largest, texts from a list or with a beginning that all have, everything else as it was. Params that no call
 * had must be absent.
 * @returns `null` where they have too little in common to be bounded
 */
export function seenBounds(
  calls: readonly Pick<PolicyInput, 'params' | 'target'>[],
  { paramsSchema, target }: Tool,
): JsonObject | null {
  // Where the tool takes params that nobody has declared, no rule can name all that have to be absent.
  if (paramsSchema === null || paramsSchema['additionalProperties'] !== false) return null;
  const declared = paramsSchema['properties'];
  if (!isJsonObject(declared) || paramsSchema['patternProperties'] !== undefined) return null;
  const names = [...new Set([...Object.keys(declared), ...calls.flatMap(({ params }) => Object.keys(params))])];
  const bounds: Record<string, Json> = {};
  for (const name of names) {
    const values = calls.map(({ params }) => (Object.hasOwn(params, name) ? params[name] : undefined));
    const bound = boundOf(values, placeInSchema(paramsSchema, [name]).types);
    if (bound === null) return null;
    // Where it could not be judged, a call that people were asked about would be refused.
    const mayBeAbsent = !isRequired(paramsSchema, name) && !('exists' in bound) && !('if_absent' in bound);
    bounds[`params${writeSteps([name])}`] = mayBeAbsent ? { ...bound, if_absent: false } : bound;
  }
  if (target === null) {
    const bound = textBound(calls.map((call) => call.target));
    if (bound === null) return null;
    bounds['target'] = bound;
  }
  return bounds;
}

function isRequired({ required }: JsonObject, name: string): boolean {
  return isJsonArray(required) && required.includes(name);
}

function boundOf(values: readonly (Json | undefined)[], types: ReadonlySet<string>): JsonObject | null {
  const present = values.filter((value) => value !== undefined);
  const isOptional = present.length < values.length;
  // A rule cannot tell null from absent.
  if (present.includes(null) || (isOptional && (types.size === 0 || types.has('null')))) return null;
  if (present.length === 0) return { exists: false };
  const bound = presentBound(present, types);
  return bound === null || !isOptional ? bound : { ...bound, if_absent: true };
}

function presentBound(values: readonly Json[], types: ReadonlySet<string>): JsonObject | null {
  const numbers = values.filter((value) => typeof value === 'number');
  if (numbers.length === values.length) return numberBound(numbers, types);
  const texts = values.filter((value) => typeof value === 'string');
  if (texts.length === values.length) return textBound(texts);
  const [first, ...others] = values.map((value) => canonicalJson(value));
  const [value] = values;
  if (value === undefined || first === undefined || others.some((other) => other !== first)) return null;
  if (first.length > MOST_WHOLE || !isPlain(value)) return null;
  return typeof value === 'boolean' ? { eq: value } : { equals: value };
}

function numberBound(numbers: readonly number[], types: ReadonlySet<string>): JsonObject | null {
  const [least, most] = [Math.min(...numbers), Math.max(...numbers)];
  if (!numbers.every(Number.isInteger)) return least === most ? { eq: least } : null;
  if (!Number.isSafeInteger(least) || !Number.isSafeInteger(most)) return null;
  if (least === most) return { eq: least };
  // `type` takes no `if_absent`; a schema says it of most params anyway.
  return types.size === 1 && types.has('integer') ? { gte: least, lte: most } : null;
}

function textBound(texts: readonly string[]): JsonObject | null {
  if (texts.some((text) => text.length > MOST_TEXT || UNSEEN.test(text))) return null;
  const distinct = [...new Set(texts)].toSorted();
  const pattern = patternOf(distinct);
  // What was never sent twice is no list of what is usual.
  if (distinct.length === texts.length && texts.length > 1) return pattern === null ? null : { regex: pattern };
  if (distinct.length <= MOST_LISTED)
    return distinct.length === 1 ? { eq: asText(distinct[0]) } : { in: distinct.map(asText) };
  return pattern === null ? null : { regex: pattern };
}

/** A beginning that all texts have up to a separator, and one word after it that is no longer than those seen. */
function patternOf(texts: readonly string[]): string | null {
  const [first = ''] = texts;
  const last = texts.at(-1) ?? '';
  if (!texts.every((text) => ONE_WORD.test(text))) return null;
  let length = 0;
  while (length < first.length && first[length] === last[length]) length += 1;
  const prefix = /^.*[:_-]/.exec(first.slice(0, length))?.[0] ?? '';
  const tails = texts.map((text) => text.slice(prefix.length));
  if (prefix === '' || tails.some((tail) => !/^[A-Za-z0-9_-]+$/.test(tail))) return null;
  const alphabet = tails.every((tail) => /^[0-9]+$/.test(tail)) ? '0-9' : 'A-Za-z0-9_-';
  const lengths = tails.map((tail) => tail.length);
  const [least, most] = [Math.min(...lengths), Math.max(...lengths)];
  return `${prefix}[${alphabet}]{${least === most ? least : `${least},${most}`}}`;
}

/** In a policy, a text that begins with `$` is a name, and `$$` stands for the `$`. */
function asText(text = ''): string {
  return text.startsWith('$') ? `$${text}` : text;
}

/** Whether a list or map can stand in a rule as it is. */
function isPlain(value: Json): boolean {
  if (typeof value === 'string') return value.length <= MOST_TEXT && !UNSEEN.test(value) && !value.startsWith('$');
  if (typeof value !== 'object' || value === null) return true;
  return Object.entries(value).every(([name, part]) => isPlain(name) && isPlain(part));
}
