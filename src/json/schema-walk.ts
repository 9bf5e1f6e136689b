import { isJsonArray, isJsonObject, type Json, type JsonObject, type Step } from './value.ts';

/** How many references and branches are followed for one value. There is a limit because a schema may be recursive. */
const MOST_STEPS = 32;

/** A part of a params schema, and the whole schema, which its references point into. */
export interface SchemaAt {
  readonly schema: JsonObject | null;
  readonly root: JsonObject | null;
}

/** The schemas that a schema consists of: itself, and those that its references, `allOf`, `anyOf` and `oneOf` name. */
function branches({ schema, root }: SchemaAt): readonly JsonObject[] {
  if (schema === null) return [];
  const found: JsonObject[] = [schema];
  for (let index = 0; index < found.length; index += 1) {
    const one = found[index];
    if (one === undefined || found.length >= MOST_STEPS) break;
    const target = referred(one['$ref'], root);
    if (target !== null) found.push(target);
    for (const keyword of ['allOf', 'anyOf', 'oneOf']) {
      const listed = one[keyword];
      if (isJsonArray(listed)) for (const branch of listed) if (isJsonObject(branch)) found.push(branch);
    }
  }
  return found.slice(0, MOST_STEPS);
}

function referred(reference: Json | undefined, root: JsonObject | null): JsonObject | null {
  if (typeof reference !== 'string' || !reference.startsWith('#/')) return null;
  let node: Json | undefined = root ?? undefined;
  for (const step of reference.slice(2).split('/')) {
    const name = step.replaceAll('~1', '/').replaceAll('~0', '~');
    if (!isJsonObject(node) || !Object.hasOwn(node, name)) return null;
    node = node[name];
  }
  return isJsonObject(node) ? node : null;
}

export function memberSchema(at: SchemaAt, name: string): SchemaAt {
  for (const { properties } of branches(at))
    if (isJsonObject(properties) && Object.hasOwn(properties, name) && isJsonObject(properties[name]))
      return { schema: properties[name], root: at.root };
  for (const { additionalProperties } of branches(at))
    if (isJsonObject(additionalProperties)) return { schema: additionalProperties, root: at.root };
  return { schema: null, root: at.root };
}

/**
 * The members that a schema names, and whether it refuses all others; `null` if it says nothing of names, or not of all.
 */
function membersOf(at: SchemaAt): { readonly names: readonly string[]; readonly isClosed: boolean } | null {
  const all = branches(at);
  const isOpen = ({ $ref, if: chosen, patternProperties, additionalProperties }: JsonObject): boolean =>
    chosen !== undefined ||
    patternProperties !== undefined ||
    isJsonObject(additionalProperties) ||
    ($ref !== undefined && referred($ref, at.root) === null);
  if (all.length >= MOST_STEPS || all.some(isOpen)) return null;
  const naming = all.filter(({ properties }) => isJsonObject(properties));
  const isClosed = (one: JsonObject): boolean => one['additionalProperties'] === false;
  if (naming.length === 0 && !all.some(isClosed)) return null;
  const names = naming.flatMap(({ properties }) => (isJsonObject(properties) ? Object.keys(properties) : []));
  return { names, isClosed: naming.every(isClosed) };
}

/**
 * Looks a place up in a schema, step by step, as far as it says what there is. `types`: those of the value there; empty
 * if the schema does not say. `missing`: after how many steps there is no such one, with those that are there, and
 * whether all others are refused.
 */
export function placeInSchema(
  root: JsonObject | null,
  steps: readonly Step[],
): {
  readonly types: ReadonlySet<string>;
  readonly isRequired: boolean;
  readonly missing: { readonly after: number; readonly names: readonly string[]; readonly isClosed: boolean } | null;
} {
  let at: SchemaAt = { schema: root, root };
  let isRequired = true;
  for (const [after, step] of steps.entries()) {
    const types = typesOf(at);
    const members = typeof step === 'number' ? null : membersOf(at);
    if (types.size > 0 && !types.has(typeof step === 'number' ? 'array' : 'object'))
      return { types, isRequired, missing: { after, names: [], isClosed: true } };
    if (typeof step === 'string' && members?.names.includes(step) === false)
      return { types, isRequired, missing: { after, ...members } };
    isRequired &&= branches(at).some(({ required }) => isJsonArray(required) && required.includes(step));
    at = typeof step === 'number' ? itemSchema(at) : memberSchema(at, step);
  }
  return { types: typesOf(at), isRequired, missing: null };
}

export function itemSchema(at: SchemaAt): SchemaAt {
  for (const { items } of branches(at)) if (isJsonObject(items)) return { schema: items, root: at.root };
  return { schema: null, root: at.root };
}

/** The types that a value may have; empty if the schema does not say. */
export function typesOf(at: SchemaAt): ReadonlySet<string> {
  const types = new Set<string>();
  for (const { type } of branches(at))
    for (const one of isJsonArray(type) ? type : [type]) if (typeof one === 'string') types.add(one);
  return types;
}

/**
 * The value of a text in a path, a query, a header or a form. It gets the schema's type if the text is exactly how that
 * value is written, so that what is sent is what was evaluated. Otherwise it is the text itself.
 */
export function readTyped(at: SchemaAt, text: string): Json {
  const types = typesOf(at);
  if (types.size === 0 || takesAnyText(at)) return text;
  if (types.has('boolean') && (text === 'true' || text === 'false')) return text === 'true';
  if (!types.has('integer') && !types.has('number')) return text;
  const value = Number(text);
  return Number.isFinite(value) && String(value) === text && (!Number.isInteger(value) || Number.isSafeInteger(value))
    ? value
    : text;
}

/**
 * Whether a branch takes any text and not only certain words. Then a text that looks like a number could be meant as a
 * text.
 */
function takesAnyText(at: SchemaAt): boolean {
  return branches(at).some(({ type, enum: words, const: word }) => {
    const isText = type === 'string' || (isJsonArray(type) && type.includes('string'));
    return isText && words === undefined && word === undefined;
  });
}
