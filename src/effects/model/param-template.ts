import { readSteps, writeSteps } from '../../json/path-steps.ts';
import { placeInSchema } from '../../json/schema-walk.ts';
import { isJsonObject, type JsonObject, type Step } from '../../json/value.ts';

/** Splits `order:{order_id}`, `{metadata.name}`: at even places are texts, at odd ones what stands in braces. */
export function splitTemplate(template: string): readonly string[] {
  return template.split(/\{([^{}]*)\}/);
}

/**
 * The place of a value that is named by its param, or as a part of it: `metadata.name`, `labels["app/name"]`,
 * `items[0].id`; `null` where the name is no path. A param that the schema declares by the whole name comes first.
 */
export function paramSteps(name: string, schema: JsonObject | null): readonly Step[] | null {
  const declared = schema?.['properties'];
  if (isJsonObject(declared) && Object.hasOwn(declared, name)) return [name];
  const steps = readSteps(name.startsWith('[') ? name : `.${name}`, 0);
  return 'message' in steps ? null : steps;
}

/**
 * Why nothing can be named by the value at a place; `null` where the schema allows a text or a whole number there.
 * `known`: what is there instead, as paths. `isCertain`: the schema refuses it, and does not only leave it out.
 */
export function namelessPlace(
  steps: readonly Step[],
  shown: string,
  schema: JsonObject | null,
): { readonly message: string; readonly known: readonly string[]; readonly isCertain: boolean } | null {
  const { types, missing } = placeInSchema(schema, steps);
  if (missing !== null) {
    const known = missing.names.map((name) => writeSteps([...steps.slice(0, missing.after), name]));
    return { message: `There is no param '${shown}'`, known, isCertain: missing.isClosed };
  }
  if (types.size === 0 || ['string', 'integer', 'number'].some((type) => types.has(type))) return null;
  const message = `'${shown}' is of type ${[...types].join(' or ')}, and no text or whole number that could name anything`;
  return { message, known: [], isCertain: true };
}
