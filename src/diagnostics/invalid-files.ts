import type { Finding } from './finding.ts';
import { renderFindings } from './render.ts';

/** Files that cannot be used. The message is the text of all findings, and quotes only the files. */
export class InvalidFiles extends Error {
  readonly findings: readonly Finding[];
  /** Text of each file by its name, to show the lines. */
  readonly sources: ReadonlyMap<string, string>;

  constructor(findings: readonly Finding[], sources: ReadonlyMap<string, string>) {
    super(renderFindings(findings, sources, { color: false }));
    this.name = 'InvalidFiles';
    this.findings = findings;
    this.sources = sources;
  }
}
