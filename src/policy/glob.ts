import { RE2JS } from 're2js';

/** Longest pattern, in characters. */
const MAX_PATTERN = 256;
/** Most instructions of the compiled program. It keeps the constant factor of linear-time matching small. */
const MAX_PROGRAM = 2_000;
/** Longer texts are not matched. The leaf is then unknown. */
export const MAX_SUBJECT = 65_536;

export type PatternKind = 'glob' | 'regex' | 'regex_find';

/** A compiled pattern, or what is wrong with it. */
export type CompiledPattern =
  | {
      readonly ok: true;
      readonly test: (text: string) => boolean;
      /** Instructions of the compiled program. */
      readonly size: number;
    }
  | { readonly ok: false; readonly message: string };

/**
 * Compiles a glob or a regular expression (RE2 syntax). Both match in linear time and across lines. In globs the
 * separators are `.` `/` `:`. `*` stays within a segment, `**` matches anything, `?` is one character of a segment,
 * `{a,b}` are alternatives, and `\` escapes the next character. A glob matches the whole text and is case-sensitive.
 */
export function compilePattern(kind: PatternKind, pattern: string): CompiledPattern {
  if (pattern.length > MAX_PATTERN) return { ok: false, message: `A pattern has at most ${MAX_PATTERN} characters` };
  const expression = kind === 'glob' ? globExpression(pattern) : pattern;
  if (expression === null) return { ok: false, message: `'${pattern}' has braces or an escape that do not end` };
  try {
    // `.` also matches line breaks. Otherwise a caller could avoid a rule by sending one.
    const compiled = RE2JS.compile(expression, RE2JS.DOTALL);
    const size = compiled.programSize();
    if (size > MAX_PROGRAM) return { ok: false, message: `'${pattern}' is too large when compiled` };
    if (kind === 'regex_find') return { ok: true, test: (text) => compiled.test(text), size };
    return { ok: true, test: (text) => compiled.testExact(text), size };
  } catch (error) {
    const reason = error instanceof Error ? error.message.replace(/^error parsing regexp: /, '') : 'it does not parse';
    return { ok: false, message: `'${pattern}' is not an RE2 expression: ${reason}` };
  }
}

/**
 * Whether an expression without groups and alternatives has an anchor where no text can have one: `^` after a character
 * that has to be there, or `$` before one.
 */
export function deadPattern(expression: string): boolean {
  if (/[()|]/.test(expression.replaceAll(/\\./gs, ''))) return false;
  const tokens =
    expression.match(/\\[pP]\{[^}]*\}|\\x\{[^}]*\}|\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|\{\d+(?:,\d*)?\}|./gsu) ?? [];
  let after = false;
  let ended = false;
  for (const [at, token] of tokens.entries()) {
    if (/^(?:[*+?]|\{\d+(?:,\d*)?\})$/.test(token)) continue;
    const isAnchor = token === '^' || token === '$' || /^\\[AzbB]$/.test(token);
    const isNeeded = !isAnchor && !/^(?:[*?]|\{0)/.test(tokens[at + 1] ?? '');
    if ((token === '^' && after) || (isNeeded && ended)) return true;
    after ||= isNeeded;
    ended ||= token === '$';
  }
  return false;
}

/** Whether a text has a special meaning as a glob. */
export function isGlob(text: string): boolean {
  return /[*?{}\\]/.test(text);
}

const SEGMENT = '[^./:]';

function globExpression(glob: string): string | null {
  let expression = '';
  let depth = 0;
  // By code points: half a surrogate pair is not a literal.
  const chars = Array.from(glob);
  for (let at = 0; at < chars.length; at += 1) {
    const char = chars[at] ?? '';
    switch (char) {
      case '*':
        if (chars[at + 1] === '*') {
          at += 1;
          expression += '.*';
        } else expression += `${SEGMENT}*`;
        break;
      case '?':
        expression += SEGMENT;
        break;
      case '{':
        depth += 1;
        expression += '(?:';
        break;
      case '}':
        if (depth === 0) return null;
        depth -= 1;
        expression += ')';
        break;
      case ',':
        expression += depth > 0 ? '|' : ',';
        break;
      case '\\':
        at += 1;
        if (at >= chars.length) return null;
        expression += RE2JS.quote(chars[at] ?? '');
        break;
      default:
        expression += RE2JS.quote(char);
    }
  }
  return depth === 0 ? expression : null;
}
