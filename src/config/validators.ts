import { _, Ajv2020, type CodeKeywordDefinition, type ValidateFunction } from 'ajv/dist/2020.js';
import { GATEWAY_FILE, type GatewayFile } from './schema.ts';
import { parseDuration, parseSize } from './units.ts';

// The two functions that a start needs are compiled once, by the build: `bundle.mjs` puts what `compileFile` and
// `compileDialect` make in their place, since a start that compiles them waits for a fifth of a second.

export const DIALECT = 'https://json-schema.org/draft/2020-12/schema';

/** @returns the check of a configuration file: it lists all faults, and fills in defaults */
export function fileValidator(): ValidateFunction<GatewayFile> {
  return compileFile(false).validate;
}

/** @returns the check of a JSON Schema (2020-12): its dialect as a schema */
export function schemaValidator(): ValidateFunction {
  return compileDialect(false).validate;
}

/** @param source whether the code is kept, for a file. That the schema is one is a test's to say. */
export function compileFile(source: boolean) {
  const ajv = new Ajv2020({
    strict: true,
    allErrors: true,
    verbose: true,
    useDefaults: true,
    allowUnionTypes: true,
    validateSchema: false,
    code: { optimize: source, source },
  });
  ajv.addVocabulary(['x-expected', 'x-later', 'x-name']);
  ajv.addKeyword(bounded('x-duration', 'isDurationWithin'));
  ajv.addKeyword(bounded('x-size', 'isSizeWithin'));
  return { ajv, validate: ajv.compile<GatewayFile>(GATEWAY_FILE) };
}

/** @param source as for {@link compileFile} */
export function compileDialect(source: boolean) {
  const ajv = new Ajv2020({ logger: false, code: { optimize: source, source } });
  const validate = ajv.getSchema(DIALECT);
  if (validate === undefined) throw new Error('ajv does not hold the dialect of 2020-12');
  return { ajv, validate };
}

const BOUNDS = { isDurationWithin, isSizeWithin } as const;

function bounded(keyword: string, name: keyof typeof BOUNDS): CodeKeywordDefinition {
  return {
    keyword,
    type: 'string',
    schemaType: 'object',
    code: (context) => {
      const code = _`require("./bounds.js")[${name}]`;
      const within = context.gen.scopeValue('func', { ref: BOUNDS[name], code });
      context.pass(_`${within}(${context.schemaValue}, ${context.data})`);
    },
  };
}

/** The least and the most of a duration or a size, as the schema writes them. */
export interface Bounds {
  readonly min: string;
  readonly max: string;
}

/** Whether a text is a duration within bounds, or none at all: the pattern reports a text of another form. */
function isDurationWithin(bounds: Bounds, text: string): boolean {
  return isWithin(text, bounds, parseDuration);
}

/** The same for a size. */
function isSizeWithin(bounds: Bounds, text: string): boolean {
  return isWithin(text, bounds, parseSize);
}

/** A number too large to parse is out of bounds. */
function isWithin(text: string, bounds: Bounds, parse: (text: string) => number | null): boolean {
  const value = parse(text);
  if (value === null) return !/^[0-9]/.test(text);
  return value >= (parse(bounds.min) ?? 0) && value <= (parse(bounds.max) ?? Infinity);
}
