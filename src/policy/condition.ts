import { didYouMean } from '../diagnostics/nearest.ts';
import type { DataPath } from '../diagnostics/yaml-source.ts';
import { type Json, type JsonObject, isJsonObject } from '../json/value.ts';
import type { Expression, Names, RightSide } from './expression.ts';
import { type FactPath, factType, isPathFault, parseFactPath, isCallersWord } from './fact-path.ts';
import { literal } from './literal.ts';
import {
  isList,
  isScalar,
  judgedType,
  LATER_OPERATORS,
  OPERATOR_NAMES,
  type OperatorName,
  SHORT_NAMES,
  rightSideFault,
  takesFact,
} from './operators.ts';
import { below, type Reporter } from './reporter.ts';

const MAX_DEPTH = 32;

/**
 * Reads a block: a map of paths and `all any not condition`, or the engine's leaf. Faults are reported at their place.
 * @returns the expression, or `null` when any part of it is faulty
 */
export function parseCondition(
  block: Json | undefined,
  path: DataPath,
  names: Names,
  report: Reporter,
): Expression | null {
  return parseBlock(block, path, { names, report, within: 'rule' }, 0);
}

function parseBlock(block: Json | undefined, path: DataPath, scope: Scope, depth: number): Expression | null {
  const { report } = scope;
  if (depth > MAX_DEPTH) {
    report.error('too_deep', path, `Conditions nest deeper than ${MAX_DEPTH} levels`);
    return null;
  }
  if (isList(block)) {
    report.error('bare_list', path, ['A condition cannot be a bare list', 'write all: […] or any: […]']);
    return null;
  }
  if (!isJsonObject(block)) {
    report.error('bad_condition', path, ['A condition is a map', 'write <path>: <value>, or all, any, not, condition']);
    return null;
  }
  const keys = Object.keys(block);
  if (keys.length === 0) {
    report.error('empty_group', path, [
      'An empty condition would hold for everything',
      'remove it, or say what has to hold',
    ]);
    return null;
  }
  if (Object.hasOwn(block, 'fact')) return parseEngineLeaf(block, path, scope);
  if (keys.length > 1 && keys.includes('any'))
    report.warning(
      'any_beside_others',
      below(path, 'any'),
      [
        `'any' beside ${keys
          .filter((key) => key !== 'any')
          .map((key) => `'${key}'`)
          .join(', ')} means that both must hold`,
        'put any inside all: […] to make it plain',
      ],
      'key',
    );
  const parts = keys.map((key) => parseEntry(key, block[key], [...path, key], scope, depth));
  return conjunction(parts);
}

/** All parts, or `null` where one is faulty. A single part is returned without a group. */
function conjunction(parts: readonly (Expression | null)[]): Expression | null {
  const sound = parts.filter((part) => part !== null);
  if (sound.length !== parts.length) return null;
  const [only] = sound;
  return only !== undefined && sound.length === 1 ? only : { kind: 'all', of: sound };
}

function parseEntry(
  key: string,
  value: Json | undefined,
  path: DataPath,
  scope: Scope,
  depth: number,
): Expression | null {
  const { report } = scope;
  switch (key) {
    case 'all':
    case 'any':
      return parseGroup(key, value, path, scope, depth);
    case 'not': {
      const of = parseBlock(value, path, scope, depth + 1);
      return of === null ? null : { kind: 'not', of };
    }
    case 'condition':
      return parseReference(value, path, scope);
    case 'time':
      report.error('not_yet_supported', path, `'time' is not yet supported`, 'key');
      return null;
    default: {
      const fact = readPath(key, path, scope);
      return fact === null ? null : parseTests(fact, value, path, scope, depth);
    }
  }
}

function parseGroup(
  kind: 'all' | 'any',
  value: Json | undefined,
  path: DataPath,
  scope: Scope,
  depth: number,
): Expression | null {
  if (!isList(value)) {
    scope.report.error('bad_condition', path, `'${kind}' needs a list of conditions`);
    return null;
  }
  if (value.length === 0) {
    scope.report.error('empty_group', path, [`An empty '${kind}' would be decided by nothing`, 'remove it'], 'key');
    return null;
  }
  const parts = value.map((part, index) => parseBlock(part, [...path, index], scope, depth + 1));
  const sound = parts.filter((part) => part !== null);
  return sound.length === parts.length ? { kind, of: sound } : null;
}

function parseReference(value: Json | undefined, path: DataPath, scope: Scope): Expression | null {
  if (typeof value !== 'string') {
    scope.report.error('bad_condition', path, `'condition' needs the name of a condition`);
    return null;
  }
  const found = scope.names.condition(value);
  if (found.missing)
    scope.report.error('unknown_condition', path, [
      `There is no condition '${value}'`,
      didYouMean(value, scope.names.conditionNames),
    ]);
  return found.expression;
}

function readPath(text: string, path: DataPath, scope: Scope): FactPath | null {
  const parsed = parseFactPath(text, scope.within, scope.names.entities);
  if (!isPathFault(parsed)) return parsed;
  scope.report.error(parsed.code, path, [parsed.message, parsed.hint], 'key');
  return null;
}

/** `path: scalar` or `path: { operator: right, … }`. */
function parseTests(
  fact: FactPath,
  value: Json | undefined,
  path: DataPath,
  scope: Scope,
  depth: number,
): Expression | null {
  const { report } = scope;
  if (isScalar(value)) return parseLeaf(fact, 'equal', value, null, path, scope);
  if (isList(value)) {
    report.error('bare_list', path, [
      'A bare list does not say what it means',
      'write { in: […] } or { contains_all: […] }',
    ]);
    return null;
  }
  if (!isJsonObject(value)) {
    report.error('bad_condition', path, [`'${fact.text}' cannot be compared with null`, 'write { exists: false }']);
    return null;
  }
  const operators = Object.keys(value).filter((name) => name !== 'if_absent');
  if (operators.length === 0) {
    report.error('empty_group', path, [`'${fact.text}' has no operator`, 'write for example { lte: 500 }']);
    return null;
  }
  const ifAbsent = parseIfAbsent(value, operators, path, scope);
  if (ifAbsent === 'faulty') return null;
  const parts = operators.map((name) => parseTest(fact, name, value[name], ifAbsent, [...path, name], scope, depth));
  return conjunction(parts);
}

function parseIfAbsent(
  tests: JsonObject,
  operators: readonly string[],
  path: DataPath,
  scope: Scope,
): boolean | null | 'faulty' {
  if (!Object.hasOwn(tests, 'if_absent')) return null;
  const at = [...path, 'if_absent'];
  const value = tests['if_absent'];
  if (typeof value !== 'boolean') {
    scope.report.error('bad_condition', at, `'if_absent' needs true or false`);
    return 'faulty';
  }
  const settled = operators.find((name) => name === 'exists' || name === 'type');
  if (settled === undefined) return value;
  scope.report.error('bad_condition', at, `'if_absent' has no meaning beside '${settled}', which is never unknown`);
  return 'faulty';
}

function parseTest(
  fact: FactPath,
  name: string,
  right: Json | undefined,
  ifAbsent: boolean | null,
  path: DataPath,
  scope: Scope,
  depth: number,
): Expression | null {
  if (name === 'some' || name === 'every') {
    warnOfType(fact, name, 'array', path, scope.report);
    const of = parseBlock(right, path, { ...scope, within: 'block' }, depth + 1);
    return of === null ? null : { kind: name, fact, of, ifAbsent };
  }
  const operator = SHORT_NAMES.get(name) ?? OPERATOR_NAMES.find((known) => known === name);
  if (operator === undefined) {
    reportUnknownOperator(name, path, scope.report, 'key');
    return null;
  }
  return parseLeaf(fact, operator, right, ifAbsent, path, scope);
}

function reportUnknownOperator(name: string, path: DataPath, report: Reporter, part: 'key' | 'value'): void {
  if (LATER_OPERATORS.includes(name)) {
    report.error('not_yet_supported', path, `The operator '${name}' is not yet supported`, part);
    return;
  }
  const names = [...SHORT_NAMES.keys(), 'some', 'every', 'if_absent'];
  const hint =
    name === 'fact'
      ? 'write { eq: { fact: … } }'
      : (didYouMean(name, [...names, ...OPERATOR_NAMES]) ?? `operators are ${names.join(', ')}`);
  report.error('unknown_operator', path, [`Unknown operator '${name}'`, hint], part);
}

function parseLeaf(
  fact: FactPath,
  operator: OperatorName,
  value: Json | undefined,
  ifAbsent: boolean | null,
  path: DataPath,
  scope: Scope,
): Expression | null {
  const right = parseRightSide(operator, value, path, scope);
  if (right === null) return null;
  if (right.kind === 'literal')
    warnOfType(fact, shortName(operator), judgedType(operator, right.value), path, scope.report);
  return { kind: 'leaf', fact, operator, right, ifAbsent };
}

/**
 * A fact of another type than the operator judges is unknown on every call: an allow rule never applies, a deny rule
 * always does.
 */
function warnOfType(fact: FactPath, operator: string, judged: string | null, path: DataPath, report: Reporter): void {
  const type = factType(fact);
  if (type === null || judged === null || type === judged) return;
  report.warning('never_known', path, [
    type === 'array'
      ? `'${fact.text}' is a list, of which '${operator}' knows nothing`
      : `'${fact.text}' is a ${type === 'boolean' ? 'boolean' : 'text'}, of which '${operator}' knows nothing with this right side`,
    type === 'array' ? 'write { contains: … }' : null,
  ]);
}

const ENGINE_KEYS = ['fact', 'path', 'operator', 'value', 'name'];

/**
 * The engine's form of a leaf: `{ fact, path, operator, value, name }`, with the decorators `not:`, `someFact:`,
 * `everyFact:`.
 */
function parseEngineLeaf(block: JsonObject, path: DataPath, scope: Scope): Expression | null {
  const { report } = scope;
  let sound = true;
  for (const key of Object.keys(block)) {
    if (ENGINE_KEYS.includes(key)) continue;
    sound = false;
    const hint =
      key === 'priority' || key === 'params'
        ? 'conditions have no order and facts no parameters here: remove it'
        : didYouMean(key, ENGINE_KEYS);
    report.error('unknown_field', below(path, key), [`A condition with 'fact' cannot have '${key}'`, hint], 'key');
  }
  const name = block['name'];
  if (name !== undefined && typeof name !== 'string') {
    report.error('bad_condition', below(path, 'name'), `'name' is a text`);
    sound = false;
  }
  const fact = parseEnginePath(block, path, scope);
  const operator = block['operator'];
  if (typeof operator !== 'string') {
    report.error('bad_condition', below(path, 'operator'), `A condition with 'fact' needs an 'operator'`);
    return null;
  }
  if (fact === null || !sound) return null;
  return parseDecorated(fact, operator, block['value'], path, scope);
}

function parseDecorated(
  fact: FactPath,
  operator: string,
  value: Json | undefined,
  path: DataPath,
  scope: Scope,
): Expression | null {
  const at = [...path, 'operator'];
  const colon = operator.indexOf(':');
  if (colon < 0) {
    if (operator === 'doesNotContain') {
      const of = parseLeaf(fact, 'contains', value, null, [...path, 'value'], scope);
      return of === null ? null : { kind: 'not', of };
    }
    return parseTest(fact, operator, value, null, isOperator(operator) ? [...path, 'value'] : at, scope, 0);
  }
  const decorator = operator.slice(0, colon);
  const rest = operator.slice(colon + 1);
  switch (decorator) {
    case 'not': {
      const of = parseDecorated(fact, rest, value, path, scope);
      return of === null ? null : { kind: 'not', of };
    }
    case 'someFact':
    case 'everyFact': {
      const item = parseFactPath('item', 'block', null);
      if (isPathFault(item)) return null;
      const of = parseDecorated(item, rest, value, path, { ...scope, within: 'block' });
      return of === null ? null : { kind: decorator === 'someFact' ? 'some' : 'every', fact, of, ifAbsent: null };
    }
    case 'swap':
    case 'someValue':
    case 'everyValue':
      scope.report.error('bad_operator', at, [
        `'${decorator}:' is not used here`,
        'write the condition the other way round',
      ]);
      return null;
    default:
      scope.report.error('unknown_operator', at, [
        `Unknown decorator '${decorator}:'`,
        didYouMean(decorator, ['not', 'someFact', 'everyFact']),
      ]);
      return null;
  }
}

function isOperator(name: string): boolean {
  return name === 'some' || name === 'every' || SHORT_NAMES.has(name) || OPERATOR_NAMES.some((known) => known === name);
}

interface Scope {
  readonly names: Names;
  readonly report: Reporter;
  readonly within: 'rule' | 'block';
}

/** Reads what a fact is compared with. Faults are reported. */
function parseRightSide(
  operator: OperatorName,
  value: Json | undefined,
  path: DataPath,
  scope: Scope,
): RightSide | null {
  const { report } = scope;
  if (value === undefined || value === null) {
    report.error('bad_right_side', path, [
      `'${shortName(operator)}' needs a right side`,
      'to test for absence write exists: false',
    ]);
    return null;
  }
  if (isJsonObject(value) && Object.hasOwn(value, 'fact')) return parseFactRight(operator, value, path, scope);
  const right: ReturnType<typeof parseText> =
    typeof value === 'string'
      ? parseText(value, path, scope)
      : { kind: 'literal', value: literal(value, path, report) };
  if (right === null) return null;
  const alternatives = right.kind === 'value' ? [...right.table.of.values(), right.table.otherwise] : [right.value];
  for (const alternative of alternatives) {
    const fault = rightSideFault(operator, alternative);
    if (fault === null) continue;
    const named = typeof value === 'string' && value.startsWith('$') ? `; ${value} is ${shown(alternative)}` : '';
    report.error('bad_right_side', path, `'${shortName(operator)}' ${fault}${named}`);
    return null;
  }
  if (operator === 'in' || operator === 'notIn') warnOfEmptyList(right, path, report);
  return right;
}

/** A value of a policy file, short enough for a finding. */
function shown(value: Json): string {
  const text = JSON.stringify(value);
  return text.length > 40 ? `${text.slice(0, 40)}…` : text;
}

function warnOfEmptyList(right: RightSide, path: DataPath, report: Reporter): void {
  if (right.kind === 'literal' && isList(right.value) && right.value.length === 0)
    report.warning('empty_list', path, 'The list is empty: the condition is the same for every value');
}

/** `$name` is a reference, `$$x` is the text `$x`, everything else is literal. */
function parseText(
  text: string,
  path: DataPath,
  scope: Scope,
): Extract<RightSide, { kind: 'literal' | 'value' }> | null {
  if (text.startsWith('$$')) return { kind: 'literal', value: text.slice(1) };
  if (!text.startsWith('$')) return { kind: 'literal', value: text };
  const found = scope.names.right(text.slice(1));
  if (found === null)
    scope.report.error('unknown_name', path, [
      `There is no list or value '${text}'`,
      didYouMean(text.slice(1), scope.names.rightNames) ?? `write '$${text}' for the text itself`,
    ]);
  return found;
}

/** `{ fact: F }`. Params and target need `{ fact: F, untrusted: true }`, and only with eq and ne. */
function parseFactRight(operator: OperatorName, value: JsonObject, path: DataPath, scope: Scope): RightSide | null {
  const { report } = scope;
  for (const key of Object.keys(value)) {
    if (key === 'fact' || key === 'path' || key === 'untrusted') continue;
    if (key === 'plus') report.error('not_yet_supported', below(path, key), `'plus' is not yet supported`, 'key');
    else
      report.error(
        'unknown_field',
        below(path, key),
        [`Unknown field '${key}' beside 'fact'`, didYouMean(key, ['fact', 'path', 'untrusted', 'plus'])],
        'key',
      );
    return null;
  }
  const fact = parseEnginePath(value, path, scope);
  if (fact === null) return null;
  if (!takesFact(operator)) {
    report.error(
      'bad_right_side',
      path,
      `'${shortName(operator)}' takes no fact on the right: it has to stand in the file`,
    );
    return null;
  }
  const untrusted = value['untrusted'];
  if (untrusted !== undefined && untrusted !== true) {
    report.error('bad_right_side', below(path, 'untrusted'), `'untrusted' can only be true`);
    return null;
  }
  if (isCallersWord(fact) && (untrusted !== true || (operator !== 'equal' && operator !== 'notEqual'))) {
    report.error('caller_sets_threshold', path, [
      `'${fact.text}' on the right lets the caller choose what is compared`,
      'compare with a fact of agent, key, tool, env or request; for equality of two params write { fact: …, untrusted: true } with eq or ne',
    ]);
    return null;
  }
  return { kind: 'fact', fact };
}

function shortName(operator: OperatorName): string {
  for (const [short, name] of SHORT_NAMES) if (name === operator) return short;
  return operator;
}

/** `fact` with `path`: `amount`, `$.amount`, `$.a[0]`. The grammar of paths refuses all other JSONPath. */
function parseEnginePath(leaf: JsonObject, path: DataPath, scope: Scope): FactPath | null {
  const { fact, path: steps } = leaf;
  if (typeof fact !== 'string' || (steps !== undefined && typeof steps !== 'string')) {
    scope.report.error('bad_condition', path, `'fact' is the name of a fact, and 'path' a path within it`);
    return null;
  }
  const text = steps === undefined || steps === '' || steps === '$' ? fact : joined(fact, steps);
  const parsed = parseFactPath(text, scope.within, scope.names.entities);
  if (!isPathFault(parsed)) return parsed;
  scope.report.error(parsed.code, below(path, steps === undefined ? 'fact' : 'path'), [parsed.message, parsed.hint]);
  return null;
}

function joined(fact: string, steps: string): string {
  if (steps.startsWith('$')) return fact + steps.slice(1);
  return steps.startsWith('[') ? fact + steps : `${fact}.${steps}`;
}
