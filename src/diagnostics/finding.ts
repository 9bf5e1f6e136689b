import { renderFindings } from './render.ts';

/** A place in a file. Lines and columns begin with 1; columns count UTF-16 units, as editors do. */
export interface Position {
  readonly file: string;
  readonly line: number;
  readonly column: number;
}

/** Something wrong (`error`: the file is not used) or doubtful (`warning`) in a file that a person wrote. */
export interface Finding {
  /** Stable, snake_case. */
  readonly code: string;
  readonly severity: 'error' | 'warning';
  /** What is wrong, in one sentence without a full stop. */
  readonly message: string;
  /** What to do about it, where that can be said. */
  readonly hint: string | null;
  /** `null` where no line is to blame (a file that is not there, a setting that is missing in all). */
  readonly at: Position | null;
}

/** Files that cannot be used. The message is the rendered text of all findings; carries nothing but what the files say. */
export class InvalidFiles extends Error {
  readonly findings: readonly Finding[];
  /** Text of each file by its name, for carets. */
  readonly sources: ReadonlyMap<string, string>;

  constructor(findings: readonly Finding[], sources: ReadonlyMap<string, string>) {
    super(renderFindings(findings, sources, { color: false }));
    this.name = 'InvalidFiles';
    this.findings = findings;
    this.sources = sources;
  }
}

/** Findings in the order a reader meets them: by file as first seen, line, column; those without a place come first. */
export function inReadingOrder(findings: readonly Finding[]): Finding[] {
  const files = new Map<string, number>();
  for (const { at } of findings) if (at !== null && !files.has(at.file)) files.set(at.file, files.size);
  const rank = (at: Position | null): number => (at === null ? -1 : (files.get(at.file) ?? 0));
  return [...findings].sort(
    (a, b) =>
      rank(a.at) - rank(b.at) || (a.at?.line ?? 0) - (b.at?.line ?? 0) || (a.at?.column ?? 0) - (b.at?.column ?? 0),
  );
}
