import { isJsonObject, type Json, type JsonObject } from '../../src/json/value.ts';
import { GATEWAY_FILE } from '../../src/config/schema.ts';

/**
 * The JSON Schema for editors. Fields with a default are optional, our annotations are left out, and a reference to the
 * environment is allowed wherever a value needs a certain form.
 */
export function gatewayJsonSchema(): JsonObject {
  return {
    $schema: 'https://json-schema.org/draft/2020-12/schema',
    ...forEditors(JSON.parse(JSON.stringify(GATEWAY_FILE))),
    $defs: { reference: { type: 'string', pattern: '\\$\\{', description: 'From the environment: ${NAME}.' } },
  };
}

function forEditors(schema: JsonObject): JsonObject {
  const keywords = Object.entries(schema)
    .filter(([keyword]) => !keyword.startsWith('x-'))
    .map(([keyword, value]): [string, Json] => [keyword, editorValue(schema, keyword, value)]);
  const asksForForm =
    schema['pattern'] !== undefined ||
    schema['enum'] !== undefined ||
    schema['type'] === 'integer' ||
    schema['type'] === 'boolean';
  if (!asksForForm) return Object.fromEntries(keywords);
  const isNote = ([keyword]: [string, Json]): boolean => keyword === 'description' || keyword === 'default';
  const form = Object.fromEntries(keywords.filter((entry) => !isNote(entry)));
  return { ...Object.fromEntries(keywords.filter(isNote)), anyOf: [form, { $ref: '#/$defs/reference' }] };
}

function editorValue(schema: JsonObject, keyword: string, value: Json): Json {
  if (keyword === 'default' || keyword === 'enum' || keyword === 'const') return value;
  if (keyword === 'required' && Array.isArray(value)) {
    const fields = schema['properties'];
    return value.filter((name) => typeof name !== 'string' || !hasDefault(fields, name));
  }
  if (keyword === 'properties' || keyword === 'patternProperties')
    return isJsonObject(value)
      ? Object.fromEntries(
          Object.entries(value).map(([name, field]) => [name, isJsonObject(field) ? forEditors(field) : field]),
        )
      : value;
  if (Array.isArray(value)) return value.map((item) => (isJsonObject(item) ? forEditors(item) : item));
  return isJsonObject(value) ? forEditors(value) : value;
}

function hasDefault(fields: Json | undefined, name: string): boolean {
  const field = isJsonObject(fields) ? fields[name] : undefined;
  return isJsonObject(field) && field['default'] !== undefined;
}
