import { createReading, type FileReading, readText } from '../diagnostics/file-reading.ts';
import { type Finding, inReadingOrder, type Position } from '../diagnostics/finding.ts';
import { findFiles, unplaced } from '../diagnostics/find-files.ts';
import { InvalidFiles } from '../diagnostics/render.ts';
import { type DataPath, readYamlSource } from '../diagnostics/yaml-source.ts';
import type { EntityLimits } from '../effects/entity-store.ts';
import { type Entity, entityName, textOfEntity } from '../effects/model/entity.ts';
import { parseStrictJson } from '../json/strict.ts';
import { isJsonArray, isJsonObject, type Json } from '../json/value.ts';
import { checkEntity, MAX_DEPTH } from './check-entity.ts';

/** An entity, and where it stands. `line` counts from 1. */
export interface FileEntity {
  readonly entity: Entity;
  readonly file: string;
  readonly line: number;
}

export interface EntityFiles {
  /** By workspace, in the order of files and lines. A workspace without any is absent. */
  readonly byWorkspace: ReadonlyMap<string, readonly FileEntity[]>;
  /** Everything to watch for changes: the given paths, and the files in folders. */
  readonly files: readonly string[];
}

const YAML = /\.ya?ml$/;
const LINES = /\.(?:jsonl|ndjson)$/;
const WANTED = {
  one: 'file of entities',
  many: 'entities',
  isOne: (path: string) => YAML.test(path) || LINES.test(path),
};
/** Bytes. */
const MAX_FILE = 256 * 1024 * 1024;
/** What one line may hold. An entity that is within its own limits is within these. */
const LINE_LIMITS = { depth: MAX_DEPTH + 4, values: 20_000 };
/** Faults that are reported: a file with one wrong column has them by the thousand. */
const MOST_FAULTS = 100;

type Collected = ReturnType<typeof collectInto>;

/**
 * Reads all entities under the paths: YAML (a list, or `entities:` with one) and JSON Lines (an entity on each line).
 * @throws InvalidFiles with the faults of all files. It quotes no line of them: entities are business data, and the
 *   faults go to the log
 */
export async function readEntityFiles(
  paths: readonly { readonly path: string; readonly workspace: string }[],
  limits: EntityLimits,
  reading: FileReading = createReading(),
): Promise<EntityFiles> {
  const findings: Finding[] = [];
  const byWorkspace = new Map<string, FileEntity[]>();
  const files = new Set<string>();
  for (const workspace of new Set(paths.map((one) => one.workspace))) {
    const found: string[] = [];
    for (const { path } of paths.filter((one) => one.workspace === workspace)) {
      files.add(path);
      await findFiles(path, WANTED, reading, found, findings);
    }
    const entities: FileEntity[] = [];
    const into = collectInto(entities, findings);
    for (const file of [...new Set(found)].sort()) {
      files.add(file);
      if (!into.isHopeless()) await readFile(file, reading, into);
    }
    findings.push(...tooMuch(workspace, entities, limits));
    if (entities.length > 0) byWorkspace.set(workspace, entities);
  }
  if (findings.length > 0) throw new InvalidFiles(shortened(inReadingOrder(findings)), new Map());
  return { byWorkspace, files: [...files] };
}

async function readFile(file: string, reading: FileReading, into: Collected): Promise<void> {
  if (!WANTED.isOne(file)) {
    into.findings.push(
      unplaced(
        'unknown_format',
        `${file} is not a file of entities`,
        'its name ends with .yaml or .yml (a list of entities), or with .jsonl or .ndjson (an entity on each line)',
      ),
    );
    return;
  }
  const text = await readText(file, reading, MAX_FILE);
  if (text === null)
    into.findings.push(
      unplaced('unreadable_file', `Cannot read ${file}`, `it has to be text in UTF-8 of at most ${MAX_FILE} bytes`),
    );
  else if (YAML.test(file)) readYaml(file, text, into);
  else readLines(file, text, into);
}

function readYaml(file: string, text: string, into: Collected): void {
  const source = readYamlSource(file, text);
  into.findings.push(...source.findings);
  if (source.value === undefined) return;
  const { value } = source;
  const isUnderName = isJsonObject(value) && Object.keys(value).join() === 'entities';
  const list = isUnderName ? value['entities'] : value;
  const above = isUnderName ? ['entities'] : [];
  if (!isJsonArray(list)) {
    into.findings.push({
      code: 'no_entities',
      severity: 'error',
      message: 'The file has to be a list of entities',
      hint: '- { type: customer, id: cus_1, name: "Acme" }',
      at: source.at(above),
    });
    return;
  }
  for (const [index, item] of list.entries()) {
    if (into.isHopeless()) return;
    into.add(item, (path) => source.at([...above, index, ...path]));
  }
}

function readLines(file: string, text: string, into: Collected): void {
  let line = 0;
  let isEmpty = true;
  for (let start = 0; start < text.length; ) {
    if (into.isHopeless()) return;
    line += 1;
    const end = text.indexOf('\n', start);
    const written = text.slice(start, end === -1 ? text.length : end).trim();
    start = end === -1 ? text.length : end + 1;
    if (written === '') continue;
    isEmpty = false;
    const at = { file, line, column: 1 };
    const parsed = parseStrictJson(written, LINE_LIMITS);
    if (parsed.ok) into.add(parsed.value, () => at);
    else
      into.findings.push({
        code: 'bad_line',
        severity: 'error',
        message: `The line is not one JSON object: ${parsed.message}`,
        hint: 'write each entity on a line of its own',
        at: { ...at, column: parsed.at?.column ?? 1 },
      });
  }
  if (isEmpty)
    into.findings.push({
      code: 'empty_file',
      severity: 'error',
      message: 'The file is empty',
      hint: 'a file that is being written looks like this too: write it whole, then rename it',
      at: { file, line: 1, column: 1 },
    });
}

function collectInto(entities: FileEntity[], findings: Finding[]) {
  const first = new Map<string, FileEntity>();
  return {
    findings,
    /** Whether there are so many faults that reading on finds nothing new. */
    isHopeless: (): boolean => findings.length > MOST_FAULTS,
    add(value: Json, at: (path: DataPath) => Position): void {
      const checked = checkEntity(value);
      if (!checked.ok) {
        for (const { path, message } of checked.faults)
          findings.push({
            code: 'bad_entity',
            severity: 'error',
            message: `${path.length === 0 ? 'the entity' : path.join('.')} ${message}`,
            hint: null,
            at: at(path),
          });
        return;
      }
      const { entity } = checked;
      const place = at([]);
      const before = first.get(entityName(entity));
      if (before !== undefined) {
        findings.push({
          code: 'duplicate_entity',
          severity: 'error',
          message: `${entity.type} ${entity.id} stands in ${before.file}:${before.line} already`,
          hint: 'one type and id is one entity: remove one of them',
          at: place,
        });
        return;
      }
      const one = { entity, file: place.file, line: place.line };
      first.set(entityName(entity), one);
      entities.push(one);
    },
  };
}

function tooMuch(workspace: string, entities: readonly FileEntity[], limits: EntityLimits): Finding[] {
  if (entities.length > limits.entities)
    return [
      unplaced(
        'too_many_entities',
        `The files have ${entities.length} entities for the workspace ${workspace}; it may hold ${limits.entities}`,
        'leave some out, or raise limits.brain_entities',
      ),
    ];
  let characters = 0;
  for (const { entity } of entities) characters += textOfEntity(entity).length;
  if (characters <= limits.characters) return [];
  return [
    unplaced(
      'too_many_entities',
      `The files have ${characters} characters of entities for the workspace ${workspace}; it may hold ${limits.characters}`,
      'leave some out, or raise limits.brain_size',
    ),
  ];
}

function shortened(findings: readonly Finding[]): readonly Finding[] {
  const more = findings.length - MOST_FAULTS;
  if (more <= 0) return findings;
  return [...findings.slice(0, MOST_FAULTS), unplaced('more_faults', 'There are more faults; these are the first')];
}
