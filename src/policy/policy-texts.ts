import { createHash } from 'node:crypto';
import { dirname, resolve } from 'node:path';
import { createReading, type FileReading, readText } from '../diagnostics/file-reading.ts';
import { findFiles, unplaced } from '../diagnostics/find-files.ts';
import type { Finding } from '../diagnostics/finding.ts';
import { readYamlSource, type YamlSource } from '../diagnostics/yaml-source.ts';
import { canonicalJson } from '../json/text.ts';
import { isJsonArray, isJsonObject, type Json } from '../json/value.ts';

export interface PolicyText {
  readonly file: string;
  readonly text: string;
  /** The list files that it names: contents by the name in the policy; `null` where a file cannot be read. */
  readonly lists: ReadonlyMap<string, string | null>;
}

const MAX_FILE = 64 * 1024 * 1024;

/**
 * Reads the policy files at paths, and the list files that they name.
 * @param findings gets what could not be read
 * @returns also everything to watch for changes: the paths, the policy files, the list files
 */
export async function readPolicyTexts(
  paths: readonly string[],
  findings: Finding[],
  reading: FileReading = createReading(),
): Promise<{ readonly texts: readonly PolicyText[]; readonly files: readonly string[] }> {
  const found: string[] = [];
  for (const path of paths)
    await findFiles(path, { one: 'policy file', many: 'policies', isOne: isPolicyName }, reading, found, findings);
  const texts: PolicyText[] = [];
  const files = new Set<string>(paths);
  for (const file of [...new Set(found)].sort()) {
    files.add(file);
    const text = await readText(file, reading, MAX_FILE);
    if (text === null) {
      findings.push(
        unplaced('unreadable_file', `Cannot read ${file}`, 'it has to be a file of text in UTF-8, of at most 64 MiB'),
      );
      continue;
    }
    const lists = new Map<string, string | null>();
    // Most files name no list file, and parsing a large file twice is slow.
    for (const name of /\bfile['"]?\s*:/.test(text) ? namedFiles(readYamlSource(file, text)).values() : []) {
      const path = resolve(dirname(file), name);
      files.add(path);
      lists.set(name, await readText(path, reading, MAX_FILE));
    }
    texts.push({ file, text, lists });
  }
  return { texts, files: [...files] };
}

function isPolicyName(path: string): boolean {
  return /\.ya?ml$/.test(path) && !/\.test\.ya?ml$/.test(path);
}

/** The list files that a file names, by the name of the list. The file may still be faulty. */
export function namedFiles({ value }: Pick<YamlSource, 'value'>): ReadonlyMap<string, string> {
  const lists = isJsonObject(value) && isJsonObject(value['lists']) ? Object.entries(value['lists']) : [];
  return new Map(
    lists.flatMap(([name, list]) =>
      isJsonObject(list) && typeof list['file'] === 'string' ? [[name, list['file']]] : [],
    ),
  );
}

/** One value per line. Blank lines and lines that begin with `#` are skipped. */
export function listLines(text: string): readonly string[] {
  return text
    .replace(/^\uFEFF/, '')
    .split(/\r\n|\n|\r/)
    .map((line) => line.trim())
    .filter((line) => line !== '' && !line.startsWith('#'));
}

/** The canonical form of a policy file with its list files. @throws Error for a text with half a character */
export function formOf(
  { value = null }: Pick<YamlSource, 'value'>,
  lists: ReadonlyMap<string, readonly string[]>,
): string {
  return canonicalJson({ file: value, lists: Object.fromEntries(lists) });
}

/** The version of policies: SHA-256 of the forms of all sets, in the order of their names, base64url. */
export function versionOf(sets: readonly { readonly name: string | null; readonly form: string }[]): string {
  const sorted = sets.toSorted((a, b) => compareText(a.name ?? '', b.name ?? ''));
  return createHash('sha256')
    .update(canonicalJson(sorted.map(({ form }) => form)))
    .digest('base64url');
}

export function compareText(a: string, b: string): number {
  return a < b ? -1 : a > b ? 1 : 0;
}

export function policyTextToWire({ file, text, lists }: PolicyText) {
  return { file, text, lists: [...lists].map(([name, list]) => ({ name, text: list })) };
}

/**
 * The version of policies, from what {@link policyTextToWire} gives of each file alone: comments and layout make no difference
 * to it, and whether the policies fit a configuration is not looked at.
 * @returns `null` where a text is no policy set, or a list file is missing; also for anything else
 */
export function versionOfShown(files: Json | undefined): string | null {
  const sets: { readonly name: string; readonly form: string }[] = [];
  for (const shown of isJsonArray(files) ? files : [null]) {
    const { file, text, lists } = isJsonObject(shown) ? shown : {};
    if (typeof file !== 'string' || typeof text !== 'string' || !isJsonArray(lists)) return null;
    const source = readYamlSource(file, text);
    const name = isJsonObject(source.value) ? source.value['name'] : undefined;
    if (typeof name !== 'string' || source.findings.some(({ severity }) => severity === 'error')) return null;
    const read = new Map<string, readonly string[]>();
    for (const [list, path] of namedFiles(source)) {
      const { text: content } = lists.filter(isJsonObject).find((one) => one['name'] === path) ?? {};
      if (typeof content !== 'string') return null;
      read.set(list, listLines(content));
    }
    sets.push({ name, form: formOf(source, read) });
  }
  return versionOf(sets);
}
