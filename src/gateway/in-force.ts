import type { Configuration } from '../config/configuration.ts';
import { surroundingsOfPolicies } from '../config/for-policies.ts';
import { InvalidFiles } from '../diagnostics/invalid-files.ts';
import type { EffectStore } from '../effects/store.ts';
import { type PackedPolicies, unpackPolicies } from '../policy/packed.ts';
import type { CompiledPolicies } from '../policy/policies.ts';
import { proveUndeclaredDenied } from '../policy/self-test.ts';
import { type Catalog, catalogInSteps, createCatalog } from '../upstreams/catalog.ts';
import type { FileReader } from './file-reader.ts';
import { type CheckedBefore, type ReadAnswer, readAndCheck, unpackConfiguration } from './read-files.ts';
import { inSlices } from './slices.ts';

/** Configuration and policies, checked and compiled. They are replaced as a whole or not at all. */
export interface InForce {
  readonly configuration: Configuration;
  readonly policies: CompiledPolicies;
  readonly catalog: Catalog;
  /** Units by pool. */
  readonly pools: ReadonlyMap<string, number>;
  /** The fact `env` of an upstream's tools, if the upstream has one. */
  readonly upstreamEnv: ReadonlyMap<string, string>;
  /** All files to watch. */
  readonly files: readonly string[];
  /** Digest of the files' content when they were read. */
  readonly content: string;
  /** The state of the files at that time, from `stat`. */
  readonly stamp: string;
  /** The checked policy files, so that unchanged ones need no second check. */
  readonly checked: CheckedBefore;
  /** For the log: findings that do not make the files unusable. */
  readonly warnings: readonly string[];
}

/**
 * Reads configuration and policies, compiles them, and proves that a forbidden call is denied.
 * @param environment overrides that of the process when `${NAME}` is expanded
 * @throws InvalidFiles with every fault of the configuration, or of the policies
 */
export async function readFiles(configFile: string, environment: Readonly<Record<string, string>>): Promise<InForce> {
  const { configuration, policies, seen, warnings } = await readAndCheck(configFile, environment);
  const catalog = createCatalog(configuration.tools);
  return { ...following(configuration), configuration, policies, catalog, ...seen, checked: new Map(), warnings };
}

function following(configuration: Configuration): Pick<InForce, 'pools' | 'upstreamEnv'> {
  return {
    pools: surroundingsOfPolicies(configuration).pools,
    upstreamEnv: new Map(configuration.upstreams.flatMap(({ id, env }) => (env === null ? [] : [[id, env] as const]))),
  };
}

/** What a reload found. */
export type Reread =
  /** The files changed, but only in comments or layout. */
  { readonly kind: 'same'; readonly inForce: InForce } | { readonly kind: 'new'; readonly inForce: InForce };

/**
 * Reads the files again outside the thread that answers calls, and takes over the result in small steps, so that this
 * thread is never blocked for long.
 * @throws FilesRefused, FilesNotRead
 */
export async function rereadFiles(
  reader: FileReader,
  configFile: string,
  environment: Readonly<Record<string, string>>,
  before: InForce,
  slices: typeof inSlices = inSlices,
): Promise<Reread> {
  const { files, content, checked } = before;
  const known = {
    files,
    content,
    checked,
    configurationDigest: before.configuration.digest,
    policyVersion: before.policies.version,
  };
  const answer = await reader.read({ configFile, environment, known });
  switch (answer.kind) {
    case 'invalid':
      throw new FilesRefused(answer.message);
    case 'unchanged':
      return { kind: 'same', inForce: { ...before, stamp: answer.stamp } };
    case 'read': {
      const seen = { ...answer.seen, checked: answer.checked, warnings: answer.warnings };
      if (answer.policies === null) return { kind: 'same', inForce: { ...before, ...seen } };
      return { kind: 'new', inForce: await slices(takeUp(answer.configuration, answer.policies, before, seen)) };
    }
  }
}

function* takeUp(
  packed: Extract<ReadAnswer, { kind: 'read' }>['configuration'],
  policies: PackedPolicies,
  before: InForce,
  seen: Pick<InForce, 'files' | 'content' | 'stamp' | 'checked' | 'warnings'>,
): Generator<void, InForce> {
  const configuration = packed === null ? before.configuration : yield* unpackConfiguration(packed);
  const catalog = packed === null ? before.catalog : yield* catalogInSteps(configuration.tools);
  const rest = following(configuration);
  const set = yield* unpackPolicies(policies, surroundingsOfPolicies(configuration).tools, rest.pools);
  proveUndeclaredDenied(set);
  return { ...rest, configuration, policies: set, catalog, ...seen };
}

/** The content of the files cannot be used. */
export class FilesRefused extends Error {}

/**
 * Activates the policies: from then on admissions must have seen them.
 * @throws InvalidFiles if a budget would change its unit or window without `reset: true`
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
