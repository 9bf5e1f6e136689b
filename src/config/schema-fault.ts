import { Ajv2020, type ErrorObject, type ValidateFunction } from 'ajv/dist/2020.js';
import addFormats from 'ajv-formats';
import { RE2JS } from 're2js';
import { canonicalJson } from '../json/text.ts';
import type { JsonObject } from '../json/value.ts';
import { DIALECT, schemaValidator } from './validators.ts';

/** What is wrong with a schema, and where: the steps from its root. */
export interface SchemaFault {
  readonly steps: readonly (string | number)[];
  readonly message: string;
}

/** JSON Schema 2020-12 as a schema, once for the process. */
let dialect: ValidateFunction | null = null;

/**
 * Schemas that were found valid. A reload compiles only new ones. (A schema with an `$id` depends on others, so it is
 * not kept.)
 */
const sound = new Set<string>();
const MOST_REMEMBERED = 10_000;

/**
 * Makes a check of JSON Schemas (2020-12) as the catalog compiles them: strictly, with patterns that match in linear
 * time. Schemas that one check has seen may refer to each other by their `$id`.
 * @returns what is wrong with a schema; `null` where it can be used
 */
export function schemaChecker(): (schema: JsonObject) => SchemaFault | null {
  const ajv = createAjv();
  return (schema) => {
    const text = canonicalJson(schema);
    if (sound.has(text)) return null;
    const of = schema['$schema'];
    if (of !== undefined && of !== DIALECT) return { steps: ['$schema'], message: `$schema must be ${DIALECT}` };
    dialect ??= schemaValidator();
    if (!dialect(schema)) return faultOf(dialect.errors?.[0]);
    try {
      ajv.compile(schema);
      if (schema['$id'] === undefined) remember(text);
      return null;
    } catch (error) {
      const message = error instanceof Error ? error.message : 'it cannot be compiled';
      return { steps: [], message: message.replace(/^strict mode: /, '') };
    }
  };
}

function remember(text: string): void {
  if (sound.size >= MOST_REMEMBERED) sound.clear();
  sound.add(text);
}

function faultOf(fault: ErrorObject | undefined): SchemaFault {
  const steps = (fault?.instancePath ?? '').split('/').slice(1);
  return {
    steps: steps.map((name) =>
      /^[0-9]+$/.test(name) ? Number(name) : name.replaceAll('~1', '/').replaceAll('~0', '~'),
    ),
    message: `${steps.at(-1) ?? 'it'} ${allowedBy(fault) ?? fault?.message ?? 'is not JSON Schema'}`,
  };
}

/** The allowed values, if a value is not one of them. The message then shows a typing error at once. */
function allowedBy(fault: ErrorObject | undefined): string | null {
  const allowed: unknown = fault?.keyword === 'enum' ? fault.params['allowedValues'] : null;
  return Array.isArray(allowed) ? `must be one of ${allowed.join(', ')}` : null;
}

function createAjv(): Ajv2020 {
  const linear = Object.assign(
    (pattern: string) => {
      const compiled = RE2JS.compile(RE2JS.translateRegExp(pattern));
      return { test: (text: string) => compiled.matcher(text).find() };
    },
    { code: 'linearRegex' },
  );
  const ajv = new Ajv2020({
    strict: true,
    strictTypes: false,
    strictTuples: false,
    logger: false,
    validateSchema: false,
    code: { regExp: linear },
  });
  addFormats.default(ajv);
  return ajv;
}
