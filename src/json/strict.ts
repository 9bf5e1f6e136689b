import { isUtf8 } from 'node:buffer';
import { readEscapedNames } from './text.ts';
import type { Json, JsonObject } from './value.ts';
import type { Open, Scan } from './scan.ts';

export type StrictJson =
  | { readonly ok: true; readonly value: Json }
  /** `at` counts from 1, columns in UTF-16 code units; `null` where the fault belongs to no single place. */
  | {
      readonly ok: false;
      readonly message: string;
      readonly at: { readonly line: number; readonly column: number } | null;
    };

type Refused = Extract<StrictJson, { ok: false }>;

const QUOTE = 0x22;
const BACKSLASH = 0x5c;
const COMMA = 0x2c;
const COLON = 0x3a;
const MINUS = 0x2d;
const PLUS = 0x2b;
const DOT = 0x2e;
const ZERO = 0x30;
const NINE = 0x39;
const OPEN_ARRAY = 0x5b;
const CLOSE_ARRAY = 0x5d;
const OPEN_OBJECT = 0x7b;
const CLOSE_OBJECT = 0x7d;

const LONE_SURROGATE = /\p{Surrogate}/u;
const PLAIN_ASCII = /^[ -~]*$/;
const HEX = /^[0-9A-Fa-f]{4}$/;
/** Control characters, and invisible ones. */
const UNSEEN = /[\p{Cc}\p{Cf}\p{Default_Ignorable_Code_Point}]/gu;
/** Up to this many names are compared one by one. A set is slower for so few. */
const FEW_NAMES = 12;
/** A number of at most this many characters, without an exponent, is exact and within ±(2^53−1). */
const SHORT_NUMBER = 15;

export interface JsonLimits {
  /** Levels of nesting. */
  readonly depth: number;
  /**
   * The number of values, with members and elements. Processing time depends on this number much more than on the
   * bytes: 1 MiB of nothing but `[]` would block all other requests for seconds.
   */
  readonly values: number;
  /** Characters of a name; {@link MAX_NAME} where it is left out. */
  readonly name?: number;
  /**
   * Members of one object; as many as `values` where it is left out. Whoever asks an object for its names waits until it
   * has listed all of them: that takes a tenth of a second for 200,000.
   */
  readonly members?: number;
}

/** Longest name of a member, UTF-16 code units. A message about a value repeats the names of everything around it. */
export const MAX_NAME = 1_024;
/** Characters of a name that a message shows. */
const SHOWN_NAME = 100;

class Fault extends Error {
  readonly offset: number;
  constructor(message: string, offset: number) {
    super(message);
    this.offset = offset;
  }
}

/**
 * Reads strict I-JSON (RFC 7493, with more limits):
 *
 * - UTF-8 without a byte order mark, and no lone surrogates;
 * - no name twice in one object, and no two names that differ only in case or in invisible characters; no `__proto__`
 *   and no U+0000 in a name;
 * - only numbers that a double holds: finite, integers within ±(2^53−1), none that rounding would turn into a whole
 *   number;
 * - nesting up to `limits.depth`, at most `limits.values` values, names of at most `limits.name` characters
 *   ({@link MAX_NAME} by default).
 *
 * Every parser reads such a text in the same way, so policy sees exactly what the upstream sees.
 *
 * `JSON.parse` makes the value. A separate scan of the text checks the rules.
 */
export function parseStrictJson(bytes: Buffer | string, limits: JsonLimits): StrictJson {
  const { values, members = values, name = MAX_NAME } = limits;
  if (bytes.length <= FLAT_MOST && FLAT_MOST <= Math.min(values, members, name)) {
    const flat = typeof bytes === 'string' ? bytes : bytes.toString('latin1');
    if (FLAT.test(flat)) {
      const value: JsonObject = JSON.parse(flat);
      let found = 0;
      for (let at = flat.indexOf('":'); at !== -1; at = flat.indexOf('":', at + 2)) found += 1;
      // Otherwise a name stands twice, and the scan says where.
      if (Object.keys(value).length === found) return { ok: true, value };
    }
  }
  const text = textOf(bytes);
  if (typeof text === 'object') return text;
  const scan = beginScan(text, limits, Number.POSITIVE_INFINITY, () => {});
  if ('ok' in scan) return scan;
  const judged = advance(scan, Number.POSITIVE_INFINITY);
  return typeof judged === 'string' ? parsed(scan) : judged;
}

const SCALAR = String.raw`(?:"[ !#-[\]-~]*"|-?(?:0|[1-9]\d{0,8})(?:\.\d{1,5})?|true|false|null)`;

/**
 * Most of what machines send: one object of plain texts and short numbers, without white space or capital letters in its
 * names. It is seen at once to be sound, but for names that stand twice.
 */
const FLAT = new RegExp(String.raw`^\{"[a-z][a-z0-9_]*":${SCALAR}(?:,"[a-z][a-z0-9_]*":${SCALAR})*\}$`);
/** The most characters, so that neither a name nor the number of values can be beyond a limit that is as large. */
const FLAT_MOST = 512;

/** A text of this many bytes is read in slices where other requests wait. */
export const LARGE_TEXT = 32_768;

export function valueOf({ escapedNames }: Scan, text: string): Json {
  return escapedNames ? readEscapedNames(text) : JSON.parse(text);
}

export function parsed(scan: Scan): StrictJson {
  try {
    return { ok: true, value: valueOf(scan, scan.text) };
  } catch {
    return { ok: false, message: 'the text is not JSON', at: null };
  }
}

export const NOT_UTF8: Refused = { ok: false, message: 'the text is not UTF-8', at: null };

/** A text that was bytes has no lone surrogates. */
function textOf(bytes: Buffer | string): string | Refused {
  if (typeof bytes === 'string') {
    const lone = LONE_SURROGATE.exec(bytes);
    return lone === null ? bytes : refuse(bytes, 'a lone surrogate is not a character', lone.index);
  }
  return isUtf8(bytes) ? bytes.toString('utf8') : NOT_UTF8;
}

/** A scan at the start of the text, or the fault of the text as a whole. */
export function beginScan(text: string, limits: JsonLimits, slice: number, make: Scan['make']): Scan | Refused {
  if (text.charCodeAt(0) === 0xfeff) return refuse(text, 'the text begins with a byte order mark', 0);
  return {
    text,
    maxDepth: limits.depth,
    maxValues: limits.values,
    maxName: limits.name ?? MAX_NAME,
    maxMembers: limits.members ?? limits.values,
    open: [],
    at: 0,
    values: 0,
    isAfter: false,
    textFrom: -1,
    escaped: false,
    unicode: false,
    escapedNames: false,
    slice,
    make,
    madeTo: 0,
    root: null,
  };
}

function refuse(text: string, message: string, offset: number): Refused {
  let line = 1;
  let start = 0;
  for (let end = text.indexOf('\n'); end !== -1 && end < offset; end = text.indexOf('\n', end + 1)) {
    line += 1;
    start = end + 1;
  }
  return { ok: false, message, at: { line, column: offset - start + 1 } };
}

/**
 * Continues the scan until a place in the text, or a little beyond it.
 * @returns the fault; `end` when the text is complete and sound, `more` before that
 */
export function advance(scan: Scan, until: number): Refused | 'more' | 'end' {
  const { text, open } = scan;
  try {
    while (scan.at < until) {
      const { textFrom } = scan;
      if (textFrom !== -1) {
        goOnText(scan, until);
        // What is done at the end of a long text is enough for one go.
        if (scan.textFrom === -1 && scan.at - textFrom > scan.slice) return 'more';
        continue;
      }
      if (scan.text.charCodeAt(scan.at) <= SPACE_CODE) skipSpace(scan);
      if (!scan.isAfter) {
        scanValue(scan, until);
        continue;
      }
      const inner = open[open.length - 1];
      if (inner === undefined) {
        if (scan.at < text.length) throw new Fault(`${named(scan)} after the end of the value`, scan.at);
        return 'end';
      }
      const next = text.charCodeAt(scan.at);
      if (next === COMMA) {
        if (scan.at - scan.madeTo > scan.slice) scan.make(scan, scan.at);
        inner.comma = scan.at;
        scan.at += 1;
        if (inner.names !== null) scanMember(scan, inner, inner.names);
        scan.isAfter = false;
      } else if (next === (inner.names === null ? CLOSE_ARRAY : CLOSE_OBJECT)) {
        if (inner.made !== null) scan.make(scan, scan.at);
        scan.at += 1;
        if (inner.made !== null) scan.madeTo = scan.at;
        open.pop();
      } else {
        throw new Fault(`${named(scan)} where "," or "${inner.names === null ? ']' : '}'}" is expected`, scan.at);
      }
    }
    return 'more';
  } catch (error) {
    if (error instanceof Fault) return refuse(text, error.message, error.offset);
    throw error;
  }
}

/** Scans a scalar or the start of a list or object (up to its first element, or the value of its first member). */
function scanValue(scan: Scan, until: number): void {
  scan.values += 1;
  if (scan.values > scan.maxValues) throw new Fault(`more than ${scan.maxValues} values`, scan.at);
  const code = scan.text.charCodeAt(scan.at);
  if (code === OPEN_OBJECT || code === OPEN_ARRAY) {
    begin(scan, code === OPEN_OBJECT);
    return;
  }
  if (code === QUOTE) {
    const end = plainEnd(scan.text, scan.at + 1);
    if (end === -1) {
      scan.textFrom = scan.at;
      beginString(scan);
      goOnText(scan, until);
    } else {
      scan.at = end;
      scan.isAfter = true;
    }
    return;
  }
  if (code === MINUS || (code >= ZERO && code <= NINE)) {
    scanNumber(scan);
  } else if (!scanWord(scan, 'true') && !scanWord(scan, 'false') && !scanWord(scan, 'null')) {
    throw new Fault(`${named(scan)} where a value is expected`, scan.at);
  }
  scan.isAfter = true;
}

function begin(scan: Scan, isObject: boolean): void {
  const { open, maxDepth } = scan;
  if (open.length >= maxDepth) throw new Fault(`nested deeper than ${maxDepth} levels`, scan.at);
  scan.at += 1;
  const start = scan.at;
  if (scan.text.charCodeAt(scan.at) <= SPACE_CODE) skipSpace(scan);
  if (scan.text.charCodeAt(scan.at) === (isObject ? CLOSE_OBJECT : CLOSE_ARRAY)) {
    scan.at += 1;
    scan.isAfter = true;
    return;
  }
  const names: string[] | null = isObject ? [] : null;
  const inner: Open = { names, many: null, start, comma: -1, name: '', made: null };
  open.push(inner);
  if (names !== null) scanMember(scan, inner, names);
}

function scanMember(scan: Scan, inner: Open, names: string[]): void {
  if (scan.text.charCodeAt(scan.at) <= SPACE_CODE) skipSpace(scan);
  const { text } = scan;
  const start = scan.at;
  if (text.charCodeAt(start) !== QUOTE) throw new Fault(`${named(scan)} where a name in quotes is expected`, start);
  const end = plainEnd(text, start + 1);
  const name = end === -1 ? scanName(scan) : text.slice(start + 1, end - 1);
  if (end !== -1) scan.at = end;
  if (name.length > scan.maxName) throw new Fault(`a name of more than ${scan.maxName} characters`, start);
  inner.name = name;
  if (name === '__proto__') throw new Fault('the name "__proto__" is not allowed', start);
  // To a parser that ends texts with one, the name ends there.
  if (name.includes('\0')) throw new Fault('a name with the character U+0000', start);
  const folded = fold(name);
  if (inner.many === null ? names.includes(folded) : inner.many.has(folded)) {
    const shown = `${JSON.stringify(name.slice(0, SHOWN_NAME))}${name.length > SHOWN_NAME ? '…' : ''}`;
    throw new Fault(
      `the name ${shown} stands twice in one object (names that differ only in case or in invisible characters count as equal)`,
      start,
    );
  }
  if ((inner.many?.size ?? names.length) >= scan.maxMembers)
    throw new Fault(`more than ${scan.maxMembers} members in one object`, start);
  if (inner.many !== null) inner.many.add(folded);
  else if (names.push(folded) > FEW_NAMES) inner.many = new Set(names);
  if (scan.text.charCodeAt(scan.at) <= SPACE_CODE) skipSpace(scan);
  if (text.charCodeAt(scan.at) !== COLON) throw new Fault(`${named(scan)} where ":" is expected`, scan.at);
  scan.at += 1;
}

/** Most names and texts have at most so many characters, none of which needs more than a look. */
const FEW_CHARACTERS = 64;

/** Behind the quotation mark of a short and plain string; -1 where it is not: then it is scanned character by character. */
function plainEnd(text: string, from: number): number {
  const most = from + FEW_CHARACTERS;
  for (let at = from; at < most; at += 1) {
    const code = text.charCodeAt(at);
    if (code === QUOTE) return at + 1;
    // The comparison is negated because `code` is NaN at the end of the text.
    if (code === BACKSLASH || !(code >= 0x20)) return -1;
  }
  return -1;
}

/** Scans a name and returns it decoded; the beginning of one that is too long. */
function scanName(scan: Scan): string {
  const start = scan.at;
  beginString(scan);
  // In escapes a character has six.
  if (!scanCharacters(scan, start + 6 * scan.maxName + 2)) return scan.text.slice(start, scan.at);
  checkSurrogates(scan, start);
  if (!scan.escaped) return scan.text.slice(start + 1, scan.at - 1);
  scan.escapedNames = true;
  return JSON.parse(scan.text.slice(start, scan.at)) as string;
}

/** Continues a value that is a text. */
function goOnText(scan: Scan, until: number): void {
  if (!scanCharacters(scan, until)) return;
  checkSurrogates(scan, scan.textFrom);
  scan.textFrom = -1;
  scan.isAfter = true;
}

function beginString(scan: Scan): void {
  scan.at += 1;
  scan.escaped = false;
  scan.unicode = false;
}

/** Scans a string to its end, or to `until` and a little beyond. Returns whether it has ended. */
function scanCharacters(scan: Scan, until: number): boolean {
  const { text } = scan;
  let { at } = scan;
  while (at < until) {
    const code = text.charCodeAt(at);
    if (code === QUOTE) {
      scan.at = at + 1;
      return true;
    }
    if (code === BACKSLASH) {
      scan.escaped = true;
      const kind = text[at + 1] ?? '';
      if (kind === 'u') {
        if (!HEX.test(text.slice(at + 2, at + 6))) throw new Fault('"\\u" without four hexadecimal digits', at);
        scan.unicode = true;
        at += 6;
      } else if (kind !== '' && '"\\/bfnrt'.includes(kind)) {
        at += 2;
      } else {
        throw new Fault('an escape that JSON does not know', at);
      }
      continue;
    }
    // The comparison is negated because `code` is NaN at the end of the text.
    if (!(code >= 0x20)) {
      throw new Fault(Number.isNaN(code) ? 'a string without an end' : 'a control character in a string', at);
    }
    at += 1;
  }
  scan.at = at;
  return false;
}

/** @throws Fault where the string from `start` up to here has half of a character */
function checkSurrogates(scan: Scan, start: number): void {
  if (scan.unicode && LONE_SURROGATE.test(JSON.parse(scan.text.slice(start, scan.at)) as string)) {
    throw new Fault('a lone surrogate is not a character', start);
  }
}

function scanNumber(scan: Scan): void {
  const { text } = scan;
  const start = scan.at;
  let at = start;
  let code = text.charCodeAt(at);
  if (code === MINUS) code = text.charCodeAt((at += 1));
  if (code === ZERO) {
    code = text.charCodeAt((at += 1));
    if (code >= ZERO && code <= NINE) throw new Fault('a number with a leading zero', start);
  } else {
    at = skipDigits(text, at, start);
    code = text.charCodeAt(at);
  }
  let plain = true;
  if (code === DOT) {
    at = skipDigits(text, at + 1, start);
    code = text.charCodeAt(at);
  }
  // `e` and `E` differ in one bit.
  if ((code | 0x20) === 0x65) {
    plain = false;
    code = text.charCodeAt((at += 1));
    if (code === PLUS || code === MINUS) at += 1;
    at = skipDigits(text, at, start);
  }
  scan.at = at;
  if (!plain || at - start > SHORT_NUMBER) checkNumber(text.slice(start, at), start);
}

function skipDigits(text: string, from: number, start: number): number {
  let at = from;
  for (let code = text.charCodeAt(at); code >= ZERO && code <= NINE; code = text.charCodeAt(at)) at += 1;
  if (at === from) throw new Fault('a number that is not complete', start);
  return at;
}

/** Checks a number by comparing it with the double that it becomes. */
function checkNumber(token: string, offset: number): void {
  const value = Number(token);
  if (!Number.isFinite(value)) throw new Fault('a number too large for a double', offset);
  if (!Number.isInteger(value)) return;
  if (!Number.isSafeInteger(value)) throw new Fault('an integer beyond ±(2^53−1)', offset);
  if (!isWhole(token)) throw new Fault('a number with more digits than a double holds', offset);
}

function scanWord(scan: Scan, word: string): boolean {
  if (!scan.text.startsWith(word, scan.at)) return false;
  scan.at += word.length;
  return true;
}

/** Longer runs of white space are left to an expression, which is faster. */
const SHORT_SPACE = 64;
const SPACE = /[ \n\r\t]*/y;
/** No white space has a larger code. Most texts of machines have none, and are spared a call for each place. */
const SPACE_CODE = 0x20;

function skipSpace(scan: Scan): void {
  const { text } = scan;
  let { at } = scan;
  const near = at + SHORT_SPACE;
  for (;;) {
    const code = text.charCodeAt(at);
    if (code !== 0x20 && code !== 0x0a && code !== 0x0d && code !== 0x09) break;
    at += 1;
    if (at < near) continue;
    SPACE.lastIndex = at;
    SPACE.test(text);
    at = SPACE.lastIndex;
    break;
  }
  scan.at = at;
}

/** The form in which names are compared. Two names have the same form if any parser could take one for the other. */
function fold(name: string): string {
  if (PLAIN_ASCII.test(name)) return name.toLowerCase();
  // Lower, upper and lower case again. This maps the long s, the Kelvin sign and similar letters to their plain forms.
  return name.replace(UNSEEN, '').toLowerCase().toUpperCase().toLowerCase();
}

function named(scan: Scan): string {
  const character = scan.text[scan.at];
  return character === undefined ? 'the end of the text' : JSON.stringify(character);
}

/** Whether the decimal text is a whole number, without any rounding. */
export function isWhole(token: string): boolean {
  const [mantissa = '', exponent = '0'] = token.toLowerCase().split('e');
  const [whole = '', fraction = ''] = mantissa.replace('-', '').split('.');
  const significant = withoutLastZeros(`${whole}${fraction}`);
  if (significant === '') return true;
  // Digits left of the decimal point once the exponent is applied.
  return whole.length + Number(exponent) >= significant.length;
}

/** A loop instead of `/0+$/`, which takes quadratic time on long runs of zeros that are not at the end. */
function withoutLastZeros(digits: string): string {
  let end = digits.length;
  while (end > 0 && digits.charCodeAt(end - 1) === 0x30) end -= 1;
  return digits.slice(0, end);
}
