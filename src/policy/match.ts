import { didYouMean } from '../diagnostics/nearest.ts';
import type { DataPath } from '../diagnostics/yaml-source.ts';
import type { Json } from '../json/value.ts';
import type { Tool } from '../effects/model/tool.ts';
import type { Expression } from './expression.ts';
import { declaredParams, type FactPath, internalPath } from './fact-path.ts';
import { compilePattern, isGlob } from './glob.ts';
import { literal, literalTexts } from './literal.ts';
import { isScalarList, type OperatorName, rightSideFault } from './operators.ts';
import { below, type Reporter } from './reporter.ts';
import type { MatchSource, MatchWithExceptions } from './schema.ts';

/** The fixed lists that names in `match` are looked up in. */
export interface Catalogue {
  readonly tools: readonly Tool[];
  readonly toolNames: NameTable;
  readonly upstreamIds: NameTable;
}

/** A fixed list of names, and what globs have found in it. Rules with equal globs share one result. */
interface NameTable {
  readonly names: readonly string[];
  readonly byGlob: Map<string, readonly string[] | BadPattern>;
  readonly byGlobs: Map<string, readonly string[]>;
}

interface BadPattern {
  readonly message: string;
}

export function catalogueOf(tools: readonly Tool[], upstreams: readonly string[]): Catalogue {
  const table = (names: readonly string[]): NameTable => ({ names, byGlob: new Map(), byGlobs: new Map() });
  return { tools, toolNames: table(tools.map((tool) => tool.name)), upstreamIds: table(upstreams) };
}

/**
 * Converts `match` to expressions. Names of tools and upstreams are looked up in the fixed lists; everything else
 * becomes leaves on facts. Faults are reported.
 * @returns one expression per key, all of which must hold; `null` where one is faulty
 */
export function matchExpressions(
  match: MatchWithExceptions,
  path: DataPath,
  catalogue: Catalogue,
  report: Reporter,
): readonly Expression[] | null {
  const parts = keysOf(match, path, catalogue, report);
  for (const [index, exception] of (match.except ?? []).entries()) {
    const of = keysOf(exception, [...path, 'except', index], catalogue, report).filter((part) => part !== null);
    parts.push({ kind: 'not', of: { kind: 'all', of } });
  }
  const sound = parts.filter((part) => part !== null);
  return sound.length === parts.length ? sound : null;
}

type Listed = 'tools' | 'upstreams' | 'tags' | 'actions' | 'has_params' | 'env' | 'workspaces' | 'targets';

function keysOf(match: MatchSource, path: DataPath, catalogue: Catalogue, report: Reporter): (Expression | null)[] {
  const parts: (Expression | null)[] = [];
  const at = (key: string): DataPath => [...path, key];
  const listed = (key: Listed, read: (values: readonly string[], path: DataPath) => Expression | null): void => {
    const values = match[key];
    if (values !== undefined) parts.push(read(literalTexts(values, at(key), report), at(key)));
  };
  listed('tools', (globs, where) =>
    oneOf(internalPath('tool', 'name'), resolve('tool', globs, catalogue.toolNames, where, report)),
  );
  listed('upstreams', (globs, where) =>
    oneOf(internalPath('tool', 'upstream'), resolve('upstream', globs, catalogue.upstreamIds, where, report)),
  );
  if (match.kinds !== undefined) parts.push(oneOf(internalPath('tool', 'kind'), match.kinds));
  listed('tags', (tags, where) => {
    const known = catalogue.tools.flatMap((tool) => tool.tags);
    warnOfUnknown('tag', tags, known, where, report);
    return some(internalPath('tool', 'tags'), tags);
  });
  listed('actions', (actions, where) => {
    const known = catalogue.tools.map((tool) => tool.actionType);
    warnOfUnknown('action type', actions, known, where, report);
    return oneOf(internalPath('tool', 'action_type'), actions);
  });
  listed('has_params', (params, where) => {
    const declared = catalogue.tools.flatMap((tool) => declaredParams(tool.paramsSchema));
    warnOfUnknown('param', params, declared, where, report);
    return leaf(internalPath('tool', 'param_names'), 'contains_all', params);
  });
  listed('env', (values, where) => exact(environment, values, where, report));
  listed('workspaces', (values, where) => exact(internalPath('workspace'), values, where, report));
  listed('targets', (globs, where) => targets(globs, where, report));
  for (const [name, values] of Object.entries(match.agents ?? {}))
    parts.push(agents(name, literal(values, [...path, 'agents', name], report), [...path, 'agents', name], report));
  const { keys } = match;
  if (keys?.kind !== undefined) parts.push(oneOf(keyPath('kind'), keys.kind));
  // A key without a profile or user is none of those named, so absence means false here.
  for (const name of ['profile', 'user'] as const) {
    const values = keys?.[name];
    if (values === undefined) continue;
    parts.push(leaf(keyPath(name), 'in', literalTexts(values, [...path, 'keys', name], report), false));
  }
  return parts;
}

const environment: FactPath = { root: 'env', steps: [], text: 'env' };

function keyPath(name: string): FactPath {
  return { root: 'key', steps: [name], text: `key.${name}` };
}

function leaf(fact: FactPath, operator: OperatorName, value: Json, ifAbsent: boolean | null = null): Expression {
  return { kind: 'leaf', fact, operator, right: { kind: 'literal', value }, ifAbsent };
}

/** An empty list matches nothing, and is never unknown. */
function oneOf(fact: FactPath, values: readonly string[]): Expression {
  return leaf(fact, 'in', values);
}

function some(fact: FactPath, values: readonly string[]): Expression {
  const item: FactPath = { root: 'item', steps: [], text: 'item' };
  return { kind: 'some', fact, of: oneOf(item, values), ifAbsent: null };
}

/** Values that are compared literally. A glob among them would silently never match. */
function exact(fact: FactPath, values: readonly string[], path: DataPath, report: Reporter): Expression {
  for (const [index, value] of values.entries())
    if (isGlob(value))
      report.error(
        'glob_not_here',
        below(path, index),
        `'${value}' is not a glob here: values are compared as they are`,
      );
  return oneOf(fact, values);
}

/** Fields of agents other than their attributes. */
const OWN_FIELDS: readonly string[] = ['id', 'team', 'owner', 'roles'];

function agents(name: string, values: Json, path: DataPath, report: Reporter): Expression | null {
  const fault = isScalarList(values) ? null : rightSideFault('in', values);
  if (fault !== null || !isScalarList(values)) {
    report.error('wrong_value', path, `'${name}' ${fault ?? 'needs a list'}`);
    return null;
  }
  const texts = values.filter((value) => typeof value === 'string');
  const isOwnField = OWN_FIELDS.includes(name);
  if (name.startsWith('attributes.')) {
    const plain = name.slice('attributes.'.length);
    report.error('wrong_value', path, [`Attributes stand in 'agents' by their names alone`, `write ${plain}`], 'key');
    return null;
  }
  const near = isOwnField ? null : didYouMean(name, OWN_FIELDS);
  if (near !== null)
    report.warning(
      'like_another',
      path,
      [`'${name}' is an attribute of agents here, and no field of theirs`, near],
      'key',
    );
  if (isOwnField && texts.length < values.length) {
    report.error('wrong_value', path, `'${name}' needs a list of texts`);
    return null;
  }
  if (name === 'roles') {
    exact(internalPath('agent', 'roles'), texts, path, report);
    return some(internalPath('agent', 'roles'), texts);
  }
  const fact = isOwnField ? internalPath('agent', name) : internalPath('agent', 'attributes', name);
  exact(fact, texts, path, report);
  return leaf(fact, 'in', values);
}

function targets(globs: readonly string[], path: DataPath, report: Reporter): Expression | null {
  let sound = true;
  for (const [index, glob] of globs.entries()) {
    const compiled = compilePattern('glob', glob);
    if (compiled.ok) continue;
    sound = false;
    report.error('bad_pattern', below(path, index), compiled.message);
  }
  if (!sound) return null;
  const fact: FactPath = { root: 'target', steps: [], text: 'target' };
  // An index can find plain names, but not patterns.
  return globs.some((glob) => isGlob(glob)) ? leaf(fact, 'glob', globs) : oneOf(fact, globs);
}

/** Names of a fixed list that match a glob, in the order of the list. */
function resolve(
  what: string,
  globs: readonly string[],
  table: NameTable,
  path: DataPath,
  report: Reporter,
): readonly string[] {
  const found = new Set<string>();
  for (const [index, glob] of globs.entries()) {
    const names = namesLike(glob, table);
    if ('message' in names) {
      report.error('bad_pattern', below(path, index), names.message);
      continue;
    }
    for (const name of names) found.add(name);
    if (names.length === 0)
      report.warning('matches_nothing', below(path, index), [
        isGlob(glob) ? `'${glob}' matches no ${what}` : `There is no ${what} '${glob}'`,
        didYouMean(glob, table.names),
      ]);
  }
  const key = JSON.stringify(globs);
  const known = table.byGlobs.get(key);
  if (known !== undefined) return known;
  const names = table.names.filter((name) => found.has(name));
  table.byGlobs.set(key, names);
  return names;
}

function namesLike(glob: string, table: NameTable): readonly string[] | BadPattern {
  const known = table.byGlob.get(glob);
  if (known !== undefined) return known;
  const compiled = compilePattern('glob', glob);
  const names = compiled.ok ? table.names.filter((name) => compiled.test(name)) : { message: compiled.message };
  table.byGlob.set(glob, names);
  return names;
}

function warnOfUnknown(
  what: string,
  wanted: readonly string[],
  known: readonly string[],
  path: DataPath,
  report: Reporter,
): void {
  for (const [index, value] of wanted.entries())
    if (!known.includes(value))
      report.warning('matches_nothing', below(path, index), [
        `No tool has the ${what} '${value}'`,
        didYouMean(value, known),
      ]);
}
