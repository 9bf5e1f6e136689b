import { createHash } from 'node:crypto';
import { deserialize, serialize } from 'node:v8';
import type { Configuration } from '../config/configuration.ts';
import { surroundingsOfPolicies } from '../config/for-policies.ts';
import { deepFreeze, loadConfiguration } from '../config/load.ts';
import { stampOf } from '../config/watch.ts';
import { createReading, digestOf, type FileReading } from '../diagnostics/file-reading.ts';
import type { Finding } from '../diagnostics/finding.ts';
import { InvalidFiles } from '../diagnostics/invalid-files.ts';
import type { Tool } from '../effects/model/tool.ts';
import {
  type CheckedFile,
  type CheckedFiles,
  loadPolicySets,
  type PolicyPlan,
  type PolicyText,
} from '../policy/load.ts';
import { buffersOf, type PackedPolicies, packPolicies } from '../policy/packed.ts';
import type { CompiledPolicies } from '../policy/policies.ts';
import { proveDenial } from '../policy/self-test.ts';

/** Checked policy files, serialised, by what they were checked from. Threads share them without copies. */
export type CheckedBefore = ReadonlyMap<string, SharedArrayBuffer>;

/** The part of what is in force that tells whether the files say anything new. */
export interface KnownFiles {
  readonly files: readonly string[];
  readonly content: string;
  readonly configurationDigest: string;
  readonly policyVersion: string;
  readonly checked: CheckedBefore;
}

export interface ReadRequest {
  readonly configFile: string;
  /** Overrides that of the process when `${NAME}` is expanded. */
  readonly environment: Readonly<Record<string, string>>;
  readonly known: KnownFiles;
}

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
      readonly configurationDigest: string;
      readonly policyVersion: string;
      /** `null`: the same as the one in force. */
      readonly configuration: PackedConfiguration | null;
      /** `null`: neither the policies nor what they are compiled against differ from what is in force. */
      readonly policies: PackedPolicies | null;
      readonly checked: CheckedBefore;
      readonly warnings: readonly string[];
    }
  /** For people, with every fault. */
  | { readonly kind: 'invalid'; readonly message: string };

/** A configuration in small pieces, because there may be many tools. */
interface PackedConfiguration {
  readonly rest: Uint8Array;
  readonly tools: readonly Uint8Array[];
}

/** Files as the reading thread read and checked them. */
interface ReadFiles {
  readonly seen: FilesSeen;
  readonly configuration: Configuration;
  readonly plan: PolicyPlan;
  readonly policies: CompiledPolicies;
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
): Promise<ReadFiles> {
  let reading = begun;
  for (let reads = 1; ; reads += 1) {
    const read = await readOnce(configFile, environment, checkedFiles, reading).catch((error: unknown) => ({ error }));
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
): Promise<ReadFiles> {
  const { configuration, warnings, files } = await loadConfiguration(configFile, { environment }, reading);
  const loaded = await loadPolicySets(surroundingsOfPolicies(configuration), reading, checkedFiles(configuration));
  proveDenial(loaded.set);
  const all = [...files, ...loaded.files];
  return {
    seen: { files: all, content: await digestOf(all, reading), stamp: stampOf(all) },
    configuration,
    plan: loaded.plan,
    policies: loaded.set,
    warnings: sayAll([...warnings, ...loaded.warnings]),
  };
}

function sayAll(warnings: readonly Finding[]): readonly string[] {
  const more = warnings.length - MAX_WARNINGS;
  const first = warnings.slice(0, MAX_WARNINGS).map(said);
  return more > 0 ? [...first, `and ${more} more: svc config check shows all`] : first;
}

function said({ at, message }: Finding): string {
  return at === null ? message : `${at.file}:${at.line}:${at.column} ${message}`;
}

/** Reads files and compares them with what is in force; another thread takes over the result. @throws errors of ours */
export async function answerRead({ configFile, environment, known }: ReadRequest): Promise<ReadAnswer> {
  const reading = createReading();
  const content = await digestOf(known.files, reading);
  const stamp = stampOf(known.files);
  if (content === known.content && (await reading.isStill())) return { kind: 'unchanged', stamp };
  const checked = new Map<string, SharedArrayBuffer>();
  try {
    const read = await readAndCheck(
      configFile,
      environment,
      (configuration) => checkedBefore(configuration, known.checked, checked),
      reading,
    );
    const { configuration, policies, plan, seen, warnings } = read;
    const isSame = configuration.digest === known.configurationDigest;
    return {
      kind: 'read',
      seen,
      configurationDigest: configuration.digest,
      policyVersion: policies.version,
      configuration: isSame ? null : packConfiguration(configuration),
      policies:
        isSame && policies.version === known.policyVersion
          ? null
          : packPolicies(plan, policies, surroundingsOfPolicies(configuration).tools),
      checked,
      warnings,
    };
  } catch (error) {
    if (!(error instanceof InvalidFiles)) throw error;
    return { kind: 'invalid', message: error.message.slice(0, MAX_MESSAGE) };
  }
}

/** The buffers that can be transferred with an answer. */
export function buffersOfAnswer(answer: ReadAnswer): ArrayBufferLike[] {
  if (answer.kind !== 'read') return [];
  const { configuration, policies } = answer;
  return [
    ...(configuration === null ? [] : [configuration.rest, ...configuration.tools].map(({ buffer }) => buffer)),
    ...(policies === null ? [] : buffersOf(policies)),
  ];
}

/** Checked files by their text, the lists that they name, and the configuration that they were checked against. */
function checkedBefore(
  configuration: Configuration,
  before: CheckedBefore,
  now: Map<string, SharedArrayBuffer>,
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
