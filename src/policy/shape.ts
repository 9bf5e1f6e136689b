import { didYouMean } from '../diagnostics/nearest.ts';
import type { DataPath } from '../diagnostics/yaml-source.ts';
import { below, type Reporter } from './reporter.ts';

/** The part of JSON Schema that the definitions of policy files use. */
interface Shape {
  readonly $ref?: string;
  readonly type?: string;
  readonly title?: string;
  readonly enum?: readonly string[];
  readonly anyOf?: readonly Shape[];
  readonly properties?: Readonly<Record<string, Shape>>;
  readonly required?: readonly string[];
  readonly additionalProperties?: boolean;
  readonly patternProperties?: Readonly<Record<string, Shape>>;
  readonly minProperties?: number;
  readonly maxProperties?: number;
  readonly items?: Shape;
  readonly minItems?: number;
  readonly maxItems?: number;
  readonly minLength?: number;
  readonly maxLength?: number;
  readonly pattern?: string;
  readonly patternErrorMessage?: string;
  readonly minimum?: number;
  readonly maximum?: number;
  readonly 'x-later'?: readonly string[];
}

/**
 * Checks a value against a definition and reports every fault at its place, in words for people. The errors of a
 * generic validator stop early and talk about `anyOf`.
 * @param schema a definition made of the keywords above
 * @returns whether there was no fault
 */
export function hasShape(schema: object, value: unknown, path: DataPath, report: Reporter): boolean {
  const shape: Shape = schema;
  // Blocks are read in `condition.ts`.
  if (shape.$ref !== undefined) return true;
  if (shape.anyOf !== undefined) return hasOneShape(shape, shape.anyOf, value, path, report);
  if (typeOf(value) !== shape.type && !(shape.type === 'number' && typeOf(value) === 'integer')) {
    report.error('wrong_type', path, `${nameOf(path)} must be ${described(shape)}, not ${written(value)}`);
    return false;
  }
  if (typeof value === 'string') return textFits(shape, value, path, report);
  if (typeof value === 'number') return numberFits(shape, value, path, report);
  if (isList(value)) return listFits(shape, value, path, report);
  return isMap(value) ? mapFits(shape, value, path, report) : true;
}

function hasOneShape(
  shape: Shape,
  branches: readonly Shape[],
  value: unknown,
  path: DataPath,
  report: Reporter,
): boolean {
  const flat = branches.flatMap((branch) => branch.anyOf ?? [branch]);
  const quiet: Reporter = { error: () => undefined, warning: () => undefined };
  if (flat.some((branch) => hasShape(branch, value, path, quiet))) return true;
  const type = typeOf(value);
  const alike = flat.filter((branch) => branch.type === type || (branch.type === 'number' && type === 'integer'));
  // Of several kinds of map, the one that has a field of this one is meant.
  const names = alike.length > 1 && isMap(value) ? Object.keys(value) : [];
  const meant = names.length === 0 ? alike : alike.filter((one) => names.some((name) => memberShape(one, name)));
  const only = meant.length === 1 ? meant[0] : undefined;
  // If a text fits none of several alternatives, the rule for one of them would be a misleading message.
  if (only !== undefined && (type !== 'string' || shape.title === undefined))
    return hasShape(only, value, path, report);
  const expected = shape.title ?? flat.map(described).join(' or ');
  report.error('wrong_type', path, `${nameOf(path)} must be ${expected}, not ${written(value)}`);
  return false;
}

function textFits(shape: Shape, value: string, path: DataPath, report: Reporter): boolean {
  const fault = (message: string, hint: string | null = null): boolean => {
    report.error('wrong_value', path, [message, hint]);
    return false;
  };
  if (shape.enum !== undefined && !shape.enum.includes(value))
    return fault(
      shape.enum.length === 1
        ? `${nameOf(path)} can only be '${shape.enum[0]}', not '${value}'`
        : `${nameOf(path)} must be one of ${shape.enum.join(', ')}, not '${value}'`,
      didYouMean(value, shape.enum),
    );
  if (shape.pattern !== undefined && !new RegExp(shape.pattern, 'u').test(value))
    return fault(`${nameOf(path)} must be ${shape.patternErrorMessage ?? shape.pattern}, not '${value}'`);
  if (value.length < (shape.minLength ?? 0)) return fault(`${nameOf(path)} is empty`);
  if (value.length > (shape.maxLength ?? Number.POSITIVE_INFINITY))
    return fault(`${nameOf(path)} has ${value.length} characters; at most ${shape.maxLength} are allowed`);
  return true;
}

function numberFits(shape: Shape, value: number, path: DataPath, report: Reporter): boolean {
  const { minimum = Number.NEGATIVE_INFINITY, maximum = Number.POSITIVE_INFINITY } = shape;
  if (value >= minimum && value <= maximum) return true;
  const bound = value < minimum ? `at least ${minimum}` : `at most ${maximum}`;
  report.error('wrong_value', path, `${nameOf(path)} must be ${bound}, not ${value}`);
  return false;
}

function listFits(shape: Shape, value: readonly unknown[], path: DataPath, report: Reporter): boolean {
  if (value.length < (shape.minItems ?? 0)) {
    report.error('empty_list', path, [`${nameOf(path)} is empty`, 'remove it, or name at least one']);
    return false;
  }
  if (value.length > (shape.maxItems ?? Number.POSITIVE_INFINITY)) {
    report.error(
      'too_many',
      path,
      `${nameOf(path)} has ${value.length} entries; at most ${shape.maxItems} are allowed`,
    );
    return false;
  }
  const { items } = shape;
  if (items === undefined) return true;
  return value.map((item, index) => hasShape(items, item, [...path, index], report)).every(Boolean);
}

function mapFits(shape: Shape, value: Readonly<Record<string, unknown>>, path: DataPath, report: Reporter): boolean {
  let sound = true;
  for (const [name, member] of Object.entries(value)) {
    const known = memberShape(shape, name);
    if (known !== undefined) {
      if (!hasShape(known, member, [...path, name], report)) sound = false;
      continue;
    }
    if (shape.additionalProperties !== false) continue;
    sound = false;
    if (shape['x-later']?.includes(name) === true)
      report.error('not_yet_supported', below(path, name), `'${name}' is not yet supported`, 'key');
    else
      report.error(
        'unknown_field',
        below(path, name),
        [
          `Unknown field '${name}'`,
          didYouMean(name, Object.keys(shape.properties ?? {})) ??
            `fields here are ${Object.keys(shape.properties ?? {}).join(', ')}`,
        ],
        'key',
      );
  }
  for (const name of shape.required ?? [])
    if (!Object.hasOwn(value, name)) {
      sound = false;
      report.error('missing_field', path, `${nameOf(path)} needs '${name}'`, 'key');
    }
  const size = Object.keys(value).length;
  if (size < (shape.minProperties ?? 0)) {
    report.error('empty_group', path, [`${nameOf(path)} is empty`, 'remove it, or say what is meant']);
    return false;
  }
  if (size > (shape.maxProperties ?? Number.POSITIVE_INFINITY)) {
    report.error('too_many', path, [
      `${nameOf(path)} has ${size} fields; ${shape.maxProperties} is allowed`,
      'make an entry of its own for each',
    ]);
    return false;
  }
  return sound;
}

function memberShape(shape: Shape, name: string): Shape | undefined {
  if (shape.properties !== undefined && Object.hasOwn(shape.properties, name)) return shape.properties[name];
  for (const [pattern, member] of Object.entries(shape.patternProperties ?? {}))
    if (new RegExp(pattern, 'u').test(name)) return member;
  return undefined;
}

function nameOf(path: DataPath): string {
  const last = path.at(-1);
  if (last === undefined) return 'The file';
  return typeof last === 'number' ? `Entry ${last + 1} of '${String(path.at(-2) ?? '')}'` : `'${last}'`;
}

function described(shape: Shape): string {
  if (shape.enum !== undefined) return `one of ${shape.enum.join(', ')}`;
  if (shape.patternErrorMessage !== undefined) return shape.patternErrorMessage;
  switch (shape.type) {
    case 'object':
      return 'a map';
    case 'array':
      return 'a list';
    case 'string':
      return 'a text';
    case 'integer':
      return 'a whole number';
    case 'number':
      return 'a number';
    case undefined:
    default:
      return 'true or false';
  }
}

function written(value: unknown): string {
  switch (typeOf(value)) {
    case 'object':
      return 'a map';
    case 'array':
      return 'a list';
    case 'string':
      return `the text ${JSON.stringify(value)}`;
    default:
      return String(value);
  }
}

function typeOf(value: unknown): string {
  if (value === null) return 'null';
  if (isList(value)) return 'array';
  return Number.isInteger(value) ? 'integer' : typeof value;
}

function isList(value: unknown): value is readonly unknown[] {
  return Array.isArray(value);
}

function isMap(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null;
}
