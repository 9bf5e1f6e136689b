import type { ErrorObject } from 'ajv/dist/2020.js';
import type { Finding } from '../diagnostics/finding.ts';
import { didYouMean } from '../diagnostics/nearest.ts';
import type { DataPath, YamlSource } from '../diagnostics/yaml-source.ts';
import { pointerTo } from '../json/value.ts';
import type { Expanded, Tree } from './expand.ts';
import type { GatewayFile } from './schema.ts';
import { fileValidator } from './validators.ts';

/** A file whose shape was checked. Faulty items are left out, so that the rest can be checked further. */
export interface Shaped {
  /** `null` where nothing can be checked further. */
  readonly file: GatewayFile | null;
  /** The path of an object or list of `file` in the YAML file. */
  readonly pathOf: (item: object) => DataPath;
  readonly findings: readonly Finding[];
}

/** Items that can be left out alone. A fault elsewhere leaves out its whole section. */
const REMOVABLE: readonly (readonly (string | null)[])[] = [
  ['routes', null, 'rules', null],
  ['workspaces', null, 'agents', null],
  ['users', null],
  ['workspaces', null],
  ['upstreams', null],
  ['tools', null],
  ['routes', null],
  ['pools', null],
];

const validate = fileValidator();

/**
 * Checks the data of a file against the schema and fills in defaults.
 * @param expanded the data after expansion; it is changed in place
 */
export function checkShape({ tree, fromEnvironment }: Expanded, source: YamlSource): Shaped {
  const paths = new WeakMap<object, DataPath>();
  const pathOf = (item: object): DataPath => paths.get(item) ?? [];
  const file: unknown = tree;
  if (validate(file)) {
    remember(tree, [], paths);
    return { file, pathOf, findings: [] };
  }
  if (takeTypes(tree, validate.errors ?? [], fromEnvironment) && validate(file)) {
    remember(tree, [], paths);
    return { file, pathOf, findings: [] };
  }
  const errors = withoutBranches(validate.errors ?? []);
  const findings = explain(errors, tree, source, fromEnvironment);
  remember(tree, [], paths);
  prune(tree, errors);
  return { file: validate(file) ? file : null, pathOf, findings };
}

function remember(node: Tree, path: DataPath, paths: WeakMap<object, DataPath>): void {
  if (typeof node !== 'object' || node === null) return;
  paths.set(node, path);
  if (Array.isArray(node)) for (const [index, item] of node.entries()) remember(item, [...path, index], paths);
  else for (const [name, item] of Object.entries(node)) remember(item, [...path, name], paths);
}

/** The environment has only text. Where the schema needs a number or a boolean, a matching text is converted. */
function takeTypes(tree: Tree, errors: readonly ErrorObject[], fromEnvironment: ReadonlySet<string>): boolean {
  let changed = false;
  for (const { keyword, params, instancePath, data } of errors) {
    if (keyword !== 'type' || typeof data !== 'string' || !fromEnvironment.has(instancePath)) continue;
    const value = typed(data, String(params['type']));
    if (value === null) continue;
    const path = toPath(tree, instancePath);
    const parent = valueAt(tree, path.slice(0, -1));
    const name = path.at(-1);
    if (name === undefined || typeof parent !== 'object' || parent === null) continue;
    if (Array.isArray(parent)) parent[Number(name)] = value;
    else parent[name] = value;
    changed = true;
  }
  return changed;
}

function typed(text: string, type: string): number | boolean | null {
  if (type.includes('boolean') && (text === 'true' || text === 'false')) return text === 'true';
  if (/integer|number/.test(type) && /^-?[0-9]{1,15}$/.test(text)) return Number(text);
  return null;
}

/** Steps of a JSON Pointer. Steps into lists become numbers. */
function toPath(tree: Tree, instancePath: string): DataPath {
  const path: (string | number)[] = [];
  let node: Tree | undefined = tree;
  for (const escaped of instancePath.split('/').slice(1)) {
    const name = escaped.replaceAll('~1', '/').replaceAll('~0', '~');
    path.push(Array.isArray(node) ? Number(name) : name);
    node = valueAt(node ?? null, path.slice(-1));
  }
  return path;
}

function valueAt(tree: Tree, path: DataPath): Tree | undefined {
  let node: Tree | undefined = tree;
  for (const name of path) {
    if (typeof node !== 'object' || node === null) return undefined;
    if (Array.isArray(node)) node = node[Number(name)];
    else node = Object.hasOwn(node, name) ? node[name] : undefined;
  }
  return node;
}

/** Removes each fault with the smallest removable item around it, or else with its section. */
function prune(tree: Tree, errors: readonly ErrorObject[]): void {
  if (typeof tree !== 'object' || tree === null || Array.isArray(tree)) return;
  const gone = new Set<Tree>();
  const sections = new Set<string>();
  for (const error of errors) {
    const path = toPath(tree, error.instancePath);
    const form = REMOVABLE.find(
      (steps) =>
        steps.length <= path.length &&
        steps.every((step, index) => (step === null ? typeof path[index] === 'number' : step === path[index])),
    );
    const item = form === undefined ? undefined : valueAt(tree, path.slice(0, form.length));
    if (item !== undefined && typeof item === 'object' && item !== null) gone.add(item);
    else if (typeof path[0] === 'string') sections.add(path[0]);
    else if (error.keyword === 'additionalProperties') sections.add(String(error.params['additionalProperty']));
  }
  for (const name of sections) delete tree[name];
  for (const list of Object.values(tree)) if (Array.isArray(list)) drop(list, gone);
}

function drop(list: Tree[], gone: ReadonlySet<Tree>): void {
  for (let index = list.length - 1; index >= 0; index--) {
    const item = list[index];
    if (item === undefined || gone.has(item)) {
      list.splice(index, 1);
    } else if (typeof item === 'object' && item !== null && !Array.isArray(item)) {
      for (const inner of [item['rules'], item['agents']]) if (Array.isArray(inner)) drop(inner, gone);
    }
  }
}

/**
 * Reduces the errors of a union that does not match. If an object was written and one branch is an object, the errors
 * inside that branch stay. Otherwise one error about the whole stays. The errors of all branches are never shown
 * together.
 */
function withoutBranches(errors: readonly ErrorObject[]): ErrorObject[] {
  const dropped = new Set<ErrorObject>();
  for (const union of errors.filter(({ keyword }) => keyword === 'anyOf')) {
    const branches = errors.filter(({ schemaPath }) => schemaPath.startsWith(`${union.schemaPath}/`));
    const within = branches.filter(
      ({ instancePath, keyword }) =>
        instancePath !== union.instancePath || keyword === 'required' || keyword === 'additionalProperties',
    );
    const isMeant = typeof union.data === 'object' && union.data !== null && within.length > 0;
    for (const error of isMeant ? [union, ...branches.filter((branch) => !within.includes(branch))] : branches)
      dropped.add(error);
  }
  return errors.filter((error) => !dropped.has(error));
}

function explain(
  errors: readonly ErrorObject[],
  tree: Tree,
  source: YamlSource,
  fromEnvironment: ReadonlySet<string>,
): Finding[] {
  const findings: Finding[] = [];
  const laterReported = new Set<string>();
  const patternFailed = new Set(
    errors.filter(({ keyword }) => keyword === 'pattern').map((error) => error.instancePath),
  );
  for (const error of errors) {
    const path = toPath(tree, error.instancePath);
    const add: Add = (code, message, hint, under = [], part = 'value') =>
      void findings.push({ code, severity: 'error', message, hint, at: source.at([...path, ...under], part) });
    const label = labelOf(path);
    const schema: Readonly<Record<string, unknown>> = error.parentSchema ?? {};
    const shown = fromEnvironment.has(pointerTo(path)) ? null : error.data;
    const later = laterOf(schema);
    if (later !== null) {
      // Several fields of one unsupported feature count as one fault.
      const key = `${pointerTo(path.slice(0, -1))} ${later}`;
      if (!laterReported.has(key))
        add(
          'not_yet_supported',
          later === label ? `${label} is not yet supported` : `${label} is not yet supported (${later})`,
          'remove it',
          [],
          'key',
        );
      laterReported.add(key);
      continue;
    }
    explainOne(error, label, shown, patternFailed, add);
  }
  return findings;
}

/** Adds a finding at the place of the fault, or under it. */
type Add = (code: string, message: string, hint: string | null, under?: DataPath, part?: 'key' | 'value') => void;

/**
 * @param shown what stands there; `null`: it comes from the environment, and is not shown
 * @param patternFailed places whose text has not the form of a duration or size
 */
function explainOne(
  error: ErrorObject,
  label: string,
  shown: unknown,
  patternFailed: ReadonlySet<string>,
  add: Add,
): void {
  const schema: Readonly<Record<string, unknown>> = error.parentSchema ?? {};
  switch (error.keyword) {
    case 'additionalProperties':
      explainUnknown(error, schema, label, add);
      break;
    case 'required': {
      const name = String(error.params['missingProperty']);
      add(
        'missing_field',
        `'${name}' is missing in ${typeof schema['x-name'] === 'string' ? schema['x-name'] : label}`,
        descriptionOf(schema, name),
      );
      break;
    }
    case 'type':
      add(
        'wrong_type',
        error.data === null
          ? `${label} has no value`
          : `${label} has to be ${typeWords(schema, error)}, not ${kindOf(error.data)}`,
        typeHint(error),
      );
      break;
    case 'enum': {
      const words = (Array.isArray(schema['enum']) ? schema['enum'] : []).map(String);
      if (typeof error.data !== 'string') break;
      const not = typeof shown === 'string' ? `, not '${shown}'` : '';
      add(
        'wrong_value',
        `${label} has to be ${words.length === 1 ? '' : 'one of '}${words.join(', ')}${not}`,
        didYouMean(error.data, words),
      );
      break;
    }
    case 'minimum':
    case 'maximum':
      add('out_of_range', `${label} has to be ${rangeOf(schema)}`, null);
      break;
    case 'x-duration':
    case 'x-size': {
      const bounds = schema[error.keyword];
      if (patternFailed.has(error.instancePath) || !isRecord(bounds)) break;
      add('out_of_range', `${label} has to be between ${String(bounds['min'])} and ${String(bounds['max'])}`, null);
      break;
    }
    case 'minLength':
      add('wrong_value', `${label} is empty`, null);
      break;
    default: {
      const expected = schema['x-expected'];
      const isOdd = typeof shown === 'string' && shown.length <= 60 && !label.includes('credentials');
      add(
        'wrong_value',
        typeof expected === 'string'
          ? `${label} has to be ${expected}${isOdd ? `, not '${shown}'` : ''}`
          : `${label} ${error.message ?? 'is wrong'}`,
        null,
      );
    }
  }
}

function explainUnknown(error: ErrorObject, schema: Readonly<Record<string, unknown>>, label: string, add: Add): void {
  const name = String(error.params['additionalProperty']);
  const fields = fieldsOf(schema);
  const where = typeof schema['x-name'] === 'string' ? schema['x-name'] : label;
  if (fields.length === 0) add('bad_name', `'${name}' cannot be a name in ${where}`, null, [name], 'key');
  else
    add(
      'unknown_field',
      `'${name}' is not a field of ${where}`,
      didYouMean(name, fields) ?? `fields: ${fields.join(', ')}`,
      [name],
      'key',
    );
}

/** Names of the fields that can be used. Fields that are not supported yet are not suggested. */
function fieldsOf(schema: Readonly<Record<string, unknown>>): string[] {
  if (!isRecord(schema['properties'])) return [];
  return Object.entries(schema['properties'])
    .filter(([, field]) => !isRecord(field) || field['x-later'] === undefined)
    .map(([name]) => name);
}

function laterOf(schema: Readonly<Record<string, unknown>>): string | null {
  return typeof schema['x-later'] === 'string' ? schema['x-later'] : null;
}

/** The place in the form that people use: `tools[2].request.path`. */
function labelOf(path: DataPath): string {
  if (path.length === 0) return 'the file';
  return path
    .map((name, index) => (typeof name === 'number' ? `[${name}]` : `${index > 0 ? '.' : ''}${name}`))
    .join('');
}

function typeWords(schema: Readonly<Record<string, unknown>>, error: ErrorObject): string {
  if (typeof schema['x-expected'] === 'string') return schema['x-expected'];
  const wanted: unknown = error.params['type'];
  const names = Array.isArray(wanted) ? wanted : String(wanted).split(',');
  return names.map((name) => TYPE_WORDS[String(name)] ?? String(name)).join(' or ');
}

const TYPE_WORDS: Readonly<Record<string, string>> = {
  object: 'a mapping',
  array: 'a list',
  string: 'text',
  integer: 'a whole number',
  number: 'a number',
  boolean: 'true or false',
  null: 'null',
};

function kindOf(value: unknown): string {
  if (Array.isArray(value)) return 'a list';
  if (value === null) return 'null';
  if (typeof value === 'object') return 'a mapping';
  if (typeof value === 'string') return 'text';
  return typeof value === 'number' && !Number.isInteger(value) ? 'a fraction' : `a ${typeof value}`;
}

function typeHint(error: ErrorObject): string | null {
  if (error.data === null) return 'give it one, or remove the line';
  const type: unknown = error.params['type'];
  if (type === 'boolean' && typeof error.data === 'string' && /^(yes|no|on|off)$/i.test(error.data))
    return 'YAML 1.2 knows true and false only';
  const isMeasure = error.parentSchema?.['x-duration'] !== undefined || error.parentSchema?.['x-size'] !== undefined;
  if (isMeasure && typeof error.data === 'number') return 'a number needs its unit';
  if (type === 'string' && (typeof error.data === 'number' || typeof error.data === 'boolean'))
    return 'write it in quotes';
  if (type === 'array') return 'write it as a list: [ … ]';
  if (type === 'integer' && typeof error.data === 'string' && /^[0-9]+$/.test(error.data))
    return 'write it without quotes';
  return null;
}

function rangeOf(schema: Readonly<Record<string, unknown>>): string {
  const { minimum, maximum } = schema;
  if (typeof minimum !== 'number') return `at most ${Number(maximum)}`;
  return typeof maximum === 'number' ? `from ${minimum} to ${maximum}` : `at least ${minimum}`;
}

function descriptionOf(schema: Readonly<Record<string, unknown>>, name: string): string | null {
  const fields = schema['properties'];
  const field = isRecord(fields) ? fields[name] : undefined;
  return isRecord(field) && typeof field['description'] === 'string' ? `${name}: ${field['description']}` : null;
}

function isRecord(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
