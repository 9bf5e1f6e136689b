import { overlap } from '../config/resolve-routes.ts';
import { isJsonObject, type Json, type JsonObject } from '../effects/json.ts';

/** A tool as `svc init` drafts it from an OpenAPI document, with the request that calls it. */
export interface DraftTool {
  readonly name: string;
  readonly title: string;
  readonly kind: 'read' | 'write';
  readonly method: string;
  /** `/v1/payments/{payment_id}`. */
  readonly path: string;
  readonly query: readonly string[];
  readonly body: boolean;
  /** Type of each param that is not sent as text, where the document names one. */
  readonly types: Readonly<Record<string, string>>;
  readonly required: readonly string[];
}

export interface Draft {
  readonly tools: readonly DraftTool[];
  /** Operations that cannot be declared, and why. */
  readonly skipped: readonly string[];
}

const METHODS = ['get', 'post', 'put', 'patch', 'delete'] as const;
const PLAIN_TYPES = new Set(['string', 'integer', 'number', 'boolean', 'array', 'object']);
const MOST_TOOLS = 200;
/** Most params of one operation. The document may name thousands. */
const MOST_PARAMS = 200;
const MOST_NAME = 128;
const MOST_TITLE = 80;

/** Control characters, invisible formatting characters, line separators, private use, unpaired surrogates. */
const UNSAFE = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Co}\p{Cs}]/gu;

/** Text of the document on one line, without characters that could mislead a reader or control a terminal. */
export function plainText(text: string, most: number): string {
  return text
    .slice(0, 10 * most)
    .replace(/\s+/g, ' ')
    .replace(UNSAFE, '')
    .trim()
    .slice(0, most)
    .replace(UNSAFE, '');
}

/** Why a param cannot be declared under its name; `null` if it can. */
function nameFault(names: readonly string[]): string | null {
  if (names.length > MOST_PARAMS) return `more than ${MOST_PARAMS} params`;
  const odd = names.find((name) => name === '' || name === '__proto__' || name !== plainText(name, MOST_NAME));
  return odd === undefined ? null : 'a param whose name cannot be declared';
}

/** Drafts tools from an OpenAPI 2 or 3 document. Operations that it cannot declare are listed with the reason. */
export function draftTools(document: JsonObject, upstream: string): Draft {
  const tools = new Map<string, DraftTool>();
  const skipped: string[] = [];
  const base = basePath(document);
  for (const [path, item] of entries(document['paths'])) {
    for (const method of METHODS) {
      const operation = object(item)[method];
      if (operation === undefined) continue;
      const made = draftTool(document, upstream, method.toUpperCase(), base + path, object(item), object(operation));
      if (typeof made === 'string') skipped.push(`${method.toUpperCase()} ${base}${path}: ${made}`);
      else if (tools.has(made.name)) skipped.push(`${method.toUpperCase()} ${base}${path}: a second ${made.name}`);
      else if (tools.size >= MOST_TOOLS)
        skipped.push(`${method.toUpperCase()} ${base}${path}: more than ${MOST_TOOLS} tools`);
      else tools.set(made.name, made);
    }
  }
  return withoutOverlaps([...tools.values()], skipped);
}

/**
 * A request must have one meaning, so that of `/users/me` and `/users/{id}` only one can be routed: the one with more
 * params, under which the requests of the other pass as well.
 */
function withoutOverlaps(tools: readonly DraftTool[], skipped: readonly string[]): Draft {
  const shapeOf = ({ path }: DraftTool): readonly (string | null)[] =>
    path.split('/').map((segment) => (segment.startsWith('{') ? null : segment));
  const kept: DraftTool[] = [];
  const left: string[] = [];
  for (const tool of tools.toSorted((a, b) => b.required.length - a.required.length)) {
    const other = kept.find((one) => one.method === tool.method && overlap(shapeOf(one), shapeOf(tool)));
    if (other === undefined) kept.push(tool);
    else left.push(`${tool.method} ${tool.path}: the same requests as ${other.path}`);
  }
  return { tools: tools.filter((tool) => kept.includes(tool)), skipped: [...skipped, ...left] };
}

function draftTool(
  document: JsonObject,
  upstream: string,
  method: string,
  path: string,
  item: JsonObject,
  operation: JsonObject,
): DraftTool | string {
  const segments = path.split('/').slice(1);
  const names: string[] = [];
  for (const segment of segments) {
    const [, name] = /^\{([^{}]+)\}$/.exec(segment) ?? [];
    if (name !== undefined) names.push(word(name));
    else if (!/^[A-Za-z0-9._~-]*$/.test(segment) || /^\.{1,2}$/.test(segment))
      return 'a segment that is neither literal nor one whole param';
  }
  const twice = names.find((name, index) => names.indexOf(name) < index);
  if (twice !== undefined) return `the param ${twice} stands in two places`;
  if (segments.some((segment, index) => segment === '' && index < segments.length - 1)) return 'an empty segment';
  const template = `/${segments.map((segment) => segment.replace(/^\{(.+)\}$/, (_, name: string) => `{${word(name)}}`)).join('/')}`;
  const parameters = [...list(item['parameters']), ...list(operation['parameters'])].map((one) =>
    resolve(document, one),
  );
  const query = parameters.flatMap((one) =>
    one['in'] === 'query' && typeof one['name'] === 'string' ? [one['name']] : [],
  );
  const media = object(object(resolve(document, operation['requestBody'])['content'])['application/json']);
  const inBody = parameters.find((one) => one['in'] === 'body');
  const schema = resolve(document, inBody === undefined ? media['schema'] : inBody['schema']);
  const properties = entries(schema['properties']);
  const odd = nameFault([...query, ...properties.map(([name]) => name)]);
  if (odd !== null) return odd;
  if (query.some((name) => /[{}]/.test(name))) return 'a param whose name cannot be declared';
  const clash = [...query, ...properties.map(([name]) => name)].find((name) => names.includes(name));
  if (clash !== undefined) return `the param ${clash} stands in two places`;
  const types: Record<string, string> = {};
  for (const [name, property] of properties) {
    const type = resolve(document, property)['type'];
    types[name] = typeof type === 'string' && PLAIN_TYPES.has(type) ? type : '';
  }
  const title = operation['summary'];
  return {
    name: `${upstream}.${toolWord(operation, method, segments)}`,
    title:
      (typeof title === 'string' ? plainText(title, MOST_TITLE) : '') || plainText(`${method} ${path}`, MOST_TITLE),
    kind: method === 'GET' ? 'read' : 'write',
    method,
    path: template,
    query: [...new Set(query)],
    body: method !== 'GET' && (operation['requestBody'] !== undefined || inBody !== undefined),
    types,
    required: names,
  };
}

/** `getPaymentById` becomes `get_payment_by_id`; without an operation id, method and literal segments. */
function toolWord(operation: JsonObject, method: string, segments: readonly string[]): string {
  const id = operation['operationId'];
  const literal = segments.filter((segment) => !segment.startsWith('{') && !/^v\d+$/.test(segment));
  const source = typeof id === 'string' && /[A-Za-z0-9]/.test(id) ? id : [method, ...literal].join('_');
  return word(source.replace(/([a-z0-9])([A-Z])/g, '$1_$2')).toLowerCase();
}

/** Makes a word that is allowed in the name of a tool: a letter first, then letters, digits and `_`. */
function word(text: string): string {
  const clean = text.replace(/[^A-Za-z0-9]+/g, '_').replace(/^_+|_+$/g, '');
  return /^[A-Za-z]/.test(clean) ? clean.slice(0, 60) : `x_${clean}`.slice(0, 60);
}

/** Path that an OpenAPI document puts before its paths: `basePath` of version 2, the first server of version 3. */
function basePath(document: JsonObject): string {
  const two = document['basePath'];
  const three = object(list(document['servers'])[0])['url'];
  const url = typeof two === 'string' ? two : typeof three === 'string' ? three : '';
  const path = /^(?:https?:\/\/[^/]*)?(\/[^?#{}]*)?$/.exec(url)?.[1] ?? '';
  return path.replace(/\/+$/, '');
}

/** Follows one `$ref` within the document. */
function resolve(document: JsonObject, value: Json | undefined): JsonObject {
  const found = object(value);
  const ref = found['$ref'];
  if (typeof ref !== 'string' || !ref.startsWith('#/')) return found;
  let node: Json | undefined = document;
  for (const step of ref.slice(2).split('/')) {
    const name = step.replaceAll('~1', '/').replaceAll('~0', '~');
    node = isJsonObject(node) && Object.hasOwn(node, name) ? node[name] : undefined;
  }
  return object(node);
}

function object(value: Json | undefined): JsonObject {
  return isJsonObject(value) ? value : {};
}

function entries(value: Json | undefined): readonly (readonly [string, Json])[] {
  return Object.entries(object(value));
}

function list(value: Json | undefined): readonly Json[] {
  return Array.isArray(value) ? value : [];
}
