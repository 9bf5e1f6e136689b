import { Ajv2020, type AnySchema, type ErrorObject, type Options, type ValidateFunction } from 'ajv/dist/2020.js';
import ajvFormats from 'ajv-formats';
import { RE2JS } from 're2js';
import { MOST_FAULTS, stopAt } from '../diagnostics/stop-at.ts';
import { canonicalJson } from '../json/canonical.ts';
import type { Json, JsonObject } from '../json/value.ts';
import type { RequestFault } from '../effects/model/run-request.ts';
import { pointerTo } from '../json/pointer.ts';

/** The faults that a schema finds in params, at most {@link MOST_FAULTS}; paths are JSON Pointers, `/params/…`. */
export type ParamsCheck = (params: JsonObject) => readonly RequestFault[];

/** Makes the checks of schemas. @throws Error on a schema that cannot be used */
export type ParamsSchemas = (schema: JsonObject) => ParamsCheck;

/**
 * How much work patterns and formats may cost for one set of params. A pattern costs the size of its compiled form
 * times the length of the text. A format costs a fixed number of steps for each character. Matching is linear, and this
 * limits the factor.
 */
export const TEXT_STEPS = { most: 500_000, format: 16 } as const;

/** Characters of a path or a message that are shown. */
const MOST_SHOWN = 300;

/**
 * Thrown inside a validator: a text that was not checked must count neither as valid nor, where a failure would let the
 * params pass, as invalid.
 */
class TextTooLong extends Error {}

/**
 * A compiler of params schemas (JSON Schema 2020-12). Nothing is filled in, coerced or removed. Every call is checked
 * by a validator that stops at the first fault. The validator that lists all faults is made only when there is a fault
 * to list. That a schema is one was checked where the configuration was read.
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
      listing ??= createAjv({ allErrors: true, code: { process: stopAt(MOST_FAULTS) } }, take);
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
    // People write schemas of params by hand; these options would refuse sound ones.
    strictRequired: false,
    strictTypes: false,
    strictTuples: false,
    useDefaults: false,
    coerceTypes: false,
    removeAdditional: false,
    validateSchema: false,
    ownProperties: true,
    ...options,
    // Patterns run in linear time, because agents choose the texts.
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
  // Ajv compares every item with every other item, which takes quadratic time.
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

/** The test for a format of texts; `null` for formats of numbers and for formats that are turned off. */
function textFormat(format: unknown): ((text: string) => boolean) | null {
  if (format instanceof RegExp) return (text) => format.test(text);
  if (typeof format === 'function') return (text) => format(text) === true;
  if (typeof format !== 'object' || format === null || ('type' in format && format.type === 'number')) return null;
  return 'validate' in format ? textFormat(format.validate) : null;
}

/** A pattern with the interface that Ajv wants. It may match anywhere in the text. */
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
  const at = (name: unknown): string => shown(`${base}${pointerTo([String(name)], MOST_SHOWN)}`);
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
