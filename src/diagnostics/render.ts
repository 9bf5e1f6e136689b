import type { Finding } from './finding.ts';

/** Characters of a long line that are shown around the caret. */
const SHOWN = 140;

/** Control characters, line separators, and invisible characters that could mislead a reader. */
const UNPRINTABLE = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Co}\p{Cs}]/gu;

/** Escapes characters that a terminal would interpret, so that text from a file can be shown safely. */
export function printable(text: string): string {
  return text.replace(UNPRINTABLE, (found) => `\\u{${(found.codePointAt(0) ?? 0).toString(16)}}`);
}

/**
 * Findings as text for people: position, message, the line with carets under the word, a hint, and a count at the end.
 * @param sources text of each file by its name, spelt as in `Position.file`; for other files no line is shown
 */
export function renderFindings(
  findings: readonly Finding[],
  sources: ReadonlyMap<string, string>,
  options: { readonly color: boolean },
): string {
  const paint = options.color ? painted : plain;
  const lines = new Map<string, string[]>();
  const blocks = findings.map((finding) => {
    const word = finding.severity === 'error' ? paint.error('error') : paint.warning('warning');
    const title = `${word} ${printable(finding.message)} ${paint.dim(`[${finding.code}]`)}`;
    const hint = finding.hint === null ? '' : `\n    ${paint.dim('hint:')} ${printable(finding.hint)}`;
    const { at } = finding;
    if (at === null) return title + hint;
    const where = paint.bold(`${printable(at.file)}:${at.line}:${at.column}`);
    const text = sources.get(at.file);
    if (text === undefined) return `${where} ${title}${hint}`;
    const known = lines.get(at.file) ?? text.split(/\r?\n/);
    lines.set(at.file, known);
    return `${where} ${title}\n${excerpt(known[at.line - 1] ?? '', at.line, at.column, paint)}${hint}`;
  });
  return `${blocks.join('\n\n')}\n\n${count(findings)}\n`;
}

/** `2 errors, 1 warning`. */
export function count(findings: readonly Finding[]): string {
  const errors = findings.filter((finding) => finding.severity === 'error').length;
  const warnings = findings.length - errors;
  const parts = [];
  if (errors > 0 || warnings === 0) parts.push(`${errors} ${errors === 1 ? 'error' : 'errors'}`);
  if (warnings > 0) parts.push(`${warnings} ${warnings === 1 ? 'warning' : 'warnings'}`);
  return parts.join(', ');
}

interface Paint {
  readonly error: (text: string) => string;
  readonly warning: (text: string) => string;
  readonly bold: (text: string) => string;
  readonly dim: (text: string) => string;
}

const same = (text: string): string => text;
const plain: Paint = { error: same, warning: same, bold: same, dim: same };
const painted: Paint = {
  error: (text) => `\u001b[31m${text}\u001b[39m`,
  warning: (text) => `\u001b[33m${text}\u001b[39m`,
  bold: (text) => `\u001b[1m${text}\u001b[22m`,
  dim: (text) => `\u001b[2m${text}\u001b[22m`,
};

/** The line, and under it carets below the word that begins at the column. */
function excerpt(line: string, number: number, column: number, paint: Paint): string {
  const from = Math.max(0, column - 1 - SHOWN / 2);
  const to = Math.min(line.length, from + SHOWN);
  const show = (text: string): string => printable(text.replaceAll('\t', ' '));
  const before = (from > 0 ? '…' : '') + show(line.slice(from, column - 1));
  const word = /^(?:"[^"]*"|'[^']*'|[^\s,:\]}#"']+)/.exec(line.slice(column - 1, to))?.[0] ?? '';
  const shown = before + show(line.slice(column - 1, to)) + (to < line.length ? '…' : '');
  const gutter = String(number).padStart(5);
  const caret = ' '.repeat(before.length) + paint.error('^'.repeat(Math.max(1, show(word).length)));
  return `${paint.dim(`${gutter} |`)} ${shown}\n${paint.dim('      |')} ${caret}`;
}

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
