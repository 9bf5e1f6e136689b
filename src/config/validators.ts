import { _, Ajv2020, type CodeKeywordDefinition, type ValidateFunction } from 'ajv/dist/2020.js';
import { isDurationWithin, isSizeWithin } from './bounds.ts';
import { GATEWAY_FILE, type GatewayFile } from './schema.ts';

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

/** They stand in a file of their own: what the build compiles asks for it by its name. */
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
