import { createHash } from 'node:crypto';
import { deserialize, serialize } from 'node:v8';
import { readEntityFiles } from '../brain/entity-files.ts';
import { buffersOfEntities, NO_ENTITIES, type PackedEntities, packEntities } from '../brain/packed-entities.ts';
import type { Configuration } from '../config/configuration.ts';
import { surroundingsOfPolicies } from '../config/for-policies.ts';
import { deepFreeze, loadConfiguration } from '../config/load.ts';
import { stampOf } from './watch-files.ts';
import { createReading, digestOf, type FileReading } from '../diagnostics/file-reading.ts';
import type { Finding } from '../diagnostics/finding.ts';
import { InvalidFiles } from '../diagnostics/render.ts';
import type { Tool } from '../effects/model/tool.ts';
import { packBundle, unpackBundle } from '../policy/bundle.ts';
import {
  type CheckedFile,
  type CheckedFiles,
  compilePolicies,
  loadPolicySets,
  type PolicyPlan,
} from '../policy/load.ts';
import type { PolicyText } from '../policy/policy-texts.ts';
import { buffersOf, type PackedPolicies, packPolicies } from '../policy/packed.ts';
import type { CompiledPolicies } from '../policy/policies.ts';
import { proveDenial } from '../policy/self-test.ts';

/** Checked policy files, serialised, by what they were checked from. Threads share them without copies. */
export type CheckedBefore = ReadonlyMap<string, SharedArrayBuffer>;

/** Policies of another gateway, in the place of those in the files here. */
export interface SharedPolicies {
  readonly version: string;
  readonly parts: readonly string[];
}

export interface ReadRequest {
  readonly configFile: string;
  /** Overrides that of the process when `${NAME}` is expanded. */
  readonly environment: Readonly<Record<string, string>>;
  /** The part of what is in force that tells whether the files say anything new. */
  readonly known: {
    readonly files: readonly string[];
    readonly content: string;
    readonly configurationDigest: string;
    /** Version of the policies in the files; `null` where it is not known. */
    readonly filesVersion: string | null;
    /** Of the entities in the files. */
    readonly entitiesDigest: string;
    readonly checked: CheckedBefore;
  };
  /** `null`: the policies of the files are read. */
  readonly shared: SharedPolicies | null;
}

/** The policies of the files here, whether or not they are in force. */
export interface OwnPolicies {
  /** `null` where they cannot be used. */
  readonly version: string | null;
  /** Packed for the store; empty where they are too large for it, or where they were not packed. */
  readonly parts: readonly string[];
  /** Names of the policy files that were new or had changed when they were read, the first of them. */
  readonly changed: readonly string[];
}

/** Files that are named where policies come in force by files. */
export const MOST_NAMED = 20;

/** Where the files are, and their state when they were read. */
export interface FilesSeen {
  /** All files to watch. */
  readonly files: readonly string[];
  /** Digest of their content. */
  readonly content: string;
  /** Their state from `stat`; empty if they changed while they were read. */
  readonly stamp: string;
}

/** The result of a read, in the form in which one thread sends it to the other. */
export type ReadAnswer =
  /** The bytes are the same as those in force. */
  | { readonly kind: 'unchanged'; readonly stamp: string }
  | {
      readonly kind: 'read';
      readonly seen: FilesSeen;
      readonly own: OwnPolicies;
      /** `null`: the same as the one in force. */
      readonly configuration: PackedConfiguration | null;
      /** `null`: neither the policies nor what they are compiled against differ from what is in force. */
      readonly policies: PackedPolicies | null;
      readonly entities: EntitiesRead;
      readonly checked: CheckedBefore;
      readonly warnings: readonly string[];
    }
  /** For people, with every fault. */
  | { readonly kind: 'invalid'; readonly message: string };

export interface EntitiesRead {
  readonly digest: string;
  /** `null`: the same as before, for the same configuration. */
  readonly packed: PackedEntities | null;
}

/** A configuration in small pieces, because there may be many tools. */
interface PackedConfiguration {
  readonly rest: Uint8Array;
  readonly tools: readonly Uint8Array[];
}

interface ReadFiles {
  readonly seen: FilesSeen;
  readonly configuration: Configuration;
  readonly plan: PolicyPlan;
  readonly policies: CompiledPolicies;
  readonly own: OwnPolicies;
  /** `null`: they cannot be used, and policies of another gateway are what is asked for. */
  readonly entities: PackedEntities | null;
  readonly warnings: readonly string[];
}

/** How often files are read again if they change while they are read. */
const MAX_READS = 5;
/** The most characters that a log line says about broken files. */
const MAX_MESSAGE = 64 * 1024;
/** How many warnings the log lists one by one. */
const MAX_WARNINGS = 100;
const TOOLS_IN_ONE_PIECE = 4;

/**
 * Reads configuration and policies as of one moment. Files that change meanwhile are read again, so that policies are
 * never combined with a configuration of another version. Compiles them, and proves that a forbidden call is denied.
 * @throws InvalidFiles with every fault of the configuration, or of the policies
 */
export async function readAndCheck(
  configFile: string,
  environment: Readonly<Record<string, string>>,
  checkedFiles: (configuration: Configuration) => CheckedFiles | undefined = () => undefined,
  begun: FileReading = createReading(),
  shared: SharedPolicies | null = null,
): Promise<ReadFiles> {
  let reading = begun;
  for (let reads = 1; ; reads += 1) {
    const read = await readOnce(configFile, environment, checkedFiles, reading, shared).catch((error: unknown) => ({
      error,
    }));
    const isStill = await reading.isStill();
    if (isStill || reads === MAX_READS) {
      if ('error' in read) throw read.error;
      return isStill ? read : { ...read, seen: { ...read.seen, stamp: '' } };
    }
    reading = createReading();
  }
}

async function readOnce(
  configFile: string,
  environment: Readonly<Record<string, string>>,
  checkedFiles: (configuration: Configuration) => CheckedFiles | undefined,
  reading: FileReading,
  shared: SharedPolicies | null,
): Promise<ReadFiles> {
  const { configuration, warnings, files } = await loadConfiguration(configFile, { environment }, reading);
  const surroundings = surroundingsOfPolicies(configuration);
  const known = checkedFiles(configuration);
  const loading = loadPolicySets(surroundings, reading, known);
  const entities = entitiesOf(configuration, reading);
  if (shared === null) {
    // Faults of both are of interest, and a promise that nobody waits for would end the process.
    const [loaded, brain] = allRead(await Promise.allSettled([loading, entities]));
    proveDenial(loaded.set);
    return {
      seen: await seenOf([...files, ...loaded.files, ...brain.files], reading),
      entities: brain.packed,
      configuration,
      plan: loaded.plan,
      policies: loaded.set,
      own: {
        version: loaded.set.version,
        parts: packBundle(loaded.texts),
        changed: loaded.texts.slice(0, MOST_NAMED).map(({ file }) => file),
      },
      warnings: describeAll([...warnings, ...loaded.warnings]),
    };
  }
  // What the files here say is not in force: their faults are told when somebody changes them.
  const [own, brain] = await Promise.all([loading.catch(unlessFaulty), entities.catch(unlessFaulty)]);
  const taken = compilePolicies(unpackBundle(shared.parts), surroundings, [], known);
  if (taken.set.version !== shared.version) throw new InvalidFiles([versionMismatch(shared.version)], new Map());
  proveDenial(taken.set);
  return {
    seen: await seenOf(
      [
        ...files,
        ...(own?.files ?? surroundings.paths),
        ...(brain?.files ?? configuration.brain.files.map(({ path }) => path)),
      ],
      reading,
    ),
    entities: brain?.packed ?? null,
    configuration,
    plan: taken.plan,
    policies: taken.set,
    own: { version: own?.set.version ?? null, parts: [], changed: [] },
    warnings: describeAll(warnings),
  };
}

async function entitiesOf(
  { brain }: Configuration,
  reading: FileReading,
): Promise<{ readonly packed: PackedEntities; readonly files: readonly string[] }> {
  if (brain.files.length === 0) return { packed: NO_ENTITIES, files: [] };
  const read = await readEntityFiles(brain.files, brain.limits, reading);
  return { packed: packEntities(read), files: read.files };
}

/** @throws InvalidFiles with the faults of both */
function allRead<One, Other>([one, other]: readonly [
  PromiseSettledResult<One>,
  PromiseSettledResult<Other>,
]): readonly [One, Other] {
  if (one.status === 'fulfilled' && other.status === 'fulfilled') return [one.value, other.value];
  const errors: unknown[] = [one, other].flatMap((read) => (read.status === 'rejected' ? [read.reason] : []));
  const faults = errors.filter((error) => error instanceof InvalidFiles);
  if (faults.length < errors.length) throw errors.find((error) => !(error instanceof InvalidFiles));
  throw new InvalidFiles(
    faults.flatMap(({ findings }) => findings),
    new Map(faults.flatMap(({ sources }) => [...sources])),
  );
}

function unlessFaulty(error: unknown): null {
  if (error instanceof InvalidFiles) return null;
  throw error;
}

async function seenOf(files: readonly string[], reading: FileReading): Promise<FilesSeen> {
  return { files, content: await digestOf(files, reading), stamp: stampOf(files) };
}

function versionMismatch(version: string): Finding {
  return {
    code: 'wrong_bundle',
    severity: 'error',
    message: `The policies in the store are not those of version ${version}`,
    hint: 'activate them anew: svc policy activate',
    at: null,
  };
}

function describeAll(warnings: readonly Finding[]): readonly string[] {
  const more = warnings.length - MAX_WARNINGS;
  const first = warnings.slice(0, MAX_WARNINGS).map(describe);
  return more > 0 ? [...first, `and ${more} more: svc config check shows all`] : first;
}

function describe({ at, message, hint }: Finding): string {
  const advice = hint === null ? message : `${message} (${hint})`;
  return at === null ? advice : `${at.file}:${at.line}:${at.column} ${advice}`;
}

/** Reads files and compares them with what is in force; another thread takes over the result. @throws errors of ours */
export async function answerRead({ configFile, environment, known, shared }: ReadRequest): Promise<ReadAnswer> {
  const reading = createReading();
  const content = await digestOf(known.files, reading);
  const stamp = stampOf(known.files);
  if (shared === null && content === known.content && (await reading.isStill())) return { kind: 'unchanged', stamp };
  const checked = new Map<string, SharedArrayBuffer>();
  const changed: string[] = [];
  try {
    const read = await readAndCheck(
      configFile,
      environment,
      (configuration) => checkedBefore(configuration, known.checked, checked, changed),
      reading,
      shared,
    );
    const { configuration, policies, plan, seen, own, entities, warnings } = read;
    const isSame = configuration.digest === known.configurationDigest;
    const digest = entities?.digest ?? known.entitiesDigest;
    return {
      kind: 'read',
      seen,
      // Another configuration has each file checked anew; at the first reload none is known.
      own: isSame && known.checked.size > 0 ? { ...own, changed: changed.slice(0, MOST_NAMED) } : own,
      configuration: isSame ? null : packConfiguration(configuration),
      policies:
        shared === null && isSame && policies.version === known.filesVersion
          ? null
          : packPolicies(plan, policies, surroundingsOfPolicies(configuration).tools),
      // Other limits or workspaces may let in what was refused.
      entities: { digest, packed: isSame && digest === known.entitiesDigest ? null : entities },
      checked,
      warnings,
    };
  } catch (error) {
    if (!(error instanceof InvalidFiles)) throw error;
    return { kind: 'invalid', message: error.message.slice(0, MAX_MESSAGE) };
  }
}

export function buffersOfAnswer(answer: ReadAnswer): ArrayBufferLike[] {
  if (answer.kind !== 'read') return [];
  const { configuration, policies, entities } = answer;
  return [
    ...(entities.packed === null ? [] : buffersOfEntities(entities.packed)),
    ...(configuration === null ? [] : [configuration.rest, ...configuration.tools].map(({ buffer }) => buffer)),
    ...(policies === null ? [] : buffersOf(policies)),
  ];
}

/** Checked files by their text, the lists that they name, and the configuration that they were checked against. */
function checkedBefore(
  configuration: Configuration,
  before: CheckedBefore,
  now: Map<string, SharedArrayBuffer>,
  changed: string[],
): CheckedFiles {
  const keyOf = ({ file, text, lists }: PolicyText): string =>
    createHash('sha256')
      .update(JSON.stringify([configuration.digest, file, [...lists]]))
      .update(text)
      .digest('base64url');
  return {
    get(text) {
      const found = before.get(keyOf(text));
      if (found === undefined) return null;
      now.set(keyOf(text), found);
      const checked: CheckedFile = deserialize(new Uint8Array(found).slice());
      return checked;
    },
    put(text, checked) {
      changed.push(text.file);
      const bytes = serialize(checked);
      const shared = new SharedArrayBuffer(bytes.length);
      new Uint8Array(shared).set(bytes);
      now.set(keyOf(text), shared);
    },
  };
}

function packConfiguration({ tools, ...rest }: Configuration): PackedConfiguration {
  const pieces: Uint8Array[] = [];
  for (let at = 0; at < tools.length; at += TOOLS_IN_ONE_PIECE)
    pieces.push(new Uint8Array(serialize(tools.slice(at, at + TOOLS_IN_ONE_PIECE))));
  return { rest: new Uint8Array(serialize(rest)), tools: pieces };
}

/** Takes over a configuration in small steps. */
export function* unpackConfiguration(packed: PackedConfiguration): Generator<void, Configuration> {
  const tools: Tool[] = [];
  for (const piece of packed.tools) {
    const part: readonly Tool[] = deserialize(piece);
    tools.push(...deepFreeze(part));
    yield;
  }
  const rest: Omit<Configuration, 'tools'> = deserialize(packed.rest);
  yield;
  return Object.freeze({ ...deepFreeze(rest), tools: Object.freeze(tools) });
}
