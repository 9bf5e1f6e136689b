import { isJsonArray, isJsonObject, type Json, type JsonObject } from './value.ts';

/**
 * The canonical form of a JSON value (RFC 8785, JCS): names sorted by UTF-16 code units, no white space, numbers and
 * strings as ECMAScript writes them. Two values are equal as JSON exactly when their canonical forms are equal texts.
 * @throws TypeError on what JSON cannot carry: numbers that are not finite, lone surrogates.
 */
export function canonicalJson(value: Json): string {
  if (typeof value === 'string') return PLAIN.test(value) ? `"${value}"` : escaped(value);
  if (typeof value === 'number') {
    if (!Number.isFinite(value)) throw new TypeError(`${value} has no JSON form`);
    // `+ 0` turns -0 into 0, as the standard demands.
    return String(value + 0);
  }
  if (value === null || typeof value === 'boolean') return String(value);
  return isJsonArray(value) ? canonicalArray(value) : canonicalObject(value);
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
  const names = Object.keys(object);
  if (names.length > 1) inOrder(names);
  let text = '{';
  let separator = '';
  for (const name of names) {
    const member = object[name];
    if (member === undefined) continue;
    // No call for each of the plain texts that most names and members are.
    const value = typeof member === 'string' && PLAIN.test(member) ? `"${member}"` : canonicalJson(member);
    text += `${separator}${PLAIN.test(name) ? `"${name}"` : escaped(name)}:${value}`;
    separator = ',';
  }
  return `${text}}`;
}

/** Up to this many names are sorted by insertion. For so few, `sort` takes several times as long, and allocates. */
const FEW_NAMES = 12;

/** Sorts in place by UTF-16 code units, as RFC 8785 requires. `<` and `sort` compare in this order by default. */
function inOrder(names: string[]): void {
  if (names.length > FEW_NAMES) {
    names.sort();
    return;
  }
  for (let to = 1; to < names.length; to += 1) {
    const name = names[to] ?? '';
    let at = to;
    for (let before = names[at - 1]; before !== undefined && before > name; before = names[at - 1]) {
      names[at] = before;
      at -= 1;
    }
    names[at] = name;
  }
}

function escaped(text: string): string {
  if (!text.isWellFormed()) throw new TypeError('a text with a lone surrogate has no JSON form');
  return JSON.stringify(text);
}

/** Printable ASCII without the quotation mark and the backslash: JSON writes these characters without an escape. */
export const PLAIN = /^[ !#-[\]-~]*$/;

/** Writes a text as `JSON.stringify` does; for most texts it takes a third of the time. */
export function quote(text: string): string {
  return PLAIN.test(text) ? `"${text}"` : JSON.stringify(text);
}

/** Like {@link quote}, for a text that may be absent. */
export function quoteOr(text: string | null): string {
  return text === null ? 'null' : quote(text);
}

const QUOTE = 0x22;
const BACKSLASH = 0x5c;
const COLON = 0x3a;

/**
 * What `JSON.parse` should give. The V8 of Node 24 reads a name with escapes wrongly where an earlier object makes it
 * expect another one: after `{"a":0,"\\u0062":0}`, `{"a":0,"\u0062ody":1}` gets the name of the first
 * (https://github.com/nodejs/node/issues/63785). Whoever sends JSON could so have something else decided upon than what
 * everybody else reads. Texts with such names are read by {@link readEscapedNames}.
 * @throws SyntaxError where the text is no JSON; RangeError where it has escaped names and is nested too deep for the stack
 */
export function readJson(text: string): Json {
  const value: Json = JSON.parse(text);
  return hasEscapedName(text) ? readEscapedNames(text) : value;
}

/** The value of a text that is known to be JSON, and to have names with escapes. @throws RangeError as {@link readJson} */
export function readEscapedNames(text: string): Json {
  return new Reading(text).value();
}

/** The same, of a text that was written from a value of this type: reading it needs no check of its shape. */
export function readOwnJson<Written>(text: string): Written {
  const value: unknown = readJson(text);
  return value as Written;
}

/** Whether a name in a text of JSON has an escape. A backslash stands in strings only. */
function hasEscapedName(text: string): boolean {
  for (let at = text.indexOf('\\'); at !== -1; ) {
    const end = endOfString(text, at);
    if (text.charCodeAt(pastSpace(text, end.at)) === COLON) return true;
    at = text.indexOf('\\', end.at);
  }
  return false;
}

/** Just after the string in which `from` is, at a whole character of it, and whether an escape follows there. */
function endOfString(text: string, from: number): { readonly at: number; readonly escaped: boolean } {
  let escaped = false;
  let at = from;
  for (let code = text.charCodeAt(at); code !== QUOTE; code = text.charCodeAt(at)) {
    if (code === BACKSLASH) escaped = true;
    at += code === BACKSLASH ? 2 : 1;
  }
  return { at: at + 1, escaped };
}

function pastSpace(text: string, from: number): number {
  let at = from;
  for (let code = text.charCodeAt(at); code === 0x20 || code === 0x0a || code === 0x0d || code === 0x09; ) {
    at += 1;
    code = text.charCodeAt(at);
  }
  return at;
}

/** What stands between two signs of a list or object and is neither of them, nor a text. */
const WORD = /[^,\]}\s]+/y;

/** Reads a text that is JSON. V8 reads the scalars. */
class Reading {
  readonly #text: string;
  #at = 0;

  constructor(text: string) {
    this.#text = text;
  }

  value(): Json {
    switch (this.#next()) {
      case '{':
        return this.#object();
      case '[':
        return this.#list();
      case '"':
        return this.#string();
      default:
        return this.#word();
    }
  }

  #object(): Json {
    const object: Record<string, Json> = {};
    while (this.#beginsAnother('}')) {
      const name = this.#string();
      this.#next();
      this.#at += 1;
      const value = this.value();
      // An assignment to this name would set the prototype.
      if (name === '__proto__')
        Object.defineProperty(object, name, { value, enumerable: true, writable: true, configurable: true });
      else object[name] = value;
    }
    return object;
  }

  #list(): Json {
    const list: Json[] = [];
    while (this.#beginsAnother(']')) list.push(this.value());
    return list;
  }

  /** Goes past a bracket or a comma, to the next element or member; past the end where there is none. */
  #beginsAnother(end: string): boolean {
    if (this.#next() !== end) {
      this.#at += 1;
      if (this.#next() !== end) return true;
    }
    this.#at += 1;
    return false;
  }

  #string(): string {
    const open = this.#at;
    const { at, escaped } = endOfString(this.#text, open + 1);
    this.#at = at;
    return escaped ? JSON.parse(this.#text.slice(open, at)) : this.#text.slice(open + 1, at - 1);
  }

  #word(): Json {
    WORD.lastIndex = this.#at;
    const [word = ''] = WORD.exec(this.#text) ?? [];
    this.#at += word.length;
    return JSON.parse(word);
  }

  /** Goes past white space. @returns the character that stands there */
  #next(): string {
    this.#at = pastSpace(this.#text, this.#at);
    return this.#text.charAt(this.#at);
  }
}

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
