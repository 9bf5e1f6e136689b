import type { Tree } from '../../../../src/config/expand.ts';
import { type QueryStyle, rootOfName } from '../../../../src/effects/model/tool.ts';
import type { Json } from '../../../../src/json/value.ts';
import { type ApiDocument, list, object, resolve, resolveObject } from './document.ts';
import type { ApiParam } from './operations.ts';
import { membersOf, type SchemaWriter } from './params-schema.ts';
import { plainText } from './words.ts';

/** A param in a query, as a tool declares it. */
export interface QueryParam {
  readonly required: boolean;
  /** `null`: a text. */
  readonly schema: Json;
  /** For what may be a list or an object; `null`: a single value. */
  readonly style: QueryStyle | null;
}

export function querySchema(writer: SchemaWriter, { schema, style }: QueryParam): Tree {
  if (style !== null) return writer.whole(schema);
  return schema === null ? { type: 'string' } : writer.text(schema);
}

/**
 * The params in a query, by name. An object that is written without its own name (`form`, exploded) is a param for each member.
 */
export function queryNames(
  document: ApiDocument,
  params: readonly ApiParam[],
  notes: string[],
): Map<string, QueryParam> {
  const names = new Map<string, QueryParam>();
  for (const param of params) {
    if (param.in === 'cookie')
      notes.push(
        `the cookie ${plainText(param.name, 60)} of the document is no param: cookies go on where headers.forward of the route names them`,
      );
    if (param.in !== 'query') continue;
    const one = { required: param.required, schema: param.schema };
    const style = styleOf(document, param);
    const schema = object(resolve(document, param.schema) ?? undefined);
    // Rails and PHP put the brackets into the name: `ids[]`.
    const plain = /^([^[\]]+)\[\]$/.exec(param.name)?.[1];
    if (style === 'repeat' && plain !== undefined && !params.some(({ name }) => name === plain)) {
      names.set(plain, { ...one, schema, style: 'brackets' });
      continue;
    }
    if (style !== null && !/[[\]]/.test(param.name)) {
      // What a reference leads to may be left open later, and must still be known for a list.
      names.set(param.name, { ...one, schema, style });
      continue;
    }
    const isList = isListSchema(schema);
    const fields = param.written === 'json' || isList ? null : membersOf(document, param.schema);
    const isMap = fields !== null && fields.properties.size > 0;
    const hasScalar =
      !isMap || [...list(schema['anyOf']), ...list(schema['oneOf'])].some((each) => isScalarSchema(document, each));
    if (isMap && param.written === 'repeated')
      for (const [field, value] of fields.properties)
        names.set(field, {
          required: false,
          schema: value,
          style: /[[\]]/.test(field) ? null : styleOf(document, { ...param, schema: value }),
        });
    if (hasScalar)
      names.set(param.name, {
        ...one,
        schema: isList || isMap ? scalarPart(document, schema) : param.schema,
        style: null,
      });
  }
  for (const name of names.keys()) {
    const root = rootOfName(name);
    // `page[size]` beside an object `page`: the object has it.
    if (root !== name && names.get(root)?.style) names.delete(name);
  }
  return names;
}

/** How a list or an object is written; `null` for a single value, and for what OpenAPI does not say. */
function styleOf(document: ApiDocument, param: ApiParam): QueryStyle | null {
  if (param.written === 'deep') return 'indices';
  const schema = object(resolve(document, param.schema) ?? undefined);
  const items = resolveObject(document, schema['items'] ?? {});
  if (!isListSchema(schema) || items['properties'] !== undefined || items['type'] === 'object' || isListSchema(items))
    return null;
  switch (param.written) {
    case 'repeated':
      return 'repeat';
    case 'joined':
      return 'comma';
    case 'spaced':
      return 'space';
    case 'piped':
      return 'pipe';
    case 'json':
    case 'other':
      return null;
  }
}

function isListSchema({ type }: { readonly [name: string]: Json }): boolean {
  const types = (Array.isArray(type) ? type : [type]).filter((one) => one !== 'null');
  return types.length === 1 && types[0] === 'array';
}

function isScalarSchema(document: ApiDocument, schema: Json): boolean {
  const { type } = resolveObject(document, schema);
  return typeof type === 'string' && type !== 'object' && type !== 'array';
}

/** From alternatives, takes the one that is written as plain text. */
function scalarPart(document: ApiDocument, schema: { readonly [name: string]: Json }): Json {
  const any = [...list(schema['anyOf']), ...list(schema['oneOf'])];
  return any.find((one) => isScalarSchema(document, one)) ?? null;
}
