import { readEntityFiles } from '../brain/entity-files.ts';
import { surroundingsOfPolicies } from '../config/for-policies.ts';
import { checkConfiguration, loadConfiguration, OF_STORE } from '../config/load.ts';
import type { Configuration } from '../config/configuration.ts';
import type { Finding } from '../diagnostics/finding.ts';
import { InvalidFiles, count, renderFindings } from '../diagnostics/render.ts';
import { loadPolicySets } from '../policy/load.ts';

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
  const texts: string[] = [report.text];
  const findings: Finding[] = [...report.findings];
  let isUsable = true;
  const part = async (check: () => Promise<string>): Promise<void> => {
    try {
      texts.push(await check());
    } catch (error) {
      if (!(error instanceof InvalidFiles)) throw error;
      isUsable = false;
      findings.push(...error.findings);
      texts.push(renderFindings(error.findings, error.sources, options));
    }
  };
  await part(async () => {
    const { set, warnings, sources } = await loadPolicySets(surroundingsOfPolicies(configuration));
    findings.push(...warnings);
    const shown = warnings.length === 0 ? '' : renderFindings(warnings, sources, options);
    return `${shown}policies hold: ${set.rules.length} ${set.rules.length === 1 ? 'rule' : 'rules'}${warnings.length === 0 ? '' : ` (${count(warnings)})`}\n`;
  });
  if (configuration.brain.files.length > 0)
    await part(async () => {
      const { byWorkspace } = await readEntityFiles(configuration.brain.files, configuration.brain.limits);
      const entities = [...byWorkspace.values()].reduce((sum, { length }) => sum + length, 0);
      return `the brain's files hold: ${entities} ${entities === 1 ? 'entity' : 'entities'}\n`;
    });
  return { exit: isUsable ? 0 : 1, configuration, findings, text: texts.join('') };
}

/** What can be used of a configuration with faults: the store, the server, and the upstreams if they can; `null`: nothing. */
export async function usablePart(file: string): Promise<Configuration | null> {
  for (const more of [['server', 'upstreams'], ['server']] as const)
    try {
      return (await loadConfiguration(file, { environment: {}, sections: [...OF_STORE, ...more] })).configuration;
    } catch (error) {
      if (!(error instanceof InvalidFiles)) throw error;
    }
  return null;
}
