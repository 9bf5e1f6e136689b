import { isDeepStrictEqual } from 'node:util';
import { InvalidFiles } from '../diagnostics/finding.ts';
import type { Configuration } from '../config/configuration.ts';
import { surroundingsOfPolicies } from '../config/for-policies.ts';
import { loadConfiguration } from '../config/load.ts';
import { contentOf } from '../config/watch.ts';
import type { EffectStore } from '../effects/store.ts';
import { loadPolicySets } from '../policy/load.ts';
import type { CompiledPolicies } from '../policy/policies.ts';
import { proveDenial } from '../policy/self-test.ts';
import { type Catalog, createCatalog } from '../upstreams/catalog.ts';

/** What the files say, checked and compiled: swapped in as a whole, or not at all. */
export interface InForce {
  readonly configuration: Configuration;
  readonly policies: CompiledPolicies;
  readonly catalog: Catalog;
  /** Units by pool. */
  readonly pools: ReadonlyMap<string, number>;
  /** The fact `env` of an upstream's tools, where the upstream says. */
  readonly upstreamEnv: ReadonlyMap<string, string>;
  /** Everything that has to be watched. */
  readonly files: readonly string[];
  /** What was in the files when they were read. */
  readonly content: string;
  /** Findings that leave the files usable, for the log. */
  readonly warnings: readonly string[];
}

/** How often files are read again that change while they are read. */
const MAX_READS = 5;

/**
 * Reads files that belong together, all as of one moment: what changed while it was read is read again, so that no
 * policy of one version is put beside a configuration of another.
 * @param known the files that are known so far
 * @throws InvalidFiles
 */
export async function readTogether(
  configFile: string,
  environment: Readonly<Record<string, string>>,
  known: readonly string[],
): Promise<InForce> {
  let files = known;
  for (let reads = 1; ; reads += 1) {
    const before = contentOf(files);
    const read = await readFiles(configFile, environment).catch((error: unknown) => ({ error }));
    const after = 'error' in read ? files : read.files;
    if (reads === MAX_READS || (isDeepStrictEqual(after, files) && contentOf(files) === before)) {
      if ('error' in read) throw read.error;
      return read;
    }
    files = after;
  }
}

/**
 * Reads configuration and policies, compiles them, and proves that a forbidden call is denied.
 * @param environment laid over the process's own when `${NAME}` is expanded
 * @throws InvalidFiles with every fault of the configuration, or of the policies
 */
export async function readFiles(configFile: string, environment: Readonly<Record<string, string>>): Promise<InForce> {
  const { configuration, warnings, files } = await loadConfiguration(configFile, { environment });
  const surroundings = surroundingsOfPolicies(configuration);
  const loaded = await loadPolicySets(surroundings);
  proveDenial(loaded.set);
  const all = [...files, ...loaded.files];
  return {
    configuration,
    policies: loaded.set,
    catalog: createCatalog(configuration.tools),
    pools: surroundings.pools,
    upstreamEnv: new Map(configuration.upstreams.flatMap(({ id, env }) => (env === null ? [] : [[id, env] as const]))),
    files: all,
    content: contentOf(all),
    warnings: [...warnings, ...loaded.warnings].map(({ at, message }) =>
      at === null ? message : `${at.file}:${at.line}:${at.column} ${message}`,
    ),
  };
}

/**
 * Makes the policies the ones that admissions must have seen.
 * @throws InvalidFiles when a budget would change its unit or window without `reset: true`
 */
export async function activate(store: EffectStore, { policies }: InForce): Promise<void> {
  const activation = await store.activatePolicy(policies.version, policies.budgets);
  if (activation.kind === 'active') return;
  throw new InvalidFiles(
    activation.budgets.map(({ budget, was, is }) => ({
      code: 'budget_redefined',
      severity: 'error',
      message: `Budget ${budget} has rows counted as "${was}"; the file says "${is}"`,
      hint: 'give the budget another id, or write reset: true to begin at zero',
      at: null,
    })),
    new Map(),
  );
}
