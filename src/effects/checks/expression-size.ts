/**
 * An open group while an expression is counted: the size of its complete parts, and of the last part, which may be
 * repeated.
 */
interface Level {
  complete: number;
  last: number;
}

/** The start of a group, with its name or flags. */
const GROUP = /\((?:\?(?:P?<[^>]*>|[A-Za-z-]*:?))?/y;
/** A counted repetition. */
const COUNTED = /\{(\d+)(,(\d*))?\}/y;
/** One unit to match: a class, an escape, any other character. */
const ONE = /\[\^?\]?(?:\[:\^?[a-z]+:\]|\\.|[^\]\\])*\]|\\[pPx]\{[^}]*\}|\\[pP]?.|./suy;

/**
 * Estimates how many steps an expression in RE2 syntax compiles to, from its text alone: the units to match, times the
 * counted repetitions around them. A short text can stand for a program that takes seconds to compile, so the size must
 * be checked first. For a text that is not an expression the number means nothing; compiling it reports the fault.
 */
export function expressionSize(pattern: string): number {
  const outer: Level[] = [];
  let level: Level = { complete: 0, last: 0 };
  const follow = (size: number): void => {
    level.complete += level.last;
    level.last = size;
  };
  let at = 0;
  const take = (token: RegExp): RegExpExecArray | null => {
    token.lastIndex = at;
    const found = token.exec(pattern);
    if (found !== null) at = token.lastIndex;
    return found;
  };
  while (at < pattern.length) {
    const counted = take(COUNTED);
    if (counted !== null) {
      const [, least, range, most] = counted;
      level.last *= range === undefined ? Number(least) : Math.max(Number(least), Number(most), 1);
    } else if (take(GROUP) !== null) {
      outer.push(level);
      level = { complete: 0, last: 0 };
    } else if (pattern[at] === ')') {
      const size = level.complete + level.last;
      level = outer.pop() ?? { complete: 0, last: 0 };
      follow(size);
      at += 1;
    } else if ('*+?|'.includes(pattern[at] ?? '')) {
      at += 1;
    } else {
      take(ONE);
      follow(1);
    }
  }
  return outer.reduce((sum, { complete, last }) => sum + complete + last, level.complete + level.last);
}
