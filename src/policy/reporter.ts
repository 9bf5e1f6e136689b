import { type Finding, type FindingText, type Position, textOf } from '../diagnostics/finding.ts';
import type { DataPath } from '../diagnostics/yaml-source.ts';

/** Takes the findings of the readers of a policy file. Paths are paths in the data of the file. */
export interface Reporter {
  error(code: string, path: DataPath, text: FindingText, part?: 'key' | 'value'): void;
  warning(code: string, path: DataPath, text: FindingText, part?: 'key' | 'value'): void;
}

/** A path that goes on from another. */
export function below(path: DataPath, ...steps: DataPath): DataPath {
  return [...path, ...steps];
}

/** A reporter that adds to a list, with positions from the file. */
export function collectInto(
  findings: Finding[],
  at: (path: DataPath, part: 'key' | 'value') => Position | null,
): Reporter {
  const add =
    (severity: Finding['severity']): Reporter['error'] =>
    (code, path, text, part = 'value') =>
      void findings.push({ code, severity, ...textOf(text), at: at(path, part) });
  return { error: add('error'), warning: add('warning') };
}
