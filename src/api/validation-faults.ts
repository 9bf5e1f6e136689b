import type { FastifySchemaValidationError } from 'fastify/types/schema.js';
import { didYouMean } from '../diagnostics/nearest.ts';
import { MOST_FAULTS } from '../diagnostics/stop-at.ts';
import { escapePointer } from '../json/value.ts';
import type { RequestFault } from '../effects/model/run-request.ts';

/**
 * Turns the validator's findings into faults that people can read. Each has a JSON Pointer; for an unknown field, the
 * fault also names the field that was probably meant.
 * @param part as Fastify names it: `body`, `querystring`, `params`, `headers`
 * @param errors of an Ajv with `verbose`, so that each names its schema
 */
export function validationFaults(
  errors: readonly FastifySchemaValidationError[],
  part: string,
): readonly RequestFault[] {
  const faults = new Map<string, RequestFault>();
  for (const error of errors) {
    if (faults.size >= MOST_FAULTS) break;
    const fault = faultOf(error, part);
    const same = `${fault.path}\n${fault.message}`;
    if (!faults.has(same)) faults.set(same, withHint(fault, error));
  }
  return [...faults.values()];
}

/** The most characters of a name that a path shows. */
const MOST_SHOWN = 300;

function withHint(fault: RequestFault, error: FastifySchemaValidationError): RequestFault {
  if (error.keyword !== 'additionalProperties') return fault;
  const hint = didYouMean(text(error.params['additionalProperty']), knownFields(error));
  return hint === null ? fault : { ...fault, message: `${fault.message}; ${hint}` };
}

function faultOf(error: FastifySchemaValidationError, part: string): RequestFault {
  const at = part === 'body' ? error.instancePath : `/${part === 'querystring' ? 'query' : part}${error.instancePath}`;
  const { params } = error;
  const limit = text(params['limit']);
  switch (error.keyword) {
    case 'additionalProperties': {
      const name = text(params['additionalProperty']);
      return {
        path: `${at}/${escapePointer(name.slice(0, MOST_SHOWN))}`,
        message: `unknown field "${name.slice(0, 100)}"`,
      };
    }
    case 'required':
      return { path: `${at}/${escapePointer(text(params['missingProperty']))}`, message: 'is required' };
    case 'type': {
      const wanted = text(params['type']);
      return { path: at, message: `must be ${/^[aeiou]/.test(wanted) ? 'an' : 'a'} ${wanted}` };
    }
    case 'enum':
      return { path: at, message: `must be one of ${list(params['allowedValues'])}` };
    case 'const':
      return { path: at, message: `must be ${JSON.stringify(params['allowedValue'])}` };
    case 'pattern':
      return { path: at, message: `must match ${text(params['pattern'])}${suchAs(error)}` };
    case 'minLength':
      return { path: at, message: limit === '1' ? 'must not be empty' : `must have at least ${limit} characters` };
    case 'maxLength':
      return { path: at, message: `must have at most ${limit} characters` };
    case 'minProperties':
    case 'maxProperties': {
      const bound = error.keyword === 'minProperties' ? 'at least' : 'at most';
      return { path: at, message: `must have ${bound} ${limit} field${limit === '1' ? '' : 's'}` };
    }
    default:
      return { path: at, message: (error.message ?? 'is not valid').slice(0, 300) };
  }
}

function text(value: unknown): string {
  return typeof value === 'string' || typeof value === 'number' ? String(value) : '';
}

function list(values: unknown): string {
  return Array.isArray(values) ? values.map((value) => JSON.stringify(value)).join(', ') : '';
}

/** An example is easier to understand than the pattern of a schema. */
function suchAs(error: object): string {
  const { parentSchema } = error as { readonly parentSchema?: { readonly examples?: readonly unknown[] } };
  const example = text(parentSchema?.examples?.[0]);
  return example === '' ? '' : `, such as ${example}`;
}

function knownFields(error: object): readonly string[] {
  const { parentSchema } = error as { readonly parentSchema?: { readonly properties?: object } };
  return Object.keys(parentSchema?.properties ?? {});
}
