import { surroundingsOfPolicies } from '../config/for-policies.ts';
import { checkConfiguration, loadConfiguration } from '../config/load.ts';
import type { Configuration } from '../config/configuration.ts';
import type { Finding } from '../diagnostics/finding.ts';
import { InvalidFiles } from '../diagnostics/invalid-files.ts';
import { count, renderFindings } from '../diagnostics/render.ts';
import { loadPolicySets } from '../policy/load.ts';

/** The result of checking a configuration and the policies that it names. */
export interface CheckedFiles {
  /** 0 usable, 1 findings, 2 cannot be read. */
  readonly exit: 0 | 1 | 2;
  /** `null` if the configuration has errors; then the policies are not checked. */
  readonly configuration: Configuration | null;
  readonly findings: readonly Finding[];
  /** For people: each finding with its line and a caret, then a summary. */
  readonly text: string;
}

/**
 * Checks a configuration, and the policies against the tools, pools and roles that it declares.
 * @param environment variables that take precedence over those of the process when `${NAME}` is expanded
 */
export async function checkFiles(
  file: string,
  options: { readonly environment: Readonly<Record<string, string>>; readonly color: boolean },
): Promise<CheckedFiles> {
  const report = await checkConfiguration(file, options);
  if (report.exit !== 0) return { ...report, configuration: null };
  const { configuration } = await loadConfiguration(file, options);
  try {
    const { set, warnings, sources } = await loadPolicySets(surroundingsOfPolicies(configuration));
    const shown = warnings.length === 0 ? '' : renderFindings(warnings, sources, options);
    const summary = `policies hold: ${set.rules.length} ${set.rules.length === 1 ? 'rule' : 'rules'}${warnings.length === 0 ? '' : ` (${count(warnings)})`}\n`;
    return {
      exit: 0,
      configuration,
      findings: [...report.findings, ...warnings],
      text: report.text + shown + summary,
    };
  } catch (error) {
    if (!(error instanceof InvalidFiles)) throw error;
    return {
      exit: 1,
      configuration,
      findings: [...report.findings, ...error.findings],
      text: report.text + renderFindings(error.findings, error.sources, options),
    };
  }
}
