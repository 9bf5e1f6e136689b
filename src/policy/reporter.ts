import type { Finding, Position } from '../diagnostics/finding.ts';
import type { DataPath } from '../diagnostics/yaml-source.ts';

/** Takes the findings of the readers of a policy file. Paths are paths in the data of the file. */
export interface Reporter {
  error(code: string, path: DataPath, message: string, hint?: string | null, part?: 'key' | 'value'): void;
  warning(code: string, path: DataPath, message: string, hint?: string | null, part?: 'key' | 'value'): void;
}

/** A reporter that adds to a list, with positions from the file. */
export function collectInto(
  findings: Finding[],
  at: (path: DataPath, part: 'key' | 'value') => Position | null,
): Reporter {
  const add =
    (severity: Finding['severity']): Reporter['error'] =>
    (code, path, message, hint = null, part = 'value') => {
      findings.push({ code, severity, message, hint, at: at(path, part) });
    };
  return { error: add('error'), warning: add('warning') };
}
