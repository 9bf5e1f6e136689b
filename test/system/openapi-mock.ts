import { once } from 'node:events';
import { createServer } from 'node:http';
import { parse as parseForm } from 'node:querystring';
import { Ajv, type ValidateFunction } from 'ajv';
import qs from 'qs';
import type { Json, JsonObject } from '../../src/json/value.ts';

/** An operation of a document of OpenAPI 3.0, read without the product's own reader. */
export interface MockOperation {
  readonly method: string;
  /** With the path of the server. */
  readonly path: string;
  readonly params: readonly JsonObject[];
  readonly media: string | null;
  readonly bodySchema: JsonObject | null;
  readonly bodyRequired: boolean;
}

/** A request that the document allows. */
export interface SampleCall {
  readonly operation: MockOperation;
  readonly path: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: Json | null;
}

export interface Mock {
  readonly url: string;
  readonly operations: readonly MockOperation[];
  /** A request for an operation; `null` where none was found that the document allows. */
  sample(operation: MockOperation): SampleCall | null;
  /** What came, by method and path of the document, with what is wrong with it. */
  readonly came: { readonly operation: string; readonly fault: string | null }[];
  close(): void;
}

const METHODS = ['get', 'put', 'post', 'delete', 'patch'] as const;

/** Starts a server that answers what the document describes, and refuses what it does not allow. */
export async function startMock(text: string): Promise<Mock> {
  const document = plain(JSON.parse(text));
  const checks = checksOf(document);
  const operations = operationsOf(document);
  const came: { operation: string; fault: string | null }[] = [];
  const server = createServer((request, response) => {
    const chunks: Buffer[] = [];
    request.on('data', (chunk: Buffer) => void chunks.push(chunk));
    const answer = async () => {
      const [path = '', query = ''] = (request.url ?? '').split('?');
      const operation = find(operations, request.method ?? '', path);
      const fault =
        operation === null
          ? 'no such operation'
          : await faultOf(operation, checks, document, query, request.headers, Buffer.concat(chunks));
      came.push({ operation: operation === null ? `${request.method} ${path}` : nameOf(operation), fault });
      response.writeHead(fault === null ? 200 : 400, { 'content-type': 'application/json' });
      response.end(JSON.stringify({ fault }));
    };
    request.on('end', () => void answer());
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const address = server.address();
  if (address === null || typeof address === 'string') throw new Error('no port');
  return {
    url: `http://127.0.0.1:${address.port}`,
    operations,
    came,
    sample: (operation) => sampleCall(document, checks, operation),
    close: () => {
      server.closeAllConnections();
      server.close();
    },
  };
}

export function nameOf({ method, path }: MockOperation): string {
  return `${method} ${path}`;
}

/** @param leaves `texts`: numbers and the like came as texts, as in a query */
type Check = (schema: JsonObject, value: unknown, leaves?: 'texts') => string | null;

function checksOf(document: JsonObject): Check {
  const [asIs, ofTexts] = [false, true].map((coerceTypes) => {
    const ajv = new Ajv({
      strict: false,
      validateFormats: false,
      allErrors: false,
      validateSchema: false,
      unicodeRegExp: false,
      logger: false,
      coerceTypes,
    });
    ajv.addSchema(document, 'doc');
    const compiled = new Map<JsonObject, ValidateFunction>();
    return (schema: JsonObject, value: unknown): string | null => {
      let check = compiled.get(schema);
      if (check === undefined) {
        check = ajv.compile(rebased(schema));
        compiled.set(schema, check);
      }
      return check(value) === true ? null : ajv.errorsText(check.errors);
    };
  });
  return (schema, value, leaves) => (leaves === 'texts' ? ofTexts : asIs)?.(schema, value) ?? null;
}

/** References of a part of the document, as they are outside of it. */
function rebased(schema: JsonObject): JsonObject {
  return JSON.parse(JSON.stringify(schema), (key, value: Json) =>
    key === '$ref' && typeof value === 'string' && value.startsWith('#') ? `doc${value}` : value,
  );
}

/** The document without examples (they may look like schemas), in the later spelling of exclusive bounds. */
function plain(node: Json, isMap = false): JsonObject {
  const walk = (value: Json, inMap: boolean): Json => {
    if (Array.isArray(value)) return value.map((item: Json) => walk(item, false));
    if (!isObject(value)) return value;
    const made: Record<string, Json> = {};
    for (const [name, item] of Object.entries(value)) {
      if (!inMap && /^(example|examples|discriminator|xml)$|^x-/.test(name)) continue;
      made[name] = walk(item, !inMap && /^(properties|paths|schemas|parameters|requestBodies)$/.test(name));
    }
    if (!inMap && made['type'] === undefined) delete made['nullable'];
    if (!inMap)
      for (const [bound, exclusive] of [
        ['minimum', 'exclusiveMinimum'],
        ['maximum', 'exclusiveMaximum'],
      ] as const) {
        if (made[exclusive] === true && typeof made[bound] === 'number') made[exclusive] = made[bound];
        else if (typeof made[exclusive] === 'boolean') delete made[exclusive];
      }
    return made;
  };
  const found = walk(node, isMap);
  if (!isObject(found)) throw new Error('the document is no object');
  return found;
}

/** A value as a text, whatever it is. */
function said(value: unknown): string {
  return typeof value === 'string' ? value : (JSON.stringify(value) ?? '');
}

function isObject(value: Json | undefined): value is JsonObject {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

function object(value: Json | undefined): JsonObject {
  return isObject(value) ? value : {};
}

function list(value: Json | undefined): readonly Json[] {
  return Array.isArray(value) ? value : [];
}

function deref(document: JsonObject, value: Json | undefined): JsonObject {
  let found = object(value);
  for (let hops = 0; typeof found['$ref'] === 'string' && hops < 20; hops += 1) {
    let node: Json | undefined = document;
    for (const step of found['$ref'].slice(2).split('/'))
      node = Array.isArray(node)
        ? node[Number(step)]
        : object(node)[decodeURIComponent(step).replaceAll('~1', '/').replaceAll('~0', '~')];
    found = object(node);
  }
  return found;
}

function operationsOf(document: JsonObject): readonly MockOperation[] {
  const [server] = list(document['servers']);
  const url = said(object(server)['url'] ?? '/');
  const base = new URL(url, 'http://h').pathname.replace(/\/+$/, '');
  const found: MockOperation[] = [];
  for (const [path, value] of Object.entries(object(document['paths'])))
    for (const method of METHODS) {
      const item = object(value);
      if (item[method] === undefined || (item['servers'] !== undefined && originOf(item) !== originOf(document)))
        continue;
      const operation = object(item[method]);
      const params = new Map<string, JsonObject>();
      for (const one of [...list(item['parameters']), ...list(operation['parameters'])]) {
        const param = deref(document, one);
        params.set(`${said(param['in'])} ${said(param['name'])}`, param);
      }
      const body = deref(document, operation['requestBody']);
      const content = object(body['content']);
      const media =
        Object.keys(content).find((type) => type.startsWith('application/json')) ??
        Object.keys(content).find((type) => type.startsWith('application/x-www-form-urlencoded')) ??
        Object.keys(content)[0] ??
        null;
      found.push({
        method: method.toUpperCase(),
        path: base + path,
        params: [...params.values()],
        media,
        bodySchema: media === null ? null : schemaOf(document, media, object(object(content[media])['schema'])),
        bodyRequired: body['required'] === true,
      });
    }
  return found;
}

/** A form's fields are looked up in its schema. */
function schemaOf(document: JsonObject, media: string, schema: JsonObject): JsonObject {
  return media.includes('json') ? schema : deref(document, schema);
}

/** Where something is served; operations of other hosts are not this server's. */
function originOf(part: JsonObject): string {
  const [server] = list(part['servers']);
  const url = object(server)['url'];
  return typeof url === 'string' ? new URL(url, 'http://h').origin : 'http://h';
}

/** The operation that a path belongs to: literal segments come first. */
function find(operations: readonly MockOperation[], method: string, path: string): MockOperation | null {
  const parts = path.split('/');
  const fits = operations.filter((operation) => {
    const own = operation.path.split('/');
    return (
      operation.method === method &&
      own.length === parts.length &&
      own.every((segment, index) => patternOf(segment).test(decodeURIComponent(parts[index] ?? '')))
    );
  });
  const literals = (operation: MockOperation): number =>
    operation.path.split('/').filter((segment) => !segment.includes('{')).length;
  return fits.toSorted((a, b) => literals(b) - literals(a))[0] ?? null;
}

function patternOf(segment: string): RegExp {
  const pieces = segment
    .split(/(\{[^{}]+\})/)
    .map((piece) => (/^\{.+\}$/.test(piece) ? '.+' : piece.replace(/[.*+?^${}()|[\]\\]/g, String.raw`\$&`)));
  return new RegExp(`^${pieces.join('')}$`);
}

async function faultOf(
  operation: MockOperation,
  check: Check,
  document: JsonObject,
  query: string,
  headers: Readonly<Record<string, string | readonly string[] | undefined>>,
  body: Buffer,
): Promise<string | null> {
  const given = parseForm(query);
  for (const param of operation.params) {
    const name = said(param['name']);
    const parts = param['in'] === 'query' ? partsIn(document, param, query) : undefined;
    if (parts !== undefined) {
      const fault = check(object(param['schema']), parts, 'texts');
      if (fault !== null) return `query ${name}: ${fault}`;
      continue;
    }
    const value =
      param['in'] === 'query' ? given[name] : param['in'] === 'header' ? headers[name.toLowerCase()] : undefined;
    // The specification leaves `Accept` out.
    if (param['in'] === 'path' || name.toLowerCase() === 'accept') continue;
    if (value === undefined) {
      if (param['required'] === true && param['in'] !== 'cookie' && given[`${name}[]`] === undefined)
        return `${said(param['in'])} ${name} is missing`;
      continue;
    }
    const schema = object(param['schema']);
    if (![value, Number(value), value === 'true', [value]].some((one) => check(schema, one) === null))
      return `${said(param['in'])} ${name}: ${said(value)} is not allowed`;
  }
  if (operation.bodySchema === null) return body.length === 0 ? null : 'a body where none belongs';
  if (body.length === 0) return operation.bodyRequired ? 'the body is missing' : null;
  const type = said(headers['content-type'] ?? '');
  const form = formOf(operation);
  if (form === null && !/[/+]json\b/.test(type)) return `a body of ${type}`;
  if (form === null) return check(operation.bodySchema, JSON.parse(body.toString('utf8')));
  if (!type.startsWith(form)) return `a body of ${type}`;
  const sent = await new Response(new Uint8Array(body), { headers: { 'content-type': type } }).formData();
  return formFault(operation.bodySchema, await firstFields(sent), check);
}

/** The kind of form that an operation takes; `null`: JSON. */
export function formOf({ media }: MockOperation): string | null {
  return ['application/x-www-form-urlencoded', 'multipart/form-data'].find((form) => media?.startsWith(form)) ?? null;
}

/** Fields of a form by their first name, files by their content; nested ones are not read further. */
async function firstFields(form: FormData): Promise<Record<string, string>> {
  const fields: Record<string, string> = {};
  for (const [name, value] of form)
    fields[name.split('[')[0] ?? name] = typeof value === 'string' ? value : await value.text();
  return fields;
}

function formFault(schema: JsonObject, fields: Record<string, string>, check: Check): string | null {
  const properties = object(schema['properties']);
  for (const name of list(schema['required'])) if (fields[said(name)] === undefined) return `${said(name)} is missing`;
  for (const [name, value] of Object.entries(fields)) {
    if (properties[name] === undefined) return `${name} is no field`;
    const own = object(properties[name]);
    if (own['type'] === 'array' || own['type'] === 'object' || own['type'] === undefined) continue;
    if (![value, Number(value), value === 'true'].some((one) => check(own, one) === null)) return `${name}: ${value}`;
  }
  return null;
}

function sampleCall(document: JsonObject, check: Check, operation: MockOperation): SampleCall | null {
  const query: string[] = [];
  const headers: Record<string, string> = {};
  let { path } = operation;
  for (const param of operation.params) {
    const name = said(param['name']);
    const value = sampleOf(document, object(param['schema']), 0, {});
    const text = said(Array.isArray(value) ? value[0] : value);
    if (param['in'] === 'path') path = path.replace(`{${name}}`, encodeURIComponent(text.replaceAll('/', '-')));
    else if (param['in'] === 'query' && typeof value !== 'object' && (param['required'] === true || query.length < 2))
      query.push(`${encodeURIComponent(name)}=${encodeURIComponent(text)}`);
    else if (param['in'] === 'query' && typeof value === 'object' && value !== null)
      query.push(...written(param, value));
    else if (param['in'] === 'header' && param['required'] === true) headers[name] = text;
  }
  if (/[{}]/.test(path)) return null;
  const whole = query.length === 0 ? path : `${path}?${query.join('&')}`;
  if (operation.bodySchema === null || operation.method === 'GET')
    return { operation, path: whole, headers, body: null };
  for (const optional of [3, 0]) {
    const body = sampleOf(document, operation.bodySchema, 0, {}, optional);
    if (check(operation.bodySchema, body) === null) return { operation, path: whole, headers, body };
  }
  return null;
}

function isList(document: JsonObject, param: JsonObject): boolean {
  return deref(document, param['schema'])['type'] === 'array';
}

function explodes({ style = 'form', explode }: JsonObject): boolean {
  return (explode ?? style === 'form') === true;
}

/** A list or an object of a query, as its style says; `undefined` where it is not there, or a single value. */
function partsIn(document: JsonObject, param: JsonObject, query: string): unknown {
  const name = said(param['name']);
  if (param['style'] === 'deepObject') {
    const value: unknown = qs.parse(query, { depth: 20, arrayLimit: 1000 })[name];
    return typeof value === 'object' ? value : undefined;
  }
  const value = parseForm(query)[name];
  if (value === undefined || !isList(document, param)) return undefined;
  const values = [value].flat();
  return explodes(param) ? values : values.flatMap((one) => one.split(','));
}

/** A list or an object as client libraries write it in a query. */
function written(param: JsonObject, value: JsonObject | readonly Json[]): string[] {
  const pair = (name: string, one: Json): string => `${encodeURIComponent(name)}=${encodeURIComponent(said(one))}`;
  const name = said(param['name']);
  if (param['style'] === 'deepObject') {
    const text = qs.stringify({ [name]: value });
    return text === '' ? [] : [text];
  }
  if (!Array.isArray(value)) return Object.entries(value).map(([field, one]) => pair(field, one));
  return explodes(param) ? value.map((one: Json) => pair(name, one)) : [pair(name, value.map(said).join(','))];
}

const FORMATS: Readonly<Record<string, string>> = {
  'date-time': '2026-01-02T03:04:05Z',
  date: '2026-01-02',
  email: 'a@example.com',
  uri: 'https://example.com/a',
  uuid: '123e4567-e89b-42d3-a456-426614174000',
  ipv4: '192.0.2.1',
  ipv6: '2001:db8::1',
  hostname: 'example.com',
};

const CANDIDATES = [
  'a1',
  'A',
  'abc',
  '1',
  '12345',
  '0a1b2c3d4e5f',
  'ACaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa',
  '2026-01-02',
  '123e4567-e89b-42d3-a456-426614174000',
  'a/b',
  '#aabbcc',
  'https://example.com',
  '+15005550006',
  '1.0',
  'a'.repeat(32),
  '0'.repeat(40),
  '12:30',
  'a-b',
  '1m',
];

/** A value that a schema allows, as far as that is easily found. */
function sampleOf(document: JsonObject, given: JsonObject, level: number, beside: JsonObject, optional = 0): Json {
  const schema = deref(document, given);
  if (schema['const'] !== undefined) return schema['const'];
  const values = list(schema['enum']).filter((one) => one !== null);
  if (values.length > 0) return values[0] ?? null;
  const properties = { ...beside, ...object(schema['properties']) };
  const parts = [...list(schema['allOf']), ...[...list(schema['anyOf']), ...list(schema['oneOf'])].slice(0, 1)];
  const type = Array.isArray(schema['type']) ? schema['type'].find((one: Json) => one !== 'null') : schema['type'];
  if (parts.length > 0 && level < 12) {
    // One part may require what another declares.
    const all = Object.assign({}, ...parts.map((part) => object(deref(document, part)['properties'])), properties);
    const samples = parts.map((part) => sampleOf(document, object(part), level + 1, all, 0));
    const own =
      type === 'object' || schema['properties'] !== undefined
        ? objectOf(document, schema, properties, level, optional)
        : {};
    return samples.every((one) => isObject(one)) ? Object.assign({}, own, ...samples) : (samples[0] ?? null);
  }
  switch (type) {
    case 'object':
      return objectOf(document, schema, properties, level, optional);
    case 'array': {
      const count = Math.max(1, Number(schema['minItems'] ?? 1));
      if (level >= 12 || schema['maxItems'] === 0) return [];
      return Array.from({ length: count }, () => sampleOf(document, object(schema['items']), level + 1, {}));
    }
    case 'integer':
    case 'number': {
      const least =
        Number(schema['minimum'] ?? schema['exclusiveMinimum'] ?? 1) +
        (schema['exclusiveMinimum'] === undefined ? 0 : 1);
      const step = Number(schema['multipleOf'] ?? 1);
      const value = Math.ceil(Math.max(least, Math.min(1, Number(schema['maximum'] ?? 1))) / step) * step;
      return Math.min(value, Number(schema['maximum'] ?? value));
    }
    case 'boolean':
      return true;
    case 'string':
      return textOf(schema);
    default:
      return schema['properties'] !== undefined || schema['required'] !== undefined
        ? objectOf(document, schema, properties, level, optional)
        : 'a1';
  }
}

function objectOf(
  document: JsonObject,
  schema: JsonObject,
  properties: JsonObject,
  level: number,
  optional: number,
): JsonObject {
  const names = new Set(list(schema['required']).map(said));
  // A form cannot say that an object is empty.
  const [first] = Object.entries(object(schema['properties'])).filter(
    ([, one]) => deref(document, one)['readOnly'] !== true,
  );
  if (names.size === 0 && first !== undefined && level > 0 && level < 4) names.add(first[0]);
  for (const [name, property] of Object.entries(object(schema['properties']))) {
    if (names.size >= list(schema['required']).length + optional) break;
    if (deref(document, property)['readOnly'] !== true) names.add(name);
  }
  if (level >= 12) return {};
  return Object.fromEntries(
    [...names].map((name) => [name, sampleOf(document, object(properties[name]), level + 1, {})]),
  );
}

function textOf(schema: JsonObject): string {
  const least = Number(schema['minLength'] ?? 0);
  const most = Number(schema['maxLength'] ?? 1_000_000);
  const { pattern, format } = schema;
  const known = typeof format === 'string' ? FORMATS[format] : undefined;
  const prefix = typeof pattern === 'string' ? (/^\^?([A-Za-z0-9_-]*)/.exec(pattern)?.[1] ?? '') : '';
  const candidates = [
    ...(known === undefined ? [] : [known]),
    `${prefix}${'a'.repeat(32)}`,
    `${prefix}1`,
    ...CANDIDATES,
  ].flatMap((one) => [one, one.padEnd(least, 'a'), one.slice(0, most)]);
  const form = typeof pattern === 'string' ? new RegExp(pattern) : /^/;
  return candidates.find((one) => one.length >= least && one.length <= most && form.test(one)) ?? candidates[0] ?? 'a1';
}
