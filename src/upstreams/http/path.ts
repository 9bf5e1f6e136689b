import { percentDecoded } from '../../bytes/percent-decoded.ts';

/** A path that every party reads in the same way, split into its decoded segments. */
export type PlainPath =
  | { readonly ok: true; readonly segments: readonly string[] }
  | { readonly ok: false; readonly message: string };

/** The characters of RFC 3986 `pchar` and `/`: a URL parser leaves them as they are. */
const PLAIN = /^\/[A-Za-z0-9\-._~!$&'()*+,;=:@%/]*$/;
const DOTS = /^\.{1,2}(?:;.*)?$/;
// eslint-disable-next-line no-control-regex -- control characters are what it looks for
const CONTROL = /[\u0000-\u001f\u007f]/;

/**
 * Checks a path (without query) before anything is matched against it. Refuses whatever some server along the way might
 * read differently: dot segments, encoded dots, slashes and backslashes, empty segments, `;` (some servers cut a
 * segment there), NUL and other control characters, stray `%`, bytes that are not UTF-8, characters outside RFC 3986.
 * Nothing is rewritten: a path that passes is sent unchanged.
 * @param slashes whether a segment may have encoded slashes, because a param of some pattern may hold them
 */
export function readPath(path: string, slashes = false): PlainPath {
  if (!PLAIN.test(path)) return refuse('the path has a character that a path may not have; percent-encode it');
  const segments = path.slice(1).split('/');
  const decoded: string[] = [];
  for (let index = 0; index < segments.length; index += 1) {
    const segment = segments[index] ?? '';
    if (segment === '' && index < segments.length - 1) return refuse('the path has an empty segment ("//")');
    if (segment.startsWith('.') && DOTS.test(segment)) return refuse('the path has a "." or ".." segment');
    if (segment.includes(';')) return refuse('the path has a ";", which some servers cut a segment off at');
    if (!segment.includes('%')) {
      decoded.push(segment);
      continue;
    }
    if ((slashes ? /%(?:2e|5c|00)/i : /%(?:2e|2f|5c|00)/i).test(segment))
      return refuse('the path has an encoded dot, slash, backslash or NUL');
    const text = percentDecoded(segment);
    if (text === null) return refuse('the path has a percent sign that does not encode UTF-8');
    if (text.split('/').some((part) => DOTS.test(part))) return refuse('the path has a "." or ".." segment');
    if (CONTROL.test(text)) return refuse('the path has a control character');
    decoded.push(text);
  }
  return { ok: true, segments: decoded };
}

/** Characters that nobody sees, and that some servers and file systems leave out. */
const INVISIBLE = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Default_Ignorable_Code_Point}]/gu;

/** A text without the characters that nobody sees. */
export function withoutInvisible(text: string): string {
  return text.replace(INVISIBLE, '');
}

/**
 * Whether all servers read a decoded segment in the same way. Some cut dots or white space off its end (Windows does so
 * for files), cut it at a ";", leave out characters that nobody sees, or decode it a second time. Such a segment may be
 * the param of a declared path. Without a rule for the path it is refused.
 */
export function isReadAlike(segment: string): boolean {
  const text = segment.normalize('NFKC');
  return !/^\s|[\s.]$|;|%[0-9a-f]{2}/i.test(text) && withoutInvisible(segment) === segment;
}

/** Nothing in such a path has a second spelling. */
const ONE_SPELLING = /^[A-Za-z0-9\-._~/]*$/;

/**
 * Whether a path is spelled as a tool's request would be: each param as `encodeURIComponent` writes it. Escapes of
 * letters, digits and `-._~` mean those for every server (RFC 3986, 6.2.2.2); a delimiter and its escape need not: to
 * some, `a+b` is `a b`, and `name:cancel` is a method of `name`.
 * @param path a path that {@link readPath} takes, and that matches
 */
export function isUsualSpelling(path: string, pattern: string): boolean {
  if (ONE_SPELLING.test(path)) return true;
  const parts = readPattern(pattern);
  return path
    .slice(1)
    .split('/')
    .every((segment, index) => {
      const part = parts?.[Math.min(index, parts.length - 1)];
      const usual = part?.kind === 'literal' ? part.text : written(decodeURIComponent(segment), part?.holds);
      return withPlainEscapes(segment) === withPlainEscapes(usual);
    });
}

/** With upper-case escapes, and without those of characters that need none. */
function withPlainEscapes(segment: string): string {
  return segment.replace(/%[0-9A-Fa-f]{2}/g, (escape) => {
    const character = String.fromCharCode(Number.parseInt(escape.slice(1), 16));
    return /[A-Za-z0-9\-._~]/.test(character) ? character : escape.toUpperCase();
  });
}

/** Slashes in a param: encoded ones (`encoded_slashes`), or any, because it is the rest of the path (`*path`, `{+path}`). */
export type Slashes = 'encoded' | 'any' | undefined;

/** One segment of a pattern: a literal, or a param that takes the whole segment, or all that are left. */
export type PatternSegment =
  | { readonly kind: 'literal'; readonly text: string }
  | { readonly kind: 'param'; readonly name: string; readonly holds?: Slashes };

/**
 * Splits a pattern into segments. Both spellings are read: `/v1/files/:id/*path` (routes) and `/v1/files/{id}/{+path}`
 * (tools).
 * @param encoded params that may hold encoded slashes
 * @returns `null` if a placeholder does not fill its segment, or one for the rest of the path is not the last
 */
export function readPattern(pattern: string, encoded: readonly string[] = []): readonly PatternSegment[] | null {
  const segments: PatternSegment[] = [];
  const texts = pattern.slice(1).split('/');
  for (const [index, text] of texts.entries()) {
    const rest = /^\{\+([^{}]+)\}$/.exec(text)?.[1] ?? /^\*([A-Za-z_][A-Za-z0-9_]*)$/.exec(text)?.[1];
    const name = rest ?? /^\{([^{}]+)\}$/.exec(text)?.[1] ?? /^:([A-Za-z_][A-Za-z0-9_]*)$/.exec(text)?.[1];
    const holds = rest === undefined ? 'encoded' : 'any';
    if (rest !== undefined && index < texts.length - 1) return null;
    if (name !== undefined && (rest !== undefined || encoded.includes(name)))
      segments.push({ kind: 'param', name, holds });
    else if (name !== undefined) segments.push({ kind: 'param', name });
    else if (/[{}]/.test(text)) return null;
    else segments.push({ kind: 'literal', text });
  }
  return segments;
}

export function holdsSlashes(pattern: readonly PatternSegment[]): boolean {
  return pattern.some((part) => part.kind === 'param' && part.holds !== undefined);
}

/** The params of a path that matches a pattern, as texts; `null` if it does not match. A param is never empty. */
export function matchPattern(
  pattern: readonly PatternSegment[],
  segments: readonly string[],
): Record<string, string> | null {
  const last = pattern.at(-1);
  const takesRest = last?.kind === 'param' && last.holds === 'any';
  if (takesRest ? segments.length < pattern.length : segments.length !== pattern.length) return null;
  const params: Record<string, string> = {};
  for (let index = 0; index < pattern.length; index += 1) {
    const part = pattern[index];
    const text = takesRest && part === last ? segments.slice(index).join('/') : segments[index];
    if (part === undefined || text === undefined) return null;
    if (part.kind === 'literal') {
      if (part.text !== text) return null;
    } else if (text === '' || (part.holds === undefined && text.includes('/'))) return null;
    else params[part.name] = text;
  }
  return params;
}

/**
 * Whether a path fits a pattern for a server that decodes slashes before it looks at segments: a param that may hold them
 * takes one segment or several. Each segment of both is compared as it is given.
 */
export function fitsDecoded(pattern: readonly PatternSegment[], segments: readonly string[]): boolean {
  let [part, at, wide, taken] = [0, 0, -1, 0];
  while (at < segments.length) {
    const one = pattern[part];
    if (one !== undefined && (one.kind === 'param' || one.text === segments[at])) {
      if (one.kind === 'param' && one.holds !== undefined) [wide, taken] = [part, at];
      part += 1;
      at += 1;
    } else if (wide === -1) return false;
    else {
      // The last one that may hold slashes takes a segment more.
      taken += 1;
      part = wide + 1;
      at = taken + 1;
    }
  }
  return part === pattern.length;
}

/** A param as a tool's request has it. */
export function written(text: string, holds: Slashes): string {
  return holds === 'any' ? text.split('/').map(encodeURIComponent).join('/') : encodeURIComponent(text);
}

function refuse(message: string): PlainPath {
  return { ok: false, message };
}
