import { didYouMean } from '../diagnostics/nearest.ts';
import type { DataPath } from '../diagnostics/yaml-source.ts';
import type { Json } from '../json/value.ts';
import { parseCondition } from './condition.ts';
import type { Expression, Names, RightSide, ValueTable } from './expression.ts';
import { readEntities } from './entities.ts';
import { type Entities, factType, isCallersWord, isPathFault, parseFactPath } from './fact-path.ts';
import { literal } from './literal.ts';
import { isList, isScalarList } from './operators.ts';
import { below, type Reporter } from './reporter.ts';
import type { PolicyFile } from './schema.ts';

export type ListFiles = ReadonlyMap<string, readonly string[]>;

const NAME = /^[A-Za-z0-9][A-Za-z0-9_-]{0,62}$/;

/**
 * Looks up the lists, values and conditions of a set by name. Each condition is read once, at its own place, even if no
 * rule uses it. A condition that refers to itself is an error.
 */
export function namesOf(file: PolicyFile, listFiles: ListFiles, report: Reporter): Names {
  const rights = new Map<string, Extract<RightSide, { kind: 'literal' | 'value' }>>();
  readLists(file, listFiles, rights, report);
  const entities = readEntities(file, report);
  readValues(file, entities, rights, report);

  const blocks = new Map(Object.entries(file.conditions ?? {}));
  const read = new Map<string, Expression | null>();
  const reading: string[] = [];
  const names: Names = {
    entities,
    right: (name) => rights.get(name) ?? null,
    rightNames: [...rights.keys()],
    conditionNames: [...blocks.keys()],
    condition: (name) => {
      const block = blocks.get(name);
      if (block === undefined) return { expression: null, missing: true };
      const known = read.get(name);
      if (known !== undefined) return { expression: known, missing: false };
      if (reading.includes(name)) {
        report.error(
          'circular_condition',
          ['conditions', name],
          [`The condition '${name}' refers to itself`, [...reading.slice(reading.indexOf(name)), name].join(' → ')],
          'key',
        );
        read.set(name, null);
        return { expression: null, missing: false };
      }
      reading.push(name);
      const expression = parseCondition(block, ['conditions', name], names, report);
      reading.pop();
      // A circle was already marked as faulty.
      const result = read.get(name) === null ? null : expression;
      read.set(name, result);
      return { expression: result, missing: false };
    },
  };
  for (const name of blocks.keys()) {
    checkName('condition', name, ['conditions', name], report);
    names.condition(name);
  }
  return names;
}

function checkName(what: string, name: string, path: DataPath, report: Reporter): void {
  if (!NAME.test(name))
    report.error(
      'wrong_value',
      path,
      [`The ${what} '${name}' has a name that cannot be referred to`, 'letters, digits, - and _'],
      'key',
    );
}

function readLists(
  file: PolicyFile,
  listFiles: ListFiles,
  rights: Map<string, Extract<RightSide, { kind: 'literal' | 'value' }>>,
  report: Reporter,
): void {
  for (const [name, source] of Object.entries(file.lists ?? {})) {
    const path = ['lists', name];
    checkName('list', name, path, report);
    // The content of a list file is data. Nothing in it is a reference.
    const list: Json = isList(source)
      ? source.map((item, index) => literal(item, [...path, index], report))
      : (listFiles.get(name) ?? []);
    if (!isScalarList(list))
      report.error('mixed_list', path, [
        `The list '${name}' mixes types`,
        'quote what is meant as text: no value is converted',
      ]);
    if (list.length === 0 && isList(source)) report.warning('empty_list', path, `The list '${name}' is empty`);
    rights.set(name, { kind: 'literal', value: list });
  }
}

function readValues(
  file: PolicyFile,
  entities: Entities,
  rights: Map<string, Extract<RightSide, { kind: 'literal' | 'value' }>>,
  report: Reporter,
): void {
  for (const [name, source] of Object.entries(file.values ?? {})) {
    const path = ['values', name];
    checkName('value', name, path, report);
    if (rights.has(name))
      report.error(
        'duplicate_name',
        path,
        [`'${name}' is a list already`, 'lists and values share their names'],
        'key',
      );
    if (typeof source !== 'object' || isList(source)) {
      if (isList(source) && !isScalarList(source)) report.error('mixed_list', path, `The value '${name}' mixes types`);
      rights.set(name, { kind: 'literal', value: literal(source, path, report) });
      continue;
    }
    const by = parseFactPath(source.by, 'rule', entities);
    if (isPathFault(by)) {
      report.error(by.code, below(path, 'by'), [by.message, by.hint]);
      continue;
    }
    if (isCallersWord(by)) {
      report.error('caller_sets_threshold', below(path, 'by'), [
        `'${by.text}' would let the caller choose the value`,
        'choose by a fact of agent, key, tool, env or request',
      ]);
      continue;
    }
    if (factType(by) === 'array') {
      report.error('wrong_value', below(path, 'by'), `'${by.text}' is a list and cannot choose a value`);
      continue;
    }
    const table: ValueTable = {
      id: `${file.name}/${name}`,
      by,
      of: new Map(Object.entries(source.of).map(([key, value]) => [key, literal(value, [...path, 'of', key], report)])),
      otherwise: literal(source.else, [...path, 'else'], report),
    };
    checkTable(table, path, report);
    rights.set(name, { kind: 'value', table });
  }
}

function checkTable(table: ValueTable, path: DataPath, report: Reporter): void {
  const kinds = new Set(
    [...table.of.values(), table.otherwise].map((value) => (isList(value) ? 'list' : typeof value)),
  );
  if (kinds.size > 1)
    report.error('mixed_types', path, `The values of '${table.id}' are of different types: ${[...kinds].join(', ')}`);
}

/** The hint for a `$name` that does not exist. */
export function nearName(name: string, names: Names): string | null {
  return didYouMean(name, names.rightNames);
}
