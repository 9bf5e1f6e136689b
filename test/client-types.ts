/*
 * The types of the client's records, made from the schemas of the OpenAPI document: names as the client has them, the
 * rest as the document says. (`openapi-typescript` does this with the API of TypeScript 5, which version 7 has not.)
 */

type Schema = { readonly [name: string]: unknown };

/**
 * The types with these names, and all that they refer to.
 * @param schemas `components.schemas` of the document
 */
export function clientTypes(schemas: Schema, roots: readonly string[]): string {
  const found = new Set(roots);
  const types: string[] = [];
  for (const name of found) {
    const schema = schemas[name];
    if (!isSchema(schema)) throw new Error(`schemas/openapi.json has no ${name}`);
    types.push(`${comment(schema)}export type ${name} = ${typeOf(schema, (ref) => found.add(ref))};\n`);
  }
  return types.join('\n');
}

function typeOf(schema: Schema, refers: (name: string) => void): string {
  const { $ref, const: value, enum: values, type, items, properties, additionalProperties: rest } = schema;
  const forms = schema['oneOf'] ?? schema['anyOf'];
  if (typeof $ref === 'string') {
    const name = $ref.slice($ref.lastIndexOf('/') + 1);
    refers(name);
    return name;
  }
  if (value !== undefined) return literal(value);
  if (Array.isArray(values)) return values.map(literal).join(' | ');
  if (Array.isArray(forms))
    return forms
      .filter(isSchema)
      .map((form) => typeOf(form, refers))
      .join(' | ');
  if (Array.isArray(type)) return type.map((one) => typeOf({ ...schema, type: one }, refers)).join(' | ');
  switch (type) {
    case 'string':
    case 'boolean':
    case 'null':
      return type;
    case 'integer':
    case 'number':
      return 'number';
    case 'array':
      return isSchema(items) ? `readonly (${typeOf(items, refers)})[]` : 'readonly Json[]';
    case 'object':
      if (isSchema(properties)) return objectOf(schema, properties, refers);
      return isSchema(rest) ? `Readonly<Record<string, ${typeOf(rest, refers)}>>` : 'JsonObject';
    case undefined:
      return 'Json';
    default:
      throw new Error(`no type for ${JSON.stringify(schema)}`);
  }
}

function objectOf(schema: Schema, properties: Schema, refers: (name: string) => void): string {
  const { required } = schema;
  const members = Object.entries(properties).map(([name, member]) => {
    if (!isSchema(member)) throw new Error(`${name} has no schema`);
    const mark = Array.isArray(required) && required.includes(name) ? '' : '?';
    return `${comment(member)}readonly ${camel(name)}${mark}: ${typeOf(member, refers)};`;
  });
  if (schema['additionalProperties'] === true) members.push('readonly [more: string]: Json;');
  return `{\n${members.join('\n')}\n}`;
}

function comment({ description }: Schema): string {
  return typeof description === 'string' ? `/** ${description} */\n` : '';
}

function literal(value: unknown): string {
  return typeof value === 'string' ? `'${value}'` : JSON.stringify(value);
}

/** As `client/src/wire.ts` does. */
function camel(name: string): string {
  return name.replace(/_([a-z])/g, (_, letter: string) => letter.toUpperCase());
}

function isSchema(value: unknown): value is Schema {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
