import { didYouMean } from '../diagnostics/nearest.ts';
import type { DataPath } from '../diagnostics/yaml-source.ts';
import { type Json, type JsonObject, isJsonObject } from '../json/value.ts';
import type { Names, RightSide } from './expression.ts';
import { type FactPath, isCallersWord, isPathFault, parseFactPath } from './fact-path.ts';
import { literal } from './literal.ts';
import { isList, type OperatorName, rightSideFault, SHORT_NAMES, takesFact } from './operators.ts';
import type { Reporter } from './reporter.ts';

export interface Scope {
  readonly names: Names;
  readonly report: Reporter;
  readonly within: 'rule' | 'block';
}

/** Reads what a fact is compared with. Faults are reported. */
export function parseRightSide(
  operator: OperatorName,
  value: Json | undefined,
  path: DataPath,
  scope: Scope,
): RightSide | null {
  const { report } = scope;
  if (value === undefined || value === null) {
    report.error(
      'bad_right_side',
      path,
      `'${shortName(operator)}' needs a right side`,
      'to test for absence write exists: false',
    );
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
    scope.report.error(
      'unknown_name',
      path,
      `There is no list or value '${text}'`,
      didYouMean(text.slice(1), scope.names.rightNames) ?? `write '$${text}' for the text itself`,
    );
  return found;
}

/** `{ fact: F }`. Params and target need `{ fact: F, untrusted: true }`, and only with eq and ne. */
function parseFactRight(operator: OperatorName, value: JsonObject, path: DataPath, scope: Scope): RightSide | null {
  const { report } = scope;
  for (const key of Object.keys(value)) {
    if (key === 'fact' || key === 'path' || key === 'untrusted') continue;
    if (key === 'plus') report.error('not_yet_supported', [...path, key], `'plus' is not yet supported`, null, 'key');
    else
      report.error(
        'unknown_field',
        [...path, key],
        `Unknown field '${key}' beside 'fact'`,
        didYouMean(key, ['fact', 'path', 'untrusted', 'plus']),
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
    report.error('bad_right_side', [...path, 'untrusted'], `'untrusted' can only be true`);
    return null;
  }
  if (isCallersWord(fact) && (untrusted !== true || (operator !== 'equal' && operator !== 'notEqual'))) {
    report.error(
      'caller_sets_threshold',
      path,
      `'${fact.text}' on the right lets the caller choose what is compared`,
      'compare with a fact of agent, key, tool, env or request; for equality of two params write { fact: …, untrusted: true } with eq or ne',
    );
    return null;
  }
  return { kind: 'fact', fact };
}

export function shortName(operator: OperatorName): string {
  for (const [short, name] of SHORT_NAMES) if (name === operator) return short;
  return operator;
}

/** `fact` with `path`: `amount`, `$.amount`, `$.a[0]`. The grammar of paths refuses all other JSONPath. */
export function parseEnginePath(leaf: JsonObject, path: DataPath, scope: Scope): FactPath | null {
  const { fact, path: steps } = leaf;
  if (typeof fact !== 'string' || (steps !== undefined && typeof steps !== 'string')) {
    scope.report.error('bad_condition', path, `'fact' is the name of a fact, and 'path' a path within it`);
    return null;
  }
  const text = steps === undefined || steps === '' || steps === '$' ? fact : joined(fact, steps);
  const parsed = parseFactPath(text, scope.within, scope.names.entities);
  if (!isPathFault(parsed)) return parsed;
  scope.report.error(parsed.code, [...path, steps === undefined ? 'fact' : 'path'], parsed.message, parsed.hint);
  return null;
}

function joined(fact: string, steps: string): string {
  if (steps.startsWith('$')) return fact + steps.slice(1);
  return steps.startsWith('[') ? fact + steps : `${fact}.${steps}`;
}
