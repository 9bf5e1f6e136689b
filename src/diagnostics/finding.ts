/** A place in a file. Lines and columns begin with 1; columns count UTF-16 code units, as editors do. */
export interface Position {
  readonly file: string;
  readonly line: number;
  readonly column: number;
}

/** A problem in a file that a person wrote. An `error` makes the file unusable; a `warning` does not. */
export interface Finding {
  /** Stable, in snake_case. */
  readonly code: string;
  readonly severity: 'error' | 'warning';
  /** What is wrong, in one sentence without a full stop. */
  readonly message: string;
  /** What to do about it; `null` where there is no advice. */
  readonly hint: string | null;
  /** `null` where the problem has no line: the file does not exist, or a setting is missing. */
  readonly at: Position | null;
}

/** What a check says: a message, or a message and what to do about it. */
export type FindingText = string | readonly [message: string, hint: string | null];

export function textOf(text: FindingText): Pick<Finding, 'message' | 'hint'> {
  const [message, hint = null] = typeof text === 'string' ? [text] : text;
  return { message, hint };
}

/** Sorts findings by file (in order of appearance), line and column. Those without a place come first. */
export function inReadingOrder(findings: readonly Finding[]): Finding[] {
  const files = new Map<string, number>();
  for (const { at } of findings) if (at !== null && !files.has(at.file)) files.set(at.file, files.size);
  const rank = (at: Position | null): number => (at === null ? -1 : (files.get(at.file) ?? 0));
  return [...findings].sort(
    (a, b) =>
      rank(a.at) - rank(b.at) || (a.at?.line ?? 0) - (b.at?.line ?? 0) || (a.at?.column ?? 0) - (b.at?.column ?? 0),
  );
}
