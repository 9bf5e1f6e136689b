import type { Json, JsonObject } from './json.ts';

/**
 * The canonical form of a JSON value (RFC 8785, JCS): names sorted by UTF-16 code units, no white space, numbers and
 * strings as ECMAScript writes them. Two values are equal as JSON exactly when their canonical forms are equal texts.
 * @throws TypeError on what JSON cannot carry: numbers that are not finite, lone surrogates.
 */
export function canonicalJson(value: Json): string {
  if (typeof value === 'string') return quote(value);
  if (typeof value === 'number') {
    if (!Number.isFinite(value)) throw new TypeError(`${value} has no JSON form`);
    // `+ 0` turns -0 into 0, as the standard demands.
    return String(value + 0);
  }
  if (typeof value !== 'object' || value === null) return String(value);
  return isArray(value) ? canonicalArray(value) : canonicalObject(value);
}

function canonicalArray(items: readonly Json[]): string {
  let text = '[';
  for (let index = 0; index < items.length; index += 1) {
    if (index > 0) text += ',';
    text += canonicalJson(items[index] ?? null);
  }
  return `${text}]`;
}

function canonicalObject(object: JsonObject): string {
  // The default order of `sort` is by UTF-16 code units, which is the order that RFC 8785 asks for.
  const names = Object.keys(object).sort();
  let text = '{';
  let separator = '';
  for (const name of names) {
    const member = object[name];
    if (member === undefined) continue;
    text += `${separator}${quote(name)}:${canonicalJson(member)}`;
    separator = ',';
  }
  return `${text}}`;
}

/** What JSON writes as it stands: ASCII that can be printed, but for the quotation mark and the backslash. */
const PLAIN = /^[ !#-[\]-~]*$/;

function quote(text: string): string {
  if (PLAIN.test(text)) return `"${text}"`;
  if (!text.isWellFormed()) throw new TypeError('a text with a lone surrogate has no JSON form');
  return JSON.stringify(text);
}

/** `Array.isArray` does not narrow a readonly array away from the union; this does. */
function isArray(value: readonly Json[] | JsonObject): value is readonly Json[] {
  return Array.isArray(value);
}
