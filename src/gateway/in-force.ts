import type { ApiSettings } from '../api/ports.ts';
import type { Configuration } from '../config/configuration.ts';
import { surroundingsOfPolicies } from '../config/for-policies.ts';
import { InvalidFiles } from '../diagnostics/render.ts';
import type { EffectStore } from '../effects/store.ts';
import { type PackedPolicies, unpackPolicies } from '../policy/packed.ts';
import type { CompiledPolicies } from '../policy/policies.ts';
import { proveUndeclaredDenied } from '../policy/self-test.ts';
import { type Catalog, catalogInSteps, createCatalog } from '../upstreams/catalog.ts';
import type { FileReader } from './file-reader.ts';
import type { PolicySeals } from '../secrets/policy-seals.ts';
import {
  type CheckedBefore,
  type EntitiesRead,
  type OwnPolicies,
  type ReadAnswer,
  readAndCheck,
  type SharedPolicies,
  unpackConfiguration,
  type FilesSeen,
} from './read-files.ts';
import { inSlices } from './slices.ts';
import type { PolicyChange } from '../effects/policy-store.ts';

/** Configuration and policies, checked and compiled. They are replaced as a whole or not at all. */
export interface InForce extends FilesSeen {
  readonly configuration: Configuration;
  readonly policies: CompiledPolicies;
  readonly catalog: Catalog;
  /** Units by pool. */
  readonly pools: ReadonlyMap<string, number>;
  /** The fact `env` of an upstream's tools, if the upstream has one. */
  readonly upstreamEnv: ReadonlyMap<string, string>;
  /** The policies of the files here; others are in force where another gateway has put them there. */
  readonly own: OwnPolicies;
  /** Of the files of the company brain. What they say is taken over by the store and is not kept here. */
  readonly entities: EntitiesRead;
  /** The checked policy files, so that unchanged ones need no second check. */
  readonly checked: CheckedBefore;
  /** For the log: findings that do not make the files unusable. */
  readonly warnings: readonly string[];
}

/** What is in force now. The same object for as long as the gateway runs. */
export interface Held {
  inForce: InForce;
}

/**
 * Reads configuration and policies, compiles them, and proves that a forbidden call is denied.
 * @param environment overrides that of the process when `${NAME}` is expanded
 * @throws InvalidFiles with every fault of the configuration, or of the policies
 */
export async function readFiles(configFile: string, environment: Readonly<Record<string, string>>): Promise<InForce> {
  const { configuration, policies, own, seen, entities, warnings } = await readAndCheck(configFile, environment);
  const catalog = createCatalog(configuration.tools);
  return {
    ...following(configuration),
    configuration,
    policies,
    own,
    entities: { digest: entities?.digest ?? '', packed: entities },
    catalog,
    ...seen,
    checked: new Map(),
    warnings,
  };
}

function following(configuration: Configuration): Pick<InForce, 'pools' | 'upstreamEnv'> {
  return {
    pools: surroundingsOfPolicies(configuration).pools,
    upstreamEnv: new Map(configuration.upstreams.flatMap(({ id, env }) => (env === null ? [] : [[id, env] as const]))),
  };
}

export type Reread =
  /** The files changed, but only in comments or layout. */
  { readonly kind: 'same'; readonly inForce: InForce } | { readonly kind: 'new'; readonly inForce: InForce };

/**
 * Reads the files again outside the thread that answers calls, and takes over the result in small steps, so that this
 * thread is never blocked for long.
 * @param policies those of the files, whether or not they are new, or others in their place
 * @throws FilesRefused, FilesNotRead
 */
export async function rereadFiles(
  reader: Pick<FileReader, 'read'>,
  configFile: string,
  environment: Readonly<Record<string, string>>,
  before: InForce,
  policies: 'of the files, if new' | 'of the files' | SharedPolicies = 'of the files, if new',
  slices: typeof inSlices = inSlices,
): Promise<Reread> {
  const { files, checked } = before;
  const isNews = policies === 'of the files, if new';
  const known = {
    files,
    content: isNews ? before.content : '',
    checked,
    configurationDigest: before.configuration.digest,
    filesVersion: isNews ? before.own.version : null,
    entitiesDigest: before.entities.digest,
  };
  const shared = typeof policies === 'string' ? null : policies;
  const answer = await reader.read({ configFile, environment, known, shared });
  switch (answer.kind) {
    case 'invalid':
      throw new FilesRefused(answer.message);
    case 'unchanged':
      return { kind: 'same', inForce: { ...before, stamp: answer.stamp } };
    case 'read': {
      const { own, entities, checked: now, warnings } = answer;
      const seen = { ...answer.seen, own, entities, checked: now, warnings };
      if (answer.policies === null) return { kind: 'same', inForce: { ...before, ...seen } };
      return { kind: 'new', inForce: await slices(takeUp(answer.configuration, answer.policies, before, seen)) };
    }
  }
}

function* takeUp(
  packed: Extract<ReadAnswer, { kind: 'read' }>['configuration'],
  policies: PackedPolicies,
  before: InForce,
  seen: Pick<InForce, 'own' | 'entities' | 'files' | 'content' | 'stamp' | 'checked' | 'warnings'>,
): Generator<void, InForce> {
  const configuration = packed === null ? before.configuration : yield* unpackConfiguration(packed);
  const catalog = packed === null ? before.catalog : yield* catalogInSteps(configuration.tools);
  const rest = following(configuration);
  const set = yield* unpackPolicies(policies, surroundingsOfPolicies(configuration).tools, rest.pools);
  proveUndeclaredDenied(set);
  return { ...rest, configuration, policies: set, catalog, ...seen };
}

export class FilesRefused extends Error {}

/**
 * Activates the policies: from then on admissions must have seen them.
 * @returns the version that is in force instead, if this one is not to come back
 * @throws FilesRefused if a proposal is to come in force that is over
 * @throws InvalidFiles if a budget would change its unit or window without `reset: true`
 */
export async function activate(
  store: Pick<EffectStore, 'activatePolicy'>,
  { policies, own }: Pick<InForce, 'policies' | 'own'>,
  change: Omit<PolicyChange, 'bundle'>,
  seals: Pick<PolicySeals, 'seal'>,
): Promise<string | null> {
  const { version, budgets } = policies;
  const bundle =
    own.version === version && own.parts.length > 0 ? { version, seal: seals.seal(version), parts: own.parts } : null;
  const activation = await store.activatePolicy(version, budgets, { ...change, bundle });
  switch (activation.kind) {
    case 'active':
      return null;
    case 'superseded':
      return activation.version;
    case 'proposal_over':
      throw new FilesRefused('The proposal is over, or is not as it was read.');
    case 'budget_redefined':
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
}

/** The settings that all doors read. They follow reloads, and where the gateway listens. */
export class OwnSettings {
  readonly #held: Held;
  /** Where callers reach the gateway, unless the configuration says it; empty until it listens. */
  #origin = '';
  #made: { readonly of: InForce; readonly settings: ApiSettings };

  constructor(held: Held) {
    this.#held = held;
    this.#made = this.#make();
  }

  /** Those of now. */
  readonly read = (): ApiSettings => {
    if (this.#made.of !== this.#held.inForce) this.#made = this.#make();
    return this.#made.settings;
  };

  readonly routes = (): InForce['configuration']['routes'] => this.#held.inForce.configuration.routes;

  listensAt(url: string): void {
    this.#origin = url;
    this.#made = this.#make();
  }

  #make(): { readonly of: InForce; readonly settings: ApiSettings } {
    const of = this.#held.inForce;
    const { server, auth, limits } = of.configuration;
    const settings = {
      publicUrl: server.publicUrl ?? this.#origin,
      allowedHosts: server.allowedHosts,
      queryKey: auth.queryKey,
      jsonLimits: { depth: limits.paramsDepth, values: limits.paramsValues },
    };
    return { of, settings };
  }
}
