import { Ajv2020, type AnySchema, type ErrorObject, type Options, type ValidateFunction } from 'ajv/dist/2020.js';
import ajvFormats from 'ajv-formats';
import { RE2JS } from 're2js';
import { MOST_FAULTS, stopAt } from '../diagnostics/stop-at.ts';
import { canonicalJson } from '../json/canonical.ts';
import type { Json, JsonObject } from '../json/value.ts';
import type { RequestFault } from '../effects/model/run-request.ts';

/** All that a schema of params has against some params, up to {@link MOST_FAULTS}; paths are JSON Pointers, `/params/…`. */
export type ParamsCheck = (params: JsonObject) => readonly RequestFault[];

/** Makes the checks of schemas. @throws Error on a schema that cannot be used */
export type ParamsSchemas = (schema: JsonObject) => ParamsCheck;

/**
 * What patterns and formats may take on one set of params: the size of a compiled pattern times the length of its text,
 * and so many steps for a character of a text with a format. Matching is linear, and this bounds its factor.
 */
export const TEXT_STEPS = { most: 500_000, format: 16 } as const;

/** Characters of a path or a message that are shown. */
const MOST_SHOWN = 300;

/** Thrown from within a validator: no text may count as checked that was not, nor as failed where that would pass. */
class TextTooLong extends Error {}

/**
 * A compiler of params schemas (JSON Schema 2020-12). Nothing is filled in, coerced or removed. A schema is compiled to
 * stop at its first fault: that is what every call is checked by. The validator that lists faults is made when there is
 * one to list.
 */
export function createParamsSchemas(): ParamsSchemas {
  let left = 0;
  const take = (steps: number): void => {
    left -= steps;
    if (left < 0) throw new TextTooLong();
  };
  const judging = createAjv({}, take);
  let listing: Ajv2020 | null = null;
  return (schema) => {
    const judge = judging.compile(schema as AnySchema);
    let list: ValidateFunction | null = null;
    return (params) => {
      left = TEXT_STEPS.most;
      try {
        if (judge(params)) return [];
      } catch (error) {
        if (!(error instanceof TextTooLong)) throw error;
        return [{ path: '/params', message: 'hold more text under patterns and formats than is matched for one call' }];
      }
      const [first] = (judge.errors ?? []).map(faultOf);
      listing ??= createAjv({ allErrors: true, validateSchema: false, code: { process: stopAt(MOST_FAULTS) } }, take);
      list ??= listing.compile(schema as AnySchema);
      left = TEXT_STEPS.most;
      const faults = listed(list, params);
      return faults.length > 0 || first === undefined ? faults : [first];
    };
  };
}

function listed(validate: ValidateFunction, params: JsonObject): readonly RequestFault[] {
  try {
    if (validate(params)) return [];
  } catch (error) {
    if (!(error instanceof TextTooLong)) throw error;
    return [];
  }
  return (validate.errors ?? []).map(faultOf);
}

function createAjv(options: Options, take: (steps: number) => void): Ajv2020 {
  const regExp = Object.assign((pattern: string) => linearRegex(pattern, take), { code: 'linearRegex' });
  const ajv = new Ajv2020({
    strict: true,
    // Schemas of params are written by hand; these would refuse sound ones.
    strictRequired: false,
    strictTypes: false,
    strictTuples: false,
    useDefaults: false,
    coerceTypes: false,
    removeAdditional: false,
    ownProperties: true,
    ...options,
    // Patterns are matched in linear time: they meet what agents write.
    code: { ...options.code, regExp },
  });
  ajvFormats.default(ajv);
  for (const [name, format] of Object.entries(ajv.formats)) {
    const test = textFormat(format);
    if (test !== null)
      ajv.addFormat(name, (text: string) => {
        take(text.length * TEXT_STEPS.format);
        return test(text);
      });
  }
  // Ajv compares each item with each other one.
  ajv.removeKeyword('uniqueItems');
  ajv.addKeyword({
    keyword: 'uniqueItems',
    type: 'array',
    schemaType: 'boolean',
    errors: false,
    error: { message: 'must not have the same item twice' },
    validate: (wanted: boolean, items: readonly Json[]) =>
      !wanted || new Set(items.map((item) => canonicalJson(item))).size === items.length,
  });
  return ajv;
}

/** The test of a format of texts; `null` for formats of numbers and for those that are off. */
function textFormat(format: unknown): ((text: string) => boolean) | null {
  if (format instanceof RegExp) return (text) => format.test(text);
  if (typeof format === 'function') return (text) => format(text) === true;
  if (typeof format !== 'object' || format === null || ('type' in format && format.type === 'number')) return null;
  return 'validate' in format ? textFormat(format.validate) : null;
}

/** A pattern as Ajv wants it: found anywhere in the text. */
function linearRegex(
  pattern: string,
  take: (steps: number) => void,
): { test(text: string): boolean; toString(): string } {
  const compiled = RE2JS.compile(RE2JS.translateRegExp(pattern));
  const size = compiled.programSize();
  return {
    test: (text) => {
      take(size * text.length);
      return compiled.test(text);
    },
    toString: () => pattern,
  };
}

function faultOf(error: ErrorObject): RequestFault {
  const base = `/params${error.instancePath}`;
  const at = (name: unknown): string => shown(`${base}/${escaped(String(name))}`);
  switch (error.keyword) {
    case 'required':
      return { path: at(error.params['missingProperty']), message: 'is required' };
    case 'additionalProperties':
      return { path: at(error.params['additionalProperty']), message: 'is not a param of this tool' };
    case 'unevaluatedProperties':
      return { path: at(error.params['unevaluatedProperty']), message: 'is not a param of this tool' };
    case 'enum':
      return { path: shown(base), message: shown(`must be one of ${JSON.stringify(error.params['allowedValues'])}`) };
    case 'const':
      return { path: shown(base), message: shown(`must be ${JSON.stringify(error.params['allowedValue'])}`) };
    default:
      return { path: shown(base), message: shown(error.message ?? `breaks the rule ${error.keyword}`) };
  }
}

function shown(text: string): string {
  return text.length <= MOST_SHOWN ? text : `${text.slice(0, MOST_SHOWN).replace(/[\uD800-\uDBFF]$/, '')}…`;
}

/** A name as a token of a JSON Pointer (RFC 6901). */
function escaped(name: string): string {
  return name.slice(0, MOST_SHOWN).replaceAll('~', '~0').replaceAll('/', '~1');
}
